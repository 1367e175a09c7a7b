"""steadyscore audits, trains and serves LLM scorers whose decisions hold still when the candidates are reordered."""

from __future__ import annotations

import ast
import importlib
import warnings
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def read_stub(stub: Path) -> dict[str, str]:
    """Public name -> its module, as a stub tells type checkers; for a module itself, the package it is in."""
    body = ast.parse(stub.read_bytes()).body
    return {
        name.name: f".{statement.module or ''}"
        for statement in body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }


def import_name(name: str, homes: dict[str, str], package: str) -> Any:
    """A public name of a package, imported on its first use: importing the package itself costs nothing."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    if homes[name] == ".":
        return importlib.import_module(f".{name}", package)
    return getattr(importlib.import_module(homes[name], package), name)


_HOMES = read_stub(Path(__file__).with_suffix(".pyi"))

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name in read_stub(Path(__file__).parent / "measures" / "__init__.pyi"):
        text = f"steadyscore.{name} is steadyscore.measures.{name} now; the old name goes with the next version."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(".measures", __name__), name)
    return import_name(name, _HOMES, __name__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
