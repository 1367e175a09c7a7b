"""Kind `hf`: causal language models through transformers, in this process. Torch is loaded when one is opened."""

from __future__ import annotations

from ...models.embedded import shipped_adapters
from .. import WEIGHTS, Address, Backend, EngineOptions, Kind, Listing

LIBRARIES = ("torch", "transformers")


def needs(rest: str) -> tuple[str, ...]:
    return (*LIBRARIES, "peft") if "+" in rest or rest in shipped_adapters() else LIBRARIES


def open_local(address: Address, options: EngineOptions) -> Backend:
    from .model import TransformersEngine

    return TransformersEngine.open(address.rest, options)


KINDS = (
    Kind(
        "hf",
        open_local,
        takes="ids",
        listed=(Listing("hf:<id|folder|file.gguf>[+adapter]", "distribution"),),
        options=WEIGHTS | {"allow_base_mismatch"},
        needs=needs,
        reads="answers",
    ),
)
