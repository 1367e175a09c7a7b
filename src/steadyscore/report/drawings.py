"""Which figures a collection gets, from which numbers; `Audits.plot` gives one of them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..machine.disk import atomic
from ..machine.extras import PAGE, check_installed
from ..machine.names import short_repr
from ..measures import retained_sets
from ..measures.intervals import Interval, mean_interval
from ..measures.measurement import fewest_permutations, measure
from ..measures.registry import MEASURES
from ..measures.views import ScoreView
from ..results.audit import Audit, with_distinct_names
from ..results.load import match_threshold
from ..terms import JsonObject
from . import figures, sentences
from .sentences import LABELS

CUTOFFS = 31
"""Cutoffs at which overlap is drawn."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure: of the page, or of its own, which a notebook shows and `save` writes."""

    title: str
    caption: str
    svg: str
    names: list[str]
    """Scorers that it shows."""

    def __repr__(self) -> str:
        return short_repr(self, f"{self.title}: {len(self.svg):,} characters of SVG")

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, file: str | Path) -> Path:
        """Write the figure into a file that ends in .svg; returns its path."""
        path = Path(file)
        if path.suffix != ".svg":
            raise InputError(f"a figure is SVG, and {path} does not end in .svg. Name a file that does.")
        with atomic(path) as stream:
            stream.write(self.svg.encode())
        return path


@dataclass(frozen=True, slots=True)
class _Plan:
    """A figure before it is drawn."""

    kind: str
    title: str
    caption: str
    data: Callable[[], JsonObject]
    """Scorer -> what is drawn of it; empty where there is nothing to draw."""
    paint: Callable[[str, JsonObject], str]
    """Full title and data -> SVG."""


def draw_figures(audits: Sequence[Audit], decision: str | None, styles: dict[str, figures.Style]) -> list[Drawing]:
    """Every figure that the audits of a collection allow."""
    drawn = (_draw(plan, audits[0].collection) for plan in _plans(audits, decision, styles))
    return [figure for figure in drawn if figure is not None]


def _draw(plan: _Plan, collection: str) -> Drawing | None:
    if not (data := plan.data()):
        return None
    return Drawing(plan.title, plan.caption, plan.paint(f"{plan.title}: {collection}", data), list(data))


def _plans(audits: Sequence[Audit], decision: str | None, styles: dict[str, figures.Style]) -> list[_Plan]:
    k = audits[0].task.quality_cutoff
    quality = f"nDCG@{k}"
    plans = [
        _Plan(
            "spread",
            f"{quality} of every query",
            "Each line is one query, from its worst to its best order; the mark is its mean. Spread is mean minus worst."
            + _drawn_part(audits),
            lambda: _spreads(audits),
            partial(figures.draw_spread, styles=styles, measure=quality),
        ),
        _Plan(
            "slots",
            "Slot profile ψ(p)",
            "What standing in a slot adds to a candidate's score, on average. A scorer that does not mind the slot is flat at 0.",
            lambda: {audit.name: np.array(audit.measured.slot_profile, float) for audit in audits if audit.measured.slot_profile},
            partial(figures.draw_slot_profile, styles=styles),
        ),
    ]
    return plans if decision is None else plans + _decision_plans(audits, decision, styles)


def _decision_plans(audits: Sequence[Audit], decision: str, styles: dict[str, figures.Style]) -> list[_Plan]:
    k, label = audits[0].task.quality_cutoff, LABELS[decision]
    capitalised = f"{label[0].upper()}{label[1:]}"
    steady = "1 is the same decision every time" if MEASURES[decision].better == "higher" else "0 is the same decision every time"
    plans = [
        _Plan(
            "decisions",
            "Decisions, query by query",
            f"{capitalised} of every query, sorted; {steady}." + _drawn_part(audits),
            lambda: {audit.name: audit.measured.values[decision] for audit in audits},
            partial(figures.by_query, styles=styles, measure=label),
        ),
        _Plan(
            "quality",
            "Quality against decision",
            "One mark per scorer, with 95 % intervals. Scorers of equal quality can differ in what they decide.",
            lambda: _quality_and_decision(audits, f"ndcg@{k}", decision),
            partial(figures.scatter, styles=styles, measures=(f"nDCG@{k}", label)),
        ),
        _Plan(
            "budget",
            "Averaging more orders",
            f"{capitalised} when K orders are averaged before deciding, between ensembles that share none; "
            "K orders cost K times the scoring.",
            lambda: {audit.name: curve for audit in audits if len(curve := budget_curve(audit, decision)) > 1},
            partial(figures.draw_budget_curve, styles=styles, measure=label),
        ),
    ]
    if decision == "overlap":
        plans.append(
            _Plan(
                "cutoffs",
                "Every other cutoff",
                "Overlap against the share kept, for all cutoffs; the large mark is the one in use. "
                "Compare scorers at equal share.",
                lambda: {audit.name: cutoff_sweep(audit) for audit in audits},
                partial(figures.sweep, styles=styles),
            )
        )
    return plans


def _drawn_part(audits: Sequence[Audit]) -> str:
    """A sentence where a figure does not draw every query."""
    most = max(audit.measured.coverage.queries for audit in audits)
    if most <= figures.MOST_DRAWN:
        return ""
    part = f"{figures.MOST_DRAWN} of {most:,} queries are drawn, in equal steps from the lowest to the highest"
    return f" {part}; every number is of all."


def _spreads(audits: Sequence[Audit]) -> dict[str, np.ndarray]:
    by_query = {audit.name: sentences.quality_by_query(audit) for audit in audits}
    return {name: values for name, values in by_query.items() if values.size and values.shape[1] > 1}


def _quality_and_decision(audits: Sequence[Audit], quality: str, decision: str) -> dict[str, object]:
    if len(audits) == 1:
        return {}
    return {a.name: (a.figures[quality], a.figures[decision]) for a in audits if quality in a.figures}


PLOTS = ("spread", "slots", "decisions", "quality", "budget", "cutoffs")
"""What `Audits.plot` can draw."""


_COLOURS = {variable: colour for colour, variable in figures.VARIABLES.items() if variable.startswith("var(")}
_COLOURS |= {"var(--faint)": "#666", "var(--rule)": "#ccc"}


def plot(audits: Sequence[Audit], kind: str, collection: str | None = None) -> Drawing:
    """One figure of the page, for one collection (the first, where none is named)."""
    if kind not in PLOTS:
        raise InputError(f"there is no figure {kind!r}. There are {', '.join(PLOTS)}.")
    check_installed("A figure", *PAGE)
    named = with_distinct_names(audits)
    wanted = collection or named[0].collection
    members = [audit for audit in named if audit.collection == wanted]
    if not members:
        raise InputError(f"no audit is on {wanted}. There are {', '.join(dict.fromkeys(a.collection for a in named))}.")
    styles = figures.choose_styles([audit.name for audit in members])
    plans = _plans(members, sentences.decision_measure(members), styles)
    for plan in plans:
        if plan.kind == kind and (drawn := _draw(plan, wanted)) is not None:
            svg = re.sub(r"var\(--[a-z-]+\)", lambda variable: _COLOURS[variable[0]], drawn.svg)
            return replace(drawn, title=f"{drawn.title}: {wanted}", svg=svg)
    others = ", ".join(plan.kind for plan in plans if plan.kind != kind and plan.data())
    raise InputError(f"these audits have nothing to draw as {kind!r}; they have {others}.")


def budget_curve(audit: Audit, decision: str) -> dict[int, Interval]:
    """{K: a decision measure between ensembles of K permutations}, up to M / 2; the cutoff is fitted anew at each K."""
    fewest, own = fewest_permutations(audit.queries), audit.view.serving_permutations
    by_budget = {own: audit.measured.values[decision]} if fewest > 1 else {}
    for times in range(2, fewest // 2 + 1):
        averaged = ScoreView(serving_permutations=times).of_all(audit.queries)
        by = match_threshold(audit.threshold, audit.record.collection, audit.view.at_budget(own * times))
        values = measure(averaged, by, {decision}).values
        if decision in values:
            by_budget[own * times] = values[decision]
    return {budget: mean_interval([values], scheme="queries") for budget, values in by_budget.items()}


def cutoff_sweep(audit: Audit) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Mean retention and overlap at cutoffs over the range of the scores, and both at the cutoff in use."""
    tested = ~np.isnan(audit.measured.values["overlap"])

    def scores() -> Iterator[np.ndarray]:
        return (query.permuted for query, is_tested in zip(audit.queries, tested, strict=True) if is_tested)

    every = array("d")
    for rows in scores():
        every.frombytes(np.ascontiguousarray(rows, float).tobytes())
    grid = np.unique(np.quantile(np.array(every), np.linspace(0, 1, CUTOFFS)))
    retention, overlap = np.zeros(len(grid)), np.zeros(len(grid))
    for rows in scores():
        sets = retained_sets.retained(rows, grid[:, None, None])
        retention += retained_sets.retention(sets)
        overlap += retained_sets.overlap(sets)
    count = tested.sum()
    return retention / count, overlap / count, (audit.figures["retention"].value, audit.figures["overlap"].value)
