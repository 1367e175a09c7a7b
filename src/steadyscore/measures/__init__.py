"""Arithmetic on scores (M, n), and the public home of every measure as a function on arrays: `steadyscore.measures.tau_psi`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import import_name, read_stub

_HOMES = read_stub(Path(__file__).with_suffix(".pyi"))

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    return import_name(name, _HOMES, __name__)


def __dir__() -> list[str]:
    return __all__
