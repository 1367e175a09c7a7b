"""How much to score: permutations and queries for a margin (beyond the paper).

Most measures here are means over pairs of permutations (τ-PSI, overlap, flips). A pilot gives, per query, the symmetric
matrix of pair values (M, M), as `measures.measurement.pair_values` makes it; its diagonal is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..machine.places import Place
from ..measures.measurement import pair_values
from ..measures.stopping import StoppingAnswer, decide
from ..measures.threshold import Threshold
from ..results.load import load_run
from ..results.render import Printed
from ..results.table import Table, table_of
from ..runs.folder import find_run

PERMUTATIONS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40)
SMALLEST_MARGIN = 1e-6
Z = NormalDist().inv_cdf(0.975)
PLANNED = ("tau_psi", "overlap", "pair_flip", "selection_flip", "ndcg@10", "ndcg@1")
"""Measures that can be planned for."""


class Pilot(NamedTuple):
    """Variance components of a mean pairwise statistic."""

    value: float
    between: float
    """Variance of the true per-query value."""
    shared: float
    """ζ₁: covariance of two pair values that share one permutation, mean over queries."""
    pair: float
    """ζ₂: variance of one pair value, mean over queries."""
    permutations: int
    queries: int


class StudyNeed(NamedTuple):
    permutations: int
    queries: int
    half_width: float
    """Expected half-width of the interval over queries."""
    scorings: int
    """permutations x queries: what it costs."""


@dataclass(frozen=True, slots=True)
class StudyPlan(Printed):
    """What a margin costs. Prints as the table of `steadyscore study plan`."""

    measure: str
    pilot: Pilot
    margin: float
    required: tuple[StudyNeed, ...]
    left_out: int
    """Pools of the pilot of which every order was shown: they have fewer permutations than the others."""
    bound: float | None = None
    answer: StoppingAnswer | None = None
    """Whether the measure is below `bound`, where that was asked."""

    def to_json(self) -> dict[str, object]:
        """As `steadyscore study plan --json` prints it."""
        return {
            "measure": self.measure,
            "pilot": self.pilot._asdict(),
            "margin": self.margin,
            "required": [need._asdict() for need in self.required],
            "is_below": None if self.answer is None else {"bound": self.bound, **self.answer._asdict()},
        }

    def tables(self) -> list[Table]:
        small = f"; {self.left_out} pools of which every order was shown left out" if self.left_out else ""
        size = f"{self.pilot.queries} queries, {self.pilot.permutations} permutations{small}"
        which = ", mean over the permutations," if self.measure.startswith("ndcg") else ""
        title = (
            f"{self.measure}{which} is {self.pilot.value:.3f} in the pilot ({size}); "
            f"for a half-width of {self.margin:g} it needs one of:"
        )
        return [
            table_of(["permutations", "queries", "half-width", "scorings"], self.required, title=title, notes=self._answers())
        ]

    def _answers(self) -> list[str]:
        if self.answer is None:
            return []
        words = {"below": "yes", "at_least": "no", "undecided": "not decided"}[self.answer.answer]
        return [f"Is {self.measure} below {self.bound:g}? {words}, after {self.answer.queries} queries (error rate 5 %)."]


def plan(
    folder: str | Place, measure: str, margin: float, *, is_below: float | None = None, threshold: Threshold | None = None
) -> StudyPlan:
    """What a half-width of `margin` costs, from the pilot run of a folder; and whether the measure lies below a bound."""
    audit = load_run(find_run(folder), threshold)
    measured = audit.measured
    if measure not in measured.values:
        raise InputError(f"{folder} has no {measure}; it has {', '.join(measured.values)}.")
    tested, most = ~np.isnan(measured.values[measure]), measured.coverage.permutations[-1]
    counted = [(place, query) for place, query in enumerate(audit.queries) if tested[place]]
    whole = [query.query_id for _, query in counted if query.has_every_order and len(query.permuted) < most]
    pairs = [pair_values(q, measure, measured.cutoff.of(place)) for place, q in counted if q.query_id not in whole]
    components = pilot(pairs)
    is_quality = measure.startswith("ndcg")  # planned over permutations, as every other measure; reported in one order
    values = np.array([matrix.diagonal().mean() for matrix in pairs]) if is_quality else measured.values[measure]
    needs = tuple(required_queries(components, margin))
    answer = None if is_below is None else decide(values, is_below)
    return StudyPlan(measure, components, margin, needs, len(whole), is_below, answer)


def pilot(pairs: Sequence[ArrayLike]) -> Pilot:
    """Components from the pair matrices (M, M) of the pilot's queries; M must be equal and at least 4.

    The value of a query is a U-statistic of order two over its permutations, so (Hoeffding 1948)

        Var(mean over pairs | query) = 2 / (M (M - 1)) * (2 (M - 2) ζ₁ + ζ₂)
        Var(mean over Q queries)     = (between + the query-mean of that) / Q.

    ζ₁ = E[h(1,2) h(1,3)] - θ² and ζ₂ = E[h(1,2)²] - θ² are estimated without bias per query from products of pairs that
    share one, two or no permutation. `between` is what the spread over queries exceeds the within part by. Each is floored
    at 0 once, after averaging. Queries with a NaN among their pairs are left out.
    """
    is_even = len({np.shape(one) for one in pairs}) == 1
    h = np.array(pairs if is_even else [], float)  # (Q, M, M)
    if h.ndim != 3 or h.shape[1] != h.shape[2] or h.shape[1] < 4:
        raise InputError("planning needs a pilot with at least 4 permutations, the same number for every query; score more.")
    m = h.shape[1]
    h[:, np.arange(m), np.arange(m)] = 0
    h = h[~np.isnan(h).any(axis=(1, 2))]
    if len(h) < 2:
        raise InputError(f"planning needs a pilot with at least 2 queries that have a value; this one has {len(h)}.")
    # Sums over ordered index tuples; h(i,j) h(k,l) falls into: same pair, one shared index, none.
    total, same = h.sum(axis=(1, 2)), (h**2).sum(axis=(1, 2))
    one_shared = (h.sum(axis=2) ** 2).sum(axis=1) - same
    none_shared = total**2 - 4 * one_shared - 2 * same
    squared = none_shared / (m * (m - 1) * (m - 2) * (m - 3))  # θ² of each query
    shared = max(np.mean(one_shared / (m * (m - 1) * (m - 2)) - squared), 0.0)
    pair = max(np.mean(same / (m * (m - 1)) - squared), 0.0)
    values = total / (m * (m - 1))
    between = max(values.var(ddof=1) - _within(shared, pair, m), 0.0)
    return Pilot(float(values.mean()), float(between), float(shared), float(pair), m, len(h))


def half_width(components: Pilot, permutations: int, queries: int) -> float:
    """Expected half-width of the 95 % interval over queries, by the normal approximation."""
    return Z * float(np.sqrt(_query_variance(components, permutations) / queries))


def required_queries(components: Pilot, margin: float) -> list[StudyNeed]:
    """For each of some numbers of permutations, the queries whose expected half-width is at most `margin`; at least 2 of each."""
    if not margin >= SMALLEST_MARGIN:
        raise InputError(f"the margin must be at least {SMALLEST_MARGIN:g}, not {margin:g}: it is a half-width of the measure.")
    rows = []
    for m in PERMUTATIONS:
        queries = max(2, ceil(_query_variance(components, m) * (Z / margin) ** 2 - 1e-9))
        rows.append(StudyNeed(m, queries, half_width(components, m, queries), m * queries))
    return rows


def _within(shared: float, pair: float, m: int) -> float:
    return 2 / (m * (m - 1)) * (2 * (m - 2) * shared + pair)


def _query_variance(components: Pilot, permutations: int) -> float:
    return components.between + _within(components.shared, components.pair, permutations)
