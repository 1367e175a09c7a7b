"""What JSON files of ours may hold, checked on reading, and the mistakes of such a check as sentences.

Keys that other versions add are left alone; a value of another kind is refused with its place. pydantic is imported here, so this
module is imported by the functions that read a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import InputError
from ..tasks import TASKS
from ..terms import Markers, Partition, Placeholder, PromptStyle


def _known_task(name: str) -> str:
    if name not in TASKS:
        raise ValueError(f"use one of {', '.join(TASKS)}")
    return name


TaskName = Annotated[str, AfterValidator(_known_task)]


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


class Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


# -- run.json


class FailedQuery(Record):
    query_id: str
    reason: str


class ShrunkWindow(Record):
    query_id: str
    window: int
    chars: int


class Session(Record):
    """What one start of a run cost."""

    seconds: float = 0
    windows: int = 0
    shrunk: list[ShrunkWindow] = []
    spent: dict[str, float] = {}


class Coverage(Session):
    queries: int = Field(ge=0)
    scored: int = Field(ge=0)
    failed: list[FailedQuery]


class DataIdentity(Record):
    name: str
    sha256: str


class RunFingerprint(Record):
    """What had to be equal to go on; only what is read back has a kind here."""

    data: DataIdentity | None = None
    width: int | None = None
    permutations: int | None = None
    canonical: bool | None = None
    mitigations: list[str] = []


class ThresholdChoice(Record):
    model_config = ConfigDict(strict=True, extra="forbid")

    cutoff: float | None = None
    protocol: Literal["midpoints", "reference"] = "midpoints"
    seed: int = 0
    retention: float | None = None


class RunRecord(Record):
    """run.json."""

    format: int
    status: Literal["scoring", "complete"]
    name: str
    collection: str
    task: TaskName
    fingerprint: RunFingerprint
    created: str = ""
    source: str = ""
    command: list[str] = []
    capabilities: dict[str, Any] = {}
    versions: dict[str, str] = {}
    sessions: list[Session] = []
    coverage: Coverage | None = None
    threshold: ThresholdChoice = ThresholdChoice()
    files: list[str] = []

    @model_validator(mode="after")
    def _covered(self) -> RunRecord:
        if self.status == "complete" and self.coverage is None:
            raise ValueError("a complete run has coverage, and it is missing")
        return self


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
