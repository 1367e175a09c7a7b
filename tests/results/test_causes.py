"""Why decisions flip: planted causes are recovered, and each is told by what it says."""

from __future__ import annotations

import json

import numpy as np
import pytest

import steadyscore
from steadyscore.measures.threshold import Cutoff
from steadyscore.results.causes import CAUSES, Explainer, make_explainer, noise_of, slot_effects, states
from steadyscore.runs.records import ShrunkWindow
from steadyscore.runs.table import Scored

FIXED = Cutoff(0.5, "fixed")


def audited(scorer, **settings):
    return steadyscore.audit(scorer, "passages", permutations=6, queries=16, quiet=True, **settings)[0]


def share(audit, cause):
    assert audit.causes.flipped > 20
    return audit.causes.counts.get(cause, 0) / audit.causes.flipped


@pytest.mark.parametrize("rule", [{"cutoff": 0.5}, {"keep_first": 5}, {"match_retention": 0.3}])
@pytest.mark.parametrize("width", [None, 10])
def test_a_planted_slot_effect_is_the_cause_of_every_flip(rule, width):
    audit = audited("synthetic:slot:0.3", width=width, **rule)
    assert share(audit, "slot") == 1
    assert audit.explainer.slots[0] > audit.explainer.slots[5]


@pytest.mark.parametrize("rule", [{"cutoff": 0.5}, {"keep_first": 5}])
def test_planted_companions_are_the_cause_of_nearly_every_flip(rule):
    assert share(audited("synthetic:companion:0.3", width=10, **rule), "companion") > 0.95


@pytest.mark.parametrize("rule", [{"match_retention": 0.3}, {"keep_first": 5}])
def test_planted_noise_is_told_where_it_was_measured(rule):
    rng = np.random.default_rng(0)

    def noisy(query, texts):
        return [len(text) / 100 + rng.normal(0, 0.05) for text in texts]

    audit = audited(noisy, noise_floor=True, **rule)
    assert audit.noise == pytest.approx(0.05, rel=0.1)
    assert share(audit, "noise") > 0.95
    unmeasured = audited(noisy, **rule)
    assert unmeasured.causes.noise is None
    assert share(unmeasured, "noise") == 0


def test_noise_beside_a_larger_slot_effect_explains_the_near_flips_only():
    rng = np.random.default_rng(1)

    def both(query, texts):
        return [len(text) / 100 + rng.normal(0, 0.02) + 0.5 * (1 - place / len(texts)) for place, text in enumerate(texts)]

    audit = audited(both, noise_floor=True)
    assert 0.6 < share(audit, "slot") < 0.95
    assert share(audit, "slot") + share(audit, "noise") > 0.98


def test_equal_scores_that_the_input_position_ranks_are_ties():
    audit = audited(lambda query, texts: [0.0] * len(texts), ties="input", keep_first=5)
    assert share(audit, "tie") == 1


def test_a_steady_scorer_has_no_flip():
    audit = audited("synthetic:none", keep_first=5)
    assert audit.causes.flipped == 0
    assert str(audit.causes) == f"0 of {audit.causes.decided} decisions about candidates flip between orders."


# ---- one query, by hand


def scored(scores, slots=None, windows=None):
    scores = np.array(scores, float)
    placed = None if slots is None else np.array(slots)
    where = np.zeros(scores.shape, int) if windows is None and placed is not None else windows
    ids = tuple(f"d{i}" for i in range(scores.shape[1]))
    return Scored("q", ids, np.arange(len(scores)), scores, placed, None if where is None else np.array(where))


def test_a_score_at_the_cutoff_is_a_tie_and_without_places_the_rest_is_unknown():
    query = scored([[0.5, 0.9, 0.1], [0.4, 0.9, 0.6]])
    assert make_explainer([query], "overlap", None).causes(query, FIXED) == ["tie", None, "unknown"]


def test_noise_counts_scores_that_near_the_cutoff_under_all_orders():
    query = scored([[0.52, 0.9, 0.1], [0.48, 0.45, 0.6]])
    told = make_explainer([query], "overlap", 0.02).causes(query, FIXED)
    assert told == ["noise", "unknown", "unknown"]  # 0.04 is within two standard deviations; d1 and d2 move by more
    assert make_explainer([query], "overlap", 0.005).causes(query, FIXED)[0] == "unknown"


def test_pairs_flip_by_who_is_chosen_and_rejected():
    query = scored([[3, 2, 1], [3, 1, 2]])
    explainer = make_explainer([query], "pair_flip", None)
    assert states(query, "pair_flip", FIXED)[1].tolist() == [[1, 0, -1], [1, -1, 0]]
    assert explainer.causes(query, FIXED) == [None, "unknown", "unknown"]
    equal = scored([[3, 1, 1], [3, 1, 1.5]])  # the last of the equal is rejected; were it the other one, nothing had flipped
    assert make_explainer([equal], "pair_flip", None).causes(equal, FIXED) == [None, "tie", "tie"]


def test_a_window_that_was_cut_under_some_orders_is_the_cause_where_the_decision_follows_it():
    windows = [[0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1]]
    slots = [[0, 1, 0, 1], [0, 0, 1, 1], [1, 0, 1, 0]]
    query = scored([[0.2, 0.9, 0.6, 0.1], [0.7, 0.9, 0.4, 0.1], [0.2, 0.9, 0.3, 0.1]], slots, windows)
    cut = [ShrunkWindow("q", 1, 80, candidates=("d1", "d0"))]
    told = make_explainer([query], "overlap", None, cut).causes(query, FIXED)
    assert told[0] == "text cut"  # dropped in both orders in which its window with d1 was cut, kept where it was whole
    assert told[2] in ("slot", "companion")  # its own windows were never cut
    assert make_explainer([query], "overlap", None).causes(query, FIXED)[0] in ("slot", "companion")


def test_effects_of_slots_are_least_squares_beside_candidates():
    rng = np.random.default_rng(3)
    effect, queries = np.array([0.3, 0.1, 0.0, -0.4]), []
    for n in (4, 4, 3):
        slots = np.stack([rng.permutation(n) for _ in range(5)])
        queries.append(scored(rng.random(n) + effect[slots], slots))
    found = slot_effects(queries)
    assert found - found.mean() == pytest.approx(effect - effect.mean())
    assert slot_effects([scored([[1, 2]])]).size == 0


def test_the_noise_is_the_pooled_deviation_of_repeated_scores():
    reads = [scored([[1, 5], [3, 5]]), scored([[0], [0], [3]])]
    assert noise_of(reads) == pytest.approx(np.sqrt((2 + 6) / 4))
    assert noise_of([]) is None
    assert noise_of([scored([[1, 2]])]) is None


# ---- where they are told


def test_causes_are_counted_in_json_and_on_the_page(tmp_path):
    audit = audited("synthetic:slot:0.3", keep_first=5)
    told = audit.to_json()["causes"]
    assert told["decision"] == "overlap"
    assert [*told["counts"]] == [*CAUSES]
    assert sum(told["counts"].values()) == told["flipped"] == told["counts"]["slot"]
    assert told["decided"] == 16 * len(audit.queries[0].candidate_ids)
    json.dumps(told)
    page = steadyscore.Audits([audit]).report(tmp_path).read_text()
    assert "Why decisions flip" in page
    assert "cause: slot" in page
    assert "Noise was not measured and is among the others" in page
    assert "## Why decisions flip: passages" in (tmp_path / "report.md").read_text()


def test_an_explainer_needs_no_slot_of_a_run_without_places():
    assert Explainer("overlap", None, np.zeros(0), {}).causes(scored([[0.1, 0.9], [0.2, 0.9]]), FIXED) == [None, None]
