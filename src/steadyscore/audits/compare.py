"""`steadyscore.compare`: audits against a baseline, paired by collection and query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..measures.decisions import NOISE
from ..measures.intervals import Interval, benjamini_hochberg, discordance, mean_interval, paired_interval, wins
from ..measures.measurement import Measured, Threshold
from ..measures.registry import MEASURES
from ..runs.folder import Run
from .decisions import DecisionAudit, is_measure, split_decisions
from .load import Given, collect_audits, load_runs
from .missing import missing_queries, missing_remark
from .names import with_distinct_names
from .result import Audit, Audits
from .table import html_table, text_table

if TYPE_CHECKING:
    import pandas as pd

COMPARED = (
    "ndcg@10", "ndcg@1", "tau_psi", "order_spread@10", "overlap", "retained_f1", "f1_spread", "pair_flip", "gold_crossing",
    "label_accuracy", "answer_em", "answer_f1", "answer_flip", "verdict_accuracy", "verdict_flip",
)  # fmt: skip
"""Measures that are compared where none is named and both sides have them."""
QUALITY_AND_DECISION = (("ndcg@10", "overlap"), ("ndcg@1", "pair_flip"))
"""Pairs of measures that may choose different winners (§F.2)."""

Values = dict[str, dict[str, Measured | DecisionAudit]]
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

    def to_json(self) -> dict[str, Any]:
        value, low, high, queries, *_ = self.difference
        difference = {"value": value, "low": low, "high": high, "queries": queries}
        return asdict(self) | {"difference": difference}

    def cells(self) -> list[Any]:
        """A row of the table."""
        value, low, high, *_ = self.difference
        between = f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
        won = f"{self.wins}/{self.collections}"
        return [self.variant, self.measure, self.level, between, self.adjusted_p, won, self.better]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Whether quality and decisions choose the same variant (§F.2)."""

    quality: str
    decision: str
    discordant: int
    """Collections whose best variant by quality is not the best by decision."""
    collections: int
    median_disagreement: float
    """Over collections, the share of pairs of variants that the two measures order differently."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        where = f"{self.discordant} of {self.collections} collections"
        return f"The best by {self.quality} is not the best by {self.decision} on {where}."


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every variant against the baseline. Prints as the table of `steadyscore compare`."""

    baseline: str
    contrasts: tuple[Contrast, ...]
    disagreements: tuple[Disagreement, ...]
    missing: tuple[str, ...]
    """Sentences about queries that are in no mean."""
    audits: Audits
    """What was compared, under names that tell the audits apart."""

    @property
    def header(self) -> tuple[str, ...]:
        return ("variant", "measure", "level", f"minus {self.baseline}", "adjusted p", "wins", "better")

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*map(str, self.disagreements), *self.missing)

    def to_json(self) -> dict[str, Any]:
        """As `steadyscore compare --json` prints it."""
        return {
            "baseline": self.baseline,
            "contrasts": [contrast.to_json() for contrast in self.contrasts],
            "discordance": [disagreement.to_json() for disagreement in self.disagreements],
            "missing": list(self.missing),
        }

    def to_pandas(self) -> pd.DataFrame:
        """A row per variant and measure."""
        import pandas as pd

        return pd.DataFrame([row | row.pop("difference") for row in self.to_json()["contrasts"]])

    def report(self, folder: str | Path) -> Path:
        """Write the page of all audits, with quality against decision; returns its path."""
        return self.audits.report(folder)

    def __str__(self) -> str:
        table = text_table(self.header, [contrast.cells() for contrast in self.contrasts])
        return "\n".join([table.rstrip("\n"), *(f"\n{remark}" for remark in self.remarks)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = html_table(self.header, [contrast.cells() for contrast in self.contrasts])
        return table + "".join(f"<p>{escape(remark)}</p>" for remark in self.remarks)


def compare(
    *audits: Given,
    baseline: str | None = None,
    measures: Sequence[str] | None = None,
    threshold: Threshold | None = None,
    serving_permutations: int = 1,
) -> Comparison:
    """Compare audits, or run folders, with a baseline: differences paired by query, with intervals and adjusted p-values.

    baseline  name of a scorer; the first audit's, where none is given
    measures  what to compare; otherwise the measures of the paper's tables that the audits have
    threshold, serving_permutations  how folders are measured; audits stay as they were measured
    """
    if unknown := [name for name in measures or () if not is_measure(name)]:
        raise InputError(f"unknown measure {', '.join(unknown)}; `steadyscore measures list` prints them.")

    decided, scored = split_decisions(audits)
    if decided and scored:
        raise InputError("audits of decisions and audits of scores have no measure in common. Compare them apart.")
    if decided:
        return _compare_decisions(decided, baseline, measures)

    def load(runs: Sequence[Run]) -> list[Audit]:
        return load_runs(runs, threshold, serving_permutations)

    loaded = collect_audits(audits, load, is_measured_anew=threshold is not None or serving_permutations != 1)
    _check_comparable(loaded)
    named = Audits(with_distinct_names(loaded))
    values: Values = {}
    for audit in named:
        values.setdefault(audit.name, {})[audit.collection] = audit.measured
    if len(values) < 2:
        raise InputError(f"only {next(iter(values))} is there to compare. Give a run of another scorer too.")
    against = baseline or next(iter(values))
    rows = contrasts(values, against, measures or COMPARED)
    absent = [name for name in measures or COMPARED if name not in {row.measure for row in rows}]
    if not rows or (absent and measures):
        raise InputError(f"no two runs have {', '.join(absent)} to compare. `steadyscore measures list` says what it needs.")
    disagreements = [one for pair in QUALITY_AND_DECISION if (one := disagreement(values, *pair))]
    missing = [missing_remark(audit, queries) for audit in loaded if (queries := missing_queries(audit))]
    return Comparison(against, tuple(rows), tuple(disagreements), tuple(missing), named)


def _compare_decisions(audits: Sequence[DecisionAudit], baseline: str | None, measures: Sequence[str] | None) -> Comparison:
    """Audits of decisions against the first, or the one named, paired by state."""
    values: Values = {}
    for audit in audits:
        values.setdefault(audit.name, {})[audit.collection] = audit
    if len(values) < 2:
        raise InputError(f"only {audits[0].name} is there to compare. Give an audit of another model on the same file too.")
    against = baseline or audits[0].name
    names = measures or list(dict.fromkeys(name for audit in audits for name in audit.values if not name.endswith(NOISE)))
    missing = [f"{audit.name}: {len(audit.failed)} states are in no mean." for audit in audits if audit.failed]
    return Comparison(against, tuple(contrasts(values, against, names)), (), tuple(missing), Audits([]))


def better_end(measure: str) -> str:
    """Which way a measure is better; of decisions, less is, but for accuracy."""
    return MEASURES[measure].better if measure in MEASURES else "higher" if measure.startswith("accuracy.") else "lower"


def _check_comparable(audits: Sequence[Audit]) -> None:
    """Decisions can be paired only where one threshold and one reader made them."""
    if not audits:
        raise InputError("there is nothing to compare. Give audits of two scorers, or their run folders.")
    if len({audit.threshold for audit in audits}) > 1:
        raise InputError(
            "these runs were audited with different thresholds. Give one for all: --match-retention SHARE or --cutoff X|f1."
        )
    for collection in dict.fromkeys(audit.collection for audit in audits):
        readers = {audit.reader for audit in audits if audit.collection == collection} - {None}
        if len(readers) > 1:
            raise InputError(
                f"the audits on {collection} were read by different readers: {', '.join(sorted(map(str, readers)))}."
            )


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
        Contrast(variant, name, level, difference, float(p), won, count, better_end(name))
        for (variant, name, level, difference, won, count), p in zip(raw, adjusted, strict=True)
    ]


def _wins(name: str, a: list[np.ndarray], b: list[np.ndarray]) -> int:
    """Collections on which the variant is better, whichever way that is."""
    return wins(b, a).wins if better_end(name) == "lower" else wins(a, b).wins


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


def disagreement(values: Values, quality: str, decision: str) -> Disagreement | None:
    """Whether the best by quality is the best by decision, collection by collection; None below two full variants."""
    collections = sorted(set.intersection(*(set(by_collection) for by_collection in values.values())))
    table = {
        name: [
            [float(np.nanmean(measured[c].values[name])) if name in measured[c].values else np.nan for c in collections]
            for measured in values.values()
        ]
        for name in (quality, decision)
    }
    if len(values) < 2 or not collections or np.isnan([table[quality], table[decision]]).any():
        return None
    sign = -1 if MEASURES[decision].better == "lower" else 1
    between = discordance(np.array(table[quality]), sign * np.array(table[decision]))
    return Disagreement(quality, decision, between.discordant, between.collections, between.median)
