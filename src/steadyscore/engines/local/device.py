"""What the machine gives a model: the device it runs on, the precision of its arithmetic, and the memory of a forward pass.

Half precision is for the products of matrices. Rotations, norms, softmax, what is carried from layer to layer, and the grades are
float32: they cost little, and most of the difference to float32's scores came from them. Where memory runs out, half the tokens
share a pass from then on; what does not fit alone fails by name.
"""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Literal, TypeVar, get_args

import torch

from ...errors import InputError
from ...machine.process import cores
from .. import Precision

T = TypeVar("T")

CPU_BUILD = "pip install torch --index-url https://download.pytorch.org/whl/cpu"

log = logging.getLogger("steadyscore.engines")

VARIABLE = "STEADYSCORE_DTYPE"
"""Environment variable that says what `dtype=auto` is, for machines that are to score alike."""
VOCABULARY_ROWS = 8192
"""Rows of an output matrix in half precision that are made float32 at a time."""
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
    versions = {"CUDA": torch.version.cuda, "ROCm": getattr(torch.version, "hip", None)}
    if build := next((f"{name} {version}" for name, version in versions.items() if version), None):
        log.warning(
            "torch is a build for %s, and no GPU is found here: models run on the processor. If that is meant, add --device cpu; "
            "the build for processors is smaller: %s", build, CPU_BUILD,
        )  # fmt: skip


def share_threads(workers: int = 1) -> None:
    """Give the calling thread's passes their share of the cores, unless the environment states the threads of a pass.

    A container's share of time may be less than the cores that torch counts. Every worker has to call this: MKL counts threads
    per thread that calls it, and a new one begins with all cores.
    """
    threads = max(1, cores() // workers)
    if not os.environ.get("OMP_NUM_THREADS") and (workers > 1 or torch.get_num_threads() > threads):
        torch.set_num_threads(threads)


def present() -> list[str]:
    """The devices of this machine, each under its kind and number."""
    names = ["cpu:0"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator().type  # type: ignore[union-attr]
        names += [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
    return names


# -- precision


def precision_of(asked: Precision, device: str) -> Literal["float32", "bfloat16"]:
    """The precision asked for; for `auto`, what `STEADYSCORE_DTYPE` says or else what suits the device."""
    if asked == "auto":
        named = os.environ.get(VARIABLE) or "auto"
        if named not in get_args(Precision):
            raise InputError(f"{VARIABLE} is {named!r}. Choose from: {', '.join(get_args(Precision))}.")
        asked = named  # type: ignore[assignment]
    if asked == "auto":
        return "bfloat16" if computes_bfloat16(device) else "float32"
    return asked


def computes_bfloat16(device: str) -> bool:
    """Whether a device multiplies matrices in bfloat16 by itself, instead of by way of float32."""
    kind = torch.device(device).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if kind != "cpu":
        return False
    if hasattr(torch.cpu, "get_capabilities"):
        can = torch.cpu.get_capabilities()
        return any(can.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
    tests = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(test is not None and test() for test in tests)


def carry_float32(model: Any) -> None:
    """Have a model in half precision carry float32 from layer to layer while `arithmetic` is in force."""
    model.get_input_embeddings().register_forward_hook(_widen)


def _widen(module: Any, given: Any, states: torch.Tensor) -> torch.Tensor:
    return states.float() if torch.is_autocast_enabled(states.device.type) else states


def arithmetic(model: Any) -> AbstractContextManager[Any]:
    """How a model's passes compute: one in half precision multiplies matrices in it and does the rest in float32."""
    return torch.autocast(model.device.type, model.dtype) if model.dtype != torch.float32 else nullcontext()


def in_precision(model: Any, precision: str) -> Any:
    """A model's weights in this precision. LoRA's stay float32, and so do the frequencies of rotations."""
    for name, weight in model.named_parameters():
        if "lora_" not in name:
            weight.data = weight.data.to(getattr(torch, precision))
    return model


def float32_product(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`states @ weight.T` in float32, a part of the rows at a time where they are kept in half precision."""
    wide = states.float()
    with torch.autocast(states.device.type, enabled=False):
        if weight.dtype == torch.float32 or len(weight) <= VOCABULARY_ROWS:
            return wide @ weight.float().T
        return torch.cat([wide @ rows.float().T for rows in weight.split(VOCABULARY_ROWS)], -1)


# -- memory


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
    gc.collect()
    torch.cuda.empty_cache()
