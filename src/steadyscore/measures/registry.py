"""Every measure under the name it is printed with.

A measure is data: a name that tables, files, gates and the command line spell alike, one sentence, which way is
better, what it needs, and a function from a stack of equally sized queries to one value per query. NaN means
undefined for that query; undefined queries are counted and never averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..terms import Array
from . import instability, preference, ranking, retained_sets

Better = Literal["higher", "lower", "neither"]

JUDGED, MOVES, PAIR = ("relevance",), ("permutations", "moves"), ("permutations", "pair")
GOLD, CUTOFF, ORDERS, PLACES = ((*MOVES, need) for need in ("relevance", "cutoff", "orders", "places"))
GOLD_ORDERS, SET_GOLD = (*GOLD, "orders"), (*CUTOFF, "relevance")
"""The needs that several measures share."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Queries with equally many permutations and candidates, side by side."""

    scores: Array
    """(Q, M, n)"""
    first_stage: Array | None
    """(Q, n) scores in first-stage order"""
    relevance: Array
    """(Q, n), NaN where not judged"""
    ideal: Array
    """(Q, J) relevance of all judged documents, padded with NaN"""
    orders: Array | None
    """(Q, M, n) position -> column"""
    retained: Array | None = None
    """(Q, M, n) what the threshold keeps; None where nothing decides"""
    decided: Array | None = None
    """(Q,) about which queries the threshold decides: those that its cutoff was not fitted on"""
    by_rank: Array | None = None
    """(Q, M, n) numbers that rank as another tie rule does; None: the scores, whose ties go to the smaller id"""
    first_by_rank: Array | None = None
    """(Q, n) those of the first-stage order"""

    @property
    def ranked(self) -> Array:
        """(Q, M, n) what every measure that ranks or selects is a function of."""
        return self.scores if self.by_rank is None else self.by_rank

    @property
    def served(self) -> Array:
        """(Q, P, n) what quality is measured on: the first-stage order where it was scored, else every permutation (§5)."""
        first = self.first_stage if self.first_by_rank is None else self.first_by_rank
        return self.ranked if first is None else first[:, None, :]

    def quality(self, k: int) -> Array:
        """(Q, M) nDCG@k of every permutation."""
        return ranking.ndcg(self.ranked, self.relevance, k, judged_gains=self.ideal)


NEEDS: dict[str, Callable[[Stack], Array | bool]] = {
    "permutations": lambda s: s.scores.shape[1] > 1,
    "moves": lambda s: s.scores.shape[2] > 1,  # one candidate has one order
    "pair": lambda s: s.scores.shape[2] == 2,
    "relevance": lambda s: np.logical_or.reduce(~np.isnan(s.ideal), axis=-1),
    "orders": lambda s: s.orders is not None,
    "cutoff": lambda s: False if s.decided is None else s.decided,
    # a whole collection, a reader, a second scoring: nothing that a stack has
    **dict.fromkeys(("places", "reader", "perturbed"), lambda s: False),
}
"""What a query must have for a value: a test that says of which queries of a stack it holds, (Q,), or of all alike."""


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    summary: str
    better: Better
    needs: tuple[str, ...]
    """Keys of NEEDS."""
    value: Callable[[Stack], Array] | None = None
    """Per query; None for a measure of a whole collection or of another input."""


def _present(array: Array | None) -> Array:
    """An array that `needs` promised."""
    assert array is not None
    return array


def _served(function: Callable[..., Array], *options: Any, ideal: bool = True) -> Callable[[Stack], Array]:
    def value(s: Stack) -> Array:
        extra = {"judged_gains": s.ideal} if ideal else {}
        mean: Array = function(s.served, s.relevance, *options, **extra).mean(axis=-1)
        return mean

    return value


def _permuted(function: Callable[..., Array], k: int) -> Callable[[Stack], Array]:
    return lambda s: function(s.ranked, s.relevance, k, judged_gains=s.ideal)


def _ranking_measures(k: int) -> list[Measure]:
    return [
        Measure(f"ndcg@{k}", f"nDCG@{k} in first-stage order, or over all permutations where that was not scored", "higher",
                JUDGED, _served(ranking.ndcg, k)),
        Measure(f"mean_ndcg@{k}", f"mean over permutations of nDCG@{k}", "higher", GOLD, _permuted(ranking.mean_ndcg, k)),
        Measure(f"worst_ndcg@{k}", f"nDCG@{k} of each query's worst permutation", "higher", GOLD,
                _permuted(ranking.worst_ndcg, k)),
        Measure(f"best_ndcg@{k}", f"nDCG@{k} of each query's best permutation", "higher", GOLD, _permuted(ranking.best_ndcg, k)),
        Measure(f"order_spread@{k}", f"mean minus worst permutation's nDCG@{k}", "lower", GOLD,
                _permuted(ranking.order_spread, k)),
        Measure(f"delta_ndcg@{k}", f"best minus worst permutation's nDCG@{k}", "lower", GOLD,
                lambda s: instability.delta_ndcg(s.quality(k))),
    ]  # fmt: skip


def _chance(k: int) -> Measure:
    return Measure(f"chance@{k}", f"nDCG@{k} that a random order of the pool has on average", "neither", JUDGED,
                   lambda s: ranking.chance_ndcg(s.relevance, k, judged_gains=s.ideal))  # fmt: skip


def _by_placement(function: Callable[[Array, Array], Array]) -> Callable[[Stack], Array]:
    """A measure of nDCG@10 by the third of the presentation that holds the strongest positive."""
    return lambda s: function(s.quality(10), instability.buckets(_present(s.orders), s.relevance))


def _scores(function: Callable[..., Array], **options: Any) -> Callable[[Stack], Array]:
    return lambda s: function(s.scores, **options)


def _ranks(function: Callable[..., Array], **options: Any) -> Callable[[Stack], Array]:
    return lambda s: function(s.ranked, **options)


def _sets(function: Callable[..., Array], *, gold: bool = False) -> Callable[[Stack], Array]:
    return lambda s: function(s.retained, s.relevance) if gold else function(s.retained)


def _ranks_and_gold(function: Callable[..., Array]) -> Callable[[Stack], Array]:
    return lambda s: function(s.ranked, s.relevance)


MEASURES: dict[str, Measure] = {
    m.name: m
    for m in [
        # quality
        *_ranking_measures(10),
        *_ranking_measures(1),
        _chance(10),
        Measure("map", "mean average precision", "higher", JUDGED, _served(ranking.average_precision)),
        Measure("mrr", "reciprocal rank of the first relevant candidate", "higher", JUDGED,
                _served(ranking.reciprocal_rank, ideal=False)),
        Measure("recall@10", "share of the relevant documents among the first 10", "higher", JUDGED, _served(ranking.recall, 10)),
        # order instability
        Measure("tau_psi", "order instability: 0 identical rankings, 0.5 unrelated, 1 reversed", "lower", MOVES,
                _ranks(instability.tau_psi)),
        Measure("tau_psi_input_position", "tau_psi with ties broken by input position", "lower", ORDERS,
                lambda s: instability.tau_psi(s.scores, "input_position", s.orders)),
        Measure("tau_b_psi", "tau_psi on scores, ties counted as ties", "lower", MOVES, _scores(instability.tau_b_psi)),
        Measure("top10_instability", "1 - rank-biased overlap of the first 10", "lower", MOVES,
                _ranks(instability.top_k_instability, k=10)),
        Measure("zeng_psi@10", "1 - min/max of nDCG@10 by where the strongest positive stands", "lower", GOLD_ORDERS,
                _by_placement(instability.zeng_psi)),
        Measure("zeng_psi_corpus@10", "zeng_psi on bucket means of the whole collection", "lower", GOLD_ORDERS),
        Measure("placed_delta_ndcg@10", "nDCG@10 with the strongest positive at either end minus in the middle", "neither",
                GOLD_ORDERS, _by_placement(instability.delta_ndcg)),
        Measure("score_variance", "variance of a candidate's score over permutations", "lower", MOVES,
                _scores(instability.score_variance)),
        Measure("rank_variance", "variance of a candidate's rank over permutations", "lower", MOVES,
                _ranks(instability.rank_variance)),
        Measure("gold_rank_variance", "rank_variance of the relevant candidates", "lower", GOLD,
                _ranks_and_gold(instability.gold_rank_variance)),
        Measure("normalized_residual", "order residual against score dispersion", "lower", MOVES,
                _scores(instability.normalized_residual)),
        Measure("tied_pairs", "share of all candidate pairs with equal scores", "neither", (), _scores(instability.tied_pairs)),
        Measure("adjacent_ties", "share of neighbours in the ranking with equal scores", "neither", (),
                _scores(instability.adjacent_ties)),
        Measure("tie_sensitivity_top10", "share of top-10 sets that a tie-break made", "lower", (),
                lambda s: instability.tie_sensitivity(s.scores, "top_k", 10, s.orders)),
        Measure("tie_sensitivity_pair", "share of chosen/rejected pairs that a tie-break made", "lower", (),
                lambda s: instability.tie_sensitivity(s.scores, "pair", orders=s.orders)),
        Measure("slot_share", "share of order variance that the slot explains", "neither", PLACES),
        Measure("window_share", "share of order variance that the window index explains", "neither", PLACES),
        Measure("companion_share", "share of order variance left to companions", "neither", PLACES),
        Measure("slot_rms", "root mean square of the slot profile ψ(p)", "lower", PLACES),
        # the threshold consumer
        Measure("overlap", "Jaccard of the sets retained under two permutations", "higher", CUTOFF, _sets(retained_sets.overlap)),
        Measure("overlap_nonempty", "overlap without the pairs in which both sets are empty", "higher", CUTOFF,
                _sets(retained_sets.overlap_nonempty)),
        Measure("chance_overlap", "overlap of sets of the same sizes drawn at random", "neither", CUTOFF,
                _sets(retained_sets.chance_overlap)),
        Measure("empty_sets", "share of permutations under which nothing is retained", "neither", CUTOFF,
                _sets(retained_sets.empty_sets)),
        Measure("retained_f1", "F1 of the retained set", "higher", SET_GOLD, _sets(retained_sets.retained_f1, gold=True)),
        Measure("f1_spread", "mean minus worst permutation's retained-set F1", "lower", SET_GOLD,
                _sets(retained_sets.f1_spread, gold=True)),
        Measure("retention", "share of the pool that is retained", "neither", CUTOFF, _sets(retained_sets.retention)),
        Measure("set_flip_rate", "of what is ever retained, the share not always retained", "lower", CUTOFF,
                _sets(retained_sets.set_flip_rate)),
        Measure("churned_relevance", "relevance density of documents retained by one of two permutations", "neither", SET_GOLD,
                lambda s: retained_sets.churned_relevance(_present(s.retained), s.relevance)[0]),
        Measure("kept_relevance", "relevance density of documents retained by both", "neither", SET_GOLD,
                lambda s: retained_sets.churned_relevance(_present(s.retained), s.relevance)[1]),
        Measure("overlap@10", "Jaccard of the first 10 under two permutations: a budget instead of a cutoff", "higher", MOVES,
                lambda s: retained_sets.overlap(retained_sets.retained_top_k(s.ranked, 10))),
        # the preference consumer
        Measure("pair_flip", "how often two permutations select another chosen/rejected pair", "lower", MOVES,
                _ranks(preference.pair_flip)),
        Measure("pair_flip_modal", "pair_flip by the released code's estimator, 1 - modal share", "lower", MOVES,
                _ranks(preference.pair_flip, estimator="modal")),
        Measure("selection_flip", "how often two permutations choose another response", "lower", MOVES,
                _ranks(preference.selection_flip)),
        Measure("selected_quality_flip", "how often two permutations choose a response of another grade", "lower", GOLD,
                _ranks_and_gold(preference.selected_quality_flip)),
        Measure("gold_crossing", "share of queries whose first response is gold under some permutations only", "lower", GOLD,
                _ranks_and_gold(preference.gold_crossing)),
        Measure("label_accuracy", "accuracy of labels made from one permutation", "higher", GOLD,
                _ranks_and_gold(preference.label_accuracy)),
        Measure("label_accuracy_averaged", "accuracy of labels made from the mean of all permutations", "higher", GOLD,
                lambda s: preference.label_accuracy_at_k(s.scores, s.relevance)),
        # pools of two candidates
        Measure("swap_flip", "share of pairs whose winner changes when the two change places", "lower", PAIR,
                lambda s: preference.swap_flip(s.ranked, s.orders)),
        Measure("first_place_bias", "share of pairs that whoever stands first wins in both orders, minus whoever stands second",
                "neither", (*PAIR, "orders"), lambda s: preference.first_place_bias(s.ranked, _present(s.orders))),
        Measure("swap_accuracy", "share of pairs whose better judged candidate wins in both orders", "higher",
                (*PAIR, "relevance"), lambda s: preference.swap_accuracy(s.ranked, s.relevance, s.orders)),
        Measure("benchmark_range@1", "highest minus lowest nDCG@1 a benchmark could report", "lower", GOLD),
        Measure("benchmark_sd@1", "standard deviation of that report over permutations", "lower", GOLD),
        _chance(1),
        # the reader consumer and perturbed pools: from outputs that a reader or a second scoring gives
        Measure("answer_em", "exact match of the reader's answer", "higher", ("reader",)),
        Measure("answer_f1", "token F1 of the reader's answer", "higher", ("reader",)),
        Measure("answer_flip", "how often two permutations lead to another answer", "lower", ("reader",)),
        Measure("verdict_accuracy", "accuracy of the reader's verdict", "higher", ("reader",)),
        Measure("verdict_flip", "how often two permutations lead to another verdict", "lower", ("reader",)),
        Measure("pool_psi", "rank instability of the shared candidates when the pool changes", "lower", ("perturbed",)),
        Measure("top10_changed", "share of queries whose first 10 shared candidates change with the pool",
                "lower", ("perturbed",)),
        Measure("pool_delta_ndcg@10", "change of nDCG@10 with the pool, signed", "neither", ("perturbed",)),
        Measure("pool_absolute_delta_ndcg@10", "size of that change", "lower", ("perturbed",)),
        Measure("pool_psi_drop", "pool_psi when a candidate leaves and none joins", "lower", ("perturbed",)),
        Measure("top10_changed_drop", "top10_changed when a candidate leaves and none joins", "lower", ("perturbed",)),
        Measure("pool_delta_ndcg@10_drop", "pool_delta_ndcg@10 when a candidate leaves", "neither", ("perturbed",)),
        Measure("pool_absolute_delta_ndcg@10_drop", "size of that change", "lower", ("perturbed",)),
        Measure("churn_psi_contiguous", "pool_psi where windows are slices of the order", "lower", ("perturbed",)),
        Measure("churn_psi_round_robin", "pool_psi where the order is dealt to the windows", "lower", ("perturbed",)),
        Measure("marker_tau_psi", "tau_psi over marker schemes at one order", "lower", ("perturbed",)),
        Measure("held_out_marker_tau_psi", "tau_psi over markers that no training shows, shuffled", "lower", ("perturbed",)),
        Measure("reverse_psi", "rank instability when the first stage's order is reversed", "lower", ("perturbed",)),
        Measure("reverse_ndcg@10", "nDCG@10 when the first stage's order is reversed", "higher", ("perturbed",)),
        Measure("forced_primacy@10", "nDCG@10 with the best candidate shown first, minus shown last", "neither", ("perturbed",)),
        Measure("forced_u_shape@10", "nDCG@10 with it at the ends, minus in the middle", "neither", ("perturbed",)),
        Measure("swap_psi", "rank instability when neighbours of the first stage change places", "lower", ("perturbed",)),
        Measure("first_stage_noise_psi", "rank instability under noise on the first stage's scores", "lower", ("perturbed",)),
    ]
}  # fmt: skip

FLOORED = (
    "overlap",
    "overlap@10",
    *(m.name for m in MEASURES.values() if m.value and m.better == "lower" and "permutations" in m.needs),
)
"""What a noise floor is printed beside: figures that only movement between presentations makes."""

NOT_SHARES = (
    "score_variance", "rank_variance", "gold_rank_variance", "normalized_residual", "placed_delta_ndcg@10", "first_place_bias",
)  # fmt: skip
"""Measures whose values of single queries may lie outside 0 to 1."""
OF_FEW = (
    "ndcg@10", "mean_ndcg@10", "ndcg@1", "mean_ndcg@1", "map", "mrr", "recall@10", "tau_psi", "tau_psi_input_position",
    "top10_instability", "overlap", "overlap@10", "chance_overlap", "empty_sets", "retained_f1", "retention", "pair_flip",
    "selection_flip", "selected_quality_flip", "label_accuracy",
)  # fmt: skip
"""Means over permutations, or over pairs of them: what a few of the permutations give is what all give, on average."""
