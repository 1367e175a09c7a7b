"""Runs against a baseline, paired by collection and query; and bounds that a build must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, UsageError
from ..measures.intervals import Interval, benjamini_hochberg, discordance, mean_interval, paired_interval, wins
from ..measures.measurement import Measured
from ..measures.registry import MEASURES

Values = dict[str, dict[str, Measured]]
"""variant -> collection -> measures"""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A variant minus the baseline on one measure."""

    variant: str
    measure: str
    level: float
    difference: Interval
    adjusted_p: float
    """After Benjamini-Hochberg over every contrast of the comparison."""
    wins: int
    """Collections on which the variant is better than the baseline."""
    collections: int
    better: str


def contrasts(values: Values, baseline: str, measures: Sequence[str]) -> list[Contrast]:
    """Every variant against the baseline on every measure, over the collections and queries both have (§5, aggregation)."""
    if baseline not in values:
        raise InputError(f"no run of {baseline!r} was given to compare with. Runs: {', '.join(values)}.")
    raw: list[tuple[str, str, float, Interval, int, int]] = []
    for variant in values:
        if variant == baseline:
            continue
        shared = [c for c in values[baseline] if c in values[variant]]
        if not shared:
            raise InputError(f"{variant} and {baseline} share no collection, so they cannot be paired.")
        for name in measures:
            a, b = _paired(values, variant, baseline, shared, name)
            if a:
                difference = paired_interval(a, b, scheme="collections_then_queries" if len(a) > 1 else "queries")
                raw.append((variant, name, mean_interval(a, scheme="queries").value, difference, _wins(name, a, b), len(a)))
    adjusted = benjamini_hochberg([row[3].p_value for row in raw])
    return [
        Contrast(variant, name, level, difference, float(p), won, count, MEASURES[name].better)
        for (variant, name, level, difference, won, count), p in zip(raw, adjusted, strict=True)
    ]


def _wins(name: str, a: list[np.ndarray], b: list[np.ndarray]) -> int:
    """Collections on which the variant is better, whichever way that is."""
    return wins(b, a).wins if MEASURES[name].better == "lower" else wins(a, b).wins


def _paired(
    values: Values, variant: str, baseline: str, collections: list[str], name: str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Per collection, both sides' values on the queries they share."""
    left, right = [], []
    for collection in collections:
        a, b = values[variant][collection], values[baseline][collection]
        if name in a.values and name in b.values:
            where = {query: i for i, query in enumerate(b.query_ids)}
            common = [(i, where[query]) for i, query in enumerate(a.query_ids) if query in where]
            x, y = (np.array(side, int) for side in zip(*common, strict=True)) if common else (np.empty(0, int),) * 2
            left.append(a.values[name][x])
            right.append(b.values[name][y])
    return left, right


def disagreement(values: Values, quality: str, decision: str) -> dict[str, Any] | None:
    """Whether the best by quality is the best by decision, collection by collection (§F.2); None below two full variants."""
    collections = sorted(set.intersection(*(set(found) for found in values.values())))
    table = {
        name: [
            [float(np.nanmean(found[c].values[name])) if name in found[c].values else np.nan for c in collections]
            for found in values.values()
        ]
        for name in (quality, decision)
    }
    if len(values) < 2 or not collections or np.isnan([table[quality], table[decision]]).any():
        return None
    sign = -1 if MEASURES[decision].better == "lower" else 1
    found = discordance(np.array(table[quality]), sign * np.array(table[decision]))
    return {
        "quality": quality,
        "decision": decision,
        "discordant": found.discordant,
        "collections": found.collections,
        "median_disagreement": found.median,
    }


@dataclass(frozen=True, slots=True)
class Bound:
    """One requirement of a gate: `--min overlap=0.8`, `--max tau_psi=0.1`."""

    measure: str
    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        return f"{self.measure} >= {self.least:g}" if self.least is not None else f"{self.measure} <= {self.most:g}"


def bounds(least: Sequence[str], most: Sequence[str]) -> list[Bound]:
    """Bounds as typed, `name=value`; every mistake at once."""
    found, mistakes = [], []
    for flag, texts in (("--min", least), ("--max", most)):
        for text in texts:
            name, _, number = text.partition("=")
            if name not in MEASURES:
                mistakes.append(f"{flag} {text}: unknown measure {name!r}; `steadyscore measures list` prints them.")
                continue
            try:
                value = float(number)
            except ValueError:
                mistakes.append(f"{flag} {text}: write a number, for example {flag} {name}=0.8.")
                continue
            found.append(Bound(name, least=value) if flag == "--min" else Bound(name, most=value))
    if mistakes or not found:
        raise UsageError("\n".join(mistakes or ["a gate needs at least one bound, for example --min overlap=0.8."]))
    return found
