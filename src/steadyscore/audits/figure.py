"""A mean over queries with its interval, as every table, page and JSON shows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..measures.intervals import FEWEST, Interval, mean_interval, paired_interval
from ..measures.measurement import Measured
from ..measures.ranking import unless_nan
from ..measures.registry import FLOORED, MEASURES


@dataclass(frozen=True, slots=True)
class Figure:
    """The mean of a measure over queries."""

    value: float
    low: float | None
    """Ends of the 95 % interval; None where one query has no spread, or only the whole collection has the measure."""
    high: float | None
    queries: int
    floor: float | None = None
    """What scoring the same order again gives, where a noise floor was measured."""
    is_above_floor: bool | None = None
    """Whether the whole interval is on the far side of the floor."""

    def to_json(self) -> dict[str, Any]:
        floor = {} if self.floor is None else {"floor": self.floor, "above_floor": self.is_above_floor}
        return {
            "value": unless_nan(self.value),
            "low": self.low,
            "high": self.high,
            "queries": self.queries,
        } | floor

    def __str__(self) -> str:
        if self.low is None:
            return "-" if np.isnan(self.value) else f"{self.value:.3f}"
        floor = "" if self.floor is None else f" floor {self.floor:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]{floor}"


def mean_figure(values: np.ndarray) -> Figure:
    """The mean of (Q,) values, NaN left out."""
    value, low, high, queries, *_ = mean_interval([values], scheme="queries")
    return Figure(value, low if queries > 1 else None, high if queries > 1 else None, queries)


def paired_gain(name: str, after: Measured, before: Measured) -> Interval | None:
    """The mean of one side's measure minus the other's, over the queries that both have; None where they are too few to tell."""
    if name not in after.values or name not in before.values:
        return None
    mine, other = after.values[name], before.values[name]
    if before.query_ids != after.query_ids:
        known = dict(zip(before.query_ids, other, strict=True))
        other = np.array([known.get(query_id, np.nan) for query_id in after.query_ids])
    return paired_interval([mine], [other], scheme="queries") if (~np.isnan(mine - other)).sum() >= FEWEST else None


def mean_figures(measured: Measured, floor: Measured | None = None) -> dict[str, Figure]:
    """Every measure of a run; an instability beside its noise floor where one was measured."""
    figures = {name: mean_figure(values) for name, values in measured.values.items()}
    if floor is not None:
        for name in figures.keys() & floor.values.keys() & set(FLOORED):
            figures[name] = beside_floor(figures[name], float(np.nanmean(floor.values[name])), MEASURES[name].better)
    whole = {name: Figure(value, None, None, len(measured.query_ids)) for name, value in measured.overall.items()}
    return figures | whole


def beside_floor(figure: Figure, floor: float, better: str) -> Figure:
    """A figure with what identical requests give, and whether its whole interval is on the far side of that."""
    low, high = (figure.value if end is None else end for end in (figure.low, figure.high))
    return replace(figure, floor=floor, is_above_floor=bool(high < floor if better == "higher" else low > floor))
