"""Collation: equal weights, paired sums, seeds, wins, and the bold rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.errors import InputError
from steadyscore.measures.intervals import mean_interval
from steadyscore.measures.pairing import Observation, average_seeds, combine, discordance_of, group_by
from steadyscore.paper.collate import (
    WHOLE,
    closed_value,
    extreme_value,
    lead_value,
    leading,
    mean_value,
    permutation_range,
    wins_value,
)


def an_observation(values, system="a", base="b", seed=0, collection="c", task="passage_reranking", ids=None):
    names = tuple(ids or (f"q{i}" for i in range(len(values))))
    return Observation(system, base, seed, task, collection, names, np.array(values, float))


numbers = st.lists(st.floats(-1, 1), min_size=1, max_size=6)


@given(numbers, numbers)
def test_a_collection_weighs_the_same_however_many_queries_it_has(few, many):
    cells = [an_observation(few), an_observation(many * 3, collection="d")]
    assert mean_value(cells, draws=50).value == pytest.approx((np.mean(few) + np.mean(many)) / 2)


@given(st.lists(st.tuples(*[st.floats(-1, 1)] * 4), min_size=1, max_size=6))
def test_a_contrast_of_contrasts_is_the_difference_of_two_contrasts(rows):
    a, b, c, d = (an_observation(column) for column in zip(*rows, strict=True))
    whole = combine([(1, a), (-1, b), (-1, c), (1, d)])
    parts = combine([(1, combine([(1, a), (-1, b)])), (-1, combine([(1, c), (-1, d)]))])
    assert whole.values == pytest.approx(parts.values)


def test_only_queries_that_all_sides_have_are_paired():
    found = combine([(1, an_observation([1, 2], ids=["x", "y"])), (-1, an_observation([5, 1], ids=["y", "z"]))])
    assert (found.query_ids, found.values.tolist()) == (("y",), [-3])


def test_sides_without_a_shared_query_are_refused():
    with pytest.raises(InputError, match="share no query of c"):
        combine([(1, an_observation([1], ids=["x"])), (-1, an_observation([1], ids=["y"]))])


def test_sides_of_two_collections_are_refused():
    with pytest.raises(InputError, match="different collections"):
        combine([(1, an_observation([1])), (-1, an_observation([1], collection="d"))])


def test_seeds_are_averaged_query_by_query_and_their_sd_is_the_sample_sd():
    cells = [an_observation([0.0, 1.0], seed=0), an_observation([1.0, 1.0], seed=1), an_observation([0.5, 0.0], seed=2)]
    found = mean_value(cells)
    assert found.by_seed == (0.5, 1.0, 0.25)
    assert found.sd == pytest.approx(np.std([0.5, 1.0, 0.25], ddof=1))
    assert average_seeds(cells).values == pytest.approx([0.5, 2 / 3])
    assert found.basis == (2, 1, 3, 1)


def test_one_seed_has_no_sd_and_one_query_no_interval():
    found = mean_value([an_observation([0.4])])
    assert (found.sd, found.low, found.high) == (None, None, None)


def test_a_collection_without_a_value_is_neither_in_the_mean_nor_in_the_basis():
    found = mean_value([an_observation([0.5, 0.7]), an_observation([np.nan], collection="d")])
    assert found.value == pytest.approx(0.6)
    assert found.basis.collections == 1


def test_the_choice_of_bootstrap_changes_what_is_drawn():
    rng = np.random.default_rng(0)
    cells = [an_observation(level + 0.3 * rng.standard_normal(40), collection=f"c{level}") for level in (0.0, 1.0, 2.0)]
    widths = {s: (v := mean_value(cells, s)).high - v.low for s in ("queries", "collections", "collections_then_queries")}
    assert widths["queries"] < widths["collections_then_queries"] < widths["collections"]


def test_intervals_are_the_plain_percentile_ones_and_those_of_one_collection_resample_its_queries():
    one = an_observation(list(range(12)))
    plain = mean_interval([one.values], scheme="queries", method="percentile")
    for scheme in ("queries", "collections", "collections_then_queries"):
        value = mean_value([one], scheme)
        assert (value.low, value.high) == (plain.low, plain.high)
    assert plain.high < mean_interval([one.values], scheme="queries").high


def test_wins_go_by_the_direction_of_the_measure():
    cells = [an_observation([d], collection=f"c{i}") for i, d in enumerate((-0.2, -0.1, 0.3, 0.0))]
    assert (wins_value(cells, "lower").value, wins_value(cells, "higher").value) == (2, 1)
    assert wins_value(cells, "higher").of == 4
    assert (extreme_value(cells, min).value, extreme_value(cells, max).value) == (-0.2, 0.3)


def test_leads_count_shared_ones_for_each():
    levels = {"a": (0.3, 0.5), "b": (0.3, 0.1)}
    found = [an_observation([x], system=s, collection=f"c{i}") for s, row in levels.items() for i, x in enumerate(row)]
    assert [lead_value(found, ["a", "b"], s, "higher").value for s in "ab"] == [2, 1]
    assert lead_value(found, ["a", "b"], "b", "lower").value == 2


def test_percent_of_the_gap_closed():
    single, x, oc = (mean_value([an_observation([v])]) for v in (0.209, 0.130, 0.083))
    assert closed_value(single, x, oc).value == pytest.approx(62.698, abs=1e-3)


def test_discordance_takes_any_pair_of_measures_with_their_directions():
    quality = [an_observation([v], system=s) for s, v in (("a", 0.9), ("b", 0.5))]
    shaky = [an_observation([v], system=s) for s, v in (("a", 0.3), ("b", 0.1))]
    assert discordance_of(quality, shaky, ["a", "b"], ("higher", "lower")).discordant == 1
    assert discordance_of(quality, shaky, ["a", "b"], ("higher", "higher")).discordant == 0


def test_groups_keep_the_order_in_which_they_came():
    found = group_by([an_observation([1], base=b) for b in "zaz"], lambda o: o.base)
    assert [(key, len(members)) for key, members in found.items()] == [("z", 2), ("a", 1)]


class TestBold:
    def test_a_lead_on_every_seed_beyond_the_margin_is_marked(self):
        rows = [[0.21, 0.20, 0.22], [0.13, 0.12, 0.13], [0.08, 0.08, 0.09]]
        assert leading(rows, "lower", "every_seed", 0.01) == 2

    def test_one_seed_behind_is_not(self):
        assert leading([[0.5, 0.5, 0.5], [0.9, 0.9, 0.4]], "higher", "every_seed", 0.0) is None

    def test_a_lead_within_the_permutation_range_is_not(self):
        assert leading([[0.455] * 3, [0.459] * 3], "higher", "every_seed", 0.01) is None

    def test_a_row_without_all_seeds_is_compared_with_nothing(self):
        assert leading([[0.1, 0.2], [0.5]], "higher", "every_seed", 0.0) is None

    def test_a_lead_must_exceed_the_seed_sd_of_every_row_it_leads(self):
        assert leading([[0.45, 0.46], [0.459, 0.461]], "higher", "seed_spread") is None
        assert leading([[0.20, 0.21], [0.083, 0.085]], "lower", "seed_spread") == 1

    def test_equal_rows_have_no_leader(self):
        assert leading([[0.5], [0.5]], "higher", "best") is None

    @given(st.lists(st.floats(0, 1), min_size=2, max_size=5, unique=True))
    def test_a_lead_on_every_seed_is_a_lead_in_the_mean(self, levels):
        rows = [[level] * 3 for level in levels]
        found = leading(rows, "higher", "every_seed", 0.0)
        assert found is None or found == leading(rows, "higher", "best")


def test_the_permutation_range_weighs_collections_alike():
    quality = [np.array([[0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])]
    assert permutation_range(quality) == 0.0  # 0.5 and 0.5
    assert permutation_range([quality[0]]) == 1.0


def test_a_value_of_a_whole_collection_counts_as_no_query():
    cells = [an_observation([0.5], collection=name, ids=WHOLE) for name in "cd"]
    assert mean_value(cells, draws=50).basis[:2] == (0, 2)
