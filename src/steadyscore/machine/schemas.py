"""What JSON files of ours may hold, checked on reading, and the mistakes of such a check as sentences.

Keys that other versions add are left alone; a value of another kind is refused with its place. pydantic is imported here, so this
module is imported by the functions that read a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from ..errors import InputError
from ..tasks import TASKS
from ..terms import Markers, Partition, Placeholder, PromptStyle


def _check_task(name: str) -> str:
    if name not in TASKS:
        raise ValueError(f"use one of {', '.join(TASKS)}")
    return name


TaskName = Annotated[str, AfterValidator(_check_task)]


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


def check_record(schema: type[Record], value: dict[str, Any], intro: str, remedy: str) -> None:
    """Refuse a value that does not have the shape, all mistakes at once."""
    try:
        schema.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{intro}: {'; '.join(mistakes_of(error))}. {remedy}") from None


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


class Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


# -- card.json


class CardBase(Record):
    model: str
    weights: str | None


class CardSettings(Record):
    """How an adapter was shown its windows."""

    width: int | None = None
    chars: int | None = None
    partition: Partition = "contiguous"
    markers: Markers = "numeric"
    placeholder: Placeholder = "0"
    prompt: PromptStyle | None = None
    instruction: str | None = None


class CardData(Record):
    name: str
    queries: int


class CardCutoff(Record):
    value: float | None = None
    overlap: float | None = None


class CardFinding(Record):
    collection: str
    helps: bool
    sentence: str


class HeldOut(Record):
    step: int
    quality: float
    tau_psi: float
    dispersion: float


class Card(Record):
    """card.json of an adapter."""

    base: CardBase
    task: TaskName
    objective: str
    weight: float
    weight_convention: str
    views: int
    widths: list[int]
    settings: CardSettings
    prompt_hash: str
    grade_tokens: list[int]
    data: CardData
    labels: dict[str, Any]
    seed: int
    steps: int
    learning_rate: float
    lora: dict[str, Any]
    held_out: list[HeldOut]
    versions: dict[str, str]
    name: str | None = None
    about: str | None = None
    licence: str | None = None
    batch: int | None = None
    initial: dict[str, Any] | None = None
    cutoff: CardCutoff | None = None
    measured: dict[str, float] | None = None
    findings: list[CardFinding] | None = None
