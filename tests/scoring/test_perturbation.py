from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.collection import open_collection
from steadyscore.engines.python import PythonReranker
from steadyscore.engines.synthetic import Effects, PlantedGrader, judgements_by_text
from steadyscore.errors import InputError
from steadyscore.results.load import load_run
from steadyscore.scoring import perturbation
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer, scorer_for
from steadyscore.scoring.mitigations import mitigate
from steadyscore.scoring.perturbation import score_perturbed
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from steadyscore.window.presentation import generator
from tests.helpers.pools import some_instances, write_collection


def run(tmp_path, address, pool=6, **settings):
    file = write_collection(tmp_path / "pools.jsonl", some_instances(queries=5, candidates=8))
    config = AuditConfig(permutations=2, cut=Cut(pool=pool), settings=Settings(**settings))
    scorer = open_scorer(address, open_collection(str(file)).collection, config)
    return scorer, score_collection(scorer, str(file), tmp_path / "run", config), str(file), config


def moved(scorer, found, source, config, kinds):
    score_perturbed(scorer, found, source, config, kinds)
    return load_run(found).measured.values


def test_a_scorer_without_order_effect_ignores_the_pool(tmp_path):
    values = moved(*run(tmp_path, "synthetic:none"), ["replace", "drop"])
    for name in ("pool_psi", "pool_psi_drop", "top10_changed", "pool_absolute_delta_ndcg@10"):
        assert values[name].tolist() == [0.0] * 5


def test_a_companion_effect_shows_when_companions_change(tmp_path):
    values = moved(*run(tmp_path, "synthetic:companion:1"), ["replace", "drop"])
    assert values["pool_psi"].mean() > 0
    assert values["pool_psi_drop"].mean() > 0


def test_without_a_next_candidate_nothing_is_replaced(tmp_path):
    values = moved(*run(tmp_path, "synthetic:none", pool=8), ["replace"])
    assert "pool_psi" not in values


def test_recorded_scores_cannot_be_perturbed(tmp_path):
    _, found, source, config = run(tmp_path, "synthetic:companion:1")
    recorded = open_scorer(f"scores:{found.folder}", open_collection(source).collection, config)
    with pytest.raises(InputError, match="--perturb needs a scorer that can score again"):
        score_perturbed(recorded, found, source, config, ["reverse"])


def test_a_run_that_grew_has_the_sample_of_one_made_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(perturbation, "MAX_QUERIES", 2)
    values = []
    for place, grows in (("whole", False), ("grown", True)):
        (tmp_path / place).mkdir()
        scorer, found, source, config = run(tmp_path / place, "synthetic:companion:1")
        if grows:
            few = [query for query in found.read_queries() if query.query_id in ("q0", "q1")]
            score_perturbed(scorer, found, source, config, ["drop"], scored=few)
        values.append(moved(scorer, found, source, config, ["drop"])["pool_psi_drop"])
    assert np.isfinite(values[0]).sum() == 2
    np.testing.assert_array_equal(*values)


def test_nothing_is_dropped_from_a_pool_of_one(tmp_path):
    scorer, found, source, config = run(tmp_path, "synthetic:none", pool=1)
    assert score_perturbed(scorer, found, source, config, ["drop"]) == {"drop": []}


def test_churn_without_a_next_candidate_asks_nothing(tmp_path):
    scorer, found, source, config = run(tmp_path, "synthetic:none", pool=8)
    scorer.score = None  # type: ignore[assignment,method-assign]
    assert score_perturbed(scorer, found, source, config, ["churn"]) == {"churn": []}


def test_a_stop_keeps_what_was_perturbed(tmp_path):
    scorer, found, source, config = run(tmp_path, "synthetic:companion:1")
    asked = []

    def stop_after_second(todo, total):
        for instance in todo:
            asked.append(instance.id)
            if len(asked) == 2:
                raise KeyboardInterrupt
            yield instance

    with pytest.raises(KeyboardInterrupt):
        score_perturbed(scorer, found, source, config, ["drop"], stop_after_second)
    seen = []
    score_perturbed(scorer, found, source, config, ["drop"], lambda todo, total: (seen.append(one.id) or one for one in todo))
    assert (len(asked), len(seen)) == (2, 3)
    assert not set(asked) & set(seen)


def test_markers_move_a_language_model_and_not_a_reranker(tmp_path, tiny_folder):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert moved(*run(tmp_path / "a", "synthetic:slot"), ["markers"])["marker_tau_psi"].tolist() == [0.0] * 5
    assert np.mean(moved(*run(tmp_path / "b", f"hf:{tiny_folder}", pool=3, width=3), ["markers"])["marker_tau_psi"]) > 0


def test_a_mitigated_scorer_is_shown_every_kind_of_markers_too(tmp_path, tiny_folder):
    scorer, found, source, config = run(tmp_path, f"hf:{tiny_folder}", pool=3, width=3)
    averaged = mitigate(scorer, ["self-consistency:2"])
    assert score_perturbed(averaged, found, source, config, ["markers"]) == {"markers": []}
    assert load_run(found).measured.values["marker_tau_psi"].mean() > 0


def test_what_was_perturbed_is_kept(tmp_path, monkeypatch):
    scorer, found, source, config = run(tmp_path, "synthetic:companion:1")
    first = moved(scorer, found, source, config, ["drop"])
    monkeypatch.setattr(scorer, "score_orders", lambda *_: pytest.fail("scored again"))
    again = moved(scorer, found, source, config, ["drop"])
    assert all(np.array_equal(first[name], again[name], equal_nan=True) for name in first)


@given(st.integers(1, 40), st.data(), st.sampled_from(["top", "middle", "bottom"]))
def test_forced_position_moves_one_candidate_and_keeps_the_rest(n, data, place):
    candidate = data.draw(st.integers(0, n - 1))
    order = perturbation.forced_position(n, candidate, place)
    assert order[{"top": 0, "middle": n // 2, "bottom": n - 1}[place]] == candidate
    assert list(order[order != candidate]) == [i for i in range(n) if i != candidate]


def test_strongest_is_the_highest_grade_then_the_smallest_id():
    assert perturbation.strongest_candidate([0, 3, 1, 3], ["a", "d", "b", "c"]) == 3
    assert perturbation.strongest_candidate([0, np.nan, 0], ["a", "b", "c"]) is None


def test_drop_and_replace_as_released():
    assert perturbation.changed_pool(5, 1, is_replaced=False).tolist() == [0, 2, 3, 4]
    assert perturbation.changed_pool(5, 1, is_replaced=True).tolist() == [0, 2, 3, 4, 5]


def test_perturbed_rank_belongs_to_the_query_and_is_uniform():
    ranks = [perturbation.perturbed_rank(10, seed=0, query_id=str(i)) for i in range(5000)]
    assert ranks == [perturbation.perturbed_rank(10, seed=0, query_id=str(i)) for i in range(5000)]
    assert np.allclose(np.bincount(ranks) / 5000, 0.1, atol=0.02)
    assert ranks != [perturbation.perturbed_rank(10, seed=1, query_id=str(i)) for i in range(5000)]


def test_query_sample_grows_without_changing(monkeypatch):
    ids = [f"q{i}" for i in range(50)]
    assert len(every := perturbation.perturbed_sample(ids[::-1], 0)) == 50
    monkeypatch.setattr(perturbation, "MAX_QUERIES", 10)
    assert perturbation.perturbed_sample(ids, 0) == every[:10]


@given(st.integers(1, 30), st.integers(0, 60), st.integers(0, 99))
def test_neighbour_swaps_permute_and_move_at_most_that_many_pairs(n, swaps, seed):
    order = perturbation.neighbour_swaps(n, swaps, generator(seed, "q", "jitter"))
    assert sorted(order) == list(range(n))
    inversions = sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
    assert inversions <= swaps
    assert (inversions - swaps) % 2 == 0 or n < 2


def test_score_noise_moves_more_with_scale_and_nothing_without():
    scores = np.linspace(10, 0, 50)
    moved = [
        np.abs(perturbation.score_noise(scores, scale, generator(0, "q", "noise")) - np.arange(50)).mean()
        for scale in (0, 0.05, 0.5)
    ]
    assert moved[0] == 0
    assert 0 < moved[1] < moved[2]
    assert perturbation.score_noise(np.ones(5), 1.0, generator(0, "q", "noise")).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("scores", [[6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6], [3, 1, 2, 9, 7, 0], [None, 900, 800, 700, 600, 500]])
def test_score_noise_starts_from_the_order_of_the_pool_whatever_scores_say(scores):
    rng = generator(0, "q", "noise")
    assert perturbation.score_noise(scores, 0.0, rng).tolist() == [0, 1, 2, 3, 4, 5]
    order = perturbation.score_noise(scores, 0.3, generator(0, "q", "noise"))
    ranks = perturbation.score_noise([6, 5, 4, 3, 2, 1], 0.3, generator(0, "q", "noise"))
    assert order.tolist() == ranks.tolist(), "evenly spaced scores, distances and ranks are the same to noise"


ORDER_KINDS = ["reverse", "swaps", "noise", "forced-position", "churn"]


def test_an_order_effect_that_is_not_there_is_not_found_by_any_kind(tmp_path):
    values = moved(*run(tmp_path, "synthetic:none", width=3), ORDER_KINDS)
    for name in ("reverse_psi", "swap_psi", "first_stage_noise_psi", "churn_psi_contiguous", "churn_psi_round_robin"):
        assert values[name].tolist() == [0.0] * 5
    assert values["forced_primacy@10"].tolist() == values["forced_u_shape@10"].tolist() == [0.0] * 5
    assert values["reverse_ndcg@10"] == pytest.approx(values["ndcg@10"])


def test_a_scorer_that_copies_its_input_order_is_found_by_every_kind(tmp_path):
    values = moved(*run(tmp_path, "synthetic:slot:9"), ["reverse", "swaps", "noise", "forced-position"])
    assert values["reverse_psi"].tolist() == [1.0] * 5  # six candidates in one window: the ranking is the order
    assert 0 < values["swap_psi"].mean() < 0.5
    assert 0 < values["first_stage_noise_psi"].mean() < 0.5
    assert values["forced_primacy@10"].mean() > 0.1
    assert abs(values["forced_u_shape@10"]).mean() < values["forced_primacy@10"].mean()


def test_a_scorer_that_prefers_both_ends_has_a_u_shape_and_no_primacy(tmp_path):
    def ends(query, texts):
        return [abs(2 * slot - len(texts) + 1) for slot in range(len(texts))]

    _, found, source, config = run(tmp_path, "synthetic:none")
    scorer = scorer_for(PythonReranker(ends, "ends"), open_collection(source).collection, config)
    values = moved(scorer, found, source, config, ["forced-position"])
    assert values["forced_u_shape@10"].min() > 0.05
    assert abs(values["forced_primacy@10"].mean()) < values["forced_u_shape@10"].mean()


@pytest.mark.parametrize(("size", "is_moved"), [(0.0, False), (0.4, True)])
def test_held_out_markers_move_what_has_a_marker_effect_and_nothing_else(tmp_path, size, is_moved):
    _, found, source, config = run(tmp_path, "synthetic:none", width=3)
    opened = open_collection(source)
    grader = PlantedGrader("planted", Effects(marker=size), judgements_by_text(opened.instances(reserve=True)))
    values = moved(scorer_for(grader, opened.collection, config), found, source, config, ["held-out-markers"])
    assert bool(values["held_out_marker_tau_psi"].mean() > 0) is is_moved


def test_round_robin_and_slices_are_each_compared_with_themselves(tmp_path):
    values = moved(*run(tmp_path, "synthetic:companion:1", width=3), ["churn", "replace"])
    assert values["churn_psi_contiguous"].tolist() == values["pool_psi"].tolist()  # the run's own rule
    assert values["churn_psi_round_robin"].tolist() != values["pool_psi"].tolist()


@pytest.mark.parametrize(
    ("kind", "measure"), [("reverse", "reverse_psi"), ("swaps", "swap_psi"), ("noise", "first_stage_noise_psi")]
)
def test_a_scorer_that_counts_the_first_stages_ranks_moves_when_those_change(tmp_path, kind, measure):
    plain, _, source, config = run(tmp_path, "synthetic:none")
    mixed = mitigate(plain, ["first-stage:50"])
    found = score_collection(mixed, source, tmp_path / "mixed", config)
    expected = []
    for instance in open_collection(source).instances():
        rng = generator(config.seed, instance.id, kind)
        order = {
            "reverse": lambda: np.arange(6)[::-1],
            "swaps": lambda rng=rng: perturbation.neighbour_swaps(6, 6, rng),
            "noise": lambda rng=rng: perturbation.score_noise([None] * 6, perturbation.NOISE_SCALE, rng),
        }[kind]()
        own = plain.score(replace(instance, pool=instance.pool[:6]))
        before, after = ((own - own.min()) / np.ptp(own) - ranks / 6 for ranks in (np.arange(6), np.argsort(order)))
        expected.append(np.mean([(before[i] > before[j]) != (after[i] > after[j]) for i, j in combinations(range(6), 2)]))
    assert np.mean(expected) > 0
    assert moved(mixed, found, source, config, [kind])[measure] == pytest.approx(expected)
