"""Rerankers: anything that scores a list of texts, so that users can audit what they already run."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError
from . import Capabilities


class PythonReranker:
    """`def score(query: str, candidates: list[str]) -> list[float]`, addressed as `python:module:function`."""

    def __init__(self, function: Callable[[str, list[str]], Sequence[float]], name: str):
        self.function, self.name = function, name
        self.capabilities = Capabilities(gives="score")

    @classmethod
    def open(cls, address: str) -> PythonReranker:
        module_name, _, function_name = address.partition(":")
        if not function_name:
            raise InputError(f"python:{address} names no function. Write python:<module>:<function>.")
        if (here := str(Path.cwd())) not in sys.path:  # a user's own file, beside them
            sys.path.insert(0, here)
        try:
            function = getattr(importlib.import_module(module_name), function_name)
        except (ImportError, AttributeError) as missing:
            raise InputError(f"python:{address} could not be imported: {missing}.") from missing
        return cls(function, f"python:{address}")

    def identity(self) -> dict[str, Any]:
        try:
            source = inspect.getsource(self.function)
        except (OSError, TypeError):
            source = ""
        return {"kind": "python", "function": self.name, "source": source}

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return self.function(query, list(texts))
