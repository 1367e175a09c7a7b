"""Files that appear whole or not at all, on this machine or in a store, and what the disk refuses as one sentence.

The cache folder is `$STEADYSCORE_CACHE`, else `~/.cache/steadyscore`. It holds texts and answers, so what is made in it is for
its owner alone.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import DamagedFile, InputError, StorageError
from .contents import BLANK, KEY, LARGEST_WHOLE, read_whole, seal_parquet, seal_record
from .places import Place, StorePath, open_whole, parse_place

if TYPE_CHECKING:
    import pyarrow as pa


PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600

LOCK = ".lock"
"""The file in a folder by which one process keeps others out; what counts is the lock on it, not that it is there."""
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
"""A file system that knows no locks: work goes on without one."""
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK)
"""A file system that knows no hard links."""


def cache_folder() -> Path:
    return Path(os.environ.get("STEADYSCORE_CACHE") or Path.home() / ".cache" / "steadyscore")


def make_folder(folder: Place) -> None:
    """Make a folder and those above it, private in the cache. A cache folder that the user made and named stays as it is."""
    if isinstance(folder, StorePath):
        return
    root = cache_folder()
    if not folder.is_relative_to(root):
        folder.mkdir(parents=True, exist_ok=True)
        return
    root.parent.mkdir(parents=True, exist_ok=True)
    for made in reversed([folder, *(above for above in folder.parents if above.is_relative_to(root))]):
        made.mkdir(PRIVATE_FOLDER, exist_ok=True)
        if not os.environ.get("STEADYSCORE_CACHE") and made.stat().st_mode & 0o077:
            with contextlib.suppress(PermissionError):  # somebody else's, who lets us write in it
                made.chmod(PRIVATE_FOLDER)  # made by an earlier version


def open_to_write(file: Path, mode: str, **how: Any) -> IO[Any]:
    """A file to be written, private in the cache. A link of that name is not followed: it may lead anywhere."""
    permissions = PRIVATE_FILE if file.is_relative_to(cache_folder()) else 0o666
    beside = getattr(os, "O_NOFOLLOW", 0)
    return open(file, mode, opener=lambda path, flags: os.open(path, flags | beside, permissions), **how)


@contextmanager
def explaining_os_errors(path: Place) -> Iterator[None]:
    """Say what the disk refused, where, and what to do."""
    try:
        yield
    except Exception as refusal:
        if not isinstance(refusal, OSError) and type(refusal).__name__ != "SafetensorError":  # that of a full disk, for one
            raise
        raise StorageError(
            f"cannot write {path}: {getattr(refusal, 'strerror', None) or refusal}. What was written before is kept; "
            "fix this and run the same command again, or choose another --out."
        ) from refusal


def is_there(path: str | Place) -> bool:
    """Whether a file or folder of this name exists; a name that no file system takes is not there."""
    try:
        return (Path(path) if isinstance(path, str) else path).exists()
    except OSError:
        return False


@contextmanager
def lock_folder(folder: Place) -> Iterator[None]:
    """One process at a time works in a folder; a second one is refused. The lock ends with the process, however it ends.

    A store knows no locks, and a run there is right without one; a second command may pay again for what is under way.
    """
    from filelock import FileLock, Timeout

    if isinstance(folder, StorePath):
        yield
        return
    # A soft lock is a file whose presence locks: it would outlive a killed process.
    lock = FileLock(folder / LOCK, timeout=0, fallback_to_soft=False)
    with explaining_os_errors(folder):
        make_folder(folder)
        try:
            lock.acquire()
        except Timeout:
            raise InputError(f"another process works in {folder}. Wait for it to end, or choose another --out.") from None
        except OSError as refusal:
            if refusal.errno not in NO_LOCKS:
                raise
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows deletes no open file, and nothing reads the one that is left
            (folder / LOCK).unlink()  # while it is locked, so that nobody else's is deleted
        lock.release()


# -- scratch files


DAY = 24 * 3600.0
"""Seconds after which a scratch file that another machine has not touched was left by a process that was killed there."""
_numbers = count()


@cache
def place() -> str:
    """Where process ids mean what they mean here: this machine since it was started, and this container on it."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text()
        container = os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        machine, container = str(uuid.getnode()), ""
    return hashlib.blake2b(f"{platform.node()}\0{machine}\0{container}".encode(), digest_size=6).hexdigest()


def scratch_beside(path: Path, suffix: str = "") -> Path:
    """A hidden name in the same folder that nobody else uses. It says who writes it, so that what a killed process left can be
    told from what another one, perhaps on another machine, is writing now.
    """
    return path.with_name(f".{path.name}.{place()}.{os.getpid()}.{next(_numbers)}.tmp{suffix}")


SCRATCH = re.compile(r"\.(?P<name>.+?)\.(?:(?P<place>[0-9a-f]{12})\.)?(?P<process>\d+)(?:\.\d+)?\.tmp.*")
"""Names that `scratch_beside` gives; those of earlier versions say only the process."""


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what processes that were killed left in a folder, beside one file or folder or beside all.

    Whether a process of another machine is alive cannot be known here: what it left stays for a day.
    """
    for left in folder.glob(".*.tmp*"):
        fields = SCRATCH.fullmatch(left.name)
        if fields is None or (name is not None and fields["name"] != name):
            continue
        if is_running(fields["process"]) if fields["place"] == place() else not _is_older(left, DAY):
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def remove_leftovers_below(folder: Place) -> None:
    """The same in a folder and all below it; a store has none."""
    if isinstance(folder, Path):
        for each in {left.parent for left in folder.rglob(".*.tmp*")}:
            remove_leftovers(each)


def _is_older(file: Path, seconds: float) -> bool:
    try:
        return file.lstat().st_mtime < time.time() - seconds
    except OSError:  # it has just got its name
        return False


def is_running(process: str) -> bool:
    """Whether a process of this place is alive."""
    if sys.platform == "win32":  # where signal 0 is Ctrl-C: rather leave a file than stop a process
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's, but alive
        pass
    return True


# -- files and folders that appear whole


@contextmanager
def atomic(path: Place, give_name: Callable[[Path, Path], None] | None = None, *, sweep: bool = True) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is whole: written beside it, synced, renamed; in a store, by one request.
    Gzip by its ending.

    `sweep`: look for what killed processes left beside it, which takes a list of its whole folder.
    """
    if isinstance(path, StorePath):
        held = io.BytesIO()
        with _packed(held) if path.suffix == ".gz" else contextlib.nullcontext(held) as stream:
            yield stream
        path.write_bytes(held.getvalue())
        return
    scratch = scratch_beside(path)
    with explaining_os_errors(path):
        if path.exists() and not path.is_file():
            raise StorageError(f"{path} is a folder, a pipe or a device, which is not replaced. Give the name of a file.")
        make_folder(path.parent)
        if sweep:
            remove_leftovers(path.parent, path.name)
        try:
            with open_to_write(scratch, "w+b") as raw:
                with _packed(raw) if path.suffix == ".gz" else contextlib.nullcontext(raw) as stream:
                    yield stream
                raw.flush()
                os.fsync(raw.fileno())
            (give_name or os.replace)(scratch, path)
            _sync_names(path.parent)
        finally:
            scratch.unlink(missing_ok=True)


def _packed(stream: IO[bytes]) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Gzip without a name and a time, so that equal contents are equal files."""
    return gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0, compresslevel=6)  # type: ignore[return-value]


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name only when it is whole: filled beside it, synced, renamed, in place of an older one."""
    scratch = scratch_beside(path)
    make_folder(path.parent)
    remove_leftovers(path.parent, path.name)
    make_folder(scratch)
    try:
        yield scratch
        usual = scratch.stat().st_mode & 0o666  # safetensors writes for its owner alone, whatever the umask
        for file in filter(Path.is_file, scratch.rglob("*")):
            file.chmod(usual)
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
        if path.is_symlink():
            path.unlink()  # the link is replaced, as that of a file is: what it leads to stays
        elif path.exists():
            remove_folder(path)
        os.rename(scratch, path)
        _sync_names(path.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Remove a folder so that it is never seen half-removed."""
    scratch = scratch_beside(path)
    os.rename(path, scratch)
    shutil.rmtree(scratch, ignore_errors=True)


def _sync_names(folder: Path) -> None:
    """Have a power cut not take back the names that were given in a folder. Not every system opens folders, or syncs them."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_bytes(file: Place, content: bytes) -> None:
    """A file that nobody else writes, without a look for leftovers: among a million it would take longer than the file."""
    with atomic(file, sweep=False) as stream:
        stream.write(content)


def write_json(file: Place, value: Any) -> None:
    with atomic(file) as stream:
        stream.write(_json_bytes(value))


def _json_bytes(value: Any) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")  # a file name may hold bytes that are not UTF-8


def write_record(file: Place, record: Mapping[str, Any]) -> None:
    """A JSON object with its checksum."""
    write_json(file, seal_record(record))


def write_record_once(file: Place, record: Mapping[str, Any]) -> bool:
    """Write a record unless the file is there, also if several processes try at the same moment; gives whether it was written."""
    if isinstance(file, StorePath):
        return file.create(_json_bytes(seal_record(record)))
    is_first = False

    def link(scratch: Path, target: Path) -> None:
        nonlocal is_first
        with contextlib.suppress(FileExistsError):
            try:
                os.link(scratch, target)  # unlike a rename, refused where the name is taken
            except OSError as refusal:
                if refusal.errno not in NO_LINKS:
                    raise
                os.replace(scratch, target)  # every process writes the same but for the time
            is_first = True

    if not file.exists():
        with atomic(file, link) as stream:
            stream.write(_json_bytes(seal_record(record)))
    return is_first


def set_aside(file: Place, folder: Place) -> Place:
    """Move a file into a folder of damaged ones, under a name that is free there; gives where it is now."""
    with explaining_os_errors(file):
        folder.mkdir(parents=True, exist_ok=True)
        names = (file.name if n == 1 else f"{file.name}.{n}" for n in count(1))
        kept = next(folder / name for name in names if not (folder / name).exists())
        file.replace(kept)  # type: ignore[arg-type]  # both of one kind
    return kept


def read_json(file: Place) -> dict[str, Any]:
    """The object in a JSON file, whatever the bytes are; FileNotFoundError is the caller's to word."""
    try:
        value = json.loads(read_whole(file).decode("utf-8"))
    except FileNotFoundError:
        raise
    except InputError as refusal:
        raise DamagedFile(file, f"is larger than {LARGEST_WHOLE >> 20} MB") from refusal
    except (OSError, ValueError, RecursionError) as damage:  # ValueError: bytes that are not UTF-8 or not JSON
        raise DamagedFile(file, f"cannot be read: {' '.join(str(damage).split())}") from damage
    if not isinstance(value, dict):
        raise DamagedFile(file, f"holds {_JSON_KINDS[type(value)]} instead of a JSON object")
    return value


_JSON_KINDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false", type(None): "null"}


def write_parquet(file: Place, table: pa.Table) -> None:
    write_tables(file, table.schema, [table])


def write_tables(file: Place, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """One Parquet file of tables that need not be in memory at once, with a checksum for each page and one for the whole."""
    import pyarrow.parquet as pq

    with atomic(file) as stream:
        with pq.ParquetWriter(stream, schema, write_page_checksum=True) as writer:
            for table in tables:
                writer.write_table(table)
            writer.add_key_value_metadata({KEY: BLANK})
        seal_parquet(stream)


def list_files(folder: Place, beginning: str = "") -> list[Any]:
    """Every file below a folder, as a place, in the order of their names; hidden ones are scratch, and left out.

    beginning   only files whose names below the folder begin so
    """
    if isinstance(folder, StorePath):
        files = folder.files(beginning)
        return [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]
    below: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below += [Path(root, name) for name in names if not name.startswith(".") and name.startswith(beginning)]
    return sorted(below)


def remove_tree(folder: Place) -> None:
    """Remove a folder with all that is in it."""
    if isinstance(folder, StorePath):
        for file in folder.files():
            file.unlink(missing_ok=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)


ADDRESS_FILE = "address"
"""Beside what is kept of a file of a store: where it came from."""


def name_addresses(text: str) -> str:
    """A message in which files that are kept of a store go by their addresses."""

    def address(kept: re.Match[str]) -> str:
        file = Path(kept[1]) / ADDRESS_FILE
        return file.read_text() if file.exists() else kept[0]

    folder = re.escape(str(cache_folder() / "remote" / "files"))
    return re.sub(rf"({folder}/[0-9a-f]{{16}})/[0-9a-f]{{16}}/[^\s:]*", address, text)


def local_file(address: str) -> Path:
    """A file of a store, kept in the cache until it changes there."""
    place = parse_place(address)
    assert isinstance(place, StorePath)
    kept = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (place.address, place.version())]
    file = cache_folder().joinpath("remote", "files", *kept, place.name)
    if not file.exists():
        scratch = scratch_beside(file)
        with explaining_os_errors(file):
            make_folder(file.parent)
            write_bytes(file.parent.parent / ADDRESS_FILE, place.address.encode())
            try:
                place.download(scratch)
                os.replace(scratch, file)
            except FileNotFoundError:
                raise InputError(f"{place} was removed while it was read. Run the command again.") from None
            finally:
                scratch.unlink(missing_ok=True)
    return file


def sha256(file: Place) -> str:
    with open_whole(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
