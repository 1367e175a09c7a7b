"""Folders of this machine that are working copies of a folder elsewhere: who is told of a change, and what they are called.

A folder is named by its place: a path, or an address with a scheme (`s3://bucket/run`). Code that reads and writes files sees
paths only; `disk.py` tells the mirror of a path, where it has one, of every whole file that was written. `working_copies.py`
makes mirrors.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ..errors import InputError, SteadyscoreError
from .credentials import check_credentials

Place = str | Path
"""A folder or a file: a path of this machine, or an address with a scheme."""

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
PASSWORD = re.compile(r"://[^/@]*:(?!\d{1,5}(?:/|$))[^@]*@")


class Mirror(Protocol):
    """A folder of this machine and the one elsewhere that it is a working copy of."""

    @property
    def folder(self) -> Path: ...

    @property
    def address(self) -> str: ...

    def push(self, file: Path) -> None:
        """Have whatever has changed elsewhere too, this file last."""
        ...

    def push_once(self, file: Path, content: bytes) -> bool:
        """Write a file here and elsewhere unless it is there; gives whether it was written. Afterwards it is here."""
        ...

    def fetch(self, file: Path) -> None:
        """Get a file that is elsewhere and not here."""
        ...

    def hold(self, folder: Path) -> AbstractContextManager[None]:
        """One process at a time works in a folder, whatever machine it runs on; a second one is refused."""
        ...


_mirrors: list[Mirror] = []
_addresses: dict[str, str] = {}
"""Copy of a file -> its address."""


def add_mirror(mirror: Mirror) -> None:
    _mirrors.append(mirror)


def remove_mirror(mirror: Mirror) -> None:
    _mirrors.remove(mirror)


def mirror_of(path: Path) -> Mirror | None:
    """The mirror that a path lies in."""
    return next((mirror for mirror in _mirrors if path.is_relative_to(mirror.folder)), None)


def tell_written(file: Path) -> None:
    """A whole file has appeared under its name."""
    if mirror := mirror_of(file):
        mirror.push(file)


def fetch(file: Path) -> None:
    """Get what another machine may have written since the folder was opened."""
    if mirror := mirror_of(file):
        mirror.fetch(file)


# -- names


def is_address(place: Place) -> bool:
    return isinstance(place, str) and ADDRESS.match(place) is not None


def parse_place(text: Place) -> Place:
    """A path, or an address without a slash at its end; one with a key in it is refused, as it would stand in every record."""
    if isinstance(text, Path) or not is_address(text):
        return Path(text)
    if PASSWORD.search(text):
        scheme = text.partition("://")[0]
        raise InputError(f"a {scheme}:// address was given with a user name and a password. Leave them out: keys are read from "
                         "where the store's own tools look for them, such as the environment.")  # fmt: skip
    check_credentials(text)
    return text.rstrip("/")


def below(place: Place, name: str) -> Place:
    """A folder in a folder."""
    return place / name if isinstance(place, Path) else f"{place}/{name}"


def beside(place: Place, ending: str) -> Place:
    """A folder beside a file, called as it with an ending."""
    return place.with_name(place.name + ending) if isinstance(place, Path) else place + ending


def name_of(path: Place) -> str:
    """What messages and records call a path: its address, where it lies in a working copy."""
    if isinstance(path, str) or (mirror := mirror_of(path)) is None:
        return str(path)
    return "/".join([mirror.address, *path.relative_to(mirror.folder).parts])


def note_address(path: Path, address: str) -> None:
    """Have messages call a file by the address that it was copied from."""
    _addresses[str(path)] = address


def name_addresses(text: str) -> str:
    """A message in which copies go by their addresses."""
    for path, address in {**_addresses, **{str(mirror.folder): mirror.address for mirror in _mirrors}}.items():
        text = text.replace(path, address)
    return text


def name_addresses_in(error: SteadyscoreError) -> None:
    """The same in an error that is on its way to the user."""
    error.args = tuple(name_addresses(part) if isinstance(part, str) else part for part in error.args)
    if isinstance(error, InputError):
        error.mistakes = [name_addresses(mistake) for mistake in error.mistakes]
