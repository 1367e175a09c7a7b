"""The device a model runs on: the one that was asked for, or one sentence that says which there are."""

from __future__ import annotations

from ..errors import InputError


def device_of(asked: str | None) -> str:
    """The device asked for; where none is, CUDA if there is one, else the CPU."""
    here = present()
    if asked is None:
        return "cuda" if "cuda:0" in here else "cpu"
    if asked not in here and f"{asked}:0" not in here:
        names = ", ".join(name.removesuffix(":0") for name in here)
        raise InputError(f"this machine has no device {asked!r}. Choose from: {names}.")
    return asked


def present() -> list[str]:
    """The devices of this machine, each under its kind and number."""
    import torch

    found = ["cpu:0"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator().type  # type: ignore[union-attr]
        found += [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
    return found
