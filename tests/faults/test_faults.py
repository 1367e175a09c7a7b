"""A few of every fault that `make faults` injects many of: no row lost, doubled or wrong."""

import json
import subprocess
import sys

import pytest

from tests.faults import run
from tests.faults.counting import compare_files, compare_rows
from tests.faults.fault import Counts, Fault, Unavailable, all_faults
from tests.helpers.paths import ROOT


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict]:
    """The quick ones, a few of each, from one process that has no threads yet: faults are injected into copies of it."""
    return inject(*(fault.name for fault in all_faults().values() if not fault.is_slow))


def inject(*names: str) -> dict[str, dict]:
    words = [sys.executable, "-m", "tests.faults.run", "--few", "--json", *(f"--only={name}" for name in names)]
    ended = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return {outcome["name"]: outcome for outcome in json.loads(ended.stdout)}


def check(outcome: dict) -> None:
    if outcome["is_unavailable"]:
        pytest.skip(outcome["problem"])
    assert outcome["problem"] == ""
    assert {key: count for key, count in outcome["counts"].items() if key != "times"} == {"lost": 0, "doubled": 0, "wrong": 0}


@pytest.mark.parametrize("name", [fault.name for fault in all_faults().values() if not fault.is_slow])
def test_no_row_is_lost_doubled_or_wrong(name, outcomes):
    check(outcomes[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [fault.name for fault in all_faults().values() if fault.is_slow])
def test_no_row_is_lost_doubled_or_wrong_by_what_takes_longer(name):
    check(inject(name)[name])


def test_rows_that_are_lost_doubled_changed_or_invented_are_counted():
    rows = [("a", 1), ("b", 2), ("c", 3)]
    assert compare_rows(rows, rows) == Counts()
    assert compare_rows(rows[1:], rows) == Counts(lost=1)
    assert compare_rows([*rows, rows[0]], rows) == Counts(doubled=1)
    assert compare_rows([("a", 1), ("b", 0), ("c", 3)], rows) == Counts(wrong=1)
    assert compare_rows([*rows, ("d", 4)], rows) == Counts(wrong=1)
    assert compare_rows(rows[::-1], rows) == Counts(wrong=1)


def test_files_that_are_missing_new_or_changed_are_counted(tmp_path):
    for name, text in (("one/same", "x"), ("two/same", "x"), ("one/new", "x"), ("two/gone", "x"), ("one/c", "x"), ("two/c", "y")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert compare_files(tmp_path / "one", tmp_path / "two") == Counts(lost=1, doubled=1, wrong=1)


def a_fault(inject) -> dict[str, Fault]:
    return {"some": Fault("some", "somehow", inject, times=2, few=1, is_slow=False)}


def never_run(folder, times):
    raise Unavailable("no such right")


@pytest.mark.parametrize(
    ("inject", "code", "words"),
    [
        (lambda folder, times: Counts(times), 0, "| some | somehow | 2 | 0 | 0 | 0 | 20"),
        (lambda folder, times: Counts(times, lost=1), 1, "| some | somehow | 2 | 1 | 0 | 0 | 20"),
        (lambda folder, times: Counts(), 1, "FAILED: AssertionError('it was never injected')"),
        (lambda folder, times: 1 / 0, 1, "FAILED: ZeroDivisionError"),
        (never_run, 0, "| some | somehow | not run: no such right |"),
    ],
)
def test_a_fault_that_cost_something_fails_the_run(inject, code, words, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(run, "all_faults", lambda: a_fault(inject))
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- written by make faults -->\n<!-- end of what make faults wrote -->\n\nEnd.\n")
    row = "| some | somehow | 2 | 0 | 0 | 0 | 1999-12-31 |"
    gone = row.replace("some |", "gone |", 1)
    page.write_text(page.read_text().replace("<!-- end", f"\nmade\n\n{run.markdown([])}{row}\n{gone}\n\n<!-- end"))
    monkeypatch.setattr(run, "PAGE", page)
    assert run.main([]) == code
    assert words in capsys.readouterr().out
    assert ("1999" in page.read_text()) == (inject is never_run), (
        "its row is written anew, or taken out; one that was not run stays"
    )
    assert ("| some | somehow |" in page.read_text()) == (code == 0), "only rows of zeros are published"
    assert "gone" not in page.read_text()
    assert page.read_text().endswith("<!-- end of what make faults wrote -->\n\nEnd.\n")
