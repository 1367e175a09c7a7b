"""What the files of a run folder are called and what they hold. `folder.py` writes and reads them.

    run.json             RunRecord: what was asked first, by whom, of what; written once
    requests/*.json      Request: what was asked later, and how a table is read; numbered, each written once
    parts/<table>/       rows, written once, each part named after its content (`parts.py`); tables are
        scores           score_schema, keyed by query and permutation
        queries          index_schema: the queries of a request in their order, written when all were scored or had failed
        noise, outputs-M, timings, perturbed-KIND  the schemas below
    damaged/             parts that were not what had been written, set aside before their rows were made again

Views, written for people when a run is complete and never read back:

    status.json          RunRecord as a whole: status, coverage, sessions, starts
    scores.parquet       score_schema: one row per query, permutation and candidate, queries in the order of the collection
    queries.parquet      query_schema: text, answers and verdict of every query, and the relevance of every judged document
    noise.parquet        score_schema: one presentation of some queries scored repeatedly (--noise-floor)
    timings.parquet      timing_schema: seconds of single requests (`reproduce`)
    perturbed-*.parquet  perturbed_schema: what a changed pool or other markers moved (--perturb)
    outputs.parquet      output_schema: what readers wrote under every permutation (--reader)
    measures.parquet     measure_schema: every measure of every query; made anew by each audit
    summary.json         the figures as `--json` prints them; made anew by each audit

    labels.parquet       label_schema: the grades that `label` makes of the scores, beside derived.json; read by `train`

Every JSON object, and every table that is no part, carries its checksum (`machine/checksums.py`).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from typing_extensions import TypedDict

from ..errors import InputError
from ..machine.names import is_plain_name
from ..tasks import TASKS
from ..terms import Readout, Ties

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 2

RECORD_FILE, SUMMARY_FILE, DERIVED_FILE = "run.json", "summary.json", "derived.json"
DECISIONS_FILE = "decision-run.json"
"""What an audit of decisions has in place of a run's record."""
SCORES_FILE, QUERIES_FILE, NOISE_FILE, OUTPUTS_FILE = "scores.parquet", "queries.parquet", "noise.parquet", "outputs.parquet"
TIMINGS_FILE = "timings.parquet"
CLEAN, ATTACKS_FOLDER, HARMLESS = "clean", "attacks", "harmless"
"""Folders below that of an attack, which hold its runs."""
MEASURES_FILE, LABELS_FILE = "measures.parquet", "labels.parquet"
STATUS_FILE = "status.json"
PARTS_FOLDER, REQUESTS_FOLDER, DAMAGED_FOLDER = "parts", "requests", "damaged"

TABLES = (SCORES_FILE, QUERIES_FILE)
"""Views that every complete run has."""

GRADE_COLUMNS = ("grade_0", "grade_1", "grade_2", "grade_3")


def perturbed_file(kind: str) -> str:
    """The table of one kind of perturbation."""
    return f"perturbed-{kind}.parquet"


def perturbation_of(name: str) -> str | None:
    """The kind of perturbation whose table has this name."""
    is_perturbed = name.startswith("perturbed-") and name.endswith(".parquet")
    return name.removeprefix("perturbed-").removesuffix(".parquet") if is_perturbed else None


def flag_of(name: str) -> str:
    """The flag of `audit` that makes a table beside the scores; empty for the tables that every run has."""
    if kind := perturbation_of(name):
        return f"--perturb {kind}"
    return "--reader ADDRESS" if name.startswith("outputs") else {NOISE_FILE: "--noise-floor"}.get(name, "")


def remedy_for(name: str) -> str:
    """What happens, or has to be asked for, to get the rows of a damaged table back."""
    if flag := flag_of(name):
        return f"It is set aside; pass {flag} to make it again."
    what = "its rows are written again" if name == QUERIES_FILE else "its queries are scored again"
    return f"It is set aside, and {what}."


def repair_command(command: list[str] | None, name: str) -> str:
    """The command that made a run, with the flag that makes a table of it again."""
    words, flag = command or ["steadyscore", "audit", "..."], flag_of(name)
    return shlex.join(words) + ("" if not flag or flag.split()[0] in words else f" {flag}")


# -- columns


def score_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("query_id", pa.string()),
            ("permutation", pa.int32()),
            ("candidate_id", pa.string()),
            ("slot", pa.int32()),
            ("window", pa.int32()),
            ("partition", pa.string()),
            ("score", pa.float64()),
            *((name, pa.float32()) for name in GRADE_COLUMNS),
            ("label_mass", pa.float32()),
            ("relevance", pa.int32()),
        ]
    )


def query_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("query_id", pa.string()),
            ("query", pa.string()),
            ("answers", pa.list_(pa.string())),
            ("verdict", pa.string()),
            ("judged", pa.list_(pa.int32())),
        ]
    )


def index_schema() -> pa.Schema:
    """The columns of queries.parquet, and how many permutations of a query were scored; null where it failed."""
    import pyarrow as pa

    return query_schema().append(pa.field("orders", pa.int32()))


class QueryRow(TypedDict):
    """A row of queries.parquet."""

    query_id: str
    query: NotRequired[str]
    answers: NotRequired[list[str] | None]
    verdict: NotRequired[str | None]
    judged: list[int] | None
    """Relevance of every judged document."""


def perturbed_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("query_id", pa.string()), ("measure", pa.string()), ("value", pa.float64())])


def timing_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("way", pa.int32()), ("query_id", pa.string()), ("round", pa.int32()), ("seconds", pa.float64())])


def output_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("query_id", pa.string()), ("permutation", pa.int32()), ("reader", pa.string()), ("output", pa.string())])


def measure_schema() -> pa.Schema:
    import pyarrow as pa

    text = [(name, pa.string()) for name in ("variant", "collection", "query_id", "measure")]
    return pa.schema([*text, ("value", pa.float64())])


def label_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("query_id", pa.string()),
            ("candidate_id", pa.string()),
            ("vector", pa.list_(pa.float64())),
            ("grades", pa.list_(pa.float32())),
            ("first", pa.bool_()),
        ]
    )


# -- run.json


class FailedQuery(TypedDict):
    query_id: str
    reason: str


class ShrunkWindow(TypedDict):
    """A window whose texts were cut to fit the model."""

    query_id: str
    window: int
    """Counted from 1."""
    chars: int
    known: NotRequired[int]
    """Orders of its query that were scored before the run grew to this one."""


class ScoredAgain(TypedDict):
    """Stored windows that were scored again before a run went on."""

    windows: int
    difference: float
    """The largest, of a score from what is stored."""
    noise_floor: float | None
    """What reading one order again moved a score by at most, where that was measured by then."""


class Session(TypedDict, total=False):
    """What one start of a run cost."""

    start: int
    """Its place among `starts`."""
    seconds: float
    windows: int
    tokens: int
    shrunk: list[ShrunkWindow]
    spent: dict[str, float]
    """Requests, tokens and cost, of an endpoint that charges."""
    scored_again: ScoredAgain
    shuffled_pools: int
    """Pools that a scorer which declares itself order-free was shown in another order, under other ids."""
    shuffled_difference: float
    """The largest that this moved a score by: rounding, or it would have been an error."""


class Coverage(Session):
    """What all sessions of a complete run scored, and cost together."""

    queries: int
    scored: int
    failed: list[FailedQuery]
    cut: NotRequired[int]
    """Candidates whose text is longer than the characters that were shown of it."""


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
    """How a run's table was last read: the fields of `measures.reading.Reading`."""

    readout: Readout
    ties: Ties


class SetAside(TypedDict):
    """A damaged file that was moved to `damaged/`."""

    file: str
    reason: str
    time: str


class SessionNote(Session):
    """A session in the note of a part: what it had cost when the part was written."""

    id: str
    number: int
    """One more than that of any session that was there when it began."""
    time: str
    puts: int
    """Parts that it had written."""
    scored_by: dict[str, Any]
    """`scoring.starts.Start`: what scored."""


class PartNote(TypedDict, total=False):
    """What a part says beside its rows."""

    sessions: list[SessionNote]
    shrunk: dict[str, list[ShrunkWindow]]
    """By session and number of its part: windows of these rows that were cut."""
    keys: int
    """Of a compacted part: pairs of query and permutation in it."""
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
    wanted: int
    """Pairs of query and permutation of all these queries."""
    cut: int
    failed: list[FailedQuery]
    notes: list[str]
    order: int
    """Of other tables: rows of a later part count instead of equal keys before."""


class Request(TypedDict, total=False):
    """What one command asked of a run, and how its table was read: the newest counts."""

    fingerprint: dict[str, Any]
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
    start: dict[str, Any]
    """`scoring.starts.Start` that came after such a change, where nothing was left to score."""
    set_aside: list[SetAside]


class RunRecord(TypedDict):
    """run.json. Keys that another version adds are left alone."""

    format: int
    status: Literal["scoring", "complete"]
    name: str
    """The scorer's."""
    collection: str
    task: str
    fingerprint: dict[str, Any]
    """What must be equal to resume the run: the scorer's identity, the data, the presentation."""
    created: NotRequired[str]
    source: NotRequired[str]
    """The collection as it was asked for: a name or a file."""
    columns: NotRequired[dict[str, str]]
    """The names that were given to columns of that file."""
    first_stage: NotRequired[str | None]
    """What ranked the pools, in the collection's words; None where their order is not a ranking."""
    command: NotRequired[list[str]]
    capabilities: NotRequired[dict[str, Any]]
    versions: NotRequired[dict[str, str]]
    starts: NotRequired[list[dict[str, Any]]]
    """`scoring.starts.Start`s: what scored the run, each time."""
    sessions: NotRequired[list[Session]]
    coverage: NotRequired[Coverage]
    threshold: NotRequired[StoredThreshold]
    reading: NotRequired[StoredReading]
    files: NotRequired[dict[str, int] | list[str]]
    """Tables beside the scores that must be there, and how many rows they have; a list of names in format 1."""
    accepted: NotRequired[list[str]]
    notes: NotRequired[list[str]]
    """What is odd in the data and was read all the same, a sentence each."""
    set_aside: NotRequired[list[SetAside]]


class DataIdentity(TypedDict):
    name: str
    sha256: str


class _FingerprintKeys(TypedDict, total=False):
    """The keys of a fingerprint that are read back; a scorer adds its own."""

    data: DataIdentity | None
    width: int | None
    chars: int | None
    queries: int | None
    query_ids: list[str] | None
    permutations: int | None
    canonical: bool | None
    mitigations: list[str]


def check_run_record(record: dict[str, Any], intro: str, remedy: str) -> None:
    """Refuse a run.json whose values are not of the kinds that this version reads, all mistakes at once."""
    from ..machine.schemas import kind_mistakes

    mistakes = kind_mistakes(RunRecord, record)
    for start in [] if mistakes else record.get("starts", []):
        mistakes += kind_mistakes(dict[str, str], start.get("versions"), "starts.versions")
        mistakes += kind_mistakes(list[str], start.get("times", []), "starts.times")
    if isinstance(record.get("fingerprint"), dict):
        mistakes += kind_mistakes(_FingerprintKeys, record["fingerprint"], "fingerprint")
    if isinstance(task := record.get("task"), str) and task not in TASKS:
        mistakes.append(f"task: use one of {', '.join(TASKS)}")
    if isinstance(files := record.get("files"), dict | list):
        elsewhere = [name for name in files if isinstance(name, str) and not is_plain_name(name)]
        mistakes += [f"files: {name[:80]!r} is not the name of a table in this folder" for name in elsewhere]
    for name, kind in (("threshold", StoredThreshold), ("reading", StoredReading)):
        stored = record[name] if isinstance(record.get(name), dict) else {}
        mistakes += [f"{name}.{key}: this version does not know the key" for key in stored if key not in kind.__annotations__]
    if isinstance(coverage := record.get("coverage"), dict):
        counts = [key for key in ("queries", "scored", "cut") if isinstance(coverage.get(key), int)]
        mistakes += [f"coverage.{key}: {coverage[key]} is below 0" for key in counts if coverage[key] < 0]
    elif record.get("status") == "complete":
        mistakes.append("a complete run has coverage, and it is missing")
    if mistakes:
        raise InputError(f"{intro}: {'; '.join(mistakes)}. {remedy}")
