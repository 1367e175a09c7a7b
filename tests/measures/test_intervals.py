from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from steadyscore.errors import InputError
from steadyscore.measures import intervals
from steadyscore.measures.intervals import (
    Wins,
    benjamini_hochberg,
    bootstrap_means,
    collection_mean,
    discordance,
    mean_interval,
    paired_interval,
    percent_closed,
    resample_means,
    seed_mean,
    wins,
)

SCHEMES = ("collections_then_queries", "collections", "queries")
SIZES = (43, 54, 53, 76, 82, 49, 648, 323, 1406, 1535, 50, 400, 300, 97, 57, 249, 467, 113)


def collections(sizes=(30, 70, 150, 400), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.beta(2, rng.uniform(1, 4), size) for size in sizes]


def literal_loop(values, scheme, draws, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        drawn = range(len(values)) if scheme == "queries" else rng.integers(0, len(values), len(values))
        means = []
        for c in drawn:
            v = values[c]
            means.append((v if scheme == "collections" else v[rng.integers(0, len(v), len(v))]).mean())
        found.append(np.mean(means))
    return np.array(found)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_draws_follow_a_literal_resampling_loop(scheme):
    values = collections((30, 70, 150, 400, 90, 200, 65, 40, 300))
    ours, loop = bootstrap_means(values, scheme=scheme), literal_loop(values, scheme, 8000)
    at = [0.005, 0.025, 0.25, 0.5, 0.75, 0.975, 0.995]
    assert np.allclose(np.quantile(ours, at), np.quantile(loop, at), atol=0.1 * loop.std())
    assert scipy.stats.ks_2samp(ours, loop).pvalue > 1e-3


@pytest.mark.parametrize("scheme", SCHEMES)
def test_variance_of_the_draws_is_the_exact_bootstrap_variance(scheme):
    values = collections()
    count = len(values)
    means = np.array([v.mean() for v in values])
    within = np.array([v.var() / len(v) for v in values])
    exact = {
        "collections_then_queries": (means.var() + within.mean()) / count,  # holds only if repeats resample anew
        "collections": means.var() / count,
        "queries": within.sum() / count**2,
    }[scheme]
    assert bootstrap_means(values, scheme=scheme, draws=200_000).var() == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("size", [65, 500, 20_000])
@pytest.mark.parametrize("shape", ["skewed", "binary", "rare"])
def test_convolved_means_match_resampled_means(size, shape):
    rng = np.random.default_rng(size)
    values = {
        "skewed": rng.lognormal(sigma=1.5, size=size),
        "binary": (rng.random(size) < 0.3).astype(float),
        "rare": (np.arange(size) == 0).astype(float),
    }[shape]
    draws = 20_000 if size < 1000 else 1500
    literal = np.array([values[rng.integers(0, size, size)].mean() for _ in range(draws)])
    ours = bootstrap_means([values], scheme="queries")
    sd = values.std() / np.sqrt(size)
    assert ours.mean() == pytest.approx(values.mean(), abs=0.03 * sd)
    assert ours.std() == pytest.approx(sd, rel=0.03)
    assert np.allclose(np.quantile(ours, [0.05, 0.5, 0.95]), np.quantile(literal, [0.05, 0.5, 0.95]), atol=0.15 * sd)
    assert values.min() <= ours.min()
    assert ours.max() <= values.max()


def test_one_collection_agrees_with_scipy():
    (values,) = collections((300,))
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    ours = mean_interval([values], scheme="queries", method="percentile")
    sd = values.std() / np.sqrt(len(values))
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.06 * sd)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 1024), min_size=1, max_size=90), min_size=1, max_size=5),
    st.sampled_from(SCHEMES),
    st.sampled_from([0.5, 2.0]),
)
def test_interval_stays_in_range_and_follows_shift_and_scale(values, scheme, scale):
    # Binary fractions are moved without rounding; else a quantile that lies between two atoms of the mean may take the other.
    arrays = [np.array(v) / 1024 for v in values]
    assume(scheme != "queries" or max(map(len, values)) > 1)  # one query alone has no spread to draw from
    found = mean_interval(arrays, scheme=scheme, draws=200)
    slack = 1e-9
    assert min(v.min() for v in arrays) - slack <= found.low <= found.high <= max(v.max() for v in arrays) + slack
    moved = mean_interval([scale * v + 1 for v in arrays], scheme=scheme, draws=200)
    assert moved[:3] == pytest.approx([scale * x + 1 for x in found[:3]], abs=1e-9)
    assert found == mean_interval(arrays, scheme=scheme, draws=200)
    assert 0 < found.p_value <= 1


def test_values_without_a_number_are_counted_and_left_out():
    values = [np.array([1.0, np.nan, 3.0]), np.array([5.0]), np.array([np.nan])]
    found = mean_interval(values, draws=100)
    assert (found.value, found.queries, found.undefined) == (3.5, 3, 2)
    nothing = mean_interval([np.array([np.nan])], draws=100)
    assert np.isnan([nothing.value, nothing.low, nothing.high, nothing.p_value]).all()
    assert collection_mean([[1.0, 3.0], [5.0] * 10]) == 3.5


def test_no_variation_gives_an_interval_without_width():
    found = mean_interval([np.full(100, 0.1), np.full(10, 0.1)])
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))


def test_paired_interval_is_narrower_than_its_parts_and_needs_matching_queries():
    base = collections()
    better = [v + np.random.default_rng(1).normal(0.02, 0.02, len(v)) for v in base]
    paired, alone = paired_interval(better, base), mean_interval(base)
    assert paired.low > 0
    assert paired.p_value < 0.001
    assert paired.high - paired.low < (alone.high - alone.low) / 5
    with pytest.raises(InputError, match="collection 0") as caught:
        paired_interval([[1.0], [2.0], [3.0]], [[1.0, 2.0], [2.0], [3.0, 4.0]])
    assert len(caught.value.mistakes) == 2
    with pytest.raises(InputError, match="1 collections"):
        paired_interval([[1.0]], [[1.0], [2.0]])
    with pytest.raises(InputError, match="unknown scheme"):
        mean_interval([[1.0, 2.0]], scheme="documents")


def test_p_values_are_uniform_when_nothing_differs():
    rng = np.random.default_rng(0)
    p = [mean_interval([rng.normal(size=60)], scheme="queries", draws=1000, seed=i).p_value for i in range(300)]
    assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_false_discovery_control_agrees_with_scipy(p):
    assert np.allclose(benjamini_hochberg(p), scipy.stats.false_discovery_control(p))


def test_false_discovery_control_passes_missing_tests_over():
    assert np.array_equal(benjamini_hochberg([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04], equal_nan=True)


@pytest.mark.parametrize("units", [5, 10, 18, 50, 2000])
@pytest.mark.parametrize("tail", [0.005, 0.025, 0.1])
def test_expanded_tail_follows_student_t(units, tail):
    exact = scipy.stats.norm.cdf(scipy.stats.t.ppf(tail, units - 1) * np.sqrt(units / (units - 1)))
    found = intervals._expanded_tail(tail, units)
    assert scipy.stats.norm.ppf(found) == pytest.approx(scipy.stats.norm.ppf(exact), rel=0.02)
    assert intervals._nominal_tail(found, units) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize("size", [12, 40, 300])
def test_the_default_over_queries_is_scipys_percentile_interval_at_the_expanded_level(size):
    (values,) = collections((size,))
    tail = scipy.stats.norm.cdf(scipy.stats.t.ppf(0.025, size - 1) * np.sqrt(size / (size - 1)))
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", confidence_level=1 - 2 * tail, rng=1
    ).confidence_interval
    ours = mean_interval([values], scheme="queries")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.1 * values.std() / np.sqrt(size))


@pytest.mark.parametrize("size", [10, 20, 50])
def test_intervals_over_few_skewed_queries_cover_the_truth_where_percentiles_do_not(size):
    rng, found = np.random.default_rng(size), {"expanded": 0.0, "percentile": 0.0}
    for study in range(400):
        values = rng.beta(1, 3, size)
        for method in found:
            interval = mean_interval([values], scheme="queries", draws=1000, seed=study, method=method)
            found[method] += (interval.low <= 0.25 <= interval.high) / 400
    assert found["percentile"] < found["expanded"]
    # Ten skewed queries are too few for either: 0.90 here, and docs/intervals.md claims nothing below twenty.
    assert (0.88 if size == 10 else 0.92) <= found["expanded"] <= 0.98


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.sampled_from(["expanded", "percentile"]))
@settings(deadline=None, max_examples=60)
def test_an_interval_stays_within_its_values_and_holds_their_mean_only_value(values, method):
    found = mean_interval([values], scheme="queries", draws=300, method=method)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    flat = mean_interval([[values[0]] * len(values)], scheme="queries", draws=300, method=method)
    assert (flat.low, flat.high) == pytest.approx((values[0], values[0]))


@pytest.mark.parametrize("size", [6, 20, 200])
def test_the_p_value_and_the_interval_agree_about_zero(size):
    rng = np.random.default_rng(size)
    for study in range(200):
        found = mean_interval([rng.normal(2 / np.sqrt(size), 1, size)], scheme="queries", draws=2000, seed=study)
        if abs(found.p_value - 0.05) > 0.01:  # the draw added to each tail
            assert (found.p_value < 0.05) == (found.low > 0 or found.high < 0)


def test_an_unknown_method_is_refused():
    with pytest.raises(InputError, match="unknown method"):
        mean_interval([[1.0, 2.0]], method="bca")


def coverage(studies, scheme, method=None, sizes=SIZES, draws=2000):
    """Share of simulated studies whose interval holds the truth.

    The spreads (0.03 between collections, 0.15 between queries) are assumed, not measured. Coverage of
    collections_then_queries depends on their ratio: 0.93 at 0.08 / 0.25, 0.98 at 0.02 / 0.20 in 300 studies each.
    """
    rng, hits = np.random.default_rng(20), []
    for study in range(studies):
        truths = rng.normal(0.02, 0.03, len(sizes))
        values = [rng.normal(truth, 0.15, size) for truth, size in zip(truths, sizes, strict=True)]
        truth = truths.mean() if scheme == "queries" else 0.02
        found = mean_interval(values, scheme=scheme, method=method, draws=draws, seed=study)
        hits.append(found.low <= truth <= found.high)
    return np.mean(hits)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_intervals_cover_the_truth(scheme):
    assert 0.90 <= coverage(150, scheme, sizes=(40, 45, 50, 55, 60) * 3, draws=1000) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_intervals_cover_the_truth_in_93_to_97_percent_of_1000_studies(scheme):
    found = coverage(1000, scheme)
    print(f"{scheme}: {found:.3f}")
    assert 0.93 <= found <= 0.97


@pytest.mark.slow
def test_plain_intervals_over_18_collections_alone_are_too_narrow():
    found = coverage(1000, "collections", "percentile")
    print(f"collections, percentile: {found:.3f}")
    assert 0.90 <= found <= 0.94  # Student's t with 17 degrees of freedom says 0.926


def test_seed_mean_has_the_sample_spread():
    assert seed_mean([1, 2, 3]) == (2, 1, 3)
    assert np.isnan(seed_mean([1]).sd)


def test_wins():
    assert wins([[1.0, 3.0], [1.0], [0.0], [np.nan]], [[1.0, 1.0], [1.0], [1.0], [1.0]]) == Wins(1, 1, 1)


def test_percent_closed():
    assert percent_closed(0.2, 0.14, 0.08) == pytest.approx(50)
    assert percent_closed(0.2, 0.2, 0.08) == 0
    assert np.isnan(percent_closed(0.2, 0.1, 0.2))


def test_discordance_counts_winners_and_pairs():
    quality = np.array([[6, 5, 4, 3, 2, 1]]).T
    neighbours = np.array([[5, 6, 4, 3, 2, 1]]).T
    found = discordance(quality, neighbours)
    assert (found.discordant, found.collections) == (1, 1)
    assert found.median == pytest.approx(1 / 15)  # the paper's 0.067: one pair of six systems
    assert discordance(quality, quality)[:1] == (0,)
    assert discordance(quality, -quality).median == 1


def test_discordance_with_ties_and_missing_systems():
    shared = discordance([[1.0], [1.0]], [[2.0], [1.0]])
    assert (shared.discordant, shared.median) == (0, 0.5)
    found = discordance([[1.0, 1.0], [2.0, np.nan], [0.0, np.nan]], [[2.0, 1.0], [1.0, 1.0], [np.nan, 0.0]])
    assert (found.discordant, found.collections) == (1, 1)
    assert np.array_equal(found.disagreement, [1, np.nan], equal_nan=True)


def test_one_query_has_neither_interval_nor_p_value():
    found = mean_interval([[0.3]], scheme="queries")
    assert found.value == 0.3
    assert np.isnan([found.low, found.high, found.p_value]).all()


def test_a_collection_of_one_query_leaves_the_expansion_of_the_others():
    many = np.random.default_rng(0).normal(0, 1, 20)
    wide = mean_interval([many, [0.0]], scheme="queries")
    plain = mean_interval([many, [0.0]], scheme="queries", method="percentile")
    assert wide.high - wide.low > plain.high - plain.low


@pytest.mark.parametrize("changed", [1, 3])
def test_a_difference_that_few_queries_have_is_often_exactly_zero(changed):
    values = np.zeros(100)
    values[:changed] = 1.0
    means = resample_means(values, 20_000, np.random.default_rng(0))
    assert (means == 0).mean() == pytest.approx((1 - changed / 100) ** 100, abs=0.01)
    assert mean_interval([values], scheme="queries").low == 0
