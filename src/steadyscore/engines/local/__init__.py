"""Kind `hf`: causal language models through transformers, in this process. Torch is loaded when one is opened."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from .. import WEIGHTS, Address, Backend, EngineOptions, Kind, Listing

LIBRARIES = ("torch", "transformers", "safetensors")


@contextmanager
def without_collection() -> Iterator[None]:
    """No search for garbage while libraries are loaded: they leave none, and it takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def open_local(address: Address, options: EngineOptions) -> Backend:
    with without_collection():
        from .model import TransformersEngine

        return TransformersEngine.open(address.rest, options)


KINDS = (
    Kind(
        "hf",
        open_local,
        takes="ids",
        listed=(Listing("hf:<id|folder|file.gguf>[+adapter]", "distribution"),),
        options=WEIGHTS | {"allow_base_mismatch"},
        needs=lambda rest: LIBRARIES,
        reads=True,
    ),
)
