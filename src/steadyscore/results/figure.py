"""A mean over queries with its interval, as every table, page and JSON shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple, Protocol

import numpy as np

from ..measures.intervals import FEWEST, Interval, mean_interval, paired_interval
from ..measures.measurement import Measured
from ..measures.ranking import unless_nan
from ..measures.registry import FLOORED, MEASURES
from ..terms import JsonObject

POWER = (NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)) / NormalDist().inv_cdf(0.975)
"""Half-widths of a 95 % interval that a true difference must have, to be shown in 8 of 10 studies: 1.43."""


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
    """Whether orders move it beyond the floor, by the interval of the difference; None where too few queries were read again."""

    @classmethod
    def of(cls, interval: Interval) -> Figure:
        return cls(interval.value, unless_nan(interval.low), unless_nan(interval.high), interval.queries)

    @property
    def detectable(self) -> float | None:
        """The smallest difference that so many queries show in 8 of 10 studies, at a two-sided 5 %; None without an interval."""
        return None if self.low is None or self.high is None else POWER * (self.high - self.low) / 2

    def to_json(self) -> JsonObject:
        floor = {} if self.floor is None else {"floor": self.floor, "above_floor": self.is_above_floor}
        return {
            "value": unless_nan(self.value),
            "low": self.low,
            "high": self.high,
            "queries": self.queries,
        } | floor

    def __str__(self) -> str:
        return self.shown()

    def shown(self, sign: str = "", *, with_interval: bool = True) -> str:
        """`0.812 [0.790, 0.834]`, and the noise floor where there is one; differences are signed with `+`."""
        if self.low is None or not with_interval:
            return "-" if np.isnan(self.value) else f"{self.value:{sign}.3f}"
        floor = "" if self.floor is None else f" floor {self.floor:.3f}"
        return f"{self.value:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]{floor}"


def mean_figure(values: np.ndarray) -> Figure:
    """The mean of (Q,) values, NaN left out."""
    return Figure.of(mean_interval([values], scheme="queries"))


class ByQuery(Protocol):
    """Measures query by query: of a run, or of an audit of decisions."""

    @property
    def query_ids(self) -> Sequence[str]: ...
    @property
    def values(self) -> Mapping[str, np.ndarray]: ...


def paired_gain(name: str, after: ByQuery, before: ByQuery) -> Interval | None:
    """The mean of one side's measure minus the other's, over the queries that both have; None where they are too few to tell."""
    if name not in after.values or name not in before.values:
        return None
    mine, other = after.values[name], before.values[name]
    if before.query_ids != after.query_ids:
        known = dict(zip(before.query_ids, other, strict=True))
        other = np.array([known.get(query_id, np.nan) for query_id in after.query_ids])
    return paired_interval([mine], [other], scheme="queries") if (~np.isnan(mine - other)).sum() >= FEWEST else None


class Floor(NamedTuple):
    """Some queries of a run, presented as often as they were read again: as many rows on both sides, and the same queries."""

    again: Measured
    """One presentation of each, read again and again."""
    permuted: Measured
    """As many of its permutations."""


def mean_figures(measured: Measured, floor: Floor | None = None) -> dict[str, Figure]:
    """Every measure of a run; an instability beside its noise floor where one was measured."""
    figures = {name: mean_figure(values) for name, values in measured.values.items()}
    if floor is not None:
        for name in figures.keys() & floor.again.values.keys() & floor.permuted.values.keys() & set(FLOORED):
            level, moved = float(np.nanmean(floor.again.values[name])), paired_gain(name, floor.permuted, floor.again)
            is_above = moved and bool(moved.high < 0 if MEASURES[name].better == "higher" else moved.low > 0)
            figures[name] = replace(figures[name], floor=level, is_above_floor=is_above)
    whole = {name: Figure(value, None, None, measured.overall_queries[name]) for name, value in measured.overall.items()}
    return figures | whole


def beside_floor(figure: Figure, floor: float) -> Figure:
    """A figure that is better lower, with what identical requests give, and whether its whole interval is above that."""
    low = figure.value if figure.low is None else figure.low
    return replace(figure, floor=floor, is_above_floor=bool(low > floor))
