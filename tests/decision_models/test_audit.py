"""Planted effects of presentation come back per channel, none where none is planted; a run survives faults, kills and damage."""

import json
import re
from collections import Counter

import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.decision_models import audit
from steadyscore.decision_models.audit import audit_decisions
from steadyscore.decision_models.result import DecisionRun, load_decisions
from steadyscore.engines import EngineOptions
from steadyscore.errors import InputError, RunMismatch, UsageError
from steadyscore.machine.disk import write_record
from tests.helpers import decision_server
from tests.helpers.decision_server import DecisionServer, hashed
from tests.helpers.endpoint import Server

OPTIONS = EngineOptions(timeout=30, retries=8, cache=False)
TEXTS = [text for text in (f"text {i}" for i in range(400)) if 0.55 < hashed(text) < 0.8]
"""Far enough from the ends of a scale that no planted effect is cut off."""
LEVELS = ["level 0", "level 1", "level 2", "level 3"]


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch, tmp_path):
    decision_server.ask_in_a_hurry(monkeypatch, tmp_path)


@pytest.fixture
def model():
    return DecisionServer()


@pytest.fixture
def server(model):
    with Server(model.answer, decision_server.spoiled) as server:
        yield server


@pytest.fixture
def file(tmp_path):
    """Three states of two candidates, and a question of every kind."""
    questions = {
        "grade": {"type": "score", "instructions": "How relevant is [a]?", "criteria": LEVELS},
        "keep": {"type": "noul", "instructions": "Does [b] answer?", "criteria": None},
        "tone": {"type": "choice", "instructions": "Which tone?", "criteria": {"calm": None, "angry": None, "sad": None}},
    }
    states = [
        {
            "id": f"s{i}",
            "state": {"candidates": [{"id": "a", "text": TEXTS[2 * i]}, {"id": "b", "text": TEXTS[2 * i + 1]}]},
            "gold": {"grade": 2, "keep": True, "tone": "calm"},
        }
        for i in range(3)
    ]
    path = tmp_path / "states.json"
    path.write_text(json.dumps({"candidates": "$.candidates", "questions": questions, "states": states}))
    return path


def run_audit(server, file, folder, kind="systemone", options=OPTIONS):
    return audit_decisions(f"{kind}:m@{server.url}", file, folder, permutations=5, options=options, quiet=True)


PLANTED = {
    "none": ({}, {}),
    "slot": (
        {"slot": 0.25},
        dict.fromkeys(["score_move.candidates", "noul_move.candidates"], 0.25)
        | dict.fromkeys(["noul_crossing.candidates", "score_crossing.candidates"]),
    ),
    "option": ({"option": True}, {"choice_flip.options": 0.8}),  # six orders of three options: each comes first twice
    "level": ({"level": 0.2}, {"score_move.levels": 0.2, "score_crossing.levels": None}),
    # The score is asked first, then in every place: six orders, whose first, middle and last come twice each.
    "question": (
        {"question": 0.5},
        {"score_move.questions": 0.5 * (4 * 0.5 + 4 * 0.5 + 4 * 1) / 15, "score_crossing.questions": None},
    ),
}


@pytest.mark.parametrize("kind", ["systemone", "decisions"])
@pytest.mark.parametrize("effect", PLANTED)
def test_a_planted_effect_comes_back_in_its_channel_and_nowhere_else(server, model, file, tmp_path, effect, kind):
    planted, expected = PLANTED[effect]
    for name, size in planted.items():
        setattr(model, name, size)
    audit = run_audit(server, file, tmp_path / "run", kind)
    measured = {name: figure.value for name, figure in audit.figures.items() if not name.endswith(".as_given")}
    assert len(measured) == 5 * 2 + 1 + 2 + 5 * 2  # candidates and questions; options; levels; both noise floors
    for name, value in measured.items():
        if expected.get(name, 0.0) is not None:
            assert value == pytest.approx(expected.get(name, 0.0), abs=1e-9), name
    for name in expected:
        assert audit[name].floor == 0
        assert expected[name] is None or audit[name].is_above_floor


def test_a_crossing_counts_the_decisions_that_turn(server, model, file, tmp_path):
    rows = json.loads(file.read_text())
    model.slot = 0.25
    for row in rows["states"]:  # between what the score is in front and behind; far below what the other one is
        row["cutoffs"] = {"grade": 1 + 2 * hashed(row["state"]["candidates"][0]["text"]) - 0.1, "keep": 0.1}
    file.write_text(json.dumps(rows))
    audit = run_audit(server, file, tmp_path / "run")
    assert audit["score_crossing.candidates"].value == 1
    assert audit["noul_crossing.candidates"].value == 0
    assert audit["score_crossing.questions"].value == 0


def test_identical_requests_that_differ_are_the_noise_floor(server, model, file, tmp_path):
    model.noise = True
    audit = run_audit(server, file, tmp_path / "run", options=EngineOptions(concurrency=1, cache=False))
    # Every second answer is another one: of the file's and two repeats, two are alike.
    assert audit["choice_flip.same_batch"].value == pytest.approx(2 / 3)
    assert audit["choice_flip.candidates"].floor == pytest.approx(2 / 3)
    assert not audit["choice_flip.questions"].is_above_floor


def test_quality_is_that_of_the_file_s_own_presentation(server, model, file, tmp_path):
    model.option = True  # the first option, which is gold
    audit = run_audit(server, file, tmp_path / "run")
    keeps = [hashed(TEXTS[2 * i + 1]) for i in range(3)]
    grades = [1 + 2 * hashed(TEXTS[2 * i]) for i in range(3)]
    assert audit["accuracy.as_given"].value == pytest.approx(sum(1 + 1 + (1.5 <= g < 2.5) for g in grades) / 9)
    assert audit["score_error.as_given"].value == pytest.approx(sum(abs(g - 2) for g in grades) / 3)
    squares = [0.3**2 + 2 * 0.15**2 + 2 * (1 - keep) ** 2 for keep in keeps]
    for i, grade in enumerate(grades):  # all on level 2 and one of its neighbours
        assert 1 <= grade <= 3
        squares[i] += 2 * abs(grade - 2) ** 2
    assert audit["brier.as_given"].value == pytest.approx(sum(squares) / 9)
    assert 0 <= audit["calibration_error.as_given"].value <= 1


def test_a_channel_that_cannot_matter_says_so(server, file, tmp_path):
    rows = json.loads(file.read_text())
    rows["questions"] = {"keep": rows["questions"]["keep"]}
    for row in rows["states"]:
        row["gold"] = {}
        row["state"]["candidates"] = row["state"]["candidates"][1:]
    file.write_text(json.dumps(rows))
    audit = run_audit(server, file, tmp_path / "run")
    assert audit.channels == {
        "candidates": "cannot matter in 3: the list of candidates has fewer than two",
        "options": "cannot matter in 3: no question is a choice whose options may be reordered",
        "levels": "cannot matter in 3: no question is a score whose levels may be reordered",
        "questions": "cannot matter in 3: there is one question",
    }
    assert {name.partition(".")[2] for name in audit.figures} == {"same_batch", "other_batch"}


# -- runs


def records(folder):
    return {path.name: json.loads(path.read_text())["asked"] for path in (folder / "states").glob("*.json")}


def test_faults_leave_no_trace_in_an_audit(server, file, tmp_path):
    clean = run_audit(server, file, tmp_path / "clean")
    asked = len(server.requests)
    tries: Counter[int] = Counter()
    faults = ("429", "500", "truncated", "short", "nan")

    def fail_twice_in_three(body):
        tries[0] += 1
        return faults[tries[0] % 5] if tries[0] % 3 else None

    server.always = fail_twice_in_three
    faulty = run_audit(server, file, tmp_path / "faulty", options=EngineOptions(retries=40, cache=False))
    assert len(server.requests) > 2 * asked
    assert faulty.failed == []
    assert records(tmp_path / "faulty") == records(tmp_path / "clean")
    assert {name: figure.value for name, figure in faulty.figures.items()} == {n: f.value for n, f in clean.figures.items()}


def test_a_state_that_stays_unanswered_is_named_and_asked_again(server, file, tmp_path):
    server.always = lambda body: "short" if TEXTS[2] in json.dumps(body) else None
    audit = run_audit(server, file, tmp_path / "run", options=EngineOptions(retries=0, cache=False))
    assert [failure.query_id for failure in audit.failed] == ["s1"]
    assert audit.query_ids == ["s0", "s2"]
    server.always, before = lambda body: None, len(server.requests)
    again = run_audit(server, file, tmp_path / "run")
    assert again.query_ids == ["s0", "s1", "s2"]
    assert again.failed == []
    asked = [body for body in server.requests[before:] if "candidates" in json.dumps(body)]
    assert all(TEXTS[2] in json.dumps(body) for body in asked)


def test_a_run_of_an_earlier_version_is_read_and_goes_on(server, file, tmp_path):
    """Its answers say `argmax_is_label`, which nothing reads any more."""
    audit = run_audit(server, file, tmp_path / "run")
    for state in (tmp_path / "run" / "states").glob("*.json"):
        record = json.loads(state.read_text())
        for entry in record["asked"]:
            entry["answers"] = [answer | {"label_mass": 0.9, "argmax_is_label": True} for answer in entry["answers"]]
        write_record(state, {"state": record["state"], "asked": record["asked"]})
    loaded = load_decisions(tmp_path / "run")
    assert loaded.figures == audit.figures
    assert {answer.label_mass for asked in loaded.asked for _, (_, answers) in asked for answer in answers} == {0.9}
    (tmp_path / "run" / "states" / "000001.json").unlink()
    assert run_audit(server, file, tmp_path / "run").figures == audit.figures


def test_a_killed_audit_goes_on_where_it_was(server, file, tmp_path, monkeypatch):
    run_audit(server, file, tmp_path / "clean")
    write = DecisionRun.write

    def killed(run, number, row, asked):
        if number == 1:
            raise KeyboardInterrupt
        write(run, number, row, asked)

    with monkeypatch.context() as patch:
        patch.setattr(DecisionRun, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            run_audit(server, file, tmp_path / "run")
    with pytest.raises(InputError, match="is not complete"):
        load_decisions(tmp_path / "run")
    before = len(server.requests)
    audit = run_audit(server, file, tmp_path / "run")
    assert records(tmp_path / "run") == records(tmp_path / "clean")
    assert not any(TEXTS[0] in json.dumps(body) for body in server.requests[before:])
    assert audit.query_ids == ["s0", "s1", "s2"]


def test_a_damaged_record_is_asked_for_again_and_another_command_is_refused(server, file, tmp_path):
    audit = run_audit(server, file, tmp_path / "run")
    damaged = tmp_path / "run" / "states" / "000001.json"
    damaged.write_text(damaged.read_text().replace('"channel": "options"', '"channel": "levels"', 1))
    with pytest.raises(steadyscore.SteadyscoreError, match="is not what was written"):
        load_decisions(tmp_path / "run")
    assert run_audit(server, file, tmp_path / "run").to_json()["measures"] == audit.to_json()["measures"]
    with pytest.raises(RunMismatch, match="permutations was 5, now 2"):
        audit_decisions(f"systemone:m@{server.url}", file, tmp_path / "run", permutations=2, options=OPTIONS, quiet=True)


# -- stopping early


@pytest.fixture
def many(tmp_path):
    """Forty states with one choice among three options."""
    question = {"tone": {"type": "choice", "instructions": "Which tone?", "criteria": {"calm": None, "angry": None, "sad": None}}}
    states = [{"id": f"s{i}", "state": text} for i, text in enumerate(TEXTS[:40])]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"questions": question, "states": states}))
    return path


def run_until(server, file, folder, until=None):
    return audit_decisions(f"systemone:m@{server.url}", file, folder, permutations=5, options=OPTIONS, quiet=True, until=until)


def test_states_are_asked_about_until_a_bound_is_known_and_the_rest_by_the_same_command(server, model, many, tmp_path, capsys):
    model.option = True
    audit = run_until(server, many, tmp_path / "run", "choice_flip.options<=0.2")
    stop, before = audit.stop, len(server.requests)
    assert (stop.answer, stop.of_queries) == ("fails", 40)
    assert 5 < stop.queries == len(audit.cases) < 20
    assert stop.low <= 0.8 <= stop.high
    assert audit.query_ids != [f"s{i}" for i in range(stop.queries)]
    assert f"does not hold after {stop.queries} of 40 states" in audit.saved
    assert "choice_flip.options lies between" in str(audit)
    assert audit.remarks[0] in steadyscore.gate(tmp_path / "run", max={"choice_flip.options": 0.2}).remarks
    assert run_until(server, many, tmp_path / "run", "choice_flip.options<=0.2").stop == stop
    assert len(server.requests) == before + 1, "the answer is known from what is on disk; opening a model asks once"
    whole = run_until(server, many, tmp_path / "run")
    assert (whole.stop, len(whole.cases)) == (None, 40)
    assert load_decisions(tmp_path / "run").query_ids == [f"s{i}" for i in range(40)]
    words = ["--decisions", str(many), "--permutations", "5", "--set", "retries=8", "--until", "choice_flip.options<=0.2"]
    assert main(["audit", *words, "--scorer", f"systemone:m@{server.url}", "--out", str(tmp_path / "two"), "--no-report"]) == 0
    assert "choice_flip.options<=0.2 does not hold after" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("choice_flip<=0.2", "give one of choice_flip, .* with its channel"),
        ("brier.as_given<=0.2", "give one of choice_flip"),
        ("overlap>=0.8", "give one of choice_flip"),
        ("choice_flip.candidates<=0.2", r"no state has choice_flip\.candidates"),
        ("noul_crossing.options<=0.2", r"no state has noul_crossing\.options"),
        ("accuracy.as_given>=0.5", r"no state has accuracy\.as_given"),
    ],
)
def test_a_bound_that_no_state_can_decide_is_refused(server, many, tmp_path, until, said):
    with pytest.raises(UsageError, match=said):
        run_until(server, many, tmp_path / "run", until)
    assert not (tmp_path / "run").exists()


def test_what_is_no_decision_model_is_refused(file, tmp_path):
    with pytest.raises(InputError, match="does not answer typed questions"):
        audit_decisions("synthetic:none", file, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- the command line


def test_the_verbs_take_an_audit_of_decisions(server, model, file, tmp_path, capsys):
    model.option = True
    shared = ["audit", "--decisions", str(file), "--permutations", "5", "--set", "retries=1"]
    assert main([*shared, "--scorer", f"systemone:m@{server.url}", "--out", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^measure +channel +value +same batch +other batch +states +detectable$", printed, re.M)
    assert re.search(r"^choice_flip +options +0\.800 \[.* +0\.000 +0\.000 +3 +0\.\d+$", printed, re.M)
    assert "changed in 3 of 3 states" in printed
    page = (tmp_path / "a" / "report" / "index.html").read_text()
    assert "twice: only the order of the options differs" in page
    assert "<script" not in page
    model.option = False
    scorer = ["--scorer", f"new=decisions:n@{server.url}"]
    assert main([*shared, *scorer, "--out", str(tmp_path / "b"), "--json", "--no-report"]) == 0
    [told] = json.loads(capsys.readouterr().out)["audits"]
    assert told["scorer"] == "new"
    assert (tmp_path / "b/new").is_dir()
    assert told["measures"]["choice_flip.options"]["value"] == 0
    assert main(["gate", str(tmp_path / "b"), "--max", "choice_flip.options=0.1"]) == 0
    assert main(["gate", str(tmp_path / "a"), "--max", "choice_flip.options=0.1"]) == 3
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--measures", "choice_flip.options", "--json"]) == 0
    [contrast] = json.loads(capsys.readouterr().out)["contrasts"]
    assert contrast["difference"]["value"] == pytest.approx(-0.8)
    assert (contrast["better"], contrast["wins"]) == ("lower", 1)
    assert main(["report", str(tmp_path / "a"), "--out", str(tmp_path / "page")]) == 0
    assert (tmp_path / "page" / "report.md").exists()


def test_a_plan_asks_nothing_and_a_wrong_flag_is_usage(server, file, capsys):
    arguments = ["audit", "--decisions", str(file), "--scorer", f"systemone:m@{server.url}", "--dry-run", "--permutations", "5"]
    assert main([*arguments, "--json", "--set", "price=2,0"]) == 0
    plan = json.loads(capsys.readouterr().out)
    each = 1 + 2 * audit.REPEATS + 1 + 5 + 1 + 5  # as given, repeats, candidates, options, levels, questions
    assert (plan["states"], plan["requests"], plan["questions"]) == (3, 3 * each, 9 * each)
    assert plan["cost"] > 0
    assert server.requests == []
    assert main([*arguments, "--data", "passages"]) == 2
    assert "leave out --data." in capsys.readouterr().err


def test_an_audit_that_is_named_twice_or_lacks_a_measure_is_refused(server, model, file, tmp_path):
    asked = {"permutations": 2}
    one, two = (
        steadyscore.audit_decisions(f"systemone:{name}@{server.url}", file, tmp_path / name, **asked) for name in ("m", "n")
    )
    with pytest.raises(InputError, match="given more than once"):
        steadyscore.compare(one, one, two)
    with pytest.raises(InputError, match="no two audits have"):
        steadyscore.compare(one, two, measures=["ndcg@10"])
    with pytest.raises(InputError, match="an audit of another model on the same file too"):
        steadyscore.compare(one)
    plain = steadyscore.compare(one, two)
    assert steadyscore.compare(one, two, discordance=[("ndcg@10", "overlap")]).to_json() == plain.to_json()
