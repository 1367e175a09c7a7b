"""Where movement comes from: planted slot, window and companion effects come back as shares, levels and profiles."""

import json
from dataclasses import replace

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.measures.measurement import measure
from steadyscore.runs.table import Scored
from steadyscore.studies.validate import random_orders, simulate
from tests.helpers.pools import some_instances

SLOT = np.array([0.3, 0.1, -0.1, -0.3])


def planted(name, seeds=range(6), permutations=60, **effects):
    """An audit whose scores are those of a scorer with known effects: 12 candidates in windows of 4, the first 3 gold."""
    queries = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        found = simulate(random.random(12), random_orders(12, permutations, random), 4, rng=random, **effects)
        relevance = np.array([1.0] * 3 + [0.0] * 9)
        ids = tuple(f"{i:02d}" for i in range(12))
        rows = np.arange(permutations)
        queries.append(Scored(f"q{seed}", ids, rows, found.scores, found.slots, found.windows, relevance=relevance))
    audit = steadyscore.audit({name: lambda query, texts: [0.0] * len(texts)}, some_instances(2), permutations=2, quiet=True)[0]
    return replace(audit, queries=queries, measured=measure(queries))


@pytest.mark.parametrize("estimator", ["unbiased", "reference"])
def test_a_planted_slot_effect_is_all_of_the_variance_and_the_profile(estimator):
    row = steadyscore.study_variance(planted("slots", slot=SLOT), estimator=estimator).rows[0]
    assert row.total == pytest.approx(SLOT.var(), rel=0.1)
    assert row.slot_share == pytest.approx(1, abs=0.02)
    assert row.residual == pytest.approx(0, abs=1e-3)
    assert row.slot_profile == pytest.approx(SLOT, abs=0.03)
    assert row.gold_slot_profile == pytest.approx(SLOT, abs=0.08)
    assert row.gold_slot_rms == pytest.approx(np.sqrt(np.mean(SLOT**2)), rel=0.15)


def test_the_level_of_the_residual_is_told_beside_the_first_runs():
    study = steadyscore.study_variance(planted("shaky", noise=0.2), planted("calm", noise=0.02), estimator="reference")
    shaky, calm = study.rows
    assert shaky.relative_residual is None
    assert calm.relative_residual == pytest.approx(0.01, rel=0.1)
    assert shaky.residual == pytest.approx(0.04, rel=0.1)


def test_the_papers_estimator_counts_chance_and_ours_does_not():
    """Independent noise has no slot effect; one OLS fit to ten orders finds some all the same."""
    noise = planted("noise", seeds=range(20), permutations=10, noise=0.2)
    ours, paper = (steadyscore.study_variance(noise, estimator=name).rows[0] for name in ("unbiased", "reference"))
    assert ours.slot_share < 0.02 < paper.slot_share < 0.1


def test_the_verb_prints_what_the_function_gives(tmp_path, capsys):
    scorers = ["synthetic:slot:0.4", "synthetic:none"]
    steadyscore.audit(scorers, "responses", queries=4, permutations=4, out=tmp_path, report=False, quiet=True)
    folders = sorted(tmp_path.glob("responses/*"))
    assert main(["study", "variance", *map(str, folders), "--estimator", "reference", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(steadyscore.study_variance(*folders, estimator="reference").to_json()))
    still, moving = printed["runs"]
    assert (still["slot_share"], still["residual"]) == (None, 0)
    assert moving["slot_share"] > 0.9
    assert main(["study", "variance", *map(str, folders)]) == 0
    assert capsys.readouterr().out.startswith("collection")


def test_what_cannot_be_told_is_refused(tmp_path):
    few = planted("few", permutations=3, noise=0.1)
    with pytest.raises(InputError, match="too few permutations"):
        steadyscore.study_variance(few)
    unplaced = replace(few, queries=[replace(query, slots=None, windows=None) for query in few.queries])
    with pytest.raises(InputError, match="no stored slots and windows"):
        steadyscore.study_variance(unplaced)
    with pytest.raises(InputError, match="unknown estimator"):
        steadyscore.study_variance(few, estimator="ols")
    with pytest.raises(InputError, match="nothing to look at"):
        steadyscore.study_variance()
