"""What a run says of itself: who was asked for what, what scored it, and what that cost.

Frozen values, checked when a file is read; keys that another version adds are left alone. What parts and requests say is JSON
that only this package reads, and has the types at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Required, cast

from typing_extensions import TypedDict

from ..errors import InputError
from ..machine.names import is_plain_name
from ..tasks import TASKS
from ..terms import Failure, JsonObject, Readout, Ties


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a scorer can tell; written into every run and printed in its report."""

    gives: Literal["distribution", "score", "ranking"]
    distribution: Literal["exact", "top_k", "none"] = "none"
    label_mass: bool = False
    order_free: bool = False
    """True where the order of the candidates cannot change a score by construction."""
    lora: bool = False
    deterministic: bool = False
    isolation: bool = False
    """Can keep the candidates of a window from seeing each other; a set window needs that too."""
    parity: str | None = None
    """What the parity check says of an engine that is not `hf`, or why it could not look."""

    def to_json(self) -> dict[str, object]:
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


@dataclass(frozen=True, slots=True)
class DataIdentity:
    """The collection that was scored."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What must be equal for two commands to work on one run: the scorer's identity, the data, the presentation."""

    keys: JsonObject = field(default_factory=dict)
    """All of it; a scorer adds keys of its own."""
    scorer: object = None
    data: DataIdentity | None = None
    queries: int | None = None
    query_ids: list[str] | None = None
    pool: int | None = None
    permutations: int | None = None
    canonical: bool | None = None
    seed: int | None = None
    scheme: str | None = None
    width: int | None = None
    chars: int | None = None
    partition: str | None = None
    markers: str | None = None
    placeholder: str | None = None
    instruction: str | None = None
    prompt: str | None = None
    prompt_hash: str | None = None
    mitigations: list[str] = field(default_factory=list)
    condition: str | None = None

    @property
    def adapter(self) -> JsonObject | None:
        """What tells the adapter of the scorer from others, where it has one."""
        adapter = self.scorer.get("adapter") if isinstance(self.scorer, Mapping) else None
        return adapter if isinstance(adapter, Mapping) else None

    @classmethod
    def of(cls, keys: JsonObject) -> Fingerprint:
        from ..machine.schemas import read_as

        return replace(read_as(cls, keys), keys=keys)


@dataclass(frozen=True, slots=True)
class Start:
    """What scored when a command began to work in a run folder."""

    versions: dict[str, str]
    """This package, Python, the machine and the engine's libraries."""
    endpoint: str | None = None
    """The address of an endpoint, without credentials."""
    revision: str | None = None
    """The weights, where the scorer knows them."""
    files: dict[str, str] = field(default_factory=dict)
    """Watched file -> digest."""
    changed: tuple[str, ...] = ()
    """What had changed since the start before, where the user let it pass."""
    queries_before: int = 0
    """Queries that were on disk at such a change; 0 where workers scored parts of the run at the same time."""
    answers: dict[str, dict[str, float]] = field(default_factory=dict)
    """Query -> candidate -> its score after such a change: what later starts are compared with."""
    times: tuple[str, ...] = ()
    """When; one for every session of it."""


@dataclass(frozen=True, slots=True)
class ShrunkWindow:
    """A window whose texts were cut to fit the model."""

    query_id: str
    window: int
    """Counted from 1."""
    chars: int
    known: int = 0
    """Orders of its query that were scored before the run grew to this one."""
    candidates: tuple[str, ...] = ()
    """In slot order; earlier versions do not say them."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What showing some windows took."""

    tokens: int = 0
    """Of every prompt; of scorers that take text, by its length."""
    shrunk: tuple[ShrunkWindow, ...] = ()
    """Windows whose texts were cut to fit."""
    windows: int = 0
    """Of a query of a run, as `scoring.score.windows_of` counts them."""
    skipped: int = 0
    """Windows that were foreseen and not shown, since their pool was decided."""
    shuffled: float | None = None
    """The largest difference of a score in another order and under other ids; None where none was tried."""

    def __add__(self, other: Cost) -> Cost:
        tokens, windows, skipped = self.tokens + other.tokens, self.windows + other.windows, self.skipped + other.skipped
        return Cost(tokens, self.shrunk + other.shrunk, windows, skipped)


@dataclass(frozen=True, slots=True)
class ScoredAgain:
    """Stored windows that were scored again before a run went on."""

    windows: int
    difference: float
    """The largest, of a score from what is stored."""
    noise_floor: float | None
    """What reading one order again moved a score by at most, where that was measured by then."""


@dataclass(slots=True)
class Session:
    """What one start of a run cost, added up while it scores."""

    shrunk: list[ShrunkWindow] = field(default_factory=list)
    seconds: float | None = None
    windows: int | None = None
    tokens: int | None = None
    spent: dict[str, float] | None = None
    """Requests, tokens and cost, of an endpoint that charges."""
    scored_again: ScoredAgain | None = None
    shuffled_pools: int | None = None
    """Pools that a scorer which declares itself order-free was shown in another order, under other ids."""
    shuffled_difference: float | None = None
    """The largest that this moved a score by: rounding, or it would have been an error."""
    start: int | None = None
    """Its place among `starts`."""

    def add(self, cost: Cost) -> None:
        """Count what a query took."""
        self.windows, self.tokens = (self.windows or 0) + cost.windows, (self.tokens or 0) + cost.tokens
        self.shrunk = [*self.shrunk, *cost.shrunk]
        if cost.shuffled is not None:
            self.shuffled_pools = (self.shuffled_pools or 0) + 1
            self.shuffled_difference = max(self.shuffled_difference or 0.0, cost.shuffled)

    def costs(self) -> dict[str, object]:
        """As the note of a part has it, where cuts go by the part."""
        return cast("dict[str, object]", to_json(replace(self, shrunk=[])))


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """What was to be known of a measure before the rest was scored (`--until`), and what is."""

    until: str
    answer: Literal["holds", "fails", "undecided"]
    low: float
    """What the mean over queries like these lies between, however often one looked."""
    high: float
    queries: int
    """Those that were looked at, in random order."""
    of_queries: int
    permutations: int
    of_permutations: int
    of_windows: int
    """Of all queries under all permutations."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What all sessions of a complete run scored, and cost together."""

    queries: int
    scored: int
    failed: list[Failure]
    cut: int | None = None
    """Candidates whose text is longer than the characters that were shown of it."""
    shrunk: list[ShrunkWindow] | None = None
    """This and what follows: None of scores that were given, which cost nothing."""
    seconds: float | None = None
    windows: int | None = None
    tokens: int | None = None
    spent: dict[str, float] | None = None
    shuffled_pools: int | None = None
    shuffled_difference: float | None = None
    stop: EarlyStop | None = None


class StoredThreshold(TypedDict, total=False):
    """The threshold a run was audited with: the fields of `measures.threshold.Threshold`."""

    cutoff: float | Literal["f1"] | None
    protocol: Literal["midpoints", "reference"]
    seed: int
    retention: float | None
    keep_first: int | None
    keep_share: float | None
    half: bool


class StoredReading(TypedDict, total=False):
    """How a run's table was last read: the fields of `measures.views.Reading`."""

    readout: Readout
    ties: Ties


@dataclass(frozen=True, slots=True)
class SetAside:
    """A damaged file that was moved to `damaged/`."""

    file: str
    reason: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as a whole: run.json, the newest request, and what its parts say."""

    keys: JsonObject = field(default_factory=dict, compare=False, repr=False)
    """run.json and the newest request."""
    format: int
    status: Literal["scoring", "complete"]
    name: str
    """The scorer's."""
    collection: str
    task: str
    fingerprint: Fingerprint
    created: str | None = None
    source: str | None = None
    """The collection as it was asked for: a name or a file."""
    columns: dict[str, str] | None = None
    """The names that were given to columns of that file."""
    first_stage: str | None = ""
    """What ranked the pools, in the collection's words; None where their order is not a ranking, empty where it is not told."""
    command: list[str] = field(default_factory=list)
    capabilities: Capabilities | None = None
    versions: dict[str, str] | None = None
    starts: list[Start] = field(default_factory=list)
    """What scored the run, each time."""
    sessions: list[Session] = field(default_factory=list)
    coverage: Coverage | None = None
    threshold: StoredThreshold = field(default_factory=lambda: StoredThreshold())
    reading: StoredReading = field(default_factory=lambda: StoredReading())
    files: dict[str, int] | list[str] | None = None
    """Tables beside the scores that must be there, and how many rows they have; a list of names in format 1."""
    accepted: list[str] = field(default_factory=list)
    """Changes of the scorer that the user let pass."""
    notes: list[str] = field(default_factory=list)
    """What is odd in the data and was read all the same, a sentence each."""
    set_aside: list[SetAside] = field(default_factory=list)

    @property
    def gives_ranking(self) -> bool:
        """Whether the scorer gives an order and no scores."""
        return self.capabilities is not None and self.capabilities.gives == "ranking"

    @property
    def is_order_free(self) -> bool:
        """Whether the scorer says that no order moves its scores."""
        return self.capabilities is not None and self.capabilities.order_free

    @property
    def failed(self) -> list[Failure]:
        """Queries that could not be scored."""
        return [] if self.coverage is None else self.coverage.failed

    def to_json(self) -> dict[str, object]:
        """As status.json has it."""
        made = {"starts": to_json(self.starts), "sessions": to_json(self.sessions)}
        made |= {} if self.coverage is None else {"coverage": to_json(self.coverage)}
        made |= {"notes": self.notes} if self.notes else {}
        return {**self.keys, "status": self.status, "fingerprint": self.fingerprint.keys, **made}


def to_json(value: Any) -> Any:
    """A record as JSON: fields that are at their default are left out."""
    if is_dataclass(value):
        given = [(f, getattr(value, f.name)) for f in fields(value)]
        return {f.name: to_json(each) for f, each in given if each != _default(f)}
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items()}
    return [to_json(each) for each in value] if isinstance(value, list | tuple) else value


def _default(f: Field[Any]) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


def read_record(keys: JsonObject, intro: str, remedy: str) -> RunRecord:
    """A record of these keys, or all at once what is not of the kinds that this version reads."""
    from ..machine.schemas import kind_mistakes, read_as

    mistakes = kind_mistakes(RunRecord, keys)
    if isinstance(task := keys.get("task"), str) and task not in TASKS:
        mistakes.append(f"task: use one of {', '.join(TASKS)}")
    if isinstance(files := keys.get("files"), dict | list):
        elsewhere = [name for name in files if isinstance(name, str) and not is_plain_name(name)]
        mistakes += [f"files: {name[:80]!r} is not the name of a table in this folder" for name in elsewhere]
    for name, kind in (("threshold", StoredThreshold), ("reading", StoredReading)):
        stored = given if isinstance(given := keys.get(name), dict) else {}
        mistakes += [f"{name}.{key}: this version does not know the key" for key in stored if key not in kind.__annotations__]
    if isinstance(coverage := keys.get("coverage"), dict):
        counts = {key: count for key in ("queries", "scored", "cut") if isinstance(count := coverage.get(key), int)}
        mistakes += [f"coverage.{key}: {count} is below 0" for key, count in counts.items() if count < 0]
    elif keys.get("status") == "complete":
        mistakes.append("a complete run has coverage, and it is missing")
    if mistakes:
        raise InputError(f"{intro}: {'; '.join(mistakes)}. {remedy}")
    record = read_as(RunRecord, keys)
    return replace(record, keys=keys, fingerprint=replace(record.fingerprint, keys=cast("JsonObject", keys["fingerprint"])))


# -- JSON of this package alone


class SessionNote(TypedDict, total=False):
    """A session in the note of a part, with what it had cost when the part was written (`Session`)."""

    id: Required[str]
    number: Required[int]
    """One more than that of any session that was there when it began."""
    time: Required[str]
    puts: int
    """Parts that it had written."""
    scored_by: Required[JsonObject]
    """`Start`: what scored."""


class PartNote(TypedDict, total=False):
    """What a part says beside its rows."""

    sessions: list[SessionNote]
    shrunk: dict[str, list[JsonObject]]
    """By session and number of its part: `ShrunkWindow`s of these rows."""
    # of a part of table `queries`
    asked: str
    """What is asked for, as a digest."""
    number: int
    """One more than that of the list of queries before."""
    first: int
    """Place of its first query."""
    rows: int
    total: int
    """Of the last part of a list: how many queries there are in all."""
    cut: int
    failed: list[dict[str, str]]
    """`Failure`s."""
    notes: list[str]
    stop: JsonObject
    """`EarlyStop`."""
    order: int
    """Of other tables: rows of a later part count instead of equal keys before."""


class Request(TypedDict, total=False):
    """What one command asked of a run, and how its table was read: the newest counts."""

    fingerprint: JsonObject
    """The keys that may grow: permutations, queries, query_ids."""
    command: list[str]
    name: str
    notes: list[str]
    threshold: StoredThreshold
    reading: StoredReading
    files: dict[str, int]
    """Rows of the tables beside the scores; fewer are damage."""
    accepted: list[str]
    """Changes of the scorer that the user let pass."""
    set_aside: list[dict[str, str]]
    """`SetAside`s."""
