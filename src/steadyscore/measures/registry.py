"""Every measure under the name it is printed with.

A measure is data: a name that tables, files, gates and the command line spell alike, one sentence, which way is
better, what it needs, and a function from a stack of equally sized queries to one value per query. NaN means
undefined for that query; undefined queries are counted and never averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

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
    ranked: Array
    """(Q, M, n) numbers that rank as the tie rule does, the scores where ties go to the smaller id: what ranks or selects"""
    served: Array
    """(Q, P, n) what quality is measured on: the first-stage order where it was scored, else every permutation (§5)"""
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

    def quality(self, k: int) -> Array:
        """(Q, M) nDCG@k of every permutation."""
        return ranking.ndcg(self.ranked, self.relevance, k, judged_gains=self.ideal)

    def thirds(self) -> Array:
        """(Q, M) the third of each presentation that holds the strongest positive."""
        assert self.orders is not None
        return instability.buckets(self.orders, self.relevance)


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

Value = Callable[[Stack], Array]


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    summary: str
    better: Better
    needs: tuple[str, ...]
    """Keys of NEEDS."""
    value: Value | None = None
    """Per query; None for a measure of a whole collection or of another input."""


def _reads(*fields: str) -> Callable[..., Value]:
    """Makes a measure of a function of these fields of a stack, which the needs promise, and perhaps of options."""
    return lambda function, **options: lambda s: function(*(getattr(s, field) for field in fields), **options)


_scores, _ranks, _sets = _reads("scores"), _reads("ranked"), _reads("retained")
_ranks_gold, _sets_gold = _reads("ranked", "relevance"), _reads("retained", "relevance")


def _churned(place: int) -> Value:
    """The relevance density of churned documents, or of kept ones."""
    return lambda s: _sets_gold(retained_sets.churned_relevance)(s)[place]


Row = tuple[str, str, Better, tuple[str, ...], Value | None]
"""A measure, field by field."""


def _ranking(k: int) -> list[Row]:
    ndcg = f"nDCG@{k}"
    return [
        (f"ndcg@{k}", f"{ndcg} in first-stage order, or over all permutations where that was not scored", "higher", JUDGED,
         lambda s: ranking.ndcg(s.served, s.relevance, k, judged_gains=s.ideal).mean(axis=-1)),
        (f"mean_ndcg@{k}", f"mean over permutations of {ndcg}", "higher", GOLD, lambda s: s.quality(k).mean(axis=-1)),
        (f"worst_ndcg@{k}", f"{ndcg} of each query's worst permutation", "higher", GOLD, lambda s: s.quality(k).min(axis=-1)),
        (f"best_ndcg@{k}", f"{ndcg} of each query's best permutation", "higher", GOLD, lambda s: s.quality(k).max(axis=-1)),
        (f"order_spread@{k}", f"mean minus worst permutation's {ndcg}", "lower", GOLD, lambda s: ranking.spread(s.quality(k))),
        (f"delta_ndcg@{k}", f"best minus worst permutation's {ndcg}", "lower", GOLD,
         lambda s: instability.delta_ndcg(s.quality(k))),
    ]  # fmt: skip


def _chance(k: int) -> Row:
    summary = f"nDCG@{k} that a random order of the pool has on average"
    return f"chance@{k}", summary, "neither", JUDGED, lambda s: ranking.chance_ndcg(s.relevance, k, judged_gains=s.ideal)


def _given(need: str, *rows: tuple[str, str, Better]) -> Iterator[Row]:
    """Measures that something else than a stack brings."""
    return ((*row, (need,), None) for row in rows)


MEASURES: dict[str, Measure] = {
    row[0]: Measure(*row)
    for row in [
        # quality
        *_ranking(10),
        *_ranking(1),
        _chance(10),
        ("map", "mean average precision", "higher", JUDGED,
         lambda s: ranking.average_precision(s.served, s.relevance, s.ideal).mean(axis=-1)),
        ("mrr", "reciprocal rank of the first relevant candidate", "higher", JUDGED,
         lambda s: ranking.reciprocal_rank(s.served, s.relevance).mean(axis=-1)),
        ("recall@10", "share of the relevant documents among the first 10", "higher", JUDGED,
         lambda s: ranking.recall(s.served, s.relevance, 10, s.ideal).mean(axis=-1)),
        # order instability
        ("tau_psi", "order instability: 0 identical rankings, 0.5 unrelated, 1 reversed", "lower", MOVES,
         _ranks(instability.tau_psi)),
        ("tau_psi_input_position", "tau_psi with ties broken by input position", "lower", ORDERS,
         lambda s: instability.tau_psi(s.scores, "input_position", s.orders)),
        ("tau_b_psi", "tau_psi on scores, ties counted as ties", "lower", MOVES, _scores(instability.tau_b_psi)),
        ("top10_instability", "1 - rank-biased overlap of the first 10", "lower", MOVES,
         _ranks(instability.top_k_instability, k=10)),
        ("zeng_psi@10", "1 - min/max of nDCG@10 by where the strongest positive stands", "lower", GOLD_ORDERS,
         lambda s: instability.zeng_psi(s.quality(10), s.thirds())),
        ("zeng_psi_corpus@10", "zeng_psi on bucket means of the whole collection", "lower", GOLD_ORDERS, None),
        ("placed_delta_ndcg@10", "nDCG@10 with the strongest positive at either end minus in the middle", "neither", GOLD_ORDERS,
         lambda s: instability.delta_ndcg(s.quality(10), s.thirds())),
        ("score_variance", "variance of a candidate's score over permutations", "lower", MOVES,
         _scores(instability.score_variance)),
        ("rank_variance", "variance of a candidate's rank over permutations", "lower", MOVES, _ranks(instability.rank_variance)),
        ("gold_rank_variance", "rank_variance of the relevant candidates", "lower", GOLD,
         _ranks_gold(instability.gold_rank_variance)),
        ("normalized_residual", "order residual against score dispersion", "lower", MOVES,
         _scores(instability.normalized_residual)),
        ("tied_pairs", "share of all candidate pairs with equal scores", "neither", (), _scores(instability.tied_pairs)),
        ("adjacent_ties", "share of neighbours in the ranking with equal scores", "neither", (),
         _scores(instability.adjacent_ties)),
        ("tie_sensitivity_top10", "share of top-10 sets that a tie-break made", "lower", (),
         lambda s: instability.tie_sensitivity(s.scores, "top_k", 10, s.orders)),
        ("tie_sensitivity_pair", "share of chosen/rejected pairs that a tie-break made", "lower", (),
         lambda s: instability.tie_sensitivity(s.scores, "pair", orders=s.orders)),
        ("slot_share", "share of order variance that the slot explains", "neither", PLACES, None),
        ("window_share", "share of order variance that the window index explains", "neither", PLACES, None),
        ("companion_share", "share of order variance left to companions", "neither", PLACES, None),
        ("slot_rms", "root mean square of the slot profile ψ(p)", "lower", PLACES, None),
        # the threshold consumer
        ("overlap", "Jaccard of the sets retained under two permutations", "higher", CUTOFF, _sets(retained_sets.overlap)),
        ("overlap_nonempty", "overlap without the pairs in which both sets are empty", "higher", CUTOFF,
         _sets(retained_sets.overlap_nonempty)),
        ("chance_overlap", "overlap of sets of the same sizes drawn at random", "neither", CUTOFF,
         _sets(retained_sets.chance_overlap)),
        ("empty_sets", "share of permutations under which nothing is retained", "neither", CUTOFF,
         _sets(retained_sets.empty_sets)),
        ("retained_f1", "F1 of the retained set", "higher", SET_GOLD, _sets_gold(retained_sets.retained_f1)),
        ("f1_spread", "mean minus worst permutation's retained-set F1", "lower", SET_GOLD, _sets_gold(retained_sets.f1_spread)),
        ("retention", "share of the pool that is retained", "neither", CUTOFF, _sets(retained_sets.retention)),
        ("set_flip_rate", "of what is ever retained, the share not always retained", "lower", CUTOFF,
         _sets(retained_sets.set_flip_rate)),
        ("churned_relevance", "relevance density of documents retained by one of two permutations", "neither", SET_GOLD,
         _churned(0)),
        ("kept_relevance", "relevance density of documents retained by both", "neither", SET_GOLD, _churned(1)),
        ("overlap@10", "Jaccard of the first 10 under two permutations: a budget instead of a cutoff", "higher", MOVES,
         lambda s: retained_sets.overlap(retained_sets.retained_top_k(s.ranked, 10))),
        # the preference consumer
        ("pair_flip", "how often two permutations select another chosen/rejected pair", "lower", MOVES,
         _ranks(preference.pair_flip)),
        ("pair_flip_modal", "pair_flip by the released code's estimator, 1 - modal share", "lower", MOVES,
         _ranks(preference.pair_flip, estimator="modal")),
        ("selection_flip", "how often two permutations choose another response", "lower", MOVES,
         _ranks(preference.selection_flip)),
        ("selected_quality_flip", "how often two permutations choose a response of another grade", "lower", GOLD,
         _ranks_gold(preference.selected_quality_flip)),
        ("gold_crossing", "share of queries whose first response is gold under some permutations only", "lower", GOLD,
         _ranks_gold(preference.gold_crossing)),
        ("label_accuracy", "accuracy of labels made from one permutation", "higher", GOLD,
         _ranks_gold(preference.label_accuracy)),
        ("label_accuracy_averaged", "accuracy of labels made from the mean of all permutations", "higher", GOLD,
         _reads("scores", "relevance")(preference.label_accuracy_at_k)),
        # pools of two candidates
        ("swap_flip", "share of pairs whose winner changes when the two change places", "lower", PAIR,
         _reads("ranked", "orders")(preference.swap_flip)),
        ("first_place_bias", "share of pairs that whoever stands first wins in both orders, minus whoever stands second",
         "neither", (*PAIR, "orders"), _reads("ranked", "orders")(preference.first_place_bias)),
        ("swap_accuracy", "share of pairs whose better judged candidate wins in both orders", "higher", (*PAIR, "relevance"),
         _reads("ranked", "relevance", "orders")(preference.swap_accuracy)),
        ("benchmark_range@1", "highest minus lowest nDCG@1 a benchmark could report", "lower", GOLD, None),
        ("benchmark_sd@1", "standard deviation of that report over permutations", "lower", GOLD, None),
        _chance(1),
        # from outputs that a reader or a second scoring gives
        *_given(
            "reader",
            ("answer_em", "exact match of the reader's answer", "higher"),
            ("answer_f1", "token F1 of the reader's answer", "higher"),
            ("answer_flip", "how often two permutations lead to another answer", "lower"),
            ("verdict_accuracy", "accuracy of the reader's verdict", "higher"),
            ("verdict_flip", "how often two permutations lead to another verdict", "lower"),
        ),
        *_given(
            "perturbed",
            ("pool_psi", "rank instability of the shared candidates when the pool changes", "lower"),
            ("top10_changed", "share of queries whose first 10 shared candidates change with the pool", "lower"),
            ("pool_delta_ndcg@10", "change of nDCG@10 with the pool, signed", "neither"),
            ("pool_absolute_delta_ndcg@10", "size of that change", "lower"),
            ("pool_psi_drop", "pool_psi when a candidate leaves and none joins", "lower"),
            ("top10_changed_drop", "top10_changed when a candidate leaves and none joins", "lower"),
            ("pool_delta_ndcg@10_drop", "pool_delta_ndcg@10 when a candidate leaves", "neither"),
            ("pool_absolute_delta_ndcg@10_drop", "size of that change", "lower"),
            ("churn_psi_contiguous", "pool_psi where windows are slices of the order", "lower"),
            ("churn_psi_round_robin", "pool_psi where the order is dealt to the windows", "lower"),
            ("marker_tau_psi", "tau_psi over marker schemes at one order", "lower"),
            ("held_out_marker_tau_psi", "tau_psi over markers that no training shows, shuffled", "lower"),
            ("reverse_psi", "rank instability when the first stage's order is reversed", "lower"),
            ("reverse_ndcg@10", "nDCG@10 when the first stage's order is reversed", "higher"),
            ("forced_primacy@10", "nDCG@10 with the best candidate shown first, minus shown last", "neither"),
            ("forced_u_shape@10", "nDCG@10 with it at the ends, minus in the middle", "neither"),
            ("swap_psi", "rank instability when neighbours of the first stage change places", "lower"),
            ("first_stage_noise_psi", "rank instability under noise on the first stage's scores", "lower"),
        ),
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
    "slot_rms", "pool_delta_ndcg@10", "pool_delta_ndcg@10_drop", "forced_primacy@10", "forced_u_shape@10",
)  # fmt: skip
"""Measures whose values may lie outside 0 to 1; those of all others, and their means, lie in it."""
OF_FEW = (
    "ndcg@10", "mean_ndcg@10", "ndcg@1", "mean_ndcg@1", "map", "mrr", "recall@10", "tau_psi", "tau_psi_input_position",
    "top10_instability", "overlap", "overlap@10", "chance_overlap", "empty_sets", "retained_f1", "retention", "pair_flip",
    "selection_flip", "selected_quality_flip", "label_accuracy",
)  # fmt: skip
"""Means over permutations, or over pairs of them: what a few of the permutations give is what all give, on average."""
