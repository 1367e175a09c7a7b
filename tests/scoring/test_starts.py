"""A run knows what scored it: every start is noted, and a scorer that changed in between is refused or said."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from steadyscore.audits.audit import ScorerInput, audit
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines import Capabilities, EngineOptions, Reranker
from steadyscore.errors import RunMismatch
from steadyscore.machine.disk import sha256
from steadyscore.machine.extras import versions
from steadyscore.machine.schemas import read_as
from steadyscore.runs.folder import Run
from steadyscore.runs.records import Session, ShrunkWindow, Start, to_json
from steadyscore.runs.stored import sum_sessions
from steadyscore.scoring import parts
from steadyscore.scoring.config import AuditConfig, open_scorer
from steadyscore.scoring.parts import score_share
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.starts import scorer_changes, start_of, start_remarks
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection


class Program(Reranker):
    """A scorer made of one file: scores are `scale` times the length of a text."""

    name = "a program"

    def __init__(self, file: Path, stop_after: int | None = None):
        self.file, self.stop_after, self.capabilities = file, stop_after, Capabilities(gives="score")

    def identity(self):
        return {"kind": "python", "function": "score"}

    def watch(self):
        return {str(self.file): sha256(self.file)[:16]}

    def score(self, query, texts):
        if self.stop_after == 0:
            raise KeyboardInterrupt
        if self.stop_after is not None:
            self.stop_after -= 1
        return [float(self.file.read_text()) * len(text) for text in texts]


def score(program: Program, data: Path, out: Path, permutations: int = 3, **options) -> Run:
    from steadyscore.scoring.config import scorer_for

    config = AuditConfig(permutations=permutations)
    return score_collection(scorer_for(program, open_collection(str(data)).collection, config), str(data), out, config, **options)


@pytest.fixture
def begun(collection_file, tmp_path):
    """A program of one file, and a run of it that stopped after two of four queries."""
    file = tmp_path / "weight.txt"
    file.write_text("1.0")
    with pytest.raises(KeyboardInterrupt):
        score(Program(file, stop_after=8), collection_file, tmp_path / "run")
    assert Run.open(tmp_path / "run").scored_ids() == {"q0", "q1"}
    return file, collection_file, tmp_path / "run"


def test_a_run_whose_scorer_changed_is_refused_with_both_values(begun):
    file, data, out = begun
    old = sha256(file)[:16]
    file.write_text("-1.0")
    with pytest.raises(RunMismatch, match=f"was begun with another version of its scorer: {file} was {old}, now "):
        score(Program(file), data, out)
    assert Run.open(out).scored_ids() == {"q0", "q1"}


def test_a_finished_run_whose_scorer_changed_is_refused_and_says_what_to_do(begun):
    file, data, out = begun
    score(Program(file), data, out)
    file.write_text("-1.0")
    with pytest.raises(RunMismatch, match=r"holds the scores of another version.*another --out.*--allow-scorer-change"):
        score(Program(file), data, out)
    later = score(Program(file), data, out, allow_scorer_change=True)
    assert start_remarks(later.record)[0].startswith("its scorer changed after its table was scored: ")


def test_a_growth_that_is_refused_as_the_scorer_changed_leaves_the_run_as_it_is(begun):
    file, data, out = begun
    before = score(Program(file), data, out).record
    file.write_text("-1.0")
    with pytest.raises(RunMismatch, match="holds the scores of another version of its scorer"):
        score(Program(file), data, out, permutations=5)
    assert Run.open(out).record == before
    assert len(list(Run.open(out).iter_queries())) == 4


def test_a_change_while_a_run_grows_names_the_queries_that_the_version_before_scored(begun):
    file, data, out = begun
    score(Program(file), data, out)
    with pytest.raises(KeyboardInterrupt):
        score(Program(file, stop_after=2), data, out, permutations=5)
    file.write_text("-1.0")
    grown = score(Program(file), data, out, permutations=5, allow_scorer_change=True)
    assert start_remarks(grown.record)[0].endswith(" (after 4 queries).")


def test_cuts_of_added_permutations_join_those_before_and_a_query_scored_again_has_its_last_ones():
    def session(query_id: str, chars: int, **known: int) -> Session:
        return Session(seconds=1.0, shrunk=[ShrunkWindow(query_id=query_id, window=1, chars=chars, **known)])

    sessions = [session("a", 10), session("a", 20), session("b", 30), session("a", 40, known=3), session("a", 50, known=3)]

    def cuts(sessions: list[Session]) -> list[tuple[str, int]]:
        return [(cut.query_id, cut.chars) for cut in sum_sessions(sessions).shrunk]

    assert cuts(sessions) == [("a", 20), ("a", 50), ("b", 30)]
    assert cuts([*sessions, session("a", 60, known=6)]) == [("a", 20), ("a", 50), ("a", 60), ("b", 30)]
    assert cuts([*sessions, session("a", 70)]) == [("a", 70), ("b", 30)]


def test_versions_that_workers_scored_parts_with_come_one_after_no_other(collection_file, tmp_path, monkeypatch):
    monkeypatch.setattr(parts.plan_parts, "__kwdefaults__", {"windows": 7})
    file, out, config = tmp_path / "weight.txt", tmp_path / "run", AuditConfig(permutations=3)
    for share, weight in ((1, "1.0"), (2, "-1.0")):
        file.write_text(weight)
        scorers = {"mine": Program(file)}
        work = ScorerInput(scorers, [str(collection_file)], config, EngineOptions(), out, allow_scorer_change=True)
        score_share(work, parts.Share(share, 2))
    found = audit(scorers, str(collection_file), out=out, config=config, report=False, allow_scorer_change=True)
    said = start_remarks(found[0].record)[0]
    assert said.startswith("scored by two versions: ")
    assert said.endswith(" (in other parts).")


def test_a_change_that_the_user_lets_pass_stands_in_the_record_with_both_values(begun):
    file, data, out = begun
    old = sha256(file)[:16]
    file.write_text("-1.0")
    run = score(Program(file), data, out, allow_scorer_change=True)
    first, second = run.record.starts
    assert (first.files, second.files) == ({str(file): old}, {str(file): sha256(file)[:16]})
    assert second.queries_before == 2
    assert start_remarks(run.record) == [
        f"scored by two versions: {file} was {old}, now {sha256(file)[:16]}, "
        "2 of 2 stored windows scored otherwise, by up to 94 (queries q0, q1) (after 2 queries)."
    ]
    score(Program(file), data, out)  # the second version is the run's own now


def test_sessions_that_find_the_same_are_one_entry_with_several_times(begun):
    file, data, out = begun
    for _ in range(2):
        score(Program(file), data, out)
    (start,) = Run.open(out).record.starts
    assert len(start.times) == 2, "the third command had nothing to score"
    assert start.versions["steadyscore"]


def test_another_version_of_a_library_is_said(begun, monkeypatch):
    file, data, out = begun
    monkeypatch.setattr("steadyscore.scoring.starts.versions", lambda: versions() | {"steadyscore": "9.9.9"})
    run = score(Program(file), data, out)
    assert run.is_complete
    (remark,) = start_remarks(run.record)
    assert remark.startswith("scored under several versions of what it runs on: steadyscore ")
    assert remark.endswith("then 9.9.9.")


def test_another_library_that_carries_requests_is_no_other_scorer(begun, monkeypatch):
    file, data, out = begun
    before = {name: version for name, version in versions().items() if name != "httpx2"} | {"httpx": "0.28.1"}
    monkeypatch.setattr("steadyscore.scoring.starts.versions", lambda: before)
    assert start_remarks(score(Program(file), data, out).record) == []


def test_another_address_of_the_same_model_is_another_scorer(tmp_path):
    data = write_collection(tmp_path / "few.jsonl", some_instances(queries=2))
    config = AuditConfig(permutations=2)

    def answer(path, body):
        return {"results": [{"index": i, "relevance_score": len(t)} for i, t in enumerate(body["documents"])]}

    def attempt(server, path):
        address = f"rerank+cohere:m@{server.url}{path}"
        return score_collection(
            open_scorer(address, open_collection(str(data)).collection, config), str(data), tmp_path / "run", config
        )

    with Server(answer) as server:
        attempt(server, "/ok")
        with pytest.raises(RunMismatch, match=r"endpoint was http://\S+/ok, now http://\S+/rev\."):
            attempt(server, "/rev")
        assert len(server.requests) == 2 * 3


def test_only_what_is_known_to_have_changed_counts():
    start = Start({"torch": "1"}, "http://a", "r1", {"a.py": "1", "b.py": "2"})
    assert scorer_changes(start, replace(start, versions={"torch": "2"})) == []
    assert scorer_changes(Start({}), start) == [], "nothing was known before"
    assert scorer_changes(start, replace(start, files={**start.files, "c.py": "3"})) == [], "watched for the first time"
    assert scorer_changes(start, replace(start, files={"x/a.py": "1"})) == [], "moved, and no longer watched"
    assert scorer_changes(start, replace(start, files={"a.py": "1", "b.py": "3"})) == ["b.py was 2, now 3"]
    assert scorer_changes(start, replace(start, revision="r2")) == ["model revision was r1, now r2"]
    assert read_as(Start, to_json(start)) == start


def test_weights_are_the_revision_of_a_model(tiny_engine):
    assert start_of(tiny_engine).revision == tiny_engine.identity()["weights"]


def test_the_command_refuses_lets_pass_and_reports(collection_file, tmp_path, monkeypatch, capsys):
    """By the command line: the flag goes on, and report, --json and terminal name both versions."""
    file = tmp_path / "weight.txt"
    file.write_text("1.0")
    out = tmp_path / "run"
    command = ["audit", "--scorer", "synthetic:none", "--data", str(collection_file), "--permutations", "2", "--out", str(out)]
    command += ["--queries", "3"]
    monkeypatch.setattr("steadyscore.audits.audit.open_engine", lambda *_: Program(file, stop_after=4))
    assert main(command) == 130
    file.write_text("-1.0")
    monkeypatch.setattr("steadyscore.audits.audit.open_engine", lambda *_: Program(file))
    assert main(command) == 1
    assert "--allow-scorer-change" in capsys.readouterr().err
    assert main([*command, "--allow-scorer-change"]) == 0
    assert "scored by two versions: " in capsys.readouterr().err
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["runs"][0]["starts"]
    assert told["remarks"][0].startswith("scored by two versions: ")
    page = (out / "report" / "report.md").read_text()
    assert page.count("scored by two versions: ") == 2, "above the table, and among the settings"
