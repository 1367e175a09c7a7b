"""Places: paths of this machine, and addresses of object stores (`s3://bucket/run`, whatever fsspec knows) that are used alike.

What is relied on is little: an object appears whole, a listing shows what was written before it, and `create` fails where the
name is taken (docs/scale.md says which stores do that). Keys are read by the store's own package, never by this one.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any

from ..errors import InputError, MissingExtra, SteadyscoreError, StorageError
from .credentials import check_credentials, redact
from .extras import check_installed, is_installed, missing_extra

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
PASSWORD = re.compile(r"://[^/@]*:(?!\d{1,5}(?:/|$))[^@]*@")
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


@dataclass(frozen=True, order=True, slots=True)
class StorePath:
    """A file or folder of an object store, used as a `Path` is. There is no folder but the names that begin with it.

    It is no `os.PathLike`: what opens files of this machine refuses it, instead of writing elsewhere.
    """

    address: str
    """Without a slash at the end."""

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str | PurePath) -> StorePath:
        return StorePath("/".join([self.address, *PurePosixPath(name).parts]))

    @property
    def parts(self) -> tuple[str, ...]:
        scheme, _, rest = self.address.partition("://")
        return (f"{scheme}://", *rest.split("/"))

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> StorePath:
        return StorePath(self.address.rpartition("/")[0])

    def with_name(self, name: str) -> StorePath:
        return self.parent / name

    def relative_to(self, folder: StorePath) -> PurePosixPath:
        return PurePosixPath(*self.parts[len(folder.parts) :])

    def absolute(self) -> StorePath:
        return self

    @contextmanager
    def _opened(self, doing: str = "write", *, absent: bool = False) -> Iterator[tuple[Any, str]]:
        """The store's file system and the path in it; what it refuses is one sentence. With `absent`, an object that is not there
        is the caller's to word."""
        opened = _open(self.address)
        try:
            yield opened
        except SteadyscoreError:
            raise
        except Exception as fault:  # stores raise what their packages like: botocore's, aiohttp's, Google's and Azure's own
            if absent and isinstance(fault, FileNotFoundError):
                raise FileNotFoundError(self.address) from fault
            raise StorageError(f"cannot {doing} {self.address}: {_reason(self.address, fault)}") from fault

    # -- looking

    def exists(self) -> bool:
        with self._opened("open") as (files, path):
            return bool(files.exists(path))

    def is_symlink(self) -> bool:
        return False

    def version(self) -> str:
        """What changes with the content of the file."""
        with self._opened("read") as (files, path):
            about = files.info(path)
        if about.get("type") == "directory":
            raise InputError(f"{self.address} is a folder. Name a file of its store.")
        return f"{about.get('size')}:{next((about[key] for key in VERSIONS if about.get(key)), '')}"

    def files(self, beginning: str = "") -> list[StorePath]:
        """Every file below, in the order of their names; only those whose names begin so."""
        kind = self.address.partition("://")[0].lower()
        there: list[str] = []
        with self._opened("open") as (files, root):
            with suppress(FileNotFoundError):
                there = files.find(root, **({"prefix": beginning} if beginning and kind in ("s3", "s3a") else {}))
            if not there and kind in BUCKETS:
                with suppress(PermissionError):  # a key may be good for a part of a bucket only
                    files.info(root.partition("/")[0])
        start = root.rstrip("/") + "/"
        names = sorted(path.removeprefix(start) for path in there if path.startswith(start) and not path.endswith("/"))
        for name in names:
            if ".." in PurePosixPath(name).parts or "\\" in name or name.startswith("/"):
                raise StorageError(
                    f"{self.address} holds an object called {name!r}, which cannot be the name of a file. Remove it first."
                )
        return [self / name for name in names if name.startswith(beginning)]

    # -- reading and writing

    def read_bytes(self) -> bytes:
        with self._opened("read", absent=True) as (files, path):
            return bytes(files.cat_file(path))

    def download(self, file: Path) -> None:
        with self._opened("read", absent=True) as (files, path):
            files.get_file(path, str(file))

    def write_bytes(self, content: bytes) -> None:
        with self._opened() as (files, path):
            files.pipe_file(path, content)

    def create(self, content: bytes) -> bool:
        """Write the file unless it is there; gives whether this call wrote it."""
        with self._opened() as (files, path):
            for attempt in range(CONFLICTS):
                try:
                    files.pipe_file(path, content, mode="create")
                    return True
                except FileExistsError:
                    break
                except OSError as refusal:
                    if (code := _code(refusal)) == "PreconditionFailed":
                        break
                    if code != "ConditionalRequestConflict" or attempt + 1 == CONFLICTS:
                        raise
                    time.sleep(0.2 * 2**attempt)
        return self.read_bytes() == content  # a request that was sent twice is refused the second time

    def replace(self, target: StorePath) -> None:
        with self._opened() as (files, path):
            files.copy(path, _open(target.address)[1])
            files.rm_file(path)

    def unlink(self, *, missing_ok: bool = False) -> None:
        with self._opened() as (files, path), suppress(*([FileNotFoundError] if missing_ok else [])):
            files.rm_file(path)

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """A store has no folders to make."""


Place = Path | StorePath
"""A folder or a file: of this machine, or of an object store."""


def open_whole(file: Place) -> IO[bytes]:
    """The content of a file as a stream; from a store in one request."""
    return io.BytesIO(file.read_bytes()) if isinstance(file, StorePath) else open(file, "rb")


def is_address(place: object) -> bool:
    return isinstance(place, StorePath) or (isinstance(place, str) and ADDRESS.match(place) is not None)


def parse_place(text: str | Place) -> Place:
    """A path, or an address of a store; one with a key in it is refused, as it would stand in every record."""
    if isinstance(text, StorePath):
        return text
    if isinstance(text, Path) or not is_address(text):
        return Path(text)
    if PASSWORD.search(text):
        scheme = text.partition("://")[0]
        raise InputError(f"a {scheme}:// address was given with a user name and a password. Leave them out: keys are read from "
                         "where the store's own tools look for them, such as the environment.")  # fmt: skip
    check_credentials(text)
    return StorePath(text.rstrip("/"))


def _open(address: str) -> tuple[Any, str]:
    """The file system of an address and the path in it."""
    kind, _, rest = address.partition("://")
    bucket, _, _ = rest.partition("/")
    files, root = _file_system(kind.lower(), bucket, os.getpid())
    named: str = files._strip_protocol(f"{kind.lower()}://{rest}")
    return files, named or root


@cache
def _file_system(protocol: str, bucket: str, process: int) -> tuple[Any, str]:
    """One for each bucket and process: no connection is shared with a process that forked."""
    check_installed(f"An address of {protocol}://", "fsspec")
    import fsspec

    address = f"{protocol}://{bucket}"
    if protocol not in fsspec.available_protocols():
        raise InputError(f"{address}: no kind of store is called {protocol}://. Use a path, s3://, gs:// or az://.")
    try:
        opened: tuple[Any, str] = fsspec.url_to_fs(address, skip_instance_cache=True, use_listings_cache=False)
    except ImportError as missing:
        raise _missing_package(protocol, missing) from missing
    except ValueError as mistake:
        raise InputError(f"{address} is not an address of a store: {' '.join(str(mistake).split())}.") from mistake
    return opened


# -- refusals


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
