"""A prefix of an object store (`s3://bucket/run`, whatever fsspec knows) as named files that appear whole, and its refusals.

What is relied on is little: an object appears whole, a listing shows what was written before it, and `put_once` fails where the
name is taken (docs/scale.md says which stores do that). Keys are read by the store's own package, never by this one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import InputError, MissingExtra, SteadyscoreError, StorageError
from .credentials import redact
from .disk import cache_folder, explaining_os_errors, make_folder, scratch_beside
from .extras import check_installed, is_installed, missing_extra
from .mirrors import note_address, parse_place

VERSIONS = ("ETag", "etag", "generation", "md5Hash", "content_md5", "LastModified", "last_modified", "mtime", "created")
"""What stores call that which changes with an object's content, the best first."""
CONFLICTS = 5
"""Times that a conditional write is tried again where the store asks for that: another write was under way."""

BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
"""Stores in which a bucket, or container, is made before anything is written."""

NO_KEYS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "CredentialUnavailableError")
DENIED = ("PermissionError", "ClientAuthenticationError", "Forbidden")
UNREACHABLE = (
    "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "ClientConnectorError",
    "ServiceRequestError", "ConnectionError", "ConnectionRefusedError", "TimeoutError", "SSLError",
)  # fmt: skip


class Store:
    """The objects below one address, by their names behind it."""

    def __init__(self, address: str):
        self.address = address
        kind, _, rest = address.partition("://")
        self._protocol = protocol = kind.lower()
        check_installed(f"An address of {protocol}://", "fsspec")
        import fsspec

        if protocol not in fsspec.available_protocols():
            raise InputError(f"{address}: no kind of store is called {protocol}://. Use a path, s3://, gs:// or az://.")
        try:
            # What others wrote must be seen: no listing is kept, and no connection shared with a process that forked.
            named = f"{protocol}://{rest}"
            self._files, self._root = fsspec.url_to_fs(named, skip_instance_cache=True, use_listings_cache=False)
        except ImportError as missing:
            raise _missing_package(protocol, missing) from missing
        except ValueError as mistake:
            raise InputError(f"{address} is not an address of a store: {' '.join(str(mistake).split())}.") from mistake

    def versions(self) -> dict[str, str]:
        """Name -> version of every object; names that begin with a dot are of no concern to anybody else."""
        there: Mapping[str, Mapping[str, Any]] = {}
        with explaining_refusals(self.address, "open"):
            with suppress(FileNotFoundError):
                there = self._files.find(self._root, detail=True)
            if not there and self._protocol in BUCKETS:
                with suppress(PermissionError):  # a key may be good for a part of a bucket only
                    self._files.info(self._root.partition("/")[0])
        start = self._root.rstrip("/") + "/"
        below = {path.removeprefix(start): about for path, about in there.items() if path.startswith(start)}
        for name in below:
            if ".." in PurePosixPath(name).parts or "\\" in name or name.startswith("/"):
                raise StorageError(
                    f"{self.address} holds an object called {name!r}, which cannot be the name of a file. Remove it first."
                )
        return {name: _version(about) for name, about in below.items() if not _is_hidden(name) and not name.endswith("/")}

    def names(self, prefix: str) -> list[str]:
        """Names at the top that begin so, hidden ones too."""
        paths: list[str] = []
        with explaining_refusals(self.address, "open"), suppress(FileNotFoundError):
            paths = self._files.ls(self._root, detail=False)
        return [name for path in paths if (name := PurePosixPath(path).name).startswith(prefix)]

    def below(self, *parts: str) -> Store:
        """A folder of this one."""
        store = copy(self)
        store.address, store._root = "/".join([self.address, *parts]), "/".join([self._root.rstrip("/"), *parts])
        return store

    def version(self) -> str:
        """The version of the object that the address itself names."""
        with explaining_refusals(self.address, "read"):
            about = self._files.info(self._root)
        if about.get("type") == "directory":
            raise InputError(f"{self.address} is a folder. Name a file of its store.")
        return _version(about)

    def get(self, files: Mapping[str, Path]) -> None:
        """Objects by name into files, side by side where the store can; FileNotFoundError where one is gone."""
        for file in files.values():
            make_folder(file.parent)
        with explaining_refusals(self.address, "read", absent=FileNotFoundError):
            self._files.get([self._path(name) for name in files], [str(file) for file in files.values()])

    def read(self, name: str) -> bytes | None:
        """The content of an object; None where there is none."""
        try:
            with explaining_refusals(self.address, "read", absent=FileNotFoundError):
                return bytes(self._files.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def put(self, name: str, file: Path) -> None:
        with explaining_refusals(f"{self.address}/{name}"):
            self._files.put_file(str(file), self._path(name))

    def write(self, name: str, content: bytes) -> None:
        with explaining_refusals(f"{self.address}/{name}"):
            self._files.pipe_file(self._path(name), content)

    def put_once(self, name: str, content: bytes) -> bool:
        """Write an object unless one has its name; gives whether this call wrote it."""
        with explaining_refusals(f"{self.address}/{name}"):
            for attempt in range(CONFLICTS):
                try:
                    self._files.pipe_file(self._path(name), content, mode="create")
                    return True
                except FileExistsError:
                    break
                except OSError as refusal:
                    if (code := _code(refusal)) == "PreconditionFailed":
                        break
                    if code != "ConditionalRequestConflict" or attempt + 1 == CONFLICTS:
                        raise
                    time.sleep(0.2 * 2**attempt)
        return self.read(name) == content  # a request that was sent twice is refused the second time

    def remove(self, names: Iterable[str]) -> None:
        paths = [self._path(name) for name in names]
        with explaining_refusals(self.address):
            try:
                self._files.rm(paths)
            except FileNotFoundError:  # somebody else removed one of them
                for path in paths:
                    with suppress(FileNotFoundError):
                        self._files.rm_file(path)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name else self._root


def local_file(address: str) -> Path:
    """A file of a store, kept in the cache until it changes there."""
    named = str(parse_place(address))
    store = Store(named)
    version = store.version()
    kept = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in (named, version)]
    file = cache_folder().joinpath("remote", "files", *kept, PurePosixPath(named).name)
    if not file.exists():
        scratch = scratch_beside(file)
        with explaining_os_errors(file):
            try:
                store.get({"": scratch})
                os.replace(scratch, file)
            except FileNotFoundError:
                raise InputError(f"{named} was removed while it was read. Run the command again.") from None
            finally:
                scratch.unlink(missing_ok=True)
    note_address(file, named)
    return file


# -- refusals


@contextmanager
def explaining_refusals(address: str, doing: str = "write", absent: type[Exception] | None = None) -> Iterator[None]:
    """Say in one sentence what a store refused. With `absent`, an object that is not there is the caller's to word."""
    try:
        yield
    except SteadyscoreError:
        raise
    except Exception as fault:  # stores raise what their packages like: botocore's, aiohttp's, Google's and Azure's own
        if absent and isinstance(fault, FileNotFoundError):
            raise absent(address) from fault
        raise StorageError(f"cannot {doing} {address}: {_reason(address, fault)}") from fault


def _reason(address: str, fault: Exception) -> str:
    kinds = {kind.__name__ for kind in type(fault).__mro__}
    bucket = "/".join(address.split("/")[:3])
    if kinds.intersection(NO_KEYS):
        where = " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role)" if address.startswith("s3") else ""
        return f"there are no credentials. Put them where the store's own tools look{where}."
    if kinds.intersection(DENIED):
        return "access was denied. Check which key is in use and what it may read and write."
    if kinds.intersection(UNREACHABLE):
        return "the store cannot be reached. Check the network and the endpoint; what was written before is kept."
    if isinstance(fault, FileNotFoundError):
        return f"there is no such object, or no bucket {bucket}. Check the address, or make the bucket first."
    secret = os.environ.get("AWS_ACCESS_KEY_ID", "")
    words = redact(" ".join(str(fault).split()) or type(fault).__name__, secret)
    return f"{words.rstrip('.')}. What was written before is kept; fix this and run the same command again."


def _code(refusal: OSError) -> str:
    """The store's own word for what it refused, behind s3fs's exception."""
    response = getattr(refusal.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _missing_package(protocol: str, missing: ImportError) -> MissingExtra:
    if protocol in ("s3", "s3a") and not is_installed("s3fs"):
        return missing_extra(f"An address of {protocol}://", ["s3fs"])
    package = {"gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs"}.get(protocol)
    advice = f"Install with: pip install {package}" if package else " ".join(str(missing).split()).rstrip(".")
    return MissingExtra(f"An address of {protocol}:// needs a package that is not installed and that no extra brings. {advice}")


def _version(about: Mapping[str, Any]) -> str:
    return f"{about.get('size')}:{next((about[key] for key in VERSIONS if about.get(key)), '')}"


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))
