"""Studies give planted effects back, and nothing where nothing was planted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.errors import InputError
from steadyscore.measures import decomposition
from steadyscore.measures.measurement import Threshold, fitted_retention, measure
from steadyscore.paper import collate as studies
from steadyscore.paper.data import arranged
from steadyscore.runs.table import FIRST_STAGE, Scored
from steadyscore.scoring.config import AuditConfig, Cut, scorer_for
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from steadyscore.studies.validate import random_orders, simulate
from steadyscore.studies.width import score_width_effect
from steadyscore.terms import Candidate, Instance

rng = np.random.default_rng


def a_query(name="q", n=12, M=6, width=4, seed=0, relevance=None, **effects):
    """A query scored by a scorer with known effects, in first-stage order and under M permutations."""
    random = rng(seed)
    orders = np.vstack([np.arange(n)[None], random_orders(n, M, random)])
    found = simulate(random.random(n), orders, width, rng=random, **effects)
    return Scored(
        query_id=name,
        candidate_ids=tuple(f"{i:02d}" for i in range(n)),
        permutations=np.arange(-1, M),
        scores=found.scores,
        slots=found.slots,
        windows=found.windows,
        relevance=np.array(relevance if relevance is not None else [1.0] * 3 + [0.0] * (n - 3)),
    )


def test_a_planted_slot_effect_is_the_slot_profile_for_all_and_for_relevant_candidates():
    slot = np.array([0.3, 0.1, -0.1, -0.3])
    queries = [a_query(f"q{i}", M=200, seed=i, slot=slot) for i in range(5)]
    assert decomposition.slot_profile(queries).profile == pytest.approx(slot, abs=0.02)
    assert decomposition.slot_profile(queries, gold=True).profile == pytest.approx(slot, abs=0.05)
    assert decomposition.slot_profile([a_query()]).rms == pytest.approx(0.0, abs=1e-12)


def test_variance_components_are_those_that_were_planted():
    slot, window = np.array([0.2, 0.0, 0.0, -0.2]), np.array([0.1, 0.0, -0.1])
    found = decomposition.variance_components([a_query(f"q{i}", M=100, seed=i, slot=slot, window=window) for i in range(6)])
    assert found.slot == pytest.approx(slot.var(), rel=0.15)
    assert found.window == pytest.approx(window.var(), rel=0.15)
    assert found.companion == pytest.approx(0.0, abs=1e-3)


@settings(max_examples=20)
@given(st.integers(1, 6))
def test_a_run_of_more_permutations_holds_every_smaller_one(count):
    found = studies.first_permutations(a_query(), count)
    assert (len(found.permuted), len(found.scores), found.slots.shape) == (count, count + 1, (count + 1, 12))


def test_too_few_permutations_are_refused():
    with pytest.raises(InputError, match="6 permutations where 7 are needed"):
        studies.first_permutations(a_query(), 7)


def test_the_first_stage_is_read_off_the_places_under_both_partitions():
    query = a_query()
    assert np.argsort(-studies.first_stage_scores(query)).tolist() == list(range(12))
    assert studies.first_stage_quality(query) == 1.0  # the three relevant candidates stand first
    row = query.permutations == FIRST_STAGE
    dealt = Scored(
        **{f: getattr(query, f) for f in Scored.__slots__}
        | {"partition": "round_robin", "slots": np.where(row[:, None], np.arange(12) // 3, 0)}
        | {"windows": np.where(row[:, None], np.arange(12) % 3, 0)}
    )
    assert np.argsort(-studies.first_stage_scores(dealt)).tolist() == list(range(12))


def test_a_scorer_that_copies_the_first_stage_correlates_with_it_only_in_its_order():
    query = a_query()
    positions = query.windows * 4 + query.slots
    copied = Scored(**{f: getattr(query, f) for f in Scored.__slots__} | {"scores": -positions.astype(float)})
    assert studies.first_stage_correlation(copied, is_permuted=False) == pytest.approx(1.0)
    assert abs(studies.first_stage_correlation(copied, is_permuted=True)) < 0.6


def test_the_score_level_width_effect_is_the_planted_shift_over_the_pooled_sd():
    wide, alone = a_query(), a_query()
    shifted = Scored(**{f: getattr(wide, f) for f in Scored.__slots__} | {"scores": wide.scores + 0.2})
    pooled = np.concatenate([shifted.permuted.mean(axis=0), alone.scores.mean(axis=0)]).std()
    assert score_width_effect([shifted], [alone]) == pytest.approx(0.2 / pooled)
    assert score_width_effect([wide], [alone]) == pytest.approx(0.0)
    with pytest.raises(InputError, match="share no query"):
        score_width_effect([a_query("x")], [a_query("y")])


def test_primacy_and_u_shape_are_found_where_planted_and_not_in_noise():
    noise = 0.05 * rng(0).standard_normal((3, 60))
    for levels, expected in (((0.9, 0.7, 0.5), (True, False)), ((0.9, 0.5, 0.9), (False, True)), ((0.7,) * 3, (False, False))):
        places = [level + moved for level, moved in zip(levels, noise, strict=True)]
        assert (studies.is_primacy(*places), studies.is_u_shape(*places)) == expected


def test_flips_on_crossing_queries_are_a_share_of_all_flips():
    gold = [1.0, 0.0, 0.0]
    crossing = Scored("a", ("0", "1", "2"), np.arange(2), np.array([[3.0, 2, 1], [1, 3, 2]]), relevance=np.array(gold))
    steady = Scored("b", ("0", "1", "2"), np.arange(2), np.array([[3.0, 2, 1], [3, 1, 2]]), relevance=np.array(gold))
    assert studies.flips_on_crossing([crossing, steady]) == 0.5


def test_the_matched_cutoff_keeps_the_share_of_the_other_on_its_fitting_half():
    queries = [a_query(f"q{i}", seed=i) for i in range(12)]
    other = [Scored(**{f: getattr(q, f) for f in Scored.__slots__} | {"scores": 5 * q.scores - 3}) for q in queries]
    tuned = Threshold(cutoff="f1")
    share = fitted_retention(queries, measure(queries, tuned).cutoff.value, tuned)
    matched = measure(other, Threshold(retention=share, half=True)).cutoff.value
    assert fitted_retention(other, matched, tuned) == pytest.approx(share)


QUERIES = [a_query(f"q{i}", seed=i, noise=0.3) for i in (1, 4, 5, 7)]
SAME = {query.query_id: ["SUPPORTS"] * 6 for query in QUERIES}


class TestExample:
    def test_it_has_equal_quality_and_two_sets_of_which_none_is_empty(self):
        first, second = studies.equal_quality_example(QUERIES, SAME, 0.5)
        assert first.query_id == second.query_id
        assert abs(first.quality - second.quality) <= 0.005
        assert first.quality > 0
        assert first.kept.any()
        assert second.kept.any()
        assert (first.kept != second.kept).any()

    def test_another_verdict_counts_before_another_set(self):
        plain, _ = studies.equal_quality_example(QUERIES, SAME, 0.5)
        other = next(query.query_id for query in QUERIES if query.query_id != plain.query_id)
        verdicts = {name: list("abcdef") if name == other else said for name, said in SAME.items()}
        first, second = studies.equal_quality_example(QUERIES, verdicts, 0.5)
        assert first.query_id == other
        assert first.verdict != second.verdict

    def test_documents_are_in_first_stage_order(self):
        query = QUERIES[0]
        backwards = Scored(
            **{f: getattr(query, f) for f in Scored.__slots__}
            | {name: getattr(query, name)[:, ::-1] for name in ("scores", "slots", "windows")}
            | {"relevance": query.relevance[::-1]}
        )
        plain, turned = (studies.equal_quality_example([each], SAME, 0.5) for each in (query, backwards))
        assert [order.kept.tolist() for order in plain] == [order.kept.tolist() for order in turned]

    def test_no_order_effect_no_verdict_or_nothing_retained_is_no_example(self):
        assert studies.equal_quality_example([a_query()], {"q": ["SUPPORTS"] * 6}, 0.5) is None
        assert studies.equal_quality_example(QUERIES, {}, 0.5) is None
        assert studies.equal_quality_example(QUERIES, SAME, 99) is None


def test_reads_agree_on_the_share_of_equal_scores():
    reads = Scored("q", ("a", "b"), np.arange(3), np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 0.0]]))
    assert studies.grade_agreement(reads) == pytest.approx(4 / 6)


class TestArrangements:
    instance = Instance("q", "query", tuple(Candidate(f"c{i}", f"text {i}", relevance=int(i == 4), rank=i + 1) for i in range(9)))

    @pytest.mark.parametrize(("place", "position"), [("top", 0), ("middle", 4), ("bottom", 8)])
    def test_the_strongest_candidate_is_forced_to_a_place(self, place, position):
        found = arranged(self.instance, place)
        assert [c.relevance for c in found.pool].index(1) == position
        assert [c.rank for c in found.pool] == list(range(1, 10))

    def test_a_reversed_pool_is_the_pool_backwards(self):
        assert [c.id for c in arranged(self.instance, "reverse").pool] == [f"c{i}" for i in range(8, -1, -1)]

    def test_a_wavering_first_stage_keeps_the_candidates(self):
        found = arranged(self.instance, "noise")
        assert sorted(c.id for c in found.pool) == sorted(c.id for c in self.instance.pool)
        assert found == arranged(self.instance, "noise")


def test_a_planted_grader_gives_its_effects_through_the_real_windows(tmp_path):
    from steadyscore.collection import open_collection
    from steadyscore.engines.synthetic import Effects, PlantedGrader, judgements_by_text

    source = open_collection("passages")
    config = AuditConfig(permutations=6, settings=Settings(width=4), cut=Cut(6, 8))
    found = {}
    for name, effects in {"none": Effects(), "slot": Effects(slot=0.3), "companion": Effects(companion=0.4)}.items():
        grader = PlantedGrader(name, effects, judgements_by_text(source.instances()))
        run = score_collection(scorer_for(grader, source.collection, config), source, tmp_path / name, config)
        found[name] = list(run.read_queries())
    assert measure(found["none"]).values["tau_psi"].max() == 0
    profile = decomposition.slot_profile(found["slot"]).profile
    assert profile[0] > 0.05
    assert profile[-1] < -0.05
    assert abs(decomposition.slot_profile(found["companion"]).profile).max() < 0.05
    assert measure(found["companion"]).values["tau_psi"].mean() > 0.1
