"""The pytest plugin, in a repository that the test makes, by pytest's own command line."""

import os
import re
import subprocess
import sys

import pytest

from steadyscore.errors import UsageError
from steadyscore.integrations.pytest import assert_order_stable

TEST = """
def steady(query, texts):
    return [len(text) for text in texts]


def first_wins(query, texts):
    return [-place for place, _ in enumerate(texts)]


def test_steady(steadyscore):
    steadyscore.assert_order_stable(steady, "passages", overlap=0.8, tau_psi=0.05, queries=4, permutations=4)


def test_first_wins(steadyscore):
    steadyscore.assert_order_stable(first_wins, "passages", overlap=0.8, queries=4, permutations=4)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    (folder / "test_scorers.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-p", "steadyscore.integrations.pytest", "-p", "no:cacheprovider", "-q", "-rN"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=os.environ | {"COLUMNS": "200"})


def test_an_unstable_scorer_fails_and_a_steady_one_passes(run):
    assert run.returncode == 1
    assert "1 failed, 1 passed" in run.stdout


def test_the_failure_names_the_query_both_orders_the_candidates_and_the_next_step(run):
    assert "first_wins on passages: overlap >= 0.8 fails with" in run.stdout
    assert "query p" in run.stdout
    assert run.stdout.count("it keeps") == 2
    shown = re.findall(r"order \d shows (.*)", run.stdout)
    assert len(shown) == 2
    assert shown[0] != shown[1]
    assert [*map(sorted, (line.split(", ") for line in shown))] == [sorted(shown[0].split(", "))] * 2
    assert "(cause: slot)" in run.stdout
    assert re.search(r"\d+ of \d+ decisions about candidates flip between orders: slot \d+\.", run.stdout)
    assert "in place 1" in run.stdout
    assert "next: give out=" in run.stdout
    assert "Traceback" not in run.stdout


def test_a_measure_without_a_better_side_has_no_bound():
    with pytest.raises(UsageError, match="retention: neither direction is better"):
        assert_order_stable(len, "passages", retention=0.5)


@pytest.mark.parametrize(
    ("bounds", "answer"), [({"overlpa": 0.8}, "did you mean overlap"), ({"queries": 4}, "such as overlap=0.8")]
)
def test_a_bound_on_nothing_is_refused_before_anything_is_scored(bounds, answer):
    with pytest.raises(UsageError, match=f"no measure has a bound: .*{answer}"):
        assert_order_stable(None, "passages", **bounds)


def test_the_plugin_imports_nothing_of_ours_before_a_test_asks():
    code = "import sys, steadyscore.integrations.pytest; print({'numpy', 'pyarrow', 'torch'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "set()"
