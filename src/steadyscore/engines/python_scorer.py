"""A Python function as a scorer: somebody else's code in this process."""

from __future__ import annotations

import importlib
import inspect
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from ..errors import InputError
from ..machine.console import foreign_code
from ..machine.stopping import STOPS
from . import Capabilities, EngineOptions, Reranker, ScorerFailed, Watch
from .object_state import ObjectState, state_of
from .sources import digest, forget_modules, named_files, source_files, watch_modules

Score = Callable[[str, list[str]], Sequence[float]]


class PythonReranker(Reranker):
    """`def score(query: str, candidates: list[str]) -> list[float]`, addressed as `python:module:function`."""

    def __init__(
        self,
        function: Score,
        name: str,
        *,
        scorer: Any = None,
        module: str = "",
        loaded: Sequence[str] = (),
        watched: Sequence[str] = (),
    ):
        self.function, self.name = function, name
        self._scorer = function if scorer is None else scorer
        """What the user gave, where `function` only calls it."""
        self.capabilities = Capabilities(gives="score")
        self._module, self._loaded, self._watched = module, tuple(loaded), tuple(watched)

    def identity(self) -> dict[str, Any]:
        try:
            source = inspect.getsource(self._scorer)
        except (OSError, TypeError):
            source = ""
        state = {} if self._state.digest is None else {"state": self._state.digest}
        return {"kind": "python", "function": self.name, "source": source} | state

    @cached_property
    def _state(self) -> ObjectState:
        return state_of(self._scorer)

    def watch(self) -> Watch:
        """The modules behind the function that stand beside it, and what the user named."""
        found = watch_modules([self._module, *_modules_of(self._scorer)], self._loaded, self.name)
        unknown = ", ".join(self._state.unknown)
        unseen = (f"{self.name} holds values that are not watched ({unknown}): they may change while its name stays.",)
        return Watch(found.files | named_files(self._watched), (*found.unwatched, *(unseen if unknown else ())))

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """What the function returns. Whatever it raises is a failure of the query, unless the user asked us to stop."""
        with foreign_code(), reraise_stops():
            try:
                return self.function(query, list(texts))
            except BaseException as fault:
                if isinstance(fault, Exception):
                    raise
                raise ScorerFailed(f"{self.name} raised {fault!r}") from fault  # sys.exit() and the like end a query, not the run


@contextmanager
def reraise_stops() -> Iterator[None]:
    """Inside, somebody's code may catch or raise what it likes: a stop that a signal asked for is raised again at the end.

    So a KeyboardInterrupt of its own can be told from the user's Ctrl-C. Signals reach the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in STOPS}
    asked: list[BaseException] = []

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as stop:
            asked.append(stop)
            raise

    handled = [number for number, handler in handlers.items() if callable(handler)]
    for number in handled:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, handlers[number])
        if asked:
            raise asked[0]


def open_python(rest: str, options: EngineOptions) -> PythonReranker:
    module_name, _, function_name = rest.partition(":")
    if not function_name:
        raise InputError(f"python:{rest} names no function. Write python:<module>:<function>.")
    if (here := str(Path.cwd())) not in sys.path:  # a user's own file, beside them
        sys.path.insert(0, here)
    named_files(options.watch)  # a file that is not there is refused before anything is scored
    forgotten = _forget_changed(module_name)
    before = set(sys.modules)
    with reraise_stops():
        try:
            with foreign_code():
                function = getattr(importlib.import_module(module_name), function_name)
        except BaseException as fault:  # a user's module may do anything at its top
            sys.modules.update(forgotten)  # what was opened before goes on with them
            raise InputError(
                f"python:{rest} could not be imported: {_reason(fault)}. Fix it, or name another function."
            ) from fault
    if not callable(function):
        raise InputError(f"python:{rest} cannot score: {function_name!r} is not a function. Fix it, or name another function.")
    _loaded_with.setdefault(module_name, set()).update(set(sys.modules) - before)
    loaded = sorted(_loaded_with[module_name])
    _digests[module_name] = {file: digest(file) for file in source_files([module_name], loaded)}
    return PythonReranker(function, f"python:{rest}", module=module_name, loaded=loaded, watched=options.watch)


_loaded_with: dict[str, set[str]] = {}
"""Module -> what its first import in this process brought along; a second one brings nothing."""
_digests: dict[str, dict[Path, str]] = {}
"""Module -> the files behind it as they were when it was opened."""


def _forget_changed(module: str) -> dict[str, ModuleType]:
    """Forget a module and those beside it where a file of theirs has changed since it was opened; what was forgotten."""
    opened = _digests.get(module, {})
    is_changed = any(not file.is_file() or digest(file) != before for file, before in opened.items())
    return forget_modules(opened) if is_changed else {}


def _modules_of(function: Any) -> list[str]:
    """Where a function, the function inside a partial, or the class of a callable object was written."""
    inner = inspect.unwrap(getattr(function, "func", function))
    return [module for module in (getattr(inner, "__module__", None), type(inner).__module__) if module and module != "builtins"]


def _reason(fault: BaseException) -> str:
    """What stopped an import, behind the line of the module that it stopped at."""
    if isinstance(fault, SyntaxError):
        place, what = [f"{fault.filename}, line {fault.lineno}: "], fault.msg
    else:
        tops = [frame for frame in traceback.extract_tb(fault.__traceback__) if frame.name == "<module>"]
        place, what = [f"{frame.filename}, line {frame.lineno}: " for frame in tops[-1:]], str(fault)
    return "".join(place) + f"{type(fault).__name__}: {' '.join(what.split())}"
