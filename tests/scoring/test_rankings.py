"""`score`: rankings read off a run folder that resumes, that workers share, and that goes when the file is whole."""

import json

import pytest

from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.scoring import parts
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer
from steadyscore.scoring.rerank import RankingWork, rank_collection, usual_mitigations

CONFIG = AuditConfig(cut=Cut(queries=6, pool=7))
WORDS = ["score", "--scorer", "synthetic:slot", "--data", "passages", "--queries", "6", "--pool", "7"]


def test_the_rankings_are_the_scores_of_the_pools_own_order_ties_by_id():
    source = open_collection("passages")
    scorer = open_scorer("synthetic:ties", source.collection, CONFIG)
    with rank_collection(RankingWork("synthetic:ties", "passages", None, CONFIG), top=4) as rankings:
        found = list(rankings)
        assert list(rankings) == found
        assert (rankings.queries, rankings.failed) == (6, [])
    expected = []
    for instance, _ in zip(source.instances(), range(6), strict=False):
        pool = instance.pool[:7]
        scores = scorer.score(type(instance)(instance.id, instance.query, pool))
        ranked = sorted(zip(scores, pool, strict=True), key=lambda pair: (-pair[0], pair[1].id))[:4]
        expected += [(instance.id, rank, candidate.id, float(score)) for rank, (score, candidate) in enumerate(ranked, 1)]
    assert found == expected


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_write_the_file_of_one_process(workers, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(parts.plan_parts.__kwdefaults__, "windows", 2)
    words = [*WORDS, "--format", "trec", "--out"]
    assert main([*words, str(tmp_path / "alone.run")]) == 0
    shared = tmp_path / "shared.run"
    for number in range(1, workers + 1):
        assert main([*words, str(shared), "--shard", f"{number}/{workers}"]) == 0
    assert not shared.exists()
    capsys.readouterr()
    assert main([*words, str(shared)]) == 0
    assert shared.read_bytes() == (tmp_path / "alone.run").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["alone.run", "shared.run"]


def test_a_stopped_command_resumes(tmp_path, monkeypatch):
    asked = []

    def score(query, texts):
        asked.append(query)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return [float(len(text)) for text in texts]

    from steadyscore.engines import synthetic

    monkeypatch.setattr(synthetic.SyntheticReranker, "score", lambda self, query, texts: score(query, texts))
    out = tmp_path / "some.run"
    assert main([*WORDS, "--out", str(out), "--format", "trec"]) == 130
    assert not out.exists()
    assert main([*WORDS, "--out", str(out), "--format", "trec"]) == 0
    assert len(asked) == 10  # six queries, the one that was stopped a second time, and three that are stored, to compare
    assert len(out.read_text().splitlines()) == 6 * 7


def test_queries_that_failed_are_named_and_tried_again_by_the_same_command(tmp_path, monkeypatch, capsys):
    from steadyscore.engines import synthetic

    honest = synthetic.SyntheticReranker.score

    def score(self, query, texts):
        if broken and len(query) % 2:
            raise ValueError("out of order")
        return honest(self, query, texts)

    monkeypatch.setattr(synthetic.SyntheticReranker, "score", score)
    out, broken = tmp_path / "some.run", True
    assert main([*WORDS, "--out", str(out), "--format", "trec"]) == 4
    assert "out of order" in capsys.readouterr().err
    part, broken = len(out.read_text().splitlines()), False
    assert main([*WORDS, "--out", str(out), "--format", "trec"]) == 0
    assert part < len(out.read_text().splitlines()) == 6 * 7
    assert [file.name for file in tmp_path.iterdir()] == ["some.run"]


def test_json_holds_the_ranking_or_names_the_file(tmp_path, capsys):
    assert main([*WORDS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["queries"], found["failed"], len(found["ranking"])) == (6, [], 42)
    assert set(found["ranking"][0]) == {"query_id", "rank", "candidate_id", "score"}
    assert main([*WORDS, "--json", "--out", str(tmp_path / "x.jsonl"), "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "queries": 6, "mitigations": [], "failed": [], "out": str(tmp_path / "x.jsonl"),
    }  # fmt: skip
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 42


def test_workers_without_a_file_are_wrong_usage(capsys):
    assert main([*WORDS, "--shard", "1/2"]) == 2
    assert "--out is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "flags", "used"),
    [
        ("passages", [], ["first-stage:30"]),
        ("passages", ["--mitigation", "none"], []),
        ("passages", ["--mitigation", "canonical-order"], ["canonical-order"]),
        ("responses", [], []),
    ],
    ids=["ranked", "turned off", "another", "no first stage"],
)
def test_the_default_scorer_takes_a_share_of_a_first_stage_that_ranked_the_pools(monkeypatch, capsys, data, flags, used):
    monkeypatch.setattr("steadyscore.scoring.rerank.DEFAULT", "synthetic:slot")
    assert main(["score", "--scorer", "synthetic:slot", "--data", data, "--queries", "2", "--json", *flags]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["mitigations"] == used
    assert ("30 % of each score is the first stage's rank" in printed.err) == (not flags and bool(used))


def test_a_file_that_names_no_first_stage_and_carries_no_rank_is_not_taken_for_ranked(tmp_path, monkeypatch):
    monkeypatch.setattr("steadyscore.scoring.rerank.DEFAULT", "synthetic:slot")
    candidates = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]
    for name, ranks, used in (("plain", [{}, {}], []), ("ranked", [{"rank": 1}, {"rank": 2}], ["first-stage:30"])):
        pool = [candidate | rank for candidate, rank in zip(candidates, ranks, strict=True)]
        file = tmp_path / f"{name}.jsonl"
        file.write_text(json.dumps({"id": "1", "query": "q", "candidates": pool}) + "\n")
        assert usual_mitigations("synthetic:slot", open_collection(str(file))) == used
        assert usual_mitigations("synthetic:none", open_collection(str(file))) == []


@pytest.mark.parametrize(("name", "is_trec"), [("a.run", True), ("a.trec", True), ("a.jsonl", False), ("a", False)])
def test_the_name_of_the_file_says_its_format_where_none_is_given(name, is_trec, tmp_path):
    assert main([*WORDS, "--out", str(tmp_path / name)]) == 0
    first = (tmp_path / name).read_text().splitlines()[0]
    assert first.endswith(" steadyscore") if is_trec else json.loads(first)["rank"] == 1
    assert main([*WORDS, "--out", str(tmp_path / name), "--format", "jsonl"]) == 0
    assert json.loads((tmp_path / name).read_text().splitlines()[0])["rank"] == 1, "what is asked for goes first"
