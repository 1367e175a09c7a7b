"""What JSON files of ours may hold, checked on reading, and the mistakes of such a check as sentences.

Keys that other versions add are left alone; a value of another kind is refused with its place. pydantic is imported here, so this
module is imported by the functions that read a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError


class HasErrors(Protocol):
    """pydantic's errors, and FastAPI's, which wrap them."""

    def errors(self) -> Iterable[Mapping[str, Any]]: ...


def place_of(mistake: Any, unnamed: Sequence[str] = ("body",)) -> str:
    """Where a mistake stands, without the parts that pydantic names only for itself."""
    return ".".join(str(part) for part in mistake["loc"] if part not in unnamed and "[" not in str(part))


def words_of(mistake: Any) -> str:
    return str(mistake["msg"]).removeprefix("Value error, ")


def mistakes_of(
    error: HasErrors, whole: str = "", *, place: Callable[[Any], str] = place_of, words: Callable[[Any], str] = words_of
) -> list[str]:
    """Every mistake once, with its place; `whole` names the place of what is wrong with all of it."""
    found = []
    for mistake in error.errors():
        said = words(mistake)
        found.append(f"{place(mistake) or whole}: {said[:1].lower()}{said[1:]}".removeprefix(": "))
    return list(dict.fromkeys(found))


def kind_mistakes(kind: Any, value: object, where: str = "") -> list[str]:
    """Where a value is not of the kind that a type states (a TypedDict, say); `where` names the place of the whole."""
    try:
        _adapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        return mistakes_of(error, place=lambda mistake: ".".join(filter(None, (where, place_of(mistake)))))
    return []


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
