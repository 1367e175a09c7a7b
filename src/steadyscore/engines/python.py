"""Python values as scorers: a callable, or an object that ranks or predicts as the rerank libraries do."""

from __future__ import annotations

import importlib
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import InputError
from ..machine.console import foreign_code
from ..machine.disk import sha256
from ..terms import JsonObject
from . import Address, Backend, Capabilities, EngineOptions, Kind, Listing, Reranker, ScorerFailed

Score = Callable[[str, list[str]], Sequence[float]]
INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class PythonReranker(Reranker):
    """`def score(query: str, candidates: list[str]) -> list[float]`, addressed as `python:module:function`.

    Its identity is its name and, where it or its module declares one, its `version`. Whether the same name still gives the
    same scores is asked of it whenever a run goes on (`scoring/starts.py`).
    """

    def __init__(self, function: Score, name: str, *, scorer: Any = None, module: str = "", watched: Sequence[str] = ()):
        self.function, self.name = function, name
        self.capabilities = Capabilities(gives="score")
        self._version = _declared_version(function if scorer is None else scorer, sys.modules.get(module))
        self._module, self._watched = module, tuple(watched)
        self._has_scored = False

    def identity(self) -> JsonObject:
        return {"kind": "python", "function": self.name} | self._version

    def watch(self) -> dict[str, str]:
        """The file of its module, where it was named by address, and what the user named."""
        return _module_file(self._module) | named_files(self._watched)

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """What the function returns. Whatever it raises is a failure of the query, unless the user asked us to stop."""
        with foreign_code():
            try:
                return self.function(query, list(texts))
            except Exception:
                raise
            except BaseException as fault:  # sys.exit() and the like end a query, not the run
                if _asks_us_to_stop(fault):
                    raise
                raise ScorerFailed(f"{self.name} raised {fault!r}") from fault
            finally:
                if not self._has_scored:  # what is imported inside the function is loaded now
                    self._has_scored = True
                    _note_modules(self._module)


def _asks_us_to_stop(fault: BaseException) -> bool:
    """Whether it came from outside and not from the function: Ctrl-C, or a signal on which a handler of the caller exits.

    Whatever else a handler raises may be how a function keeps its own time.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {_code_of(handler) for handler in handlers} - {None}
    raised_in = (frame.f_code for frame, _ in traceback.walk_tb(fault.__traceback__))
    return isinstance(fault, KeyboardInterrupt) or (isinstance(fault, SystemExit) and not codes.isdisjoint(raised_in))


def _code_of(handler: object) -> object:
    """The code that a signal's handler runs, be it a function, a method, a part of a call or an object; None where it is not
    Python's."""
    while isinstance(handler, partial):
        handler = handler.func
    called = handler.__call__ if callable(handler) else None
    return getattr(handler, "__code__", None) or getattr(called, "__code__", None)


def open_object(scorer: Any, name: str | None = None) -> Backend:
    """A backend for a Python value; an opened backend is taken as it is.

    predict   pairs of query and text -> scores (sentence-transformers' CrossEncoder)
    rank      query, texts -> results with a score and the place of each text (CrossEncoder.rank, rerankers.Reranker)
    callable  query, texts -> scores
    """
    if isinstance(scorer, Backend):
        return scorer
    function = _function(scorer)
    called = getattr(scorer, "__qualname__", None) or type(scorer).__qualname__
    return PythonReranker(function, name or f"python:{called.replace('<', '').replace('>', '')}", scorer=scorer)


def _function(scorer: Any) -> Score:
    if hasattr(scorer, "predict"):
        return lambda query, texts: scorer.predict([(query, text) for text in texts])
    if hasattr(scorer, "rank"):
        return lambda query, texts: _in_order(scorer.rank(query, texts), len(texts))
    if callable(scorer):
        return scorer  # type: ignore[no-any-return]
    raise InputError(
        f"a {type(scorer).__name__} is not a scorer. Give an address, a function `(query, texts) -> scores`, or an object with "
        "`.predict` or `.rank`."
    )


def _in_order(ranked: Any, count: int) -> list[float]:
    """Scores in the order of the texts, from results in the order of their ranks."""
    scores: dict[int, float] = {}
    for result in getattr(ranked, "results", ranked):
        place, score = _place_and_score(result)
        scores[place] = score
    if missing := [place for place in range(count) if place not in scores]:
        raise ValueError(f"rank gave no score for {len(missing)} of {count} texts, the first at place {missing[0]}")
    return [scores[place] for place in range(count)]


def _place_and_score(result: Any) -> tuple[int, float]:
    if isinstance(result, Mapping):
        return int(result.get("corpus_id", result.get("index"))), float(result["score"])
    return int(result.doc_id if hasattr(result, "doc_id") else result.index), float(result.score)


def open_python(address: Address, options: EngineOptions) -> PythonReranker:
    rest = address.rest
    module_name, _, function_name = rest.partition(":")
    if not function_name:
        raise InputError(f"python:{rest} names no function. Write python:<module>:<function>.")
    if module_name.endswith(".py"):  # a file in the folder where the user stands
        module_name = ".".join(Path(module_name).with_suffix("").parts)
        rest = f"{module_name}:{function_name}"
    own, here = Path.cwd().joinpath(*module_name.split(".")).with_suffix(".py"), str(Path.cwd())
    if here not in sys.path or own.is_file():  # a user's own file goes first
        sys.path.insert(0, here)
    named_files(options.watch)  # a file that is not there is refused before anything is scored
    forgotten = _forget_changed(module_name, is_other=_is_other(module_name, own))
    try:
        with foreign_code():
            module = importlib.import_module(module_name)
            if _is_other(module_name, own):
                raise ImportError(f"{own} has the name of {_file_of(module_name)}, which was imported. Rename your file")
            function = getattr(module, function_name)
    except BaseException as fault:  # a user's module may do anything at its top
        sys.modules.update(forgotten)  # what was opened before goes on with them
        if isinstance(fault, KeyboardInterrupt):
            raise
        raise InputError(f"python:{rest} could not be imported: {_reason(fault)}. Fix it, or name another function.") from fault
    if not callable(function):
        raise InputError(f"python:{rest} cannot score: {function_name!r} is not a function. Fix it, or name another function.")
    for module in forgotten.values():
        _seen.pop(str(module.__file__), None)
    _note_modules(module_name)
    return PythonReranker(function, f"python:{rest}", module=module_name, watched=options.watch)


def named_files(names: Sequence[str]) -> dict[str, str]:
    """Name -> digest of the files that a scorer is made of or the user named, or a refusal of those that are not there."""
    if missing := [name for name in names if not Path(name).is_file()]:
        raise InputError([f"watch: {name} is not a file. Name files that are there." for name in missing])
    return {name: _digest(name) for name in names}


def _digest(file: str) -> str:
    """The first 16 digits of its SHA-256; empty where there is no file."""
    return sha256(Path(file))[:16] if Path(file).is_file() else ""


def _module_file(module: str) -> dict[str, str]:
    """The source file of a module by its path from the folder that it is imported from, with its digest."""
    if not (file := _file_of(module)) or not _digest(file):
        return {}
    return {"/".join(Path(file).parts[-1 - _depth(module, file) :]): _digest(file)}


def _declared_version(*places: Any) -> dict[str, str | int | float]:
    """The first `version` that a function, an object or a module declares as a text or a number."""
    versions = (getattr(place, "version", None) for place in places)
    return next(({"version": version} for version in versions if isinstance(version, str | int | float)), {})


# -- modules that were edited since they were imported


_seen: dict[str, str] = {}
"""File of a user's module -> its digest when it was first seen loaded."""


def _file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def _depth(module: str, file: str) -> int:
    """Folders between a module's file and the folder that it is imported from."""
    return module.count(".") + (Path(file).stem == "__init__")


def _modules_beside(module: str) -> dict[str, str]:
    """Name -> file of what is loaded from the folder that a module is imported from: neither installed, nor ours, nor the
    script that runs."""
    if not (file := _file_of(module)):
        return {}
    root = f"{Path(file).parents[_depth(module, file)]}/"
    ours = ("__main__", "__mp_main__", __package__.partition(".")[0])
    loaded = {name: _file_of(name) or "" for name in list(sys.modules) if name.partition(".")[0] not in ours}
    return {name: file for name, file in loaded.items() if file.startswith(root) and not _is_installed(Path(file))}


def _is_installed(file: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(file.parts)) or any(file.is_relative_to(place) for place in INSTALLED)


def _note_modules(module: str) -> None:
    for file in _modules_beside(module).values():
        _seen.setdefault(file, _digest(file))


def _is_other(module: str, own: Path) -> bool:
    """Whether a module is loaded from another file than the user's own of its name."""
    return own.is_file() and bool(file := _file_of(module)) and not own.samefile(str(file))


def _forget_changed(module: str, *, is_other: bool = False) -> dict[str, ModuleType]:
    """Where a file beside a module has changed since it was imported, or the module is another of the same name, have the next
    import read them all again.

    Gives the modules as they were: who holds them keeps them.
    """
    beside = _modules_beside(module)
    if not is_other and all(_seen.get(file) in (None, _digest(file)) for file in beside.values()):
        return {}
    forgotten = {name: sys.modules.pop(name) for name in beside}
    for package, _, last in (name.rpartition(".") for name in forgotten):
        if package in sys.modules:  # a package without a file of its own: `from package import last` asks it first
            vars(sys.modules[package]).pop(last, None)
    importlib.invalidate_caches()
    return forgotten


def _reason(fault: BaseException) -> str:
    """What stopped an import, behind the line of the module that it stopped at."""
    if isinstance(fault, SyntaxError):
        place, what = [f"{fault.filename}, line {fault.lineno}: "], fault.msg
    else:
        tops = [frame for frame in traceback.extract_tb(fault.__traceback__) if frame.name == "<module>"]
        place, what = [f"{frame.filename}, line {frame.lineno}: " for frame in tops[-1:]], str(fault)
    return "".join(place) + f"{type(fault).__name__}: {' '.join(what.split())}"


KINDS = (Kind("python", open_python, "pool", (Listing("python:<module>:<function>", "score"),), options=frozenset({"watch"})),)
