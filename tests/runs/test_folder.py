"""A run folder survives whatever happens to the process, the disk and the command."""

import contextlib
import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from steadyscore.cli import stop_on_signals
from steadyscore.collection import open_collection
from steadyscore.errors import InputError, RunMismatch, StorageError
from steadyscore.machine import disk
from steadyscore.machine.disk import atomic
from steadyscore.results.load import load_run
from steadyscore.runs import folder as run_folder
from steadyscore.runs.folder import Run, find_run, find_runs
from steadyscore.runs.layout import DECISIONS_FILE
from steadyscore.runs.records import Start
from steadyscore.runs.table import read_table
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from tests.helpers.paths import ROOT
from tests.helpers.pools import some_instances, write_collection
from tests.runs.test_table import scored

FORMAT_1 = Path(__file__).parent / "format_1"
"""Runs of SMALL_POOLS that version 0.2 wrote."""
ABOUT = {"name": "s", "collection": "c", "task": "passage_reranking"}


def audit(file: Path, folder: Path, address="synthetic:slot", **options) -> Run:
    config = AuditConfig(permutations=3, **options)
    return score_collection(open_scorer(address, open_collection(str(file)).collection, config), str(file), folder, config)


def test_a_complete_run_says_so_and_holds_one_row_per_query_permutation_and_candidate(collection_file, tmp_path):
    run = audit(collection_file, tmp_path / "run")
    record = json.loads((run.folder / "status.json").read_text())
    assert record["status"] == "complete"
    assert record["coverage"]["scored"] == 4
    assert {"fingerprint", "versions", "command", "capabilities"} <= record.keys()
    assert read_table(run.folder / "scores.parquet").num_rows == 4 * (3 + 1) * 6
    assert run.read("scores.parquet").equals(read_table(run.folder / "scores.parquet"))
    assert len(run.parts.files()) == 1, "what a session wrote was merged"


def test_the_same_command_again_scores_nothing(collection_file, tmp_path, monkeypatch):
    audit(collection_file, tmp_path / "run")
    before = (tmp_path / "run" / "scores.parquet").stat().st_mtime_ns
    monkeypatch.setattr("steadyscore.scoring.scorer.Scorer.score_orders", lambda *_: pytest.fail("scored again"))
    assert audit(collection_file, tmp_path / "run").is_complete
    assert (tmp_path / "run" / "scores.parquet").stat().st_mtime_ns == before


def test_another_fingerprint_is_refused_with_the_fields_that_differ(collection_file, tmp_path):
    audit(collection_file, tmp_path / "run")
    with pytest.raises(RunMismatch, match=r"seed was 0, now 7\. Choose another --out") as refusal:
        audit(collection_file, tmp_path / "run", seed=7, cut=Cut(pool=4))
    assert "pool was null, now 4" in str(refusal.value)


def test_changed_data_is_another_fingerprint(collection_file, tmp_path):
    audit(collection_file, tmp_path / "run")
    write_collection(collection_file, some_instances(queries=3))
    with pytest.raises(RunMismatch, match="data was"):
        audit(collection_file, tmp_path / "run")


def test_a_folder_in_which_nothing_was_scored_is_taken_over(collection_file, tmp_path):
    scorer = open_scorer(
        "synthetic:slot", open_collection(str(collection_file)).collection, config := AuditConfig(permutations=3)
    )

    def fail(*_):
        raise ValueError("it is off. Start it.")

    scorer.score_orders = fail
    with pytest.raises(InputError, match=r"scored none of the 4 queries: ValueError: it is off\. Start it\.$"):
        score_collection(scorer, str(collection_file), tmp_path / "run", config)
    assert audit(collection_file, tmp_path / "run", seed=7).record.fingerprint.seed == 7


def test_a_second_process_in_the_folder_is_told_so(collection_file, tmp_path):
    with disk.lock_folder(tmp_path / "run"), pytest.raises(InputError, match=r"another process works in .*run"):
        audit(collection_file, tmp_path / "run")
    assert audit(collection_file, tmp_path / "run").is_complete


def test_of_long_values_the_part_that_differs_is_shown(tmp_path):
    run = Run.create_or_resume(tmp_path, {"source": "x" * 200 + "one"}, **ABOUT)
    run.append(scored())
    run.flush()
    with pytest.raises(RunMismatch, match=r'source was \.\.\.x+one", now \.\.\.x+two"\.'):
        Run.create_or_resume(tmp_path, {"source": "x" * 200 + "two"})


@pytest.mark.parametrize("kills", [9, pytest.param(1000, marks=pytest.mark.slow)])
def test_kills_of_audits_with_a_function_a_program_and_an_endpoint_lose_double_and_change_nothing(kills):
    """`kill -9` at random moments: every row is there once, equal and in its place, and no query is scored twice."""
    script = [sys.executable, "-m", "tests.helpers.kills", str(kills)]
    ended = subprocess.run(script, capture_output=True, text=True, cwd=ROOT)
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_rows_stand_in_the_order_of_the_collection_whatever_was_retried_or_deleted(tmp_path, monkeypatch):
    """A failed query that is scored later, and queries whose shard was deleted, end where they would have been."""
    file = write_collection(tmp_path / "some.jsonl", some_instances(queries=8))
    whole = audit(file, tmp_path / "whole")
    config = AuditConfig(permutations=3)
    scorer = open_scorer("synthetic:slot", open_collection(str(file)).collection, config)
    real, faulty = scorer.score_orders, {"q1", "q5"}
    scorer.score_orders = lambda instance, *rest: 1 / 0 if instance.id in faulty else real(instance, *rest)
    score_collection(scorer, str(file), tmp_path / "retried", config)
    retried = audit(file, tmp_path / "retried")
    half = half_done(file, tmp_path / "deleted")
    half.parts.files()[0].unlink()
    for run in (retried, audit(file, half.folder)):
        for name in ("scores.parquet", "queries.parquet"):
            assert (run.folder / name).read_bytes() == (whole.folder / name).read_bytes()
        assert load_run(run).figures == load_run(whole).figures


def test_a_run_is_read_a_part_at_a_time_and_joined_in_order(tmp_path, monkeypatch):
    """Parts of a few rows give the same queries."""
    file = write_collection(tmp_path / "some.jsonl", some_instances(queries=7))
    whole = audit(file, tmp_path / "whole")
    monkeypatch.setattr("steadyscore.runs.parts.GROUP_ROWS", 30)
    monkeypatch.setattr("steadyscore.runs.tables.LISTED", 3)
    parts = audit(file, tmp_path / "parts")
    table = read_table(whole.folder / "scores.parquet")
    assert pq.ParquetFile(parts.folder / "scores.parquet").num_row_groups == 4
    assert len(parts.parts.files()) == 4
    assert read_table(parts.folder / "scores.parquet").equals(table)
    assert read_table(parts.folder / "queries.parquet").equals(read_table(whole.folder / "queries.parquet"))
    for one, other in zip(whole.read_queries(), parts.iter_queries(), strict=True):
        assert one.query_id == other.query_id
        assert np.array_equal(one.scores, other.scores)
        assert np.array_equal(one.ideal, other.ideal)


def test_a_query_that_took_a_second_or_that_somebody_charges_for_is_on_disk_at_once(collection_file, tmp_path, monkeypatch):
    whole = audit(collection_file, tmp_path / "whole").read_queries()
    now = 100.0
    monkeypatch.setattr("steadyscore.runs.folder.time.monotonic", lambda: now)
    run = Run.create_or_resume(tmp_path / "run", {}, **ABOUT)
    run.append(whole[0])
    assert run.scored_ids() == set()
    now += 1.1
    run.append(whole[1])
    assert run.scored_ids() == {"q0", "q1"}
    run.append(whole[2])
    run.flush()
    assert run.scored_ids() == {"q0", "q1", "q2"}


def test_a_stop_in_the_writing_of_a_shard_loses_and_doubles_nothing(collection_file, tmp_path, monkeypatch):
    """The stop comes before or after the rename; what is flushed at the end is the same shard."""
    whole = audit(collection_file, tmp_path / "whole")
    real = os.replace
    for before in (True, False):
        run = Run.create_or_resume(tmp_path / f"run-{before}", {}, **ABOUT)

        def stop(source, target, before=before):
            if target.parent.name != "scores":
                return real(source, target)
            if not before:
                real(source, target)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stop)
            run.pause = math.inf
            run.append(whole.read_queries()[0])
            with pytest.raises(KeyboardInterrupt):
                run.flush()
        run.flush()
        run.finish([{"query_id": "q0", "judged": None}], [])
        assert run.read("scores.parquet").num_rows == 4 * 6


def test_queries_of_which_scores_are_there_are_as_many_as_asked_for_whatever_sessions_scored_nothing(collection_file, tmp_path):
    run = audit(collection_file, tmp_path / "run")
    for _ in range(4):
        run.begin_session(Start({}, changed=("the endpoint was another",)))
        run.flush()
    assert len(run.parts.files()) == 5
    assert len(Run.open(run.folder).some_queries(3)) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_scored_and_ends_with_its_code_and_one_sentence(tmp_path, number):
    file = write_collection(tmp_path / "many.jsonl", some_instances(queries=200))
    os.mkfifo(tmp_path / "calls")
    (tmp_path / "slow.py").write_text(
        "import os, time\ncalls, count = open('calls', 'w', buffering=1), 0\n"
        "def score(query, texts):\n    global count\n    count += 1\n    print(query, file=calls)\n"
        "    while count >= 10 and not os.path.exists('sent'):\n        time.sleep(0.01)\n    return [1.0] * len(texts)\n"
    )
    command = [sys.executable, "-m", "steadyscore", "audit", "--scorer", "python:slow:score", "--data", str(file)]
    command += ["--permutations", "2", "--no-report", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with open(tmp_path / "calls") as calls:
        for _ in range(10):  # three queries and the first call of the fourth: far less than a second's work
            assert calls.readline()
        process.send_signal(number)
        (tmp_path / "sent").touch()
        _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert err.splitlines()[-1] == "steadyscore: stopped. Run the same command again; it goes on where it stopped."
    assert {"q0", "q1", "q2"} <= find_run(tmp_path / "run").scored_ids()


def test_an_ignored_hangup_stays_ignored_and_handlers_are_put_back(monkeypatch):
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])
    assert signal.getsignal(signal.SIGTERM) is before[signal.SIGTERM]


def half_done(file: Path, folder: Path, **options) -> Run:
    """A run that stopped after its second query."""

    def stop(items, total):
        for i, item in enumerate(items, 1):
            if i == 2:
                raise KeyboardInterrupt
            yield item

    config = AuditConfig(permutations=3, **options)
    scorer = open_scorer("synthetic:slot", open_collection(str(file)).collection, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "HELD_HERE", 0.0)
        with pytest.raises(KeyboardInterrupt):
            score_collection(scorer, str(file), folder, config, progress=stop)
    return Run.open(folder)


def test_a_stopped_run_goes_on_where_it_stopped(collection_file, tmp_path):
    run = half_done(collection_file, tmp_path / "half")
    assert run.scored_ids() == {"q0", "q1"}
    with pytest.raises(InputError, match="is not complete"):
        run.read_queries()
    resumed, whole = audit(collection_file, tmp_path / "half"), audit(collection_file, tmp_path / "whole")
    assert read_table(resumed.folder / "scores.parquet").equals(read_table(whole.folder / "scores.parquet"))


def test_stopped_before_any_change_on_disk_no_query_is_lost_and_a_failed_one_is_scored_later(
    collection_file, tmp_path, monkeypatch
):
    """First one query fails; then its retry is stopped before the n-th rename, removal or new folder, for every n."""
    config = AuditConfig(permutations=3)

    def attempt(folder, faulty=(), stop=None):
        scorer, changes = open_scorer("synthetic:slot", open_collection(str(collection_file)).collection, config), 0
        real = scorer.score_orders

        def score(instance, *rest):
            if instance.id in faulty:
                raise RuntimeError("a fault of somebody's code")
            return real(instance, *rest)

        def stopped(change):
            def wrapped(*args, **kwargs):
                nonlocal changes
                changes += 1
                if changes == stop:
                    raise KeyboardInterrupt
                return change(*args, **kwargs)

            return wrapped

        scorer.score_orders = score
        with monkeypatch.context() as patch:
            for owner, name in ((os, "replace"), (os, "link"), (Path, "unlink"), (Path, "mkdir")):
                patch.setattr(owner, name, stopped(getattr(owner, name)))
            score_collection(scorer, str(collection_file), folder, config)
        return changes

    monkeypatch.setattr(disk.os, "fsync", lambda _: None)  # what is stopped here is a process, not the machine
    whole = attempt(tmp_path / "whole")
    rows = sorted(read_table(tmp_path / "whole" / "scores.parquet").to_pylist(), key=str)
    attempt(tmp_path / "faulty", faulty=("q1",))
    for faults in (("q1",), ()):
        for n in range(1, whole + 4):
            folder = Path(shutil.copytree(tmp_path / "faulty", tmp_path / f"{len(faults)}-{n}"))
            with contextlib.suppress(KeyboardInterrupt):
                attempt(folder, faulty=faults, stop=n)
            attempt(folder)
            record = Run.open(folder).record
            assert (record.status, record.failed) == ("complete", []), n
            assert sorted(read_table(folder / "scores.parquet").to_pylist(), key=str) == rows, n


def test_a_recorded_run_keeps_its_partition(collection_file, tmp_path):
    cut = Settings(width=3, partition="round_robin")
    first = audit(collection_file, tmp_path / "first", settings=cut)
    again = audit(collection_file, tmp_path / "again", address=f"scores:{first.folder}")
    assert all(np.array_equal(a.orders(), b.orders()) for a, b in zip(first.read_queries(), again.read_queries(), strict=True))


@pytest.mark.parametrize(("code", "words"), [(errno.EACCES, "Permission denied"), (errno.ENOSPC, "No space left on device")])
def test_what_the_disk_refuses_is_said_in_one_sentence(collection_file, tmp_path, monkeypatch, code, words):
    run = half_done(collection_file, tmp_path / "half")

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk.os, "fsync", refuse)
    with pytest.raises(StorageError, match=f"cannot write .*{words}.* What was written before is kept"):
        audit(collection_file, tmp_path / "half")
    monkeypatch.undo()
    assert run.scored_ids() == {"q0", "q1"}
    assert not list((tmp_path / "half").rglob(".*")), "no scratch file is left behind"
    assert audit(collection_file, tmp_path / "half").is_complete


def test_an_atomic_file_appears_whole_or_not_at_all(tmp_path):
    file = tmp_path / "f"
    with pytest.raises(TypeError), atomic(file) as stream:
        stream.writelines([b"half", None])
    assert list(tmp_path.iterdir()) == []
    with atomic(file) as stream:
        stream.write(b"whole")
        assert not file.exists()
    assert file.read_bytes() == b"whole"


def test_runs_are_found_below_a_folder(collection_file, tmp_path):
    audit(collection_file, tmp_path / "a" / "one")
    audit(collection_file, tmp_path / "a" / "two", "synthetic:none")
    assert [run.record.name for run in find_runs([tmp_path / "a"])] == ["synthetic:slot:0.2", "synthetic:none:0.2"]
    with pytest.raises(InputError, match="holds no run"):
        find_runs([tmp_path / "b"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / DECISIONS_FILE).touch()
    with pytest.raises(InputError, match="b holds an audit of decisions, and no scores"):
        find_runs([tmp_path / "b"])


def test_one_run_is_the_folders_own_or_the_only_one_below_it(collection_file, tmp_path):
    audit(collection_file, tmp_path / "a" / "one")
    assert find_run(tmp_path / "a").folder == tmp_path / "a" / "one"
    audit(collection_file, tmp_path / "a" / "two", "synthetic:none")
    with pytest.raises(InputError, match=r"a holds 2 runs, and one is asked for here\. Name one of them: one, two\."):
        find_run(tmp_path / "a")
    audit(collection_file, tmp_path / "a")
    assert find_run(tmp_path / "a").folder == tmp_path / "a"
    assert [run.folder.name for run in find_runs([tmp_path / "a"])] == ["a", "one", "two"]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a run folder"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be read"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="has format 99"):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("starts", 0), {}),
        (("starts", 0, "versions"), ["x"]),
        (("starts", 0, "versions", "python"), {}),
        (("starts", 0, "times"), 3),
        (("fingerprint", "queries"), "x"),
        (("fingerprint", "query_ids"), 5),
        (("fingerprint", "chars"), "x"),
        (("reading",), {"another": 1}),
        (("threshold",), {"another": 1}),
        (("coverage", "cut"), -1),
        (("coverage", "seconds"), "x"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_record_that_somebody_edited_is_refused_in_a_sentence(collection_file, tmp_path, place, value):
    """A record of format 1 holds all that a record may hold."""
    folder = Path(shutil.copytree(FORMAT_1 / "complete", tmp_path / "run"))
    file = folder / "run.json"
    record = json.loads(file.read_text())
    del record["sha256"]
    part = record
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    file.write_text(json.dumps(record))
    with pytest.raises(
        InputError, match=r"run\.json cannot be used: .*" + str(place[-1] if isinstance(place[-1], str) else place[0])
    ):
        Run.open(file.parent)


def test_a_file_name_that_is_not_utf_8_stays_as_it_is_in_the_record(tmp_path):
    about = {"name": "s", "collection": "c", "task": "passage_reranking", "source": "caf\udce9.jsonl", "command": ["caf\udce9"]}
    run = Run.create_or_resume(tmp_path / "run", {"permutations": 1, "scorer": {"program": ["\udce9"]}}, **about)
    assert (run.record.source, run.record.command) == ("caf\udce9.jsonl", ["caf\udce9"])
    assert Run.create_or_resume(tmp_path / "run", run.record.fingerprint.keys, **about).record == run.record
