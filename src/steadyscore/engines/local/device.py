"""What the machine gives a model: the device it runs on, and the memory of a forward pass.

Where memory runs out, half the tokens share a pass from then on; what does not fit alone fails by name.
"""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

from ...errors import InputError
from ...machine.process import cores

T = TypeVar("T")

CPU_BUILD = "pip install torch --index-url https://download.pytorch.org/whl/cpu"

log = logging.getLogger("steadyscore.engines")

RAN_OUT = re.compile(r"out of memory|can't allocate memory|not enough memory|ALLOC_FAILED", re.IGNORECASE)
"""How torch says it of a GPU, of this machine, and of a library of a GPU's."""


def device_of(asked: str | None) -> str:
    """The device asked for; where none is, CUDA if there is one, else the CPU."""
    here = present()
    if asked is None:
        if len(here) == 1:
            note_gpu_build()
        return "cuda" if "cuda:0" in here else "cpu"
    if asked not in here and f"{asked}:0" not in here:
        names = ", ".join(name.removesuffix(":0") for name in here)
        raise InputError(f"this machine has no device {asked!r}. Choose from: {names}.")
    return asked


@cache
def note_gpu_build() -> None:
    """Say, once in a process, that this torch is a build for GPUs on a machine without one."""
    import torch

    versions = {"CUDA": torch.version.cuda, "ROCm": getattr(torch.version, "hip", None)}
    if build := next((f"{name} {version}" for name, version in versions.items() if version), None):
        log.warning(
            "torch is a build for %s, and no GPU is found here: models run on the processor. If that is meant, add --device cpu; "
            "the build for processors is smaller: %s", build, CPU_BUILD,
        )  # fmt: skip


def share_threads(device: str) -> None:
    """No more threads than the process has cores: a container's share of time is less than the cores that torch counts."""
    import torch

    if device == "cpu" and not os.environ.get("OMP_NUM_THREADS") and torch.get_num_threads() > cores():
        torch.set_num_threads(cores())


def present() -> list[str]:
    """The devices of this machine, each under its kind and number."""
    import torch

    names = ["cpu:0"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator().type  # type: ignore[union-attr]
        names += [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
    return names


class OutOfMemory(Exception):
    """What cannot be read in smaller pieces does not fit. The query is named in the coverage and left out; others may fit."""


class Passes:
    """The tokens that share a forward pass: as many as were asked for, and fewer once memory ran out, for good."""

    def __init__(self, tokens: int):
        self.tokens = tokens
        self._has_warned = False

    def fit(self, work: Callable[[int], T], lengths: Sequence[int]) -> T:
        """`work(tokens)`, with half the tokens as often as memory runs out. `lengths`: tokens of each text that is read alone."""
        while True:
            tokens = self.tokens  # replicas share it, and another may halve it meanwhile
            try:
                return work(tokens)
            except Exception as fault:
                if not ran_out(fault):
                    raise
                reason = " ".join(str(fault).split())[:200]
            used, longest = min(tokens, sum(lengths)), max(lengths)
            if used <= longest:
                raise OutOfMemory(
                    f"{longest:,} tokens do not fit into memory, even alone ({reason}). "
                    "Lower --width or --chars, or choose a smaller model or --set dtype=bfloat16."
                )
            self.tokens = min(self.tokens, used // 2)
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "memory ran out with %s tokens in a pass: they are halved until they fit, for the rest of the run. "
                    "A lower batch_tokens saves the attempt.", f"{used:,}",
                )  # fmt: skip
            _free()


def ran_out(fault: BaseException) -> bool:
    """Whether memory ran out, on whatever device."""
    return isinstance(fault, MemoryError) or (isinstance(fault, RuntimeError) and RAN_OUT.search(str(fault)) is not None)


def _free() -> None:
    """Give back what the pass that failed still holds."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
