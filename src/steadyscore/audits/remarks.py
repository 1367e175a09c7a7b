"""What must be known to read a table of figures, one sentence each: what is not in the means, and what the cutoff does."""

from __future__ import annotations

from ..measures.measurement import Coverage, Cutoff, Measured
from .figure import Figure

NAMED = 10
"""Queries that a sentence names before it only counts."""
NEARLY_ALL = 0.95
"""Above this share kept, a threshold hardly decides anything."""


def remarks(collection: str, measured: Measured, figures: dict[str, Figure]) -> list[str]:
    sentences = [*_coverage(measured.coverage), *_cutoff(measured.cutoff)]
    if (kept := figures.get("retention")) and kept.value > NEARLY_ALL:
        sentences.append(
            f"the cutoff keeps {kept.value:.0%} of the pool, so its overlap says little. Try --match-retention 0.25 or --cutoff."
        )
    return [f"{collection}: {sentence}" for sentence in sentences]


def _coverage(coverage: Coverage) -> list[str]:
    sentences = []
    if unjudged := coverage.unjudged:
        share = f"{len(unjudged)} of {coverage.queries} queries"
        named = ", ".join(unjudged[:NAMED])
        sentences.append(f"{share} have no judgement and are not in the means that need one: {named}.")
    if missed := coverage.without_relevant:
        share, named = f"{len(missed)} of {coverage.queries} queries", ", ".join(missed[:NAMED])
        sentences.append(f"{share} have judgements but no relevant candidate; their quality counts as 0: {named}.")
    if fewer := coverage.fewer_permutations:
        share = f"{len(fewer)} of {coverage.queries} queries have fewer than {coverage.permutations[-1]} permutations"
        alone = " A query with one is in no mean that compares them." if 1 in fewer.values() else ""
        named = ", ".join(f"{query} has {count}" for query, count in list(fewer.items())[:NAMED])
        sentences.append(f"{share}: {named}.{alone}")
    return sentences


def _cutoff(cutoff: Cutoff) -> list[str]:
    if cutoff.value is None:
        return [f"no cutoff ({cutoff.how})."]
    if cutoff.fitted_on is None:
        return []
    where = f"fitted on {cutoff.fitted_on} queries in {cutoff.fitted_in}, measured on the other {cutoff.measured_on}"
    return [f"cutoff {cutoff.value:.3f}, {cutoff.how}, {where}."]
