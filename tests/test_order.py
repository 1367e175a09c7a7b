"""Every process collects the same tests under the same readable names, and can run them in another order."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.conftest import pytest_collection_modifyitems, pytest_make_collect_report, pytest_make_parametrize_id
from tests.helpers.paths import ROOT


def test_the_tests_of_this_session_have_the_same_names_and_order_in_another_process_and_folder(request, tmp_path):
    """Another second, another hash seed, another folder: where two workers collect otherwise, none of them runs a test."""
    for file in ROOT.iterdir():
        (tmp_path / file.name).symlink_to(file)
    here = [item.nodeid for item in request.session.items]
    files = dict.fromkeys(name.partition("::")[0] for name in here)
    order = f"--order-seed={request.config.getoption('order_seed')}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-qm", "", "-p", "no:cacheprovider", "-p", "no:xdist", order, *files],
        cwd=tmp_path,
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stdout.splitlines() if line in set(here)] == here, done.stdout[-2000:] + done.stderr[-2000:]


def test_drawn_examples_do_not_depend_on_what_was_imported_before(request):
    if request.config.getoption("--hypothesis-profile"):
        pytest.skip("another profile draws others on purpose")
    assert settings.default.derandomize
    assert len(providers._get_local_constants()) == 0


@pytest.mark.parametrize(
    ("text", "name"),
    [("plain [1]", "plain [1]"), ("two\nlines", "two lines"), ("x" * 500, "x" * 40), (r"a\.b", "a .b"), ("τ", "text"), (1, None)],
    ids=["plain", "lines", "long", "backslash", "not ASCII", "number"],
)
def test_a_text_becomes_a_short_name(text, name):
    assert pytest_make_parametrize_id(text, "text") == name


@pytest.mark.parametrize("odd", [r"\x00", "\x1b", "x" * 121], ids=["bytes", "escape", "long"])
def test_a_file_with_a_name_that_nobody_can_read_is_not_collected(odd):
    items = [SimpleNamespace(nodeid=f"a.py::t[{name}]", callspec=SimpleNamespace(id=name)) for name in ("good", odd)]
    collecting = pytest_make_collect_report(None)
    next(collecting)
    with pytest.raises(StopIteration) as end:
        collecting.send(SimpleNamespace(outcome="passed", longrepr=None, result=items))
    report = end.value.value
    assert report.outcome == "failed"
    assert report.longrepr.endswith(f"short readable ids (pytest.param(..., id=...)):\na.py::t[{odd}]")


def order_of(names, seed=""):
    """The names in the order in which their tests are run."""
    items = [SimpleNamespace(nodeid=name) for name in names]
    pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: seed), items)
    return [item.nodeid for item in items]


def test_a_seed_moves_files_and_tests_and_gives_the_same_order_again():
    names = [f"{file}.py::{test}" for file in "abcdef" for test in "uvwxyz"]
    assert order_of(names) == names
    first, other = order_of(names, "1"), order_of(names, "2")
    assert order_of(first, "1") == order_of(names[::-1], "1") == first != other
    assert sorted(first) == sorted(other) == names
    files = [name[0] for name in first[::6]]
    assert "".join(files) != "abcdef"
    assert [name[0] for name in first] == [file for file in files for _ in range(6)]
    assert [name for name in first if name[0] == "a"] != names[:6]
