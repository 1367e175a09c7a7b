"""Programs as scorers: whatever one writes, when it hangs or dies, no query ever gets the scores of another."""

import json
import math
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions, Reranker, ScorerFailed
from steadyscore.engines.kinds import open_engine
from steadyscore.errors import InputError
from steadyscore.runs.folder import find_run
from steadyscore.scoring.config import AuditConfig, open_scorer
from steadyscore.scoring.score import score_collection
from tests.helpers.serving import app_of, listening, model
from tests.helpers.waiting import until

HEAD = """
import json, os, sys, threading, time
def say(answer):
    print(json.dumps(answer), flush=True)
def lengths(asked):
    return [len(text) for text in asked["candidates"]]
"""
LOOP = "for count, line in enumerate(sys.stdin, 1):\n    asked = json.loads(line)\n    "
BY_ID = HEAD + LOOP + 'say({"id": asked["id"], "scores": lengths(asked)})\n'
PLAIN = HEAD + LOOP + 'say({"scores": lengths(asked)})\n'


@pytest.fixture
def program(tmp_path):
    """A source as the address of a program."""

    def write(source: str, name: str = "my scorer.py") -> str:
        (tmp_path / name).write_text(source)
        return f"command:{shlex.quote(sys.executable)} {shlex.quote(str(tmp_path / name))}"

    return write


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pid_of(reranker) -> int:
    return reranker._running.program.pid


# -- in step


def test_a_program_that_returns_ids_is_started_once(program):
    reranker = open_engine(program(BY_ID))
    assert isinstance(reranker, Reranker)
    assert reranker.score("a b", ["a b c", "x"]) == [5, 1]
    first = pid_of(reranker)
    assert reranker.score("x", ["a\nb", "x", "\ud800"]) == [3, 1, 1]
    assert pid_of(reranker) == first


def test_a_program_that_leaves_the_id_out_gets_one_question_each(program):
    reranker = open_engine(program(HEAD + LOOP + 'say({"scores": [os.getpid()]})\n'))
    processes = {reranker.score("q", ["a"])[0] for _ in range(3)}
    assert len(processes) == 3
    assert not any(is_alive(int(pid)) for pid in processes)


def scored_by_length(address: str, questions: int = 45) -> tuple[list[int], list[str]]:
    """How many of the answers are right, and the reasons of those that failed; a wrong one fails the test."""
    reranker, right, failed = open_engine(address), [], []
    for turn in range(1, questions + 1):
        texts = ["x" * turn, "x" * (2 * turn)]
        try:
            assert reranker.score("q", texts) == [turn, 2 * turn]
            right.append(turn)
        except ScorerFailed as failure:
            failed.append(str(failure))
    return right, failed


ANSWERS = {"with ids": '{"id": asked["id"], "scores": lengths(asked)}', "without": '{"scores": lengths(asked)}'}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_program_that_answers_twice_now_and_then_never_answers_the_next_question(program, answer):
    source = HEAD + LOOP + f"say({answer})\n    if count % 10 == 0: say({answer})\n"
    right, failed = scored_by_length(program(source))
    assert len(right) + len(failed) == 45
    assert len(failed) == (4 if "id" in answer else 0)  # a process that gets one question never comes to its tenth


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_second_answer_that_comes_late_never_answers_the_next_question(program, answer):
    late = f"threading.Timer(0.003 * (count % 5), say, [{answer}]).start()"
    right, failed = scored_by_length(program(HEAD + LOOP + f"say({answer})\n    {late}\n"), 12)
    assert len(right) + len(failed) == 12
    assert all("more than one line" in reason or "without being asked" in reason or "id" in reason for reason in failed)


def test_lines_that_are_not_answers_fail_their_query_and_no_other(program):
    source = HEAD + 'print("loading model ...", flush=True)\n' + LOOP + f"say({ANSWERS['with ids']})\n"
    reranker = open_engine(program(source))
    with pytest.raises(ScorerFailed, match=r"more than one line|answered 'loading model \.\.\.'"):
        reranker.score("q", ["a"])
    right, failed = scored_by_length(program(HEAD + LOOP + f"say({ANSWERS['with ids']} if count % 4 else 'what?')\n"), 20)
    assert (len(right), len(failed)) == (15, 5)


def test_output_that_waits_before_a_question_fails_it(program):
    source = HEAD + LOOP + f"say({ANSWERS['with ids']})\n    time.sleep(0.05); print('done', flush=True)\n"
    reranker = open_engine(program(source))
    assert reranker.score("q", ["a"]) == [1]
    until(lambda: reranker._running.program.is_waiting())
    with pytest.raises(ScorerFailed, match="wrote to its output without being asked"):
        reranker.score("q", ["aa"])
    assert reranker.score("q", ["aaa"]) == [3]


BAD = {
    '{"scores": {"0": 159, "1": 203}}': "as scores, not a list",
    '{"scores": "11"}': "as scores, not a list",
    '{"scores": null}': "as scores, not a list",
    '{"scores": [1]}': "gave 1 scores for 2 candidates",
    '{"scores": [1, 2, 3]}': "gave 3 scores for 2 candidates",
    '{"scores": [1, true]}': "score 2 is True, not a finite number",
    '{"scores": [1, "2"]}': "score 2 is '2', not a finite number",
    '{"scores": [1, null]}': "score 2 is None, not a finite number",
    '{"scores": [1, NaN]}': "score 2 is nan, not a finite number",
    '{"scores": [1, 1e999]}': "score 2 is inf, not a finite number",
    '{"scores": [1, 1' + "0" * 400 + "]}": "cannot be used",
    '{"id": "another", "scores": [1, 2]}': "answered with the id .* which is not the question's",
    '{"grades": [1, 2]}': 'answered .*, not {"scores": ',
    "[1, 2]": 'answered .*, not {"scores": ',
    "": "answered '', not",
    "[" * 100_000: "answered '\\[\\[",
    "{": "answered '{', not",
}


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:30])
def test_only_a_list_of_finite_numbers_is_a_list_of_scores(program, line):
    reranker = open_engine(program(HEAD + LOOP + f"print({line!r}, flush=True)\n"))
    with pytest.raises(ScorerFailed, match=BAD[line]):
        reranker.score("q", ["a", "b"])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "scores", "0"]), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(values | st.fixed_dictionaries({"scores": st.lists(st.integers() | st.floats(), min_size=2, max_size=2)}))
def test_whatever_json_a_program_writes_is_scores_or_a_failure(value):
    reranker = open_engine("command:true")
    line = json.dumps(value).encode() + b"\n"
    try:
        found = reranker._scores(reranker._read(line, "7")["scores"], 2)
    except ScorerFailed:
        return
    assert [type(score) for score in found] == [float, float]
    assert all(map(math.isfinite, found))
    assert found == [float(score) for score in value["scores"]]
    assert value.get("id", "7") == "7"


def test_a_program_that_returned_an_id_must_go_on_to(program):
    reranker = open_engine(program(HEAD + LOOP + "say({**({'id': asked['id']} if count == 1 else {}), 'scores': [1]})\n"))
    assert reranker.score("q", ["a"]) == [1]
    with pytest.raises(ScorerFailed, match="left out the id, which its earlier answers returned"):
        reranker.score("q", ["a"])


def test_a_client_never_gets_the_scores_of_another_request(program):
    """Over HTTP, with a program that answers twice at every third question."""
    source = (
        HEAD
        + LOOP
        + "answer = {'id': asked['id'], 'scores': lengths(asked)}\n    say(answer)\n    if count % 3 == 0: say(answer)\n"
    )
    backend = open_engine(program(source))
    with listening(app_of(model(backend, "twice"))) as url:
        right = 0
        for turn in range(1, 13):
            texts = ["x" * turn, "x" * (turn + 20)]
            answer = httpx.post(f"{url}/score", json={"model": "twice", "text_1": "q", "text_2": texts}, timeout=60)
            if answer.status_code == 200:
                assert [datum["score"] for datum in answer.json()["data"]] == [turn, turn + 20]
                right += 1
    assert right >= 6


# -- time, death and what is left behind


def test_a_program_that_does_not_answer_is_ended(program):
    source = HEAD + LOOP + f"time.sleep(600 if asked['query'] == 'hang' else 0); say({ANSWERS['with ids']})\n"
    reranker = open_engine(program(source), EngineOptions(timeout=120))
    assert reranker.score("q", ["a"]) == [1]
    pid, reranker.seconds = pid_of(reranker), 1.0
    with pytest.raises(ScorerFailed, match=r"did not answer within 1 s \(timeout\)"):
        reranker.score("hang", ["a"])
    assert not is_alive(pid)
    reranker.seconds = 120
    assert reranker.score("q", ["aa"]) == [2]


def test_a_program_that_ignores_sigterm_is_ended_too(program):
    source = HEAD + "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LOOP + "time.sleep(600)\n"
    reranker = open_engine(program(source), EngineOptions(timeout=0.5))
    with pytest.raises(ScorerFailed, match="did not answer"):
        reranker.score("q", ["a"])
    assert reranker._running.program is None


def test_a_program_that_closes_its_output_and_stays_does_not_hang(program):
    reranker = open_engine(program(HEAD + LOOP + "os.close(1); time.sleep(600)\n"))
    with pytest.raises(ScorerFailed, match="closed its output and stayed instead of answering"):
        reranker.score("q", ["a"])


def test_a_program_that_dies_costs_its_own_query_alone(program):
    source = HEAD + LOOP + (
        "if asked['query'] == 'die': sys.exit(3)\n    "
        "if asked['query'] == 'half': sys.stdout.write('{\"sc'); sys.exit(4)\n    "
        f"say({ANSWERS['with ids']})\n    "
        "if asked['query'] == 'last': os._exit(0)\n"
    )  # fmt: skip
    reranker = open_engine(program(source))
    said = {}
    for turn, query in enumerate(["a", "die", "b", "half", "c", "last", "d", "last", "e"]):
        try:
            assert reranker.score(query, ["x" * turn]) == [turn]
        except ScorerFailed as failure:
            said[query] = str(failure)
    assert said.keys() == {"die", "half"}
    assert "ended with code 3 instead of answering" in said["die"]
    assert "ended with code 4 in the middle of its answer" in said["half"]


def test_a_program_killed_by_a_signal_is_named_with_it(program):
    reranker = open_engine(program(HEAD + LOOP + "os.kill(os.getpid(), 9)\n"))
    with pytest.raises(ScorerFailed, match="was ended by SIGKILL instead of answering"):
        reranker.score("q", ["a"])


def test_what_it_wrote_on_stderr_is_shown_and_stands_in_the_reason(program, capfd):
    source = HEAD + LOOP + (
        "print('x' * 300_000, file=sys.stderr); print('weights.bin: no such file', file=sys.stderr); sys.exit(1)\n"
    )  # fmt: skip
    reranker = open_engine(program(source))
    with pytest.raises(ScorerFailed, match=r"ended with code 1 .*last on its stderr: .*weights.bin: no such file$") as failure:
        reranker.score("q", ["a"])
    assert len(str(failure.value)) < 1000
    err = capfd.readouterr().err
    assert err.count("x") >= 300_000
    assert "weights.bin: no such file" in err


def test_a_large_question_and_a_large_answer_pass_at_the_same_time(program):
    """A program that writes on stderr and stdout while it is still sent to would block both sides of a pipe."""
    echo = "sys.stderr.write('e' * 200_000); sys.stderr.flush(); say({'id': asked['id'], 'scores': [0.123456789012] * 200_000})\n"
    reranker = open_engine(program(HEAD + LOOP + echo), EngineOptions(timeout=60))
    assert len(reranker.score("q", ["some text"] * 200_000)) == 200_000


def test_an_answer_without_end_is_cut_off(program, monkeypatch):
    monkeypatch.setattr("steadyscore.engines.command.LONGEST_ANSWER", 100_000)
    reranker = open_engine(program(HEAD + LOOP + "while True: sys.stdout.write('1' * 10_000)\n"))
    with pytest.raises(ScorerFailed, match="wrote more than 100,000 bytes"):
        reranker.score("q", ["a"])


def test_an_answer_before_the_question_was_read_is_refused(program):
    reranker = open_engine(program(HEAD + "say({'scores': [1] * 100_000}); time.sleep(600)\n"))
    with pytest.raises(ScorerFailed, match="answered before it had read the question"):
        reranker.score("q", ["some text"] * 100_000)


def test_a_stop_by_the_user_leaves_no_answer_for_the_next_question(program, monkeypatch):
    reranker = open_engine(program(BY_ID))
    assert reranker.score("q", ["a"]) == [1]
    asked = reranker._running.program.ask

    def interrupted(question, deadline):
        asked(question, deadline)
        raise KeyboardInterrupt

    monkeypatch.setattr(reranker._running.program, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reranker.score("q", ["aa"])
    assert reranker.score("q", ["aaa"]) == [3]


CHILD = (
    HEAD
    + "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
    + "open(os.environ['PIDS'], 'a').write(f'{os.getpid()} {child.pid}\\n')\n"
    + LOOP
    + "time.sleep(600)\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_no_process_is_left_when_we_are_ended(program, tmp_path, collection_file, number):
    words = ["score", "--scorer", program(CHILD), "--data", str(collection_file)]
    pids = tmp_path / "pids"
    process = subprocess.Popen(
        [sys.executable, "-m", "steadyscore", *words],
        env=os.environ | {"PIDS": str(pids)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        children = [int(pid) for pid in pids.read_text().split()]
        assert all(map(is_alive, children))
        process.send_signal(number)
        process.wait(120)
        until(lambda: not any(map(is_alive, children)))
    finally:
        process.kill()
        process.wait()


def test_a_program_ends_with_the_scorer_that_started_it(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    answers_once = "say({'id': asked['id'], 'scores': [1]}) if count == 1 else time.sleep(600)\n"
    reranker = open_engine(program(CHILD.replace("time.sleep(600)\n", answers_once)), EngineOptions(timeout=120))
    assert reranker.score("q", ["a"]) == [1]
    reranker.seconds = 0.5
    with pytest.raises(ScorerFailed):
        reranker.score("q", ["a"])
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    until(lambda: not any(map(is_alive, pids)))  # a killed process is gone when the system has had time for it


def test_how_a_slow_program_without_ids_can_be_kept_is_said_once(program, capsys, monkeypatch):
    monkeypatch.setattr("steadyscore.engines.command.SLOW", 0.0)
    reranker = open_engine(program(PLAIN))
    reranker.score("q", ["a"])
    reranker.score("q", ["a"])
    assert capsys.readouterr().err.count("Return the id in its answers and it is kept running.") == 1


# -- identity and the way it is audited


def test_a_changed_program_is_another_scorer(program, tmp_path):
    before = open_engine(program(PLAIN)).identity()
    assert open_engine(program(PLAIN + "# changed\n")).identity() != before


def test_a_program_is_watched_with_what_is_named(program, tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"1")
    address = program(PLAIN)
    options = EngineOptions(watch=(str(tmp_path / "weights.bin"),))

    def changed(file: str, text: str) -> set[str]:
        before = open_engine(address, options).watch()
        (tmp_path / file).write_text(text)
        after = open_engine(address, options).watch()
        assert before.keys() == after.keys()
        return {Path(name).name for name in before if before[name] != after[name]}

    assert changed("weights.bin", "2") == {"weights.bin"}
    assert changed("my scorer.py", "import sys\n") == {"my scorer.py"}


def test_a_watched_file_that_is_not_there_is_refused_before_anything_runs(program, tmp_path):
    with pytest.raises(InputError, match=r"watch: .*none.bin is not a file"):
        open_engine(program(PLAIN), EngineOptions(watch=(str(tmp_path / "none.bin"),)))


def test_watching_is_refused_for_scorers_that_are_not_files(capsys, tmp_path, collection_file):
    words = ["score", "--scorer", "synthetic:none", "--data", str(collection_file), "--set", f"watch={collection_file}"]
    assert main(words) == 1
    assert "watch would change nothing of synthetic:none. Leave it out." in capsys.readouterr().err


def test_a_scorer_that_says_nothing_is_watched_by_nothing():
    assert open_engine("synthetic:none").watch() == {}


def test_a_program_is_audited_like_anything_else(program, collection_file, tmp_path):
    config = AuditConfig(permutations=2)
    collection = open_collection(str(collection_file)).collection
    run = score_collection(open_scorer(program(BY_ID), collection, config), str(collection_file), tmp_path / "run", config)
    assert len(run.read_queries()) == 4
    assert np.ptp(run.read_queries()[0].scores, axis=0).max() == 0  # this one scores candidates one by one


def test_an_audit_names_the_query_that_a_program_failed_on(program, collection_file, tmp_path, capsys):
    many = "{'id': asked['id'], 'scores': 'many'}"
    source = HEAD + LOOP + f"say({many} if '2' in asked['query'] else {ANSWERS['with ids']})\n"
    code = main(["audit", "--scorer", program(source), "--data", str(collection_file), "--out", str(tmp_path / "run"), "--json"])
    assert code == 4
    assert "as scores, not a list" in capsys.readouterr().err
    coverage = find_run(tmp_path / "run").record.coverage
    assert [query.query_id for query in coverage.failed] == ["q2"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("command:", "names no program"),
        ("command:no-such-program-here", "could not be started"),
        ("command:a 'b", "cannot be split"),
    ],
)
def test_a_command_that_cannot_run_says_why(address, message):
    with pytest.raises(InputError, match=message):
        open_engine(address).score("q", ["a"])


def test_a_program_that_cannot_start_leaves_no_run(collection_file, tmp_path, capsys):
    words = ["audit", "--scorer", "command:no-such-program-here", "--data", str(collection_file), "--out", str(tmp_path / "run")]
    assert main(words) == 1
    assert "no-such-program-here could not be started" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
