"""The precision of a model's arithmetic: bfloat16 where the device computes it natively, float32 elsewhere.

Half precision is for the products of matrices. Rotations, norms, softmax, what is carried from layer to layer, and the grades are
float32: they cost little, and most of the difference to float32's scores came from them.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

import torch

from ...errors import InputError
from .. import Precision

VARIABLE = "STEADYSCORE_DTYPE"
"""Environment variable that says what `dtype=auto` is, for machines that are to score alike."""
VOCABULARY_ROWS = 8192
"""Rows of an output matrix in half precision that are made float32 at a time."""


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
