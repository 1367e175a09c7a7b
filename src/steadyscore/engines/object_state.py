"""What a Python value that scores is made of, so that another one cannot pass for it: code, closures, attributes, weights."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
import types
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

DEEPEST, MOST = 10, 10_000
"""Values inside values that are looked at, and values in all; what lies beyond is named as not known."""
SAMPLE = 8
"""Numbers of each tensor that are looked at: two trainings of one model differ in all of its tensors."""
LARGEST = 1 << 26
"""Bytes of an array that are looked at."""


class ObjectState(NamedTuple):
    """What can be told of a scorer beyond the text of its function."""

    digest: str | None
    """None for a plain function, which is its text."""
    unknown: tuple[str, ...]
    """Kinds of values whose change would go unnoticed."""


def state_of(scorer: Any) -> ObjectState:
    """The state of a callable or of an object that predicts or ranks.

    A scorer may count its calls or fill a cache while it scores: within a process, everything but its weights is told as it
    was when the value was first seen.
    """
    if inspect.isfunction(scorer) and _is_plain(scorer):
        return ObjectState(None, ())
    reader = _Reader()
    told = _first_told(scorer, json.dumps(reader.tell(scorer, DEEPEST)))
    whole = hashlib.sha256("\n".join([told, *reader.weights]).encode())
    return ObjectState(whole.hexdigest()[:16], tuple(sorted(reader.unknown)))


_seen: dict[tuple[int, str], tuple[weakref.ref[Any], str]] = {}
"""Value and, of a method, its name -> what was first told of it, while it lives."""


def _first_told(value: Any, now: str) -> str:
    owner = value.__self__ if inspect.ismethod(value) else value
    key = (id(owner), getattr(value, "__name__", ""))
    alive, told = _seen.get(key, (lambda: None, now))
    if alive() is owner:
        return told
    with suppress(TypeError):  # a value that cannot be watched is told anew every time
        _seen[key] = (weakref.ref(owner, lambda _: _seen.pop(key, None)), now)
    return now


def _is_plain(function: types.FunctionType) -> bool:
    is_bare = not (function.__defaults__ or function.__kwdefaults__ or function.__closure__)
    return is_bare and function.__name__ != "<lambda>" and not _globals_of(function)


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
    """Plain values that a function of a script, a notebook or a prompt reads: no file tells when they change."""
    if function.__module__ != "__main__" and getattr(sys.modules.get(function.__module__), "__file__", None):
        return {}
    names = {name for code in _codes(function.__code__) for name in code.co_names if name in function.__globals__}
    read = {name: function.__globals__[name] for name in sorted(names)}
    return {name: value for name, value in read.items() if isinstance(value, str | int | float | bool | None)}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of every function and comprehension inside it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


class _Reader:
    """Turns a value into JSON that differs where the value does."""

    def __init__(self) -> None:
        self.unknown: set[str] = set()
        self.weights: list[str] = []
        self._open: set[int] = set()
        self._count = 0

    def tell(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, str | int | float | bool):
            return repr(value)
        if isinstance(value, bytes):
            return hashlib.sha256(value).hexdigest()
        if id(value) in self._open:
            return "itself"
        self._count += 1
        if depth == 0 or self._count > MOST:
            return self._name_unknown(value)
        self._open.add(id(value))
        try:
            return self._tell_parts(value, depth - 1)
        finally:
            self._open.remove(id(value))

    def _tell_parts(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return [[self.tell(key, depth), self.tell(item, depth)] for key, item in value.items()]
        if isinstance(value, list | tuple):
            return [self.tell(item, depth) for item in value]
        if isinstance(value, set | frozenset):
            return sorted(json.dumps(self.tell(item, depth)) for item in value)
        if isinstance(value, functools.partial):
            return ["partial", self.tell(value.func, depth), self.tell(value.args, depth), self.tell(value.keywords, depth)]
        if inspect.ismethod(value):
            return [self.tell(value.__func__, depth), self.tell(value.__self__, depth)]
        if inspect.isfunction(value):
            return self._tell_function(value, depth)
        if inspect.ismodule(value) or inspect.isclass(value) or inspect.isbuiltin(value):
            return _name(value)
        if hasattr(value, "tobytes") and hasattr(value, "dtype"):  # numpy
            return self._weigh(f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()[:LARGEST]).hexdigest()}")
        if hasattr(value, "detach") and hasattr(value, "flatten"):  # torch
            return self._weigh(f"{tuple(value.shape)} {value.detach().flatten()[:SAMPLE].tolist()}")
        return self._tell_object(value, depth)

    def _tell_function(self, function: types.FunctionType, depth: int) -> Any:
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        words: list[Any] = [_name(function)]
        for code in _codes(function.__code__):
            consts = [const for const in code.co_consts if not isinstance(const, types.CodeType)]
            words += [code.co_code.hex(), repr(code.co_names), self.tell(consts, DEEPEST)]
        given = [function.__defaults__, function.__kwdefaults__, cells, _globals_of(function)]
        return [*words, *(self.tell(part, depth) for part in given)]

    def _tell_object(self, value: Any, depth: int) -> Any:
        methods = [part for part in vars(type(value)).values() if inspect.isfunction(part)]
        parts = [_name(type(value)), *(self._tell_function(method, depth) for method in methods)]
        if callable(getattr(value, "state_dict", None)):
            return [*parts, [[name, self.tell(tensor, 1)] for name, tensor in value.state_dict().items()]]
        if not hasattr(value, "__dict__"):
            return [*parts, self._name_unknown(value)]
        return [*parts, self.tell(vars(value), depth)]

    def _weigh(self, weights: str) -> str:
        self.weights.append(weights)
        return "weights"

    def _name_unknown(self, value: Any) -> str:
        self.unknown.add(_name(type(value)))
        return _name(type(value))


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # assigned after the function was made, and not yet
        return False
    return True


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"
