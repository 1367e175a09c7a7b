"""Every format that we read, as files that are nearly right: a valid one, then a few changes.

A case opens its file through the function that a command uses. It may end in a value or in a SteadyscoreError.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from steadyscore.errors import SteadyscoreError

ODD = [
    "", " ", "0", "-1", "-2", "7", "1.5", "1e308", "-1e400", "nan", "inf", "2147483648", "2000000000", "9" * 50, "9" * 5000,
    "--1", "²", "٣", "1_0", "true", "null", "[]", "{}", "[" * 2000, "[" * 30000 + "]" * 30000, '"', '"a"', '"\\ud800"', "\\ud800",
    "\x00", "\x1b[2J",
    "é", "\u2028", "2020-01-01", "007", "NA", "score", "query_id", "slot", "window", "grade_0", "\t", ",", "\n", "{", "}", ":",
    "- ",
    "&a [*a]", "!!python/object:os.system", "hf", "+", "@", "http://u:p@h/",
]  # fmt: skip
RAW = [b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xfe\xff", b"\x1f\x8b", b"\x00", b"\r"]
TOKENS = re.compile(rb'([,\t\n {}\[\]:"])')

Change = tuple[str, int, bytes]
changes = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "swap", "drop", "flip"]),
        st.integers(0, 2000),
        st.sampled_from([*(text.encode() for text in ODD), *RAW]),
    ),
    max_size=3,
)


def changed(content: bytes, wanted: list[Change]) -> bytes:
    """The content after each change in turn; places count tokens, or bytes for a flip."""
    for what, place, odd in wanted:
        if what == "flip":
            if content:
                at = place % len(content)
                content = content[:at] + bytes([content[at] ^ (1 << place % 8)]) + content[at + 1 :]
            continue
        tokens = TOKENS.split(content)
        at = place % len(tokens)
        if what == "replace":
            tokens[at] = odd
        elif what == "insert":
            tokens.insert(at, odd)
        elif what == "drop":
            del tokens[at : at + 1 + place % 3]
        else:
            other = (at + 2) % len(tokens)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        content = b"".join(tokens)
    return content


# -- score files

ids = st.sampled_from(["a", "b", "c", "007", "2020-01-01", "1e5", "NA", "true"])
COLUMNS = ("query_id", "permutation", "candidate_id", "score")
MORE = ("slot", "window", "partition", "relevance", "grade_0", "grade_1", "grade_2", "grade_3", "label_mass")


@st.composite
def score_rows(draw: Any) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of a file that is right, or nearly: further columns are drawn by themselves."""
    more = draw(st.lists(st.sampled_from(MORE), unique=True, max_size=3) | st.just([*MORE]))
    pool = draw(st.lists(ids, min_size=1, max_size=4, unique=True))
    values = {"partition": "contiguous", "relevance": 1, "window": 0, "label_mass": 1.0} | dict.fromkeys(MORE[4:8], 0.25)
    rows = [
        [query, permutation, candidate, float((place + permutation) % 3), *(values.get(name, place) for name in more)]
        for query in draw(st.sampled_from([["q"], ["1", "2"]]))
        for permutation in range(draw(st.sampled_from([2, 3, 1])))
        for place, candidate in enumerate(pool)
    ]
    return [*COLUMNS, *more], rows


def as_csv(table: tuple[list[str], list[list[Any]]]) -> bytes:
    return "".join(",".join(map(str, row)) + "\n" for row in (table[0], *table[1])).encode()


def as_json_lines(table: tuple[list[str], list[list[Any]]]) -> bytes:
    return "".join(json.dumps(dict(zip(table[0], row, strict=True))) + "\n" for row in table[1]).encode()


@st.composite
def parquet(draw: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, rows = draw(score_rows())
    columns = {name: pa.array([row[place] for row in rows]) for place, name in enumerate(names)}
    others = [
        [None], ["x"], [1.5], [2**40], [True], [b"\xff"], [[1]], [{"a": 1}], [float("nan")], [-3], [1e308], ["7"],
    ]  # fmt: skip
    for name, other in draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(others)), max_size=2)):
        columns[name] = pa.array(other * len(rows))
        if draw(st.booleans()) and not pa.types.is_nested(columns[name].type) and not pa.types.is_null(columns[name].type):
            columns[name] = columns[name].dictionary_encode()
    out = io.BytesIO()
    pq.write_table(pa.table(list(columns.values()), names=draw(st.permutations(list(columns)) | st.just(list(columns)))), out)
    return out.getvalue()


def read_scores_then_measure(file: Path) -> None:
    from steadyscore.measures.measurement import Threshold, measure
    from steadyscore.runs.score_file import read_scores

    measure(read_scores([file]), Threshold(cutoff=0.5))


def judged_by(file: Path) -> None:
    from steadyscore.collection.files import Report
    from steadyscore.collection.trec import read_qrels
    from steadyscore.runs.score_file import read_scores

    read_qrels(file, report := Report())
    report.stop_at_mistakes()  # before the scores are read, which takes ten times as long
    scores = file.parent / "judged.csv"
    scores.write_text("query_id,permutation,candidate_id,score\nq,0,a,1\nq,0,b,2\nq,1,a,2\nq,1,b,1\n")
    read_scores([scores], file)


RUN = b"".join(b"q%d Q0 d%d %d %.1f tag\n" % (q, d, d + 1, 3 - d) for q in (1, 2) for d in range(3))
QRELS = b"q 0 a 1\nq 0 b 0\nq 0 c -1\nother 0 a 2\n"


def two_runs(file: Path) -> None:
    from steadyscore.collection.files import Report
    from steadyscore.collection.trec import read_trec_run
    from steadyscore.runs.score_file import read_scores

    list(read_trec_run(file, report := Report()))
    report.stop_at_mistakes()  # before the other run is read as well
    first = file.parent / "first.run"
    first.write_bytes(RUN)
    read_scores([first, file])


# -- collections, recipes, cards, runs

COLLECTION = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in (
        {"collection": {"name": "n", "task": "passage_reranking", "chars": 500, "queries": 2, "depth": 2}},
        *(
            {
                "id": f"q{q}", "query": "why", "answers": ["x"], "judged": {"z": 2},
                "candidates": [
                    {"id": f"d{d}", "text": "t", "title": "T", "relevance": d, "rank": d + 1, "score": 0.5} for d in range(3)
                ],
            }
            for q in range(2)
        ),
    )
)  # fmt: skip


def open_whole_collection(file: Path) -> None:
    from steadyscore.collection import check, open_collection
    from steadyscore.scoring.scorer import ideal_gains

    for instance in open_collection(file).instances():
        ideal_gains(instance)
    check(file)


DECISIONS = json.dumps(
    {
        "candidates": "$.pool[0].items",
        "cutoffs": {"grade": 1.5},
        "questions": {
            "grade": {"type": "score", "instructions": "How good is a?", "criteria": ["no", "partly", "fully"]},
            "keep": {"type": "noul", "instructions": "Keep?", "criteria": {"true": "It answers."}},
            "tone": {"type": "choice", "instructions": "Tone?", "criteria": {"calm": None, "angry": "Insults."}},
        },
        "states": [
            {"id": "s", "state": {"pool": [{"items": ["a", "b"]}]}, "gold": {"grade": "fully", "keep": True, "tone": "calm"}}
        ],
    }
).encode()


def present_decisions(file: Path) -> None:
    from steadyscore.decision_models.cases import read_cases
    from steadyscore.decision_models.presentations import CHANNELS, presentations, show

    for case in read_cases(file):
        for presentation in (p for channel in CHANNELS for p in presentations(case, channel, 3, 0)):
            show(case, presentation)


RECIPE = b"base: smollm2-135m\ndata: passages\nlabels: labels\nwidths: [1, 5]\nviews: 2\nlearning_rate: 1.0e-4\nbatch: 4\n"


def check_recipe(file: Path) -> None:
    from steadyscore.training.check import config_mistakes, make_config
    from steadyscore.training.recipe import read_recipe

    config_mistakes(make_config(read_recipe(str(file))))


def show_card(file: Path) -> None:
    from steadyscore.models.card import model_card, read_card

    model_card(read_card(file.parent))


def shipped_card() -> bytes:
    import steadyscore

    return next(Path(steadyscore.__file__).parent.rglob("card.json")).read_bytes()


RECORD = json.dumps(
    {
        "format": 2, "status": "complete", "created": "2026-01-01T00:00:00+00:00", "fingerprint": {"scorer": {}}, "name": "s",
        "collection": "c", "task": "passage_reranking", "coverage": {"queries": 1, "scored": 1, "failed": []}, "versions": {},
    }
).encode()  # fmt: skip


def open_run(file: Path) -> None:
    from steadyscore.runs.folder import Run

    run = Run.open(file.parent)
    assert run.is_complete in (True, False)


def parse(file: Path) -> None:
    from steadyscore.engines.kinds import parse_address

    parse_address(file.read_bytes().decode("utf-8", "surrogateescape"))


class Format(NamedTuple):
    name: str
    """The file's name, whose ending says what it is."""
    content: st.SearchStrategy[bytes]
    read: Callable[[Path], None]


ADDRESSES = [b"hf:model+adapter", b"rerank+cohere:http://h:1/x", b"smollm2-135m", b"python:m:f", b"openai:m@http://h/v1"]
FORMATS: dict[str, Format] = {
    "csv": Format("s.csv", score_rows().map(as_csv), read_scores_then_measure),
    "jsonl": Format("s.jsonl", score_rows().map(as_json_lines), read_scores_then_measure),
    "parquet": Format("s.parquet", parquet(), read_scores_then_measure),
    "run": Format("second.run", st.just(RUN), two_runs),
    "qrels": Format("qrels.txt", st.just(QRELS), judged_by),
    "collection": Format("c.jsonl", st.just(COLLECTION), open_whole_collection),
    "decisions": Format("d.json", st.just(DECISIONS), present_decisions),
    "recipe": Format("r.yaml", st.just(RECIPE), check_recipe),
    "card": Format("card.json", st.builds(shipped_card), show_card),
    "record": Format("run.json", st.just(RECORD), open_run),
    "address": Format("address", st.sampled_from(ADDRESSES), parse),
}


def outcome(format: Format, folder: Path, content: bytes) -> str:
    """`accepted` or `refused`; anything but a SteadyscoreError is raised on."""
    file = folder / format.name
    file.write_bytes(content)
    try:
        format.read(file)
    except SteadyscoreError as refusal:
        if not str(refusal).strip():
            raise AssertionError("a refusal must say why") from refusal
        return "refused"
    return "accepted"
