import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.audits.gate import missing_queries
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.errors import InputError
from steadyscore.measures.views import ScoreView
from steadyscore.readers.outputs import (
    compare_on_same_evidence,
    label_parts,
    reader_label,
    reader_measures,
    reader_results,
    shared_readers,
    write_outputs,
)
from steadyscore.readers.reader import VERDICTS
from steadyscore.results.figure import Figure
from steadyscore.results.load import load_run, same_evidence_control
from steadyscore.scoring.config import AuditConfig, open_scorer
from steadyscore.scoring.score import score_collection
from steadyscore.tasks import TASKS
from tests.helpers.pools import write_collection

QUERIES, M = 6, 3


@pytest.fixture
def source(tmp_path):
    rows = [
        {
            "id": f"c{q}",
            "query": f"thing {q} is blue",
            "verdict": VERDICTS[q % 3] if q else None,
            "candidates": [{"id": f"d{c}", "text": f"thing {q} " + "x" * c, "relevance": c % 2} for c in range(8)],
        }
        for q in range(QUERIES)
    ]
    return str(write_collection(tmp_path / "claims.jsonl", rows, task="claim_verification"))


def scored(source, folder, address="synthetic:slot:0.5"):
    config = AuditConfig(permutations=M)
    return score_collection(open_scorer(address, open_collection(source).collection, config), source, folder, config)


def steady(query):
    return [VERDICTS[query % 3]] * M


def moving(query):
    return [VERDICTS[(query + i) % 3] for i in range(M)]


def kept(run, label, said, queries=range(QUERIES)):
    write_outputs(run, label, {f"c{q}": said(q) for q in queries})


@given(st.text("abc:+@/ k=K", min_size=1), st.integers(1, 99), st.integers(1, 9))
def test_a_reader_s_name_tells_what_it_is(address, k, K):
    for view in (ScoreView(serving_permutations=K), ScoreView("argmax", "id", K), ScoreView("p2", "input")):
        name = reader_label(address, k, view)
        assert label_parts(name) == (address, k, view.serving_permutations, view.words(), False)


def test_a_name_of_an_earlier_version_is_read():
    assert label_parts("hf:tiny k=2 likeliest") == ("hf:tiny", 2, 1, "", True)


def test_a_reader_s_rows_are_replaced_in_their_place(source, tmp_path):
    run = scored(source, tmp_path / "run")
    kept(run, "a k=5", steady)
    kept(run, "b k=5", moving)
    kept(run, "a k=5", moving)
    found = reader_results(run, [f"c{q}" for q in range(QUERIES)])
    assert list(found) == ["a k=5", "b k=5"]
    assert load_run(run).outputs("a k=5") == load_run(run).outputs("b k=5")
    with pytest.raises(InputError, match="holds no outputs of c k=5"):
        load_run(run).outputs("c k=5")


def test_what_was_not_read_is_undefined_and_not_wrong(source, tmp_path):
    run = scored(source, tmp_path / "run")
    kept(run, "a k=5", steady, queries=range(1, 5))
    values = reader_results(run, [f"c{q}" for q in range(QUERIES)])["a k=5"].values
    assert np.isnan(values["verdict_flip"]).tolist() == [True, False, False, False, False, True]
    assert values["verdict_accuracy"][1:5].tolist() == [1, 1, 1, 1]
    assert np.isnan(reader_measures(TASKS["multidoc_qa"], None, ["x"], None)["answer_em"])


def test_a_claim_without_a_verdict_counts_in_no_flip_and_is_not_missing(source, tmp_path):
    """Climate-FEVER's disputed claims: 1,381 of 1,535 count (§5)."""
    run = scored(source, tmp_path / "run")
    kept(run, "a k=5", lambda q: moving(q) if q == 0 else steady(q))  # c0 has no verdict, and was read by an earlier version
    audit = load_run(run)
    assert np.isnan(audit.measured.values["verdict_flip"]).tolist() == [True] + [False] * (QUERIES - 1)
    assert audit.figures["verdict_flip"] == Figure(0.0, 0.0, 0.0, QUERIES - 1)
    assert missing_queries(audit, ["verdict_flip"]) == []
    assert set(audit.outputs("a k=5")) == {f"c{q}" for q in range(1, QUERIES)}
    kept(run, "a k=5", steady, queries=range(2, QUERIES))
    assert missing_queries(load_run(run), ["verdict_flip"]) == ["c1"]


def test_where_no_claim_has_a_verdict_flips_count_them_all(tmp_path):
    rows = [
        {"id": f"c{q}", "query": f"thing {q}", "candidates": [{"id": f"d{c}", "text": "x" * (c + 1)} for c in range(4)]}
        for q in range(QUERIES)
    ]
    unjudged = str(write_collection(tmp_path / "own.jsonl", rows, task="claim_verification"))
    run = scored(unjudged, tmp_path / "run")
    kept(run, "a k=5", moving)
    values = reader_results(run, [f"c{q}" for q in range(QUERIES)])["a k=5"].values
    assert values["verdict_flip"].tolist() == [1] * QUERIES
    assert "verdict_accuracy" not in values


def test_a_run_s_measures_are_its_first_reader_s_at_the_budget(source, tmp_path):
    run = scored(source, tmp_path / "run")
    assert "verdict_flip" not in load_run(run).measured.values
    kept(run, "a k=5", steady)
    kept(run, "b k=5", moving)
    write_outputs(run, "a k=5 K=2", {f"c{q}": ["SUPPORTED"] for q in range(QUERIES)})
    assert load_run(run).measured.values["verdict_flip"][1:].tolist() == [0] * (QUERIES - 1)
    assert load_run(run, readers=["b k=5"]).measured.values["verdict_flip"][1:].tolist() == [1] * (QUERIES - 1)
    assert "verdict_flip" not in load_run(run, readers=[]).measured.values
    assert load_run(run).figures["verdict_accuracy"] == Figure(1.0, 1.0, 1.0, QUERIES - 1)


def test_only_shared_readers_are_compared(source, tmp_path):
    one, other = scored(source, tmp_path / "one"), scored(source, tmp_path / "other", "synthetic:none")
    kept(one, "a k=5", moving)
    kept(one, "b k=5", moving)
    kept(other, "b k=5", steady)
    assert shared_readers([one, other]) == ["b k=5"]
    assert shared_readers([one]) == ["a k=5", "b k=5"]
    assert shared_readers([one, other], ScoreView(serving_permutations=2)) == []


def test_compare_shows_what_the_shared_reader_makes_of_two_runs(source, tmp_path, capsys):
    import json

    one, other = scored(source, tmp_path / "both/one"), scored(source, tmp_path / "both/other", "synthetic:none")
    kept(one, "b k=5", moving)
    kept(other, "a k=5", moving)  # another reader's: no contrast may come from it
    words = ["compare", str(tmp_path / "both"), "--baseline", one.record.name, "--json"]
    assert main(words) == 0
    assert not any("verdict" in row["measure"] for row in json.loads(capsys.readouterr().out)["contrasts"])
    kept(other, "b k=5", steady)
    assert main(words) == 0
    [row] = [row for row in json.loads(capsys.readouterr().out)["contrasts"] if row["measure"] == "verdict_flip"]
    assert (row["difference"]["value"], row["wins"]) == (-1, 1)


def test_the_control_is_the_mean_over_queries_with_the_same_evidence(source, tmp_path):
    before, after = scored(source, tmp_path / "before"), scored(source, tmp_path / "after", "synthetic:none")
    for label in ("a k=8", "a k=2"):
        kept(before, label, moving)
        kept(after, label, steady, queries=range(4))  # two queries could not be read
    whole = same_evidence_control(load_run(before), load_run(after), "a", 8)  # the whole pool is always the same set
    assert whole == (3, 1.0, 1.0, 1.0, 1.0)  # of the four that both read, one has no verdict
    some = same_evidence_control(load_run(before), load_run(after), "a", 2)
    assert 0 <= some.share < 1
    assert (some.reduction is None) == (some.share == 0)
    nothing = compare_on_same_evidence(TASKS["claim_verification"], (before.read_queries(), {}), (after.read_queries(), {}), 2)
    assert (nothing.queries, nothing.share, nothing.reduction) == (0, None, None)
