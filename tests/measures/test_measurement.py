import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steadyscore
from steadyscore.errors import InputError
from steadyscore.measures import instability, preference, ranking
from steadyscore.measures.measurement import (
    fewest_permutations,
    find_cutoff,
    measure,
    pair_values,
    qualities,
    rank_by_pool,
)
from steadyscore.measures.registry import MEASURES
from steadyscore.measures.retained_sets import overlap
from steadyscore.measures.threshold import REFERENCE_SEED, Cutoff, Steps, Threshold, fold_queries
from steadyscore.measures.views import average_permutations, quality_by_permutation
from steadyscore.runs.table import FIRST_STAGE, Scored
from tests.helpers.paths import TESTS

GOLDEN = TESTS / "golden"
PAIRS = ("swap_flip", "first_place_bias", "swap_accuracy")


def query(seed=0, n=6, permutations=5, query_id=None, canonical=True, judged=True, places=True):
    rng = np.random.default_rng(seed)
    rows = permutations + canonical
    orders = np.stack([rng.permutation(n) for _ in range(rows)])
    return Scored(
        query_id=query_id or f"q{seed}",
        candidate_ids=tuple(f"d{i:02}" for i in range(n)),
        permutations=np.arange(FIRST_STAGE if canonical else 0, permutations),
        scores=rng.random((rows, n)),
        slots=np.argsort(orders, axis=1) if places else None,
        windows=np.zeros((rows, n), int) if places else None,
        relevance=rng.permutation(np.arange(n) % 4).astype(float) if judged else None,
    )


def test_every_measure_of_a_full_run_has_a_value():
    found = measure([query(i, n=6 if i else 2) for i in range(8)])
    wanted = {m.name for m in MEASURES.values() if not {"reader", "perturbed"} & set(m.needs)}
    assert wanted == found.values.keys() | found.overall.keys()


@given(seed=st.integers(0, 500))
@settings(deadline=None, max_examples=20)
def test_the_order_of_permutations_and_of_queries_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    queries = [query(seed + i) for i in range(5)]
    shuffled = []
    for q in rng.permutation(5):
        old = queries[q]
        rows = np.r_[0, 1 + rng.permutation(5)]
        shuffled.append(
            Scored(
                old.query_id,
                old.candidate_ids,
                old.permutations,
                old.scores[rows],
                old.slots[rows],
                old.windows[rows],
                relevance=old.relevance,
            )
        )
    before, after = measure(queries), measure(shuffled)
    where = [after.query_ids.index(q) for q in before.query_ids]
    for name, values in before.values.items():
        if "tie_sensitivity" not in name:
            assert np.allclose(values, after.values[name][where], equal_nan=True), name
    assert before.cutoff == after.cutoff


def test_queries_of_different_sizes_are_measured_together():
    small, large = query(1, n=3), query(2, n=9, permutations=4)
    both = measure([small, large], Threshold(cutoff=0.5))
    for i, one in enumerate((small, large)):
        alone = measure([one], Threshold(cutoff=0.5))
        assert all(np.isclose(alone.values[name][0], both.values[name][i], equal_nan=True) for name in alone.values)


def test_figures_of_a_whole_collection_need_equally_many_permutations_and_no_equal_pools():
    queries = [query(i, n=6 + i % 2) for i in range(6)]
    overall = measure(queries).overall
    first, tenth = (np.stack([ranking.ndcg(q.permuted, q.relevance, k) for q in queries]) for k in (1, 10))
    labels = np.stack([instability.buckets(q.orders(), q.relevance) for q in queries])
    assert overall["benchmark_range@1"] == pytest.approx(preference.benchmark_range(first))
    assert overall["benchmark_sd@1"] == pytest.approx(preference.benchmark_sd(first))
    assert overall["zeng_psi_corpus@10"] == pytest.approx(instability.zeng_psi_corpus(tenth, labels))
    uneven = measure([*queries, query(6, permutations=4)]).overall
    assert not {"benchmark_range@1", "benchmark_sd@1", "zeng_psi_corpus@10"} & uneven.keys()


def test_the_papers_cutoff_is_measured_on_the_half_that_it_was_not_fitted_on():
    found = measure([query(i) for i in range(10)], Threshold(cutoff="f1"))
    tested = ~np.isnan(found.values["overlap"])
    assert tested.sum() == found.cutoff.measured_on == 5
    assert found.cutoff.fitted_in == "first-stage order"
    assert np.array_equal(np.isnan(found.cutoff.values), ~tested)


@given(ids=st.lists(st.text(min_size=1, max_size=3), min_size=2, max_size=12, unique=True), share=st.floats(0.05, 0.95))
@settings(deadline=None, max_examples=40)
def test_every_query_is_measured_with_a_cutoff_that_was_fitted_on_others(ids, share):
    queries = [query(i, query_id=query_id) for i, query_id in enumerate(ids)]
    cutoff = find_cutoff(queries, Threshold(retention=share))
    assert (cutoff.folds, cutoff.measured_on) == (min(len(ids), 5), len(ids))
    assert [cutoff.value] == Steps([q.first_stage for q in queries]).fit([np.ones(len(ids), bool)], share)
    folds = fold_queries(ids)
    for i, value in enumerate(cutoff.values):
        others = [q.first_stage for q, fold in zip(queries, folds, strict=True) if fold != folds[i]]
        assert others
        assert [value] == pytest.approx(Steps(others).fit([np.ones(len(others), bool)], share), abs=1e-12)
    turned = find_cutoff(queries[::-1], Threshold(retention=share))
    assert (turned.values[::-1] == cutoff.values).all()


def test_folds_are_of_equal_size_and_no_query_is_in_two():
    folds = fold_queries([f"q{i}" for i in range(23)])
    assert sorted(np.bincount(folds)) == [4, 4, 5, 5, 5]


def test_a_query_plays_no_part_in_its_own_cutoff():
    queries = [query(i) for i in range(12)]
    before = find_cutoff(queries, Threshold())
    changed = replace(queries[3], scores=queries[3].scores * 100)
    after = find_cutoff([*queries[:3], changed, *queries[4:]], Threshold())
    assert after.values[3] == before.values[3]
    assert after.value != before.value


@pytest.mark.parametrize("rule", [{"cutoff": 0.4}, {"keep_first": 2}, {"keep_share": 0.3}], ids=str)
def test_a_cutoff_for_every_query_is_the_constant_one_where_it_is_fixed(rule):
    queries = [query(i, n=4 + i % 3) for i in range(6)]
    together, cutoff = measure(queries, Threshold(**rule)), find_cutoff(queries, Threshold(**rule))
    for i, q in enumerate(queries):
        kept = cutoff.of(i).retained(q.permuted)
        np.testing.assert_array_equal(
            kept, Cutoff(rule.get("cutoff"), "", **{k: rule[k] for k in rule if k != "cutoff"}).retained(q.permuted)
        )
        assert together.values["overlap"][i] == overlap(kept)


def test_thresholds_that_say_the_same_are_equal():
    assert Threshold() == Threshold(retention=0.3)
    assert Threshold(cutoff="f1") == Threshold(half=True) == Threshold.stored({}) == Threshold.stored({"retention": None})
    assert Threshold(protocol="reference").cutoff == "f1"
    assert Threshold.stored({"cutoff": 0.5}) == Threshold(cutoff=0.5)
    assert Threshold.stored({"retention": 0.3}) == Threshold(retention=0.3, half=True) != Threshold()
    assert Threshold.stored(asdict(Threshold())) == Threshold()


def paper_queries():
    """Pools of several sizes, ties, queries without a judgement or a relevant candidate, and some whose places are not known."""
    found = [query(i, n=(2, 3, 6, 9)[i % 4], judged=i % 7 != 3, places=i % 5 != 1) for i in range(16)]
    tied = [replace(q, scores=np.round(q.scores, 1)) if i % 3 == 0 else q for i, q in enumerate(found)]
    return [replace(q, relevance=np.zeros(len(q.candidate_ids))) if i % 8 == 5 else q for i, q in enumerate(tied)]


PAPER = {
    "f1": {"cutoff": "f1"},
    "f1, reference": {"cutoff": "f1", "protocol": "reference"},
    "matched": {"retention": 0.3, "half": True},
    "matched, reference": {"retention": 0.3, "protocol": "reference"},
    "fixed": {"cutoff": 0.5},
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings_give_what_they_gave_before_there_were_folds_and_needs(name):
    found = measure(paper_queries(), Threshold(**PAPER[name]))
    expected = json.loads((GOLDEN / "paper_measures.json").read_text())[name]
    means = {measure: [np.nanmean(values), (~np.isnan(values)).sum()] for measure, values in found.values.items()}
    means |= {measure: [value, found.overall_queries[measure]] for measure, value in found.overall.items()}
    assert means.keys() - set(PAIRS) == expected.keys()
    assert {measure: means[measure] for measure in expected} == {
        k: pytest.approx(v, rel=1e-10, abs=1e-15) for k, v in expected.items()
    }


@given(seed=st.integers(0, 100), singles=st.integers(1, 4))
@settings(deadline=None, max_examples=15)
def test_pools_of_one_change_no_measure_of_movement(seed, singles):
    queries = [query(seed + i) for i in range(5)]
    alone = [query(seed + i, n=1, query_id=f"one {i}", permutations=5 if i % 2 else 1) for i in range(singles)]
    before, after = (measure(some, Threshold(cutoff=0.5)) for some in (queries, queries + alone))
    moving = [name for name in before.values if "permutations" in MEASURES[name].needs]
    assert {"tau_psi", "pair_flip", "overlap", "overlap@10"} <= {*moving}
    for name in moving:
        np.testing.assert_array_equal(after.values[name][:5], before.values[name])
        assert np.isnan(after.values[name][5:]).all(), name
    assert after.overall == before.overall
    assert after.coverage.left_out == {"moves": [q.query_id for q in alone]}
    assert after.coverage.fewer_permutations == {}
    assert not np.isnan(after.values["ndcg@10"]).any()


def test_a_small_pool_of_which_every_order_was_shown_lacks_none():
    found = measure(
        [query(0, n=2, permutations=2), query(1, n=3, permutations=6), query(2, permutations=10), query(3, permutations=9)]
    )
    assert found.coverage.fewer_permutations == {"q3": 9}
    assert found.coverage.few_orders == {2: 1, 3: 1}
    assert found.coverage.permutations == [2, 6, 9, 10]


def test_a_benchmark_shows_a_small_pool_its_orders_again():
    small, large = query(0, n=2, permutations=2), query(1, permutations=5)
    first = [ranking.ndcg(q.permuted, q.relevance, 1) for q in (small, large)]
    found = measure([small, large]).overall["benchmark_range@1"]
    assert found == pytest.approx(np.ptp((first[0][[0, 1, 0, 1, 0]] + first[1]) / 2))


def test_a_system_that_averages_more_orders_than_a_small_pool_has_averages_all_of_them():
    small, large = query(0, n=2, permutations=2), query(1, permutations=8)
    served = [average_permutations(q, 4) for q in (small, large)]
    assert [len(q.permuted) for q in served] == [1, 2]
    np.testing.assert_array_equal(served[0].permuted[0], small.permuted.mean(axis=0))
    with pytest.raises(InputError, match="an ensemble of 9"):
        average_permutations(large, 9)
    assert (fewest_permutations([small, large]), fewest_permutations([small]), fewest_permutations([])) == (8, 2, 0)


def test_the_quality_of_many_queries_is_that_of_each_bit_for_bit():
    judged_elsewhere = [replace(query(i), ideal=np.arange(float(3 + i % 9)) / 3) for i in range(40, 60)]
    queries = [
        query(0),
        query(1, n=2, permutations=2),
        query(2, judged=False),
        replace(query(3), ties="input"),
        *judged_elsewhere,
        query(4, canonical=False, places=False),
    ]
    for many, each in zip(qualities(queries, 10), queries, strict=True):
        np.testing.assert_array_equal(many, quality_by_permutation(each, 10))


def test_a_fixed_cutoff_is_measured_on_every_query():
    found = measure([query(i) for i in range(4)], Threshold(cutoff=0.4))
    assert not np.isnan(found.values["overlap"]).any()


def test_matched_retention_keeps_what_was_asked_for():
    found = measure([query(i, n=20) for i in range(40)], Threshold(retention=0.25))
    assert np.nanmean(found.values["retention"]) == pytest.approx(0.25, abs=0.05)


def test_the_reference_protocol_takes_permutation_0_and_41_points():
    queries = [query(i) for i in range(10)]
    found = measure(queries, Threshold(protocol="reference"))
    everything = np.concatenate([q.permuted[0] for q in queries])
    grid = np.linspace(everything.min(), everything.max(), 41)
    assert np.isclose(grid, found.cutoff.value).any()
    assert found.cutoff.fitted_in == "permutation 0"


def test_without_a_first_stage_row_quality_is_the_mean_over_permutations():
    found = measure([query(i, canonical=False) for i in range(3)])
    assert np.allclose(found.values["ndcg@10"], found.values["mean_ndcg@10"])


def test_unjudged_queries_are_counted_and_not_averaged():
    found = measure([query(0), query(1), query(2, judged=False, query_id="blind")])
    assert found.coverage.unjudged == ["blind"]
    assert np.isnan(found.values["ndcg@10"][2])
    assert not np.isnan(found.values["tau_psi"][2])


def test_an_unjudged_query_is_undefined_whatever_stands_beside_it():
    judged, blind = query(0), query(1, judged=False)
    for beside in (judged, query(2, n=9)):  # in the same stack, and in another
        found = measure([beside, blind], Threshold(cutoff=0.4))
        told = [name for name, values in found.values.items() if "relevance" in MEASURES[name].needs and not np.isnan(values[1])]
        assert not told


def test_without_judgements_a_share_is_kept_all_the_same():
    found = measure([query(i, judged=False) for i in range(3)])
    assert found.cutoff.retention == 0.3
    assert not np.isnan(found.values["overlap"]).any()
    assert "retained_f1" not in found.values


def test_without_judgements_there_is_no_f1_tuned_cutoff_and_it_says_why():
    found = measure([query(i, judged=False) for i in range(3)], Threshold(cutoff="f1"))
    assert found.cutoff.value is None
    assert "--cutoff" in found.cutoff.how
    assert "overlap" not in found.values
    assert "overlap@10" in found.values


def test_nothing_to_measure_is_refused():
    with pytest.raises(InputError, match="no scored query"):
        measure([])


def test_an_ensemble_of_one_is_the_run_itself():
    queries = [query(i, canonical=False, places=False) for i in range(4)]
    one = measure([average_permutations(q, 1) for q in queries])
    assert np.allclose(one.values["tau_psi"], measure(queries).values["tau_psi"])


def test_averaging_permutations_steadies_a_noisy_scorer():
    queries = [query(i, n=10, permutations=40) for i in range(6)]
    levels = [np.mean(measure([average_permutations(q, k) for q in queries]).values["score_variance"]) for k in (1, 5, 10)]
    assert levels[0] > levels[1] > levels[2]


@pytest.mark.parametrize("name", ["tau_psi", "overlap", "pair_flip", "selection_flip", "ndcg@10"])
def test_pair_values_average_to_the_measure(name):
    q = query(3)
    pairs = pair_values(q, name, Cutoff(0.5, "fixed"))
    mean = pairs[np.triu_indices(5, 1)].mean()
    wanted = {"ndcg@10": "mean_ndcg@10"}.get(name, name)
    assert mean == pytest.approx(measure([q], Threshold(cutoff=0.5)).values[wanted][0])


def test_matched_retention_needs_no_judgements():
    found = measure([query(i, n=20, judged=False) for i in range(8)], Threshold(retention=0.25))
    assert found.cutoff.value is not None
    assert "overlap" in found.values
    assert "retained_f1" not in found.values


def test_measuring_a_batch_at_a_time_gives_the_same_numbers(tmp_path, monkeypatch):
    """Pools of two sizes, some queries without judgements, a batch wholly unjudged; from a table that is read by parts."""
    from steadyscore.collection import open_collection
    from steadyscore.scoring.config import AuditConfig, open_scorer
    from steadyscore.scoring.score import score_collection
    from tests.helpers.pools import some_instances, write_collection

    instances = some_instances(queries=14)
    for i in (1, 6, 7, 8):
        for candidate in instances[i]["candidates"]:
            del candidate["relevance"]
    for i in (2, 5, 11):
        del instances[i]["candidates"][-1]
    file, config = write_collection(tmp_path / "some.jsonl", instances), AuditConfig(permutations=4)
    scorer = open_scorer("synthetic:companion", open_collection(str(file)).collection, config)
    run = score_collection(scorer, str(file), tmp_path / "run", config)
    for by in (Threshold(), Threshold(cutoff="f1"), Threshold(protocol="reference"), Threshold(cutoff=0.3)):
        whole = measure(run.read_queries(), by)
        with monkeypatch.context() as patch:
            patch.setattr("steadyscore.measures.measurement.BATCH", 3)
            parts = measure(run.read_queries(), by)
        assert parts.values.keys() == whole.values.keys()
        for name, values in whole.values.items():
            np.testing.assert_array_equal(parts.values[name], values, err_msg=name)
        assert parts.overall == pytest.approx(whole.overall, rel=1e-12)
        assert (parts.query_ids, parts.cutoff, parts.coverage) == (whole.query_ids, whole.cutoff, whole.coverage)
        assert parts.slot_profile == whole.slot_profile


@pytest.mark.parametrize(
    ("rule", "kept"), [({"keep_first": 2}, [2, 2]), ({"keep_share": 0.3}, [2, 1]), ({"keep_first": 9}, [6, 3])]
)
def test_a_rule_per_query_keeps_as_many_of_every_pool_and_is_measured_on_all(rule, kept):
    found = measure([query(1), query(2, n=3)], Threshold(**rule))
    assert found.cutoff.is_per_query
    assert found.cutoff.value is None
    assert (found.values["retention"] * [6, 3]).tolist() == pytest.approx(kept)
    assert found.values["empty_sets"].tolist() == [0, 0]
    assert (found.values["overlap"] == found.values["overlap_nonempty"]).all()
    assert found.cutoff.to_json() == {"value": None, "how": found.cutoff.how, **rule}


@pytest.mark.parametrize(
    "rule", [{"keep_first": 0}, {"keep_share": 1.0}, {"keep_first": 3, "retention": 0.3}, {"keep_first": 1, "keep_share": 0.2}]
)
def test_a_rule_that_keeps_nothing_or_is_one_of_two_is_refused(rule):
    with pytest.raises(InputError, match="keep"):
        Threshold(**rule)


def test_the_first_stage_is_ranked_by_where_the_pool_stood():
    q = query(3)
    ranked = rank_by_pool(q)
    shown = np.argsort(q.slots[0])
    assert np.argsort(-ranked.scores[0]).tolist() == shown.tolist()
    assert measure([ranked]).values["tau_psi"].tolist() == [0]
    assert rank_by_pool(query(3, places=False)) is None
    assert rank_by_pool(query(3, canonical=False)) is None


def test_a_cutoff_says_why_there_is_none():
    one = steadyscore.audit(
        scores={"a": np.random.default_rng(0).random((3, 5))}, relevance={"a": [1, 0, 0, 0, 0]}, match_retention=0.3
    )[0]
    assert "there is only one" in one.measured.cutoff.how
    scores = {f"q{i}": rows for i, rows in enumerate(np.random.default_rng(1).random((6, 3, 5)))}
    without = steadyscore.audit(scores=scores, relevance={q: [0] * 5 for q in scores}, cutoff="f1")[0]
    assert "no query of the half it is fitted on has a relevant candidate" in without.measured.cutoff.how
    assert "overlap" not in without.figures


def test_chance_stands_on_the_queries_and_judgements_of_the_quality_beside_it():
    scores = {f"q{i}": np.tile(np.arange(4.0), (2, 1)) for i in range(8)}
    relevance = {q: [int(i % 2), 0, 0, 0] for i, q in enumerate(scores)}
    found = steadyscore.audit(scores=scores, relevance=relevance)[0].figures
    assert found["chance@1"].queries == found["ndcg@1"].queries == 8
    assert found["chance@1"].value == pytest.approx(0.125)


def test_a_mean_does_not_mix_first_stage_order_and_permutations():
    queries = [query(i, canonical=i % 2 == 0) for i in range(6)]
    found = measure(queries)
    np.testing.assert_array_equal(found.values["ndcg@10"], found.values["mean_ndcg@10"])
    assert found.coverage.without_first_stage == ["q1", "q3", "q5"]
    assert found.cutoff.fitted_in == "permutation 0"
    assert measure(queries[::-1]).cutoff == found.cutoff
    assert measure([query(i) for i in range(6)]).coverage.without_first_stage == []
    assert measure([query(i, canonical=False) for i in range(6)]).coverage.without_first_stage == []


def test_figures_of_a_whole_collection_say_on_how_many_queries_they_stand():
    queries = [query(i, judged=i < 3, places=i < 4) for i in range(6)]
    counts = measure(queries).overall_queries
    assert (counts["benchmark_range@1"], counts["zeng_psi_corpus@10"], counts["slot_rms"]) == (3, 3, 4)


def test_a_query_without_a_relevant_candidate_has_no_place_in_zengs_psi():
    placed = [query(i) for i in range(4)]
    steady = [replace(q, scores=np.tile(q.relevance, (len(q.scores), 1))) for q in placed]  # whatever the order, the same
    nothing = [replace(q, query_id=f"none {q.query_id}", relevance=np.zeros(6)) for q in steady]
    assert measure(steady + nothing).overall["zeng_psi_corpus@10"] == 0


def test_the_seed_of_the_reference_split_is_the_one_that_was_used():
    found = measure([query(i) for i in range(6)], Threshold(protocol="reference"))
    assert found.cutoff.seed == REFERENCE_SEED
