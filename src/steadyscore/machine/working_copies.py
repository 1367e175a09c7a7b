"""Folders in object stores, worked on in a copy on this machine: `open_folder` to write into, `local_folder` to read.

The store is the truth. A copy belongs to one process and goes with it; at its beginning it holds what the store has. Whenever a
whole file is written into it (`disk.atomic`), what else has changed since goes to the store first: new files, then removals,
then the file itself. So the store passes through the same states as the folder of a local run, one whole file after another,
and a kill at any moment leaves one of them.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import InputError, SteadyscoreError, StorageError
from .disk import NO_LOCKS, cache_folder, explaining_os_errors, make_folder
from .leases import Lease, hold
from .mirrors import Place, add_mirror, is_address, name_addresses_in, parse_place, remove_mirror
from .stores import Store

ATTEMPTS = 5
"""Times that a folder is copied again, as it changed between its listing and its copy."""

_copies: dict[str, WorkingCopy] = {}


class WorkingCopy:
    """A folder of a store and its copy on this machine (`mirrors.Mirror`)."""

    def __init__(self, address: str):
        self.address, self.process = address, os.getpid()
        self._store = Store(address)
        self._leases: list[Lease] = []
        self._pulled: dict[str, str] = {}
        """Name -> version in the store, of files that are here as they are there."""
        self._stamps: dict[str, tuple[int, int, int]] = {}
        """Name -> what tells that the file here is the one that was last as it is in the store."""
        self.folder, self._lock = _new_folder(address)

    # -- from the store

    def pull(self, is_wanted: Callable[[str], bool]) -> None:
        """Have the files that are wanted as the store has them now; records and the tables they name from one moment."""
        for _ in range(ATTEMPTS):
            there = self._store.versions()
            other = [name for name in self._stamps if name not in there or self._pulled.get(name) != there[name]]
            for name in filter(is_wanted, other):
                (self.folder / name).unlink(missing_ok=True)
                self._forget(name)
            absent = [name for name in there if name not in self._stamps and is_wanted(name)]
            with suppress(FileNotFoundError):  # collected by another process meanwhile
                self._get({name: there[name] for name in absent})
                records = [name for name in absent if name.endswith(".json")]
                now = self._store.versions() if records else there
                if all(now.get(name) == there[name] for name in records):
                    return
        raise StorageError(f"{self.address} changed while it was read, {ATTEMPTS} times. Run the command again.")

    def fetch(self, file: Path) -> None:
        if not file.exists():
            with suppress(FileNotFoundError):
                self._get({self._name(file): ""})

    def _get(self, versions: dict[str, str]) -> None:
        if not versions:
            return
        try:
            self._store.get({name: self.folder / name for name in versions})
        except BaseException:
            for name in versions:  # half of them, or half of one
                (self.folder / name).unlink(missing_ok=True)
            raise
        for name, version in versions.items():
            self._pulled[name], self._stamps[name] = version, _stamp(self.folder / name)

    # -- to the store

    def push(self, file: Path | None = None) -> None:
        """Have every change in the store: new files, then removals, then this file."""
        for lease in self._leases:
            lease.check()
        last = None if file is None else self._name(file)
        here = {self._name(path): path for path in _files_below(self.folder)}
        changed = [name for name, path in here.items() if self._stamps.get(name) != _stamp(path) and name != last]
        for name in sorted(changed):
            self._put(name, here[name])
        if gone := [name for name in self._stamps if name not in here]:
            self._store.remove(gone)
            for name in gone:
                self._forget(name)
        if file is not None and last is not None:
            self._put(last, file)

    def push_once(self, file: Path, content: bytes) -> bool:
        self.fetch(file)
        if file.exists():
            return False
        name = self._name(file)
        if not self._store.put_once(name, content):
            self.fetch(file)
            return False
        with explaining_os_errors(file):
            make_folder(file.parent)
            file.write_bytes(content)
        self._stamps[name] = _stamp(file)
        return True

    def _put(self, name: str, file: Path) -> None:
        stamp = _stamp(file)
        self._store.put(name, file)
        self._pulled.pop(name, None)
        self._stamps[name] = stamp

    def _forget(self, name: str) -> None:
        self._stamps.pop(name, None)
        self._pulled.pop(name, None)

    def _name(self, file: Path) -> str:
        return file.relative_to(self.folder).as_posix()

    # -- whose it is

    @contextmanager
    def hold(self, folder: Path) -> Iterator[None]:
        parts = folder.relative_to(self.folder).parts
        with hold(self._store.below(*parts)) as lease:
            self.pull(lambda name: tuple(name.split("/")[: len(parts)]) == parts)  # what the holder before this one wrote
            self._leases.append(lease)
            try:
                yield
            finally:
                self._leases.remove(lease)

    def close(self) -> None:
        if self.process == os.getpid():
            shutil.rmtree(self.folder, ignore_errors=True)
            _remove_lock(self._lock)


def _stamp(file: Path) -> tuple[int, int, int]:
    about = file.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns  # a clock that ticks slowly gives two files one time


def _files_below(folder: Path) -> Iterator[Path]:
    """Every file but hidden ones, which are scratch."""
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(root, name) for name in names if not name.startswith("."))


# -- places as folders of this machine


def local_folder(place: Place, is_wanted: Callable[[str], bool] = lambda name: True) -> Path:
    """A folder of this machine: the one that is named, or a working copy of the one in a store, as it is there now."""
    if not is_address(place):
        return Path(place)
    copy = _copy_of(str(parse_place(place)))
    copy.pull(is_wanted)
    return copy.folder


def _copy_of(address: str) -> WorkingCopy:
    copy = _copies.get(address)
    if copy is None or copy.process != os.getpid():
        copy = _copies[address] = WorkingCopy(address)
        add_mirror(copy)
    return copy


def local_file_to_write(place: Place) -> Path:
    """A file of this machine: the one that is named, or one that goes to its address once it is whole."""
    if not is_address(place):
        return Path(place)
    folder, _, name = str(parse_place(place)).rpartition("/")
    if not name or folder.endswith("/"):
        raise InputError(f"{place} names no file in a folder of its store, such as {place}/runs/page.html.")
    return _copy_of(folder).folder / name


@contextmanager
def open_folder(place: Place, is_wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Path]:
    """A folder to write into; at the end the store has all that was written. Errors name the address, not the copy."""
    if not is_address(place):
        yield Path(place)
        return
    folder = local_folder(place, is_wanted)
    try:
        yield folder
        push_changes(place)
    except SteadyscoreError as error:
        name_addresses_in(error)
        raise


def push_changes(*places: Place) -> None:
    """Have what was written into working copies (of these places, or all) in their stores: pages, for example."""
    wanted = {str(parse_place(place)) for place in places}
    for address, copy in _copies.items():
        if copy.process == os.getpid() and (not places or address in wanted):
            copy.push()


@atexit.register
def close_copies() -> None:
    """Remove the working copies of this process."""
    while _copies:
        _, copy = _copies.popitem()
        remove_mirror(copy)
        copy.close()


def _new_folder(address: str) -> tuple[Path, Any]:
    """A folder in the cache with a lock that ends with the process, by which those of killed processes are known."""
    from filelock import FileLock

    root = cache_folder() / "remote" / "copies"
    with explaining_os_errors(root):
        make_folder(root)
        _remove_leftovers(root)
        folder = root.resolve() / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}-{uuid.uuid4().hex[:8]}"
        lock = FileLock(folder.with_suffix(".lock"), fallback_to_soft=False)
        try:
            lock.acquire(timeout=5)
        except OSError as refusal:
            if refusal.errno not in NO_LOCKS:
                raise
        make_folder(folder)
    return folder, lock


def _remove_leftovers(root: Path) -> None:
    from filelock import FileLock, Timeout

    for file in root.glob("*.lock"):
        lock = FileLock(file, timeout=0, fallback_to_soft=False)
        with suppress(Timeout, OSError):  # its process lives, or the file system knows no locks
            lock.acquire()
            shutil.rmtree(file.with_suffix(""), ignore_errors=True)
            _remove_lock(lock)


def _remove_lock(lock: Any) -> None:
    with suppress(OSError):
        Path(lock.lock_file).unlink()  # while it is locked, so that nobody else's is deleted
    lock.release()
