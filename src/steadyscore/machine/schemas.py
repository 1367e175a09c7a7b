"""What JSON may hold, in files and in requests: kinds of values that are checked on reading, and their mistakes as sentences.

In files of ours keys that other versions add are left alone; a value of another kind is refused with its place. pydantic is
imported here, so the packages that also measure import this module in the functions that read a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

SURROGATE = "holds half of a surrogate pair, which is not a character. Send text that UTF-8 can carry"
T = TypeVar("T")

MOST_UNKNOWN = 5
"""Unknown fields of one object that are named in a refusal."""


def check_characters(text: str) -> str:
    """JSON can spell text that no tokenizer, file or answer can hold: `\\ud800` alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("string_unicode", SURROGATE) from None
    return text


def check_json(value: Any) -> Any:
    """Any JSON value whose texts UTF-8 can carry."""
    check_characters(json.dumps(value, ensure_ascii=False))
    return value


def check_whole(value: Any) -> Any:
    """pydantic would also read true and "1" as a number; 1.0 is an integer in JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def refuse_more_keys(most: int) -> BeforeValidator:
    """pydantic counts the keys of an object when it has written the mistakes of all of them; this counts them before."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            sizes = {"field_type": "Dictionary", "max_length": most, "actual_length": len(value)}
            raise PydanticKnownError("too_long", sizes)
        return value

    return BeforeValidator(check)


Flag = Annotated[bool, Field(strict=True)]
Real = Annotated[FiniteFloat, Field(strict=True)]
Natural = Annotated[int, Field(ge=0), BeforeValidator(check_whole)]
Count = Annotated[int, Field(ge=1), BeforeValidator(check_whole)]
Seed = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(check_whole)]
Words = Annotated[str, AfterValidator(check_characters)]
Key = Annotated[str, Field(min_length=1), AfterValidator(check_characters)]
Json = Annotated[Any, AfterValidator(check_json)]


class Closed(BaseModel):
    """A shape in which a field nobody knows is a mistake."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def keep_few_unknown(cls, value: Any) -> Any:
        """pydantic writes a mistake for each unknown field, and a body has room for 400,000."""
        if not isinstance(value, dict):
            return value
        unknown = {name: value[name] for name in islice((n for n in value if n not in cls.model_fields), MOST_UNKNOWN)}
        return {name: value[name] for name in cls.model_fields if name in value} | unknown


class HasErrors(Protocol):
    """pydantic's errors, and FastAPI's, which wrap them."""

    def errors(self) -> Iterable[Mapping[str, Any]]: ...


def place_of(mistake: Any, unnamed: Sequence[str] = ("body",)) -> str:
    """Where a mistake stands, without the parts that pydantic names only for itself."""
    return ".".join(str(part) for part in mistake["loc"] if part not in unnamed and "[" not in str(part))


def words_of(mistake: Any) -> str:
    if mistake["type"] == "extra_forbidden":
        return "there is no such field"
    return str(mistake["msg"]).removeprefix("Value error, ")


def mistakes_of(
    error: HasErrors, whole: str = "", *, place: Callable[[Any], str] = place_of, words: Callable[[Any], str] = words_of
) -> list[str]:
    """Every mistake once, with its place; `whole` names the place of what is wrong with all of it."""
    sentences = []
    for mistake in error.errors():
        said = words(mistake)
        sentences.append(f"{place(mistake) or whole}: {said[:1].lower()}{said[1:]}".removeprefix(": "))
    return list(dict.fromkeys(sentences))


def kind_mistakes(kind: Any, value: object) -> list[str]:
    """Where a JSON value is not of the kind that a type states (a dataclass, say)."""
    try:
        read_as(kind, value)
    except ValidationError as error:
        return mistakes_of(error)
    return []


def read_as(kind: type[T], value: object) -> T:
    """A JSON value as the type that states its kind: keys that the type lacks are left out."""
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # a type can be hashed
    # Strictly as JSON, where an object may become a dataclass; then as it is, with file names that are not UTF-8.
    adapter.validate_json(json.dumps(value, ensure_ascii=False).encode(errors="replace"), strict=True)
    return adapter.validate_python(value)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
