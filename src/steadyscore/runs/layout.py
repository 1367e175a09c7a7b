"""What the files of a run folder are called and what they hold. `folder.py` writes and reads them.

    run.json             `records.RunRecord`: what was asked first, by whom, of what; written once
    requests/*.json      `records.Request`: what was asked later, and how a table is read; numbered, each written once
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
    timings.parquet      timing_schema: seconds of single requests (`paper`)
    perturbed-*.parquet  perturbed_schema: what a changed pool or other markers moved (--perturb)
    outputs.parquet      output_schema: what readers wrote under every permutation (--reader)
    measures.parquet     measure_schema: every measure of every query; made anew by each audit
    summary.json         the figures as `--json` prints them; made anew by each audit

    labels.parquet       label_schema: the grades that `label` makes of the scores, beside derived.json; read by `train`

Every JSON object, and every table that is no part, carries its checksum (`machine/contents.py`).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NotRequired

from typing_extensions import TypedDict

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


def _schema(**kinds: str) -> pa.Schema:
    """Columns by name; `[int32]` is a list of such numbers."""
    import pyarrow as pa

    def kind(name: str) -> pa.DataType:
        return pa.list_(pa.type_for_alias(name[1:-1])) if name.startswith("[") else pa.type_for_alias(name)

    return pa.schema([(column, kind(name)) for column, name in kinds.items()])


def score_schema() -> pa.Schema:
    keys = {"query_id": "string", "permutation": "int32", "candidate_id": "string"}
    place = {"slot": "int32", "window": "int32", "partition": "string"}
    grades = dict.fromkeys((*GRADE_COLUMNS, "label_mass"), "float32")
    return _schema(**keys, **place, score="float64", **grades, relevance="int32")


def query_schema() -> pa.Schema:
    return _schema(query_id="string", query="string", answers="[string]", verdict="string", judged="[int32]")


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
    return _schema(query_id="string", measure="string", value="float64")


def timing_schema() -> pa.Schema:
    return _schema(way="int32", query_id="string", round="int32", seconds="float64")


def output_schema() -> pa.Schema:
    return _schema(query_id="string", permutation="int32", reader="string", output="string")


def measure_schema() -> pa.Schema:
    return _schema(**dict.fromkeys(("variant", "collection", "query_id", "measure"), "string"), value="float64")


def label_schema() -> pa.Schema:
    return _schema(query_id="string", candidate_id="string", vector="[float64]", grades="[float32]", first="bool")
