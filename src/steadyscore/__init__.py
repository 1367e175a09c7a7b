"""steadyscore audits, trains and serves LLM scorers whose decisions hold still when the candidates are reordered."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_bytes())
_HOMES = {
    name.name: statement.module for statement in _STUB.body if isinstance(statement, ast.ImportFrom) for name in statement.names
}
"""Public name -> its module, as the stub tells type checkers. Imported on first use: `import steadyscore` costs nothing."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
