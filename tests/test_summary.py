import numpy as np
import pytest

from conftest import some_instances, write_collection
from steadyscore.audit import AuditConfig, open_scorer, score_collection
from steadyscore.collection import open_collection
from steadyscore.measurement import Threshold
from steadyscore.summary import audited, curve, figure, measures_table


@pytest.fixture
def run(tmp_path):
    file = write_collection(tmp_path / "c.jsonl", some_instances(6))
    config = AuditConfig(permutations=6)
    scorer = open_scorer("synthetic:slot:0.5", open_collection(str(file))[0], config)
    return score_collection(scorer, str(file), tmp_path / "run", config)


def test_a_figure_has_an_interval_where_there_is_more_than_one_query():
    assert figure([np.array([0.5])]) == {"value": 0.5, "low": None, "high": None, "queries": 1}
    two = figure([np.array([0.4, 0.6, np.nan])])
    assert two["low"] <= two["value"] == 0.5 <= two["high"]
    assert two["queries"] == 2


def test_a_curve_goes_from_one_permutation_to_all(run):
    found = curve(run, Threshold(cutoff=0.5))
    assert list(found) == [1, 2, 3, 4, 5, 6]
    assert found[1]["score_variance"] > found[3]["score_variance"]
    assert "tau_psi" not in found[4]  # one ensemble of four cannot be compared with itself


def test_the_first_point_of_the_curve_is_the_run(run):
    measured, _ = audited(run, Threshold(cutoff=0.5))
    assert curve(run, Threshold(cutoff=0.5))[1]["tau_psi"] == pytest.approx(measured.values["tau_psi"].mean())


def test_a_ranking_has_no_threshold(run):
    run.record["capabilities"]["gives"] = "ranking"
    measured, figures = audited(run, Threshold(cutoff=0.5))
    assert "overlap" not in measured.values
    assert {"overlap@10", "pair_flip", "tau_psi"} <= measured.values.keys()
    assert "gives a ranking" in figures["cutoff"]["how"]


def test_rows_are_per_query_and_measure(run):
    measured, _ = audited(run)
    table = measures_table([("a", "c", measured)])
    assert table.num_rows == 6 * len(measured.values)
    assert table.column_names == ["variant", "collection", "query_id", "measure", "value"]
