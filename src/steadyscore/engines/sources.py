"""The source files behind a scorer: its module, and the modules beside it that it imports, now or later.

Imports are read from the source, so that one inside a function counts before it runs; modules that the first import
brought into the process are added, which covers names that are put together. Installed packages and the standard library
are left out.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from importlib import invalidate_caches
from pathlib import Path
from types import ModuleType

from ..errors import InputError
from ..machine.disk import sha256
from . import Watch

DIGITS = 16
"""Of a SHA-256."""
INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def digest(file: Path) -> str:
    return sha256(file)[:DIGITS]


def named_files(names: Sequence[str]) -> dict[str, str]:
    """Files that the user asked to watch, or a refusal that names those that are not there."""
    if missing := [name for name in names if not Path(name).is_file()]:
        raise InputError([f"--watch {name} is not a file. Name files that are there." for name in missing])
    return {name: digest(Path(name)) for name in names}


def watch_modules(anchors: Sequence[str], loaded: Sequence[str], scorer: str) -> Watch:
    """The files of the modules a scorer stands in, and beside each of what it loaded and of all that these import there."""
    found = source_files(anchors, loaded)
    if not found:
        return Watch(unwatched=(f"{scorer} has no source file: a change of its code goes unnoticed.",))
    shared = {name for name, count in Counter(found.values()).items() if count > 1}  # from two roots: the whole path tells
    files = {str(file) if name in shared else name: digest(file) for file, name in found.items()}
    return Watch(files, (f"Installed packages and data files behind {scorer} are not watched; --watch FILE adds a file.",))


def source_files(anchors: Sequence[str], loaded: Sequence[str]) -> dict[Path, str]:
    """File -> its path from the folder that it is imported from, of all that `watch_modules` watches."""
    places = {name: file for name in anchors if (file := _file_of(name))}
    others = [file for name in loaded if (file := _file_of(name))]
    found: dict[Path, str] = {}
    for name, first in places.items():
        root = _root(name, first)
        starts = [first, *(file for file in others if _is_beside(file, root, first))]
        found |= {file: str(file.relative_to(root)) for file in sorted(_closure(starts, root, first)) if file not in found}
    return found


def forget_modules(files: Collection[Path]) -> dict[str, ModuleType]:
    """Have the next import of these files read them again. Returns the modules as they were: who holds them keeps them."""
    forgotten = {
        name: module
        for name, module in list(sys.modules.items())
        if _is_theirs(name) and (file := getattr(module, "__file__", None)) and Path(file).resolve() in files
    }
    for name in forgotten:
        del sys.modules[name]
        package, _, last = name.rpartition(".")
        if package in sys.modules:  # a package without a file of its own: `from package import last` asks it first
            vars(sys.modules[package]).pop(last, None)
    invalidate_caches()
    return forgotten


def _is_theirs(module: str) -> bool:
    """Whether a module may be imported twice in a process: neither the script that runs nor one of ours."""
    return module.partition(".")[0] not in ("__main__", "__mp_main__", __package__.partition(".")[0])


def watch_script(file: Path) -> dict[str, str]:
    """A Python file and the modules beside it that it imports."""
    file = file.resolve()
    root = file.parent
    return {str(other.relative_to(root)): digest(other) for other in sorted(_closure([file], root, file)) if other != file}


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).resolve() if file and Path(file).is_file() else None


def _root(module: str, file: Path) -> Path:
    """The folder from which the module is imported: the one that holds its outermost package."""
    depth = module.count(".") + (file.stem == "__init__")
    return file.parents[depth]


def _is_beside(file: Path, root: Path, first: Path) -> bool:
    """Under the same root and not installed there; of an installed scorer, in its own package."""
    if not file.is_relative_to(root):
        return False
    if _is_installed(first):
        return file == first or file.relative_to(root).parts[0] == first.relative_to(root).parts[0]
    return not _is_installed(file)


def _is_installed(file: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(file.parts)) or any(file.is_relative_to(place) for place in INSTALLED)


def _closure(starts: Sequence[Path], root: Path, first: Path) -> set[Path]:
    """The files and what they import from under the root, over any number of steps."""
    found: set[Path] = set()
    todo = list(starts)
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo += [other for other in _imported_files(file, root) if _is_beside(other, root, first)]
    return found


def _imported_files(file: Path, root: Path) -> Iterator[Path]:
    if file.suffix != ".py":
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    package = list(file.relative_to(root).parts[:-1])
    for node in ast.walk(tree):
        for parts in _imported_names(node, package):
            yield from _files_of(root, parts)


def _imported_names(node: ast.AST, package: list[str]) -> Iterator[list[str]]:
    """Every dotted name that a node imports, from the root on; `import_module("name")` counts where the name is written out."""
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        base = [*base, *(node.module.split(".") if node.module else [])]
        yield from ([*base, alias.name] for alias in node.names)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            yield node.args[0].value.lstrip(".").split(".")


def _files_of(root: Path, parts: list[str]) -> Iterator[Path]:
    """The files that importing a dotted name runs: each package on the way, and the module at its end."""
    for depth in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:depth])
        yield from (file.resolve() for file in (place / "__init__.py", place.with_name(place.name + ".py")) if file.is_file())
