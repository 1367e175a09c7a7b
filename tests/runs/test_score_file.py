"""Anybody's score file: every format, and every mistake in one sentence."""

import json
import time

import numpy as np
import pytest

from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.measures.measurement import Threshold, measure
from steadyscore.runs.score_columns import Rows, check_columns
from steadyscore.runs.score_file import read_scores
from tests.helpers.paths import ASSETS

ROWS = [
    (q, p, c, s, r)
    for q in ("q1", "q2")
    for p, ranked in enumerate(("abcd", "abdc", "dcba"))
    for c, s, r in zip(ranked, (4.0, 3.0, 2.0, 1.0), (None,) * 4, strict=True)
]
NAMES = ("query_id", "permutation", "candidate_id", "score")
HEAD = ",".join(NAMES) + "\n"
ROW = json.dumps(dict(zip(NAMES, ("q", 0, "a", 0.5), strict=True))) + "\n"


def write(file, rows=ROWS):
    if file.suffix == ".csv":
        file.write_text(",".join(NAMES) + "\n" + "".join(",".join(map(str, row[:4])) + "\n" for row in rows))
    elif file.suffix == ".tsv":
        file.write_text("\t".join(NAMES) + "\n" + "".join("\t".join(map(str, row[:4])) + "\n" for row in rows))
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(dict(zip(NAMES, row, strict=False))) + "\n" for row in rows))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(NAMES)}), file)
    return file


def trec(tmp_path, rows=ROWS):
    files = []
    for p in sorted({row[1] for row in rows}):
        file = tmp_path / f"perm{p}.run"
        file.write_text("".join(f"{q} Q0 {c} {i} {s} tag\n" for i, (q, m, c, s, _) in enumerate(rows) if m == p))
        files.append(file)
    return files


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_golden_tau_psi(tmp_path, kind):
    """Rankings abcd, abdc, dcba -> 2/3."""
    found = measure(read_scores([write(tmp_path / f"scores.{kind}")]), Threshold(cutoff=2.5))
    assert found.values["tau_psi"] == pytest.approx([2 / 3, 2 / 3])


def test_trec_runs_one_per_permutation(tmp_path):
    queries = read_scores(trec(tmp_path))
    assert [q.query_id for q in queries] == ["q1", "q2"]
    assert measure(queries, Threshold(cutoff=2.5)).values["tau_psi"] == pytest.approx([2 / 3, 2 / 3])


def test_rows_may_stand_in_any_order(tmp_path):
    rng = np.random.default_rng(0)
    shuffled = [ROWS[i] for i in rng.permutation(len(ROWS))]
    a, b = (
        sorted(read_scores([write(tmp_path / f"{n}.csv", rows)]), key=lambda q: q.query_id)
        for n, rows in (("a", ROWS), ("b", shuffled))
    )
    assert all(np.array_equal(x.scores, y.scores) for x, y in zip(a, b, strict=True))


def test_qrels_judge_the_pool_and_give_the_ideal(tmp_path):
    qrels = tmp_path / "qrels.txt"
    qrels.write_text("q1 0 a 3\nq1 0 b 0\nq1 0 elsewhere 3\n")
    first, second = read_scores([write(tmp_path / "s.csv")], qrels)
    assert np.array_equal(first.relevance, [3, 0, np.nan, np.nan], equal_nan=True)
    assert first.ideal.tolist() == [3, 3, 0]
    assert second.relevance is None
    assert measure([first, second]).coverage.unjudged == ["q2"]


def test_named_permutations_are_numbered(tmp_path):
    rows = [(q, "first-stage" if p == 0 else f"shuffle {p}", c, s, r) for q, p, c, s, r in ROWS]
    assert read_scores([write(tmp_path / "s.csv", rows)])[0].permutations.tolist() == [0, 1, 2]


def test_ids_stay_as_they_are_written(tmp_path):
    rows = [("007", p, c, float(p + i), None) for p in range(2) for i, c in enumerate(("01", "1"))]
    query = read_scores([write(tmp_path / "s.csv", rows)])[0]
    assert (query.query_id, query.candidate_ids) == ("007", ("01", "1"))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_numbers_written_as_text_are_numbers(tmp_path, kind):
    rows = [(q, str(p - 1), c, s, r) for q, p, c, s, r in ROWS]
    query = read_scores([write(tmp_path / f"s.{kind}", rows)])[0]
    assert query.permutations.tolist() == [-1, 0, 1]
    assert query.first_stage is not None


def test_numbers_with_a_point_are_numbers(tmp_path):
    rows = [(q, float(p - 1), c, s, r) for q, p, c, s, r in ROWS]
    assert read_scores([write(tmp_path / "s.parquet", rows)])[0].permutations.tolist() == [-1, 0, 1]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_one_named_permutation_among_numbers_is_refused(tmp_path, kind):
    rows = [(q, "last" if p == 2 else p, c, s, r) for q, p, c, s, r in ROWS]
    with pytest.raises(
        InputError,
        match=r"8 rows have 'last' as permutation, which is not a whole number .*: line \d+, query q1, .*Number all or name all",
    ):
        read_scores([write(tmp_path / f"s.{kind}", rows)])


@pytest.mark.parametrize("kind", ["large_string", "string_view", "dictionary"])
def test_a_mistake_in_text_is_named_however_the_column_keeps_it(kind):
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string()) if kind == "dictionary" else getattr(pa, kind)()
    rows = {"query_id": ["q", " "], "permutation": ["0", "x"], "candidate_id": ["a", "a"], "score": ["1.0", "high"]}
    with pytest.raises(InputError) as refusal:
        check_columns(
            Rows(pa.table(rows).cast(pa.schema([(name, text) for name in rows])), "scores", lambda rows: ["here"] * len(rows))
        )
    score, permutation, blank = sorted(refusal.value.mistakes)
    assert "1 rows have 'high' as score, which is not a number: here, query  , permutation x" in score
    assert "1 rows have 'x' as permutation, which is not a whole number" in permutation
    assert "1 rows have a blank query_id" in blank


def test_several_tables_are_told_to_be_joined(tmp_path):
    files = [*trec(tmp_path)[:1], write(tmp_path / "a.csv"), write(tmp_path / "b.parquet")]
    with pytest.raises(
        InputError, match=r"must be TREC runs, .*; these are tables: .*a\.csv, .*b\.parquet\. Join them"
    ) as refusal:
        read_scores(files)
    assert len(refusal.value.mistakes) == 1


def changed(index, **values):
    rows = [dict(zip((*NAMES, "r"), row, strict=True)) for row in ROWS]
    rows[index] |= values
    return [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (changed(2, score=float("nan")), r"1 scores are NaN or infinite: (line|row) \d+, query q1, permutation 0, candidate c"),
        (changed(2, score=float("inf")), r"NaN or infinite"),
        ([*ROWS, ROWS[5]], r"1 rows stand twice: (line|row) \d+, query q1, permutation 1, candidate b"),
        (ROWS[:-1], r"every permutation must hold the same candidates; query q2 lacks candidate a in permutation 2"),
        ([row for row in ROWS if row[1] == 0], r"holds one permutation per query; order instability needs at least two"),
    ],
)
def test_bad_scores_are_named(tmp_path, rows, message, kind):
    with pytest.raises(InputError, match=message):
        read_scores([write(tmp_path / f"bad.{kind}", rows)])


def test_of_many_pools_that_differ_the_first_five_are_named_and_large_ones_take_no_longer(tmp_path):
    pool = [f"c{i:04d}" for i in range(2_000)]
    rows = [(f"q{q}", p, c, 0.5) for q in range(7) for p in range(6) for c in pool][:-1]
    rows = [row for row in rows if row[:3] not in {(f"q{q}", 5, pool[-1]) for q in range(6)}]
    began = time.process_time()
    with pytest.raises(InputError, match=r"query q4 lacks candidate c1999 in permutation 5 and 2 more queries\.$") as refusal:
        read_scores([write(tmp_path / "unequal.parquet", rows)])
    assert str(refusal.value).count("lacks candidate") == 5
    assert time.process_time() - began < 5  # not a comparison for each pair of rows


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_query_with_nothing_but_its_first_stage_order_is_named_where_others_have_permutations(tmp_path, kind):
    rows = [(q, p - 1, c, s, r) for q, p, c, s, r in ROWS if q == "q1" or p == 0]
    said = (
        r"the first-stage order \(-1\) is all that 1 of the queries have: (line|row) \d+, query q2, permutation -1, candidate a\."
    )
    with pytest.raises(InputError, match=said):
        read_scores([write(tmp_path / f"s.{kind}", rows)])
    assert len(read_scores([write(tmp_path / f"t.{kind}", [row for row in rows if row[0] == "q1"])])) == 1


def test_all_mistakes_are_told_at_once(tmp_path):
    rows = [*changed(2, score=float("nan"))[:-1]]
    with pytest.raises(InputError) as refusal:
        read_scores([write(tmp_path / "bad.csv", rows)])
    assert len(refusal.value.mistakes) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", "query_id,score\nq,1\n", "has no column permutation, candidate_id. It needs query_id"),
        ("s.csv", "query_id,permutation,candidate_id,score\n", "holds no row"),
        (
            "s.csv",
            HEAD + "q,0,a,1\n\nq,0,b,high\n",
            r"s\.csv: 1 rows have 'high' as score, which is not a number: "
            r"line 4, query q, permutation 0, candidate b\. Write a number",
        ),
        (
            "s.csv",
            HEAD + "q,0,a,1\nq,1,a,\n",
            r"s\.csv: 1 rows have no score: line 3, query q, permutation 1, candidate a\. Fill",
        ),
        (
            "s.csv",
            HEAD + "q,0,,1\n,1,a,2\n",
            r"(?s)no query_id: line 3, permutation 1, candidate a\..*no candidate_id: line 2, query",
        ),
        ("s.csv", HEAD + "q,0,a,1\nq,0,b\n", r"s\.csv:3: the line has 3 fields, the header has 4"),
        (
            "s.csv",
            HEAD.replace("score", "score,note") + 'q,0,a,1,"so\nq,1,a,1,\n',
            r"s\.csv:2: a cell begins with a quote that is never closed",
        ),
        (
            "s.jsonl",
            ROW + "\n{not json\n[]\n",
            r"(?s)s\.jsonl:3: not JSON at column 2: .*s\.jsonl:4: the line is not a JSON object",
        ),
        ("s.jsonl", ROW + ROW.replace("0.5", '"high"'), r"1 rows have 'high' as score, which is not a number: line 2, query q"),
        ("s.jsonl", ROW + ROW.replace("0.5", "[0.5]"), r"s\.jsonl:2: score is a list\. Write one value"),
        (
            "s.csv",
            HEAD + "q,0,a,1\nq,0.5,a,1\n",
            r"1 rows have '0.5' as permutation, which is not a whole number of 32 bits: line 3, query q",
        ),
        pytest.param("s.run", b"q1 Q0 \xe9 1 1.0 t\n", r"s\.run:1: byte 7 is not UTF-8", id="not UTF-8"),
        ("s.parquet", "not parquet", "cannot be read as parquet"),
        ("s.jsonl", "", "holds no row"),
        ("s.xlsx", "", "is none of .parquet, .csv"),
        ("s.run", "q1 Q0 d1\n", "s.run:1: not a line of a run"),
    ],
)
def test_files_that_cannot_be_read_say_why(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        read_scores([tmp_path / name])


def test_missing_files_are_named_together(tmp_path):
    with pytest.raises(InputError) as refusal:
        read_scores([tmp_path / "a.csv"], tmp_path / "b.txt")
    assert len(refusal.value.mistakes) == 2


def test_bad_qrels_are_named_by_line(tmp_path):
    (tmp_path / "q").write_text("q1 0 a 1\nq1 0 a\nq1 0 b high\n")
    with pytest.raises(InputError, match=r"q:2: .*\(so in 2 places: 2, 3\)"):
        read_scores([write(tmp_path / "s.csv")], tmp_path / "q")


def test_a_candidate_has_one_relevance(tmp_path):
    rows = [f"q1,{p},{c},{s},{r}" for p, r in ((0, 1), (1, 2)) for s, c in enumerate("ab")]
    (tmp_path / "s.csv").write_text("query_id,permutation,candidate_id,score,relevance\n" + "\n".join(rows) + "\n")
    with pytest.raises(
        InputError, match=r"2 rows give a candidate another relevance than its row before: line \d+, query q1, permutation 1"
    ):
        read_scores([tmp_path / "s.csv"])


def places(tmp_path, *partitions):
    """A file of one query under two orders of two windows, cut as each row says."""
    rows = [f"q1,{p},{c},{i},{i % 2},{i // 2},{told}" for p, told in enumerate(partitions) for i, c in enumerate("abcd")]
    (tmp_path / "s.csv").write_text("query_id,permutation,candidate_id,score,slot,window,partition\n" + "\n".join(rows) + "\n")
    return [tmp_path / "s.csv"]


@pytest.mark.parametrize(("told", "order"), [("", [0, 1, 2, 3]), ("contiguous", [0, 1, 2, 3]), ("round_robin", [0, 2, 1, 3])])
def test_a_file_may_tell_how_its_orders_were_cut(tmp_path, told, order):
    assert read_scores(places(tmp_path, told, told))[0].orders().tolist() == [order, order]


def test_a_partition_nobody_knows_or_that_changes_within_a_query_is_named(tmp_path):
    with pytest.raises(InputError, match=r"partition is diagonal in 4 rows: .*Use contiguous or round_robin"):
        read_scores(places(tmp_path, "contiguous", "diagonal"))
    with pytest.raises(
        InputError, match=r"1 rows give a query another partition than its row before: line \d+, query q1, permutation 1"
    ):
        read_scores(places(tmp_path, "contiguous", "round_robin"))


# -- ids, places, bounds

ODD_IDS = ("2020-01-01", "007", "1e5", "true", "NA", "null", "12345678901234567890123", "12:30:00")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_ids_are_text_whatever_they_look_like(tmp_path, kind):
    rows = [("2021-05-05", p, c, float(i * (p + 1) % 11), None) for p in range(3) for i, c in enumerate(ODD_IDS)]
    qrels = tmp_path / "qrels.txt"
    qrels.write_text("".join(f"2021-05-05 0 {c} {i % 3}\n" for i, c in enumerate(ODD_IDS)))
    (query,) = read_scores([write(tmp_path / f"s.{kind}", rows)], qrels)
    assert query.candidate_ids == tuple(sorted(ODD_IDS))
    ranked = [sorted(range(8), key=lambda i, p=p: -(i * (p + 1) % 11)) for p in range(3)]  # no two scores are equal
    gains = [[i % 3 for i in places] for places in (*ranked, sorted(range(8), key=lambda i: -(i % 3)))]
    *found, best = (sum(gain / np.log2(rank + 2) for rank, gain in enumerate(row)) for row in gains)
    assert measure([query]).values["ndcg@10"] == pytest.approx([np.mean(found) / best])


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_whole_number_as_id_stands_for_its_digits_and_nothing_else_does(tmp_path, kind):
    rows = [(7, p, c, float(p + c), None) for p in range(2) for c in (8, 9)]
    (query,) = read_scores([write(tmp_path / f"s.{kind}", rows)])
    assert (query.query_id, query.candidate_ids) == ("7", ("8", "9"))
    rows = [(7.5, p, c, float(p + c), None) for p in range(2) for c in (8, 9)]
    with pytest.raises(InputError, match="query_id is"):
        read_scores([write(tmp_path / f"t.{kind}", rows)])


def test_a_judged_query_none_of_whose_candidates_is_judged_counts_as_0_everywhere(tmp_path):
    qrels = tmp_path / "qrels.txt"
    qrels.write_text("q1 0 a 1\nq2 0 elsewhere 2\n")
    found = measure(read_scores([write(tmp_path / "s.csv")], qrels), Threshold(cutoff=2.5))
    assert found.coverage.unjudged == []
    assert found.coverage.without_relevant == ["q2"]
    assert [found.values[name][1] for name in ("ndcg@10", "map", "mrr", "recall@10", "retained_f1")] == [0, 0, 0, 0, 0]


PLACED = "query_id,permutation,candidate_id,score,slot,window\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("query_id,permutation,candidate_id,score,slot\nq,0,a,1,0\n", "there is slot but no window"),
        (HEAD.replace("score", "score,grade_0") + "q,0,a,1,0.5\n", "there is grade_0 but no grade_1, grade_2, grade_3"),
        (
            HEAD.replace("score", "score,grade_0,grade_1,grade_2,grade_3") + "q,0,a,1,.5,.5,.5,.5\nq,0,b,1,.33,.33,.34,0\n",
            "1 rows have grades that do not sum to 1",
        ),
        (HEAD.replace("score", "score,score") + "q,0,a,1,1\n", "has the column score twice"),
        (PLACED + "q,0,a,1,2000000000,0\nq,1,a,1,0,0\n", "1 rows have a slot below 0, or not below the number of .*: line 2"),
        (PLACED + "q,0,a,1,-1,0\nq,1,a,1,0,0\n", "1 rows have a slot below 0"),
        (PLACED + "q,0,a,1,0,0\nq,1,a,1,,0\n", "1 rows lack a slot or a window, .*: line 3"),
        (
            PLACED + "q,0,a,1,0,0\nq,0,b,1,0,0\nq,1,a,1,0,0\nq,1,b,1,1,0\n",
            "1 rows have the slot and window of another .*: line 3",
        ),
        (
            PLACED + "q,0,a,1,1,0\nq,0,b,1,1,1\nq,1,a,1,1,1\nq,1,b,1,1,0\n",
            r"no candidate stands in slot 0; the first slot used is 1\. Count slots from 0",
        ),
        (PLACED + "q,-2,a,1,0,0\nq,1,a,1,0,0\n", "1 rows have a permutation below -1: line 2"),
        (HEAD + "q,0,a,1e308\nq,1,a,1\n", r"1 scores are beyond 1e\+100, where variances overflow: line 2"),
        (HEAD + "q,0,a\x1b,1\n", "a control character: line 2"),
        (HEAD.replace("score", "score,relevance") + "q,0,a,1,3000000000\n", "not a whole number of 32 bits: line 2"),
    ],
)
def test_columns_are_checked_together(tmp_path, content, message):
    (tmp_path / "s.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_scores([tmp_path / "s.csv"])


@pytest.mark.parametrize("depth", [1_000, 20_000, 200_000])
def test_nested_json_is_refused_before_it_can_do_harm(tmp_path, depth):
    (tmp_path / "s.jsonl").write_text(ROW.replace("0.5", "[" * depth + "]" * depth))
    with pytest.raises(InputError, match=r"s\.jsonl:1: (nested too deeply|score is a list)"):
        read_scores([tmp_path / "s.jsonl"])


def test_a_header_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / "s.csv").write_bytes(HEAD.encode().replace(b"score", b"score,\xff") + b"q,0,a,1,2\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_scores([tmp_path / "s.csv"])


@pytest.mark.parametrize("grade", ["--1", "²", "9" * 5000, "3000000000", "1.0"], ids=["signs", "square", "many", "big", "point"])
def test_odd_grades_are_sentences(tmp_path, grade):
    (tmp_path / "q").write_text(f"q1 0 a {grade}\n")
    with pytest.raises(InputError, match="q:1: "):
        read_scores([write(tmp_path / "s.csv")], tmp_path / "q")


def test_a_pair_that_is_judged_twice_is_refused(tmp_path):
    (tmp_path / "q").write_text("q1 0 a 1\nq1 0 a 1\n")
    with pytest.raises(InputError, match="q:2: document a of query q1 is judged twice"):
        read_scores([write(tmp_path / "s.csv")], tmp_path / "q")


@pytest.mark.parametrize("name", ["s.csv.gz", "s.CSV", "s.jsonl.gz", "S.TSV.GZ"])
def test_endings_may_be_upper_case_or_gzipped(tmp_path, name):
    import gzip

    plain = write(tmp_path / name.lower().removesuffix(".gz").replace("s.", "plain."))
    content = plain.read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.lower().endswith("gz") else content)
    assert len(read_scores([tmp_path / name])) == 2


def test_a_small_file_of_very_many_rows_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("steadyscore.runs.score_file._memory_bytes", lambda: 2 * len(ROWS) * 250)
    with pytest.raises(InputError, match=r"24 rows, which need about .* GB of memory; this machine has .* Split it by query"):
        read_scores([write(tmp_path / "s.parquet")])


def test_a_damaged_footer_is_refused_and_does_not_end_the_process():
    with pytest.raises(InputError, match=r"cannot be read as parquet: "):  # in the words of each version of pyarrow
        read_scores([ASSETS / "damaged_footer.parquet"])


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl", "s.parquet"])
def test_whole_numbers_that_would_become_ties_are_refused(tmp_path, name):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"query_id": "q", "permutation": m, "candidate_id": c, "score": 10**17 + i} for m in (0, 1) for i, c in enumerate("ab")
    ]
    if name == "s.csv":
        (tmp_path / name).write_text(HEAD + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
    elif name == "s.jsonl":
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    with pytest.raises(InputError, match=r"4 rows have .*100000000000000000.* as score, which is not a number up to 2\^53"):
        read_scores([tmp_path / name])


@pytest.mark.parametrize("name", ["permutation", "score", "relevance"])
def test_a_whole_number_beyond_63_bits_is_named(name):
    import pyarrow as pa

    rows = {"query_id": ["q"], "permutation": [0], "candidate_id": ["a"], "score": [1.0]} | {name: pa.array([2**63], pa.uint64())}
    with pytest.raises(InputError, match=f"1 rows have 9223372036854775808 as {name}, which is not a"):
        check_columns(Rows(pa.table(rows), "scores", lambda rows: ["here"] * len(rows)))


def test_whole_numbers_of_a_run_that_would_become_ties_are_refused(tmp_path):
    for m in (0, 1):
        (tmp_path / f"{m}.run").write_text("".join(f"q Q0 {c} 1 {10**17 + i} t\n" for i, c in enumerate("ab")))
    with pytest.raises(InputError, match=r"1\.run:1: the score '100000000000000000' is a whole number beyond 2\^53"):
        read_scores([tmp_path / "0.run", tmp_path / "1.run"])


def runs_of(tmp_path, sign):
    """Two TREC runs whose scores fall with the rank, or rise as distances do."""
    files = []
    for m in range(2):
        lines = [f"q{q} Q0 d{(rank + m) % 3} {rank} {sign * (4 - rank)} t\n" for q in range(2) for rank in (1, 2, 3)]
        (tmp_path / f"{m}.run").write_text("".join(lines))
        files.append(tmp_path / f"{m}.run")
    return files


@pytest.mark.parametrize("sign", [1, -1], ids=["falling", "rising"])
def test_ranks_that_contradict_their_scores_are_said(tmp_path, sign, capsys):
    notes: list[str] = []
    read_scores(runs_of(tmp_path, sign), notes=notes)
    said = [
        f"{tmp_path / f'{m}.run'}: the ranks of 2 of 2 queries contradict their scores; the scores were taken." for m in (0, 1)
    ]
    assert notes == (said if sign < 0 else [])
    assert main(["audit", "--scores", *map(str, runs_of(tmp_path, sign)), "--out", str(tmp_path / "out"), "--no-report"]) == 0
    printed = capsys.readouterr().out
    assert all((sentence in printed) is (sign < 0) for sentence in said)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert all((sentence in summary["runs"][0]["warnings"]) is (sign < 0) for sentence in said)


def test_judgements_of_other_queries_are_said(tmp_path, capsys):
    qrels = tmp_path / "qrels.txt"
    qrels.write_text("".join(f"topic{q} 0 d1 1\n" for q in range(5)))
    runs = [*map(str, runs_of(tmp_path, 1))]
    said = f"{qrels} judges none of the queries: its first are topic0, topic1, topic2, those of the scores q0, q1."
    assert main(["audit", "--scores", *runs, "--relevance", str(qrels)]) == 0
    assert said in capsys.readouterr().out
    qrels.write_text("topic0 0 d1 1\nq1 0 d1 1\n")
    assert main(["audit", "--scores", *runs, "--relevance", str(qrels)]) == 0
    assert "judges none" not in capsys.readouterr().out


def test_a_folder_in_the_place_of_a_file_is_told_apart_from_one_that_is_not_there(tmp_path):
    runs = [*map(str, runs_of(tmp_path, 1))]
    out = tmp_path / "out"
    assert main(["audit", "--scores", *runs, "--out", str(out), "--no-report"]) == 0
    with pytest.raises(InputError, match=rf"^{out} is a folder of runs. `steadyscore report {out}` measures what they hold.$"):
        read_scores([out])
    with pytest.raises(InputError, match=rf"^{tmp_path} is a folder. Name the files in it.$"):
        read_scores([tmp_path])
    with pytest.raises(InputError, match=r"^file .*nowhere.csv does not exist.$"):
        read_scores([tmp_path / "nowhere.csv"])


def test_equal_ranks_contradict_nothing(tmp_path):
    for m in range(2):
        (tmp_path / f"{m}.run").write_text("".join(f"q Q0 d{i} 1 {i}.5 t\n" for i in range(3)))
    notes: list[str] = []
    read_scores([tmp_path / "0.run", tmp_path / "1.run"], notes=notes)
    assert notes == []
