"""The report's plots: matplotlib to SVG text that a page inlines.

Colours leave this module as CSS variables, so one drawing serves a light and a dark page; a variant has its colour and its
marker everywhere, so colour never carries a meaning alone. Text stays text. Nothing here reads a file.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..machine.names import shorten
from ..terms import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..results.figure import Figure as Measured


INK, FAINT, RULE = "#010101", "#020202", "#030303"
"""Colours that the page replaces by those of its text, quiet text and rules."""
VARIABLES = {
    INK: "currentColor",
    FAINT: "var(--faint)",
    RULE: "var(--rule)",
    "#666666": "var(--off-the-shelf)",
    "#e69f00": "var(--single-order)",
    "#0072b2": "var(--oc-sft)",
    "#009e73": "var(--order-averaged)",
    "#cc79a7": "var(--debias-first)",
    "#56b4e9": "var(--permutation-augmentation)",
    "#d55e00": "var(--churn)",
}
METHODS = (
    (r"\boc\b|oc[-_]?sft", "#0072b2"),
    (r"single", "#e69f00"),
    (r"averag|\bavg\b", "#009e73"),
    (r"debias", "#cc79a7"),
    (r"perm(utation)?[-_. ]*aug", "#56b4e9"),
)
"""The paper's palette: a variant that is named after a method has that method's colour."""
MARKERS = {
    "o": "M6 2a4 4 0 1 0 0 8a4 4 0 1 0 0-8z",
    "s": "M2.5 2.5h7v7h-7z",
    "^": "M6 1.5l5 9h-10z",
    "D": "M6 1l5 5l-5 5l-5-5z",
    "v": "M6 10.5l5-9h-10z",
    "P": "M4.3 1.5h3.4v2.8h2.8v3.4h-2.8v2.8h-3.4v-2.8h-2.8v-3.4h2.8z",
}
"""matplotlib's marker -> the same shape as a path on a 12 x 12 field, for the page's legend."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one variant is drawn, in every figure."""

    name: str
    colour: str
    marker: str

    @property
    def css(self) -> str:
        return VARIABLES[self.colour]

    @property
    def path(self) -> str:
        return MARKERS[self.marker]


def choose_styles(names: Sequence[str]) -> dict[str, Style]:
    """A colour and a marker for each variant: the method's own where its name tells it, else the next that is free."""
    chosen = {n: c for n in names for pattern, c in METHODS if re.search(pattern, n.lower())}
    rest = [c for c in ("#666666", "#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9") if c not in chosen.values()]
    others = [n for n in names if n not in chosen]
    chosen |= {n: (rest or ["#666666"])[i % max(len(rest), 1)] for i, n in enumerate(others)}
    return {n: Style(n, chosen[n], list(MARKERS)[i % len(MARKERS)]) for i, n in enumerate(names)}


def draw_svg(
    title: str,
    paint: Callable[..., None],
    *,
    description: str,
    height: float = 2.8,
    rows: int = 1,
) -> str:
    """One figure as SVG text; `paint` gets the axes."""
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": title,
        "text.parse_math": False,  # a scorer's name may hold a dollar sign
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": RULE,
        "grid.linewidth": 0.7,
        "text.color": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name in a script the measuring font lacks; the page's own font draws it
        figure: Figure = Figure(figsize=(4.3, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots(rows, 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for one in axes:
            one.patch.set_alpha(0)
        paint(axes if rows > 1 else axes[0])
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    return _inline(stream.getvalue(), title, description)


def _inline(svg: str, title: str, description: str) -> str:
    """An SVG file as an element of the page: named for readers that cannot see it, ids its own, colours the page's."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.S)  # its style would be the whole page's
    key = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    svg = re.sub("<[^>]*>", lambda tag: _adapt_tag(tag[0], key), svg)  # tags alone: a name may hold id=" or a colour
    opening, rest = svg.split(">", 1)
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)  # the page gives the size, the view box the proportions
    named = f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-desc">{escape(description)}</desc>'
    return f'{opening} role="img" aria-labelledby="{key}-title {key}-desc">{named}{rest}'


def _adapt_tag(tag: str, key: str) -> str:
    tag = re.sub(r'\bid="', f'id="{key}-', tag)
    tag = re.sub(r'(url\(|xlink:href=")#', rf"\1#{key}-", tag)
    for hexadecimal, variable in VARIABLES.items():
        tag = tag.replace(hexadecimal, variable)
    return tag


def _counts(last: int) -> Array:
    """Whole numbers from 1 for an axis, some ten of them."""
    return np.arange(1, last + 1, -(-last // 10))


TITLE = 36
"""Characters of a name that fit above a plot, with its figure; the legend has the whole."""
SHARES = -0.03, 1.03
"""The ends of an axis of shares, with a margin."""
MOST_DRAWN = 400
"""Queries that one figure draws: of more, those in equal steps of their order, the first and the last among them."""


def _some(values: Array) -> Array:
    """Of sorted values, or rows, as many as a figure draws."""
    if len(values) <= MOST_DRAWN:
        return values
    chosen: Array = values[np.linspace(0, len(values) - 1, MOST_DRAWN).round().astype(int)]
    return chosen


def draw_spread(title: str, quality: dict[str, Array], styles: dict[str, Style], measure: str) -> str:
    """Per-query quality over permutations: worst to best as a line, the mean as a dot (paper, Fig. 3a). Values are (Q, M)."""

    def paint(axes: Any) -> None:
        rows = np.atleast_1d(axes)
        for row, (name, values) in zip(rows, quality.items(), strict=True):
            fall = max(0.0, float((values.mean(axis=1) - values.min(axis=1)).mean()))
            order = np.argsort(values.mean(axis=1), kind="stable")
            at, values = _some(np.arange(1, len(values) + 1)), values[_some(order)]
            colour = styles[name].colour
            row.vlines(at, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.45, linewidth=min(5.0, 130 / len(at)))
            row.plot(at, values.mean(axis=1), styles[name].marker, color=colour, markersize=min(4.0, 120 / len(at)))
            row.set_title(f"{shorten(name, TITLE)}: spread {fall:.3f}", loc="left", fontsize=9.5)
            row.set(ylim=SHARES, ylabel=measure)
        rows[-1].set(xticks=_counts(max(map(len, quality.values()))), xlabel="queries, by mean over permutations")

    falls = "; ".join(f"{n} {float((v.mean(1) - v.min(1)).mean()):.3f}" for n, v in quality.items())
    return draw_svg(
        title,
        paint,
        rows=len(quality),
        height=0.5 + (2.5 if len(quality) == 1 else 1.35 * len(quality)),
        description=f"{measure} of every query from its worst to its best permutation. Mean minus worst: {falls}.",
    )


def draw_slot_profile(title: str, profiles: dict[str, Array], styles: dict[str, Style]) -> str:
    """ψ(p): what a slot adds to a score, on average over candidates and permutations."""

    def paint(ax: Axes) -> None:
        ax.axhline(0, color=FAINT, linewidth=1)
        for name, profile in profiles.items():
            slots = np.arange(1, len(profile) + 1)
            ax.plot(slots, profile, color=styles[name].colour, marker=styles[name].marker, markersize=4, linewidth=1.6)
        last = max(map(len, profiles.values()))
        ax.set(xticks=_counts(last), xlabel="slot in the window (1 = first shown)", ylabel="ψ(p), in score units")

    ends = "; ".join(f"{name}: first slot {p[0]:+.3f}, last slot {p[-1]:+.3f}" for name, p in profiles.items())
    return draw_svg(title, paint, description=f"What each slot adds to a score. {ends}.")


def by_query(title: str, values: dict[str, Array], styles: dict[str, Style], measure: str) -> str:
    """A decision measure query by query, sorted."""

    def paint(ax: Axes) -> None:
        for name, by_query in values.items():
            by_query = np.sort(by_query[~np.isnan(by_query)])
            at = 100 * (np.arange(len(by_query)) + 0.5) / len(by_query)
            marker = styles[name].marker if len(by_query) <= 40 else None
            ax.plot(_some(at), _some(by_query), color=styles[name].colour, marker=marker, markersize=4, linewidth=1.4)
        ax.set(xlim=(0, 100), ylim=SHARES, xlabel="queries in ascending order, %", ylabel=measure)

    medians = "; ".join(f"{name} {np.nanmedian(v):.2f}" for name, v in values.items())
    return draw_svg(title, paint, description=f"{measure} of every query, sorted. Medians: {medians}.")


def _bar(figure: Measured) -> Array | None:
    """An interval as the lengths of an error bar; None where a single query gives none."""
    if figure.low is None or figure.high is None:
        return None
    return np.maximum([[figure.value - figure.low], [figure.high - figure.value]], 0)


def scatter(title: str, points: dict[str, tuple[Measured, Measured]], styles: dict[str, Style], measures: tuple[str, str]) -> str:
    """Quality against decision, one point per variant with its 95 % intervals."""

    def paint(ax: Axes) -> None:
        for name, (x, y) in points.items():
            ax.errorbar(
                x.value, y.value, _bar(y), _bar(x),
                color=styles[name].colour, marker=styles[name].marker, markersize=8, linewidth=1.2,
            )  # fmt: skip
        ax.margins(0.12)
        ax.set(xlabel=f"{measures[0]} (quality)", ylabel=f"{measures[1]} (decision)")

    values = "; ".join(f"{name}: {x.value:.3f} and {y.value:.3f}" for name, (x, y) in points.items())
    return draw_svg(title, paint, description=f"{measures[0]} and {measures[1]}. {values}.")


def draw_budget_curve(title: str, curves: dict[str, dict[int, Any]], styles: dict[str, Style], measure: str) -> str:
    """A decision measure when K permutations are averaged before deciding; bars are 95 % intervals."""

    def paint(ax: Axes) -> None:
        for name, curve in curves.items():
            budgets, figures = list(curve), list(curve.values())
            values = np.array([f.value for f in figures])
            around = np.array([[f.value - f.low for f in figures], [f.high - f.value for f in figures]])
            ax.errorbar(
                budgets, values, np.maximum(around, 0),
                color=styles[name].colour, marker=styles[name].marker, markersize=5, linewidth=1.6, elinewidth=0.9,
            )  # fmt: skip
        budgets = sorted({k for curve in curves.values() for k in curve})
        ax.set(xticks=budgets, ylim=SHARES, xlabel="K, permutations averaged per decision", ylabel=measure)

    values = "; ".join(
        f"{name}: {c[min(c)].value:.2f} at K = {min(c)}, {c[max(c)].value:.2f} at K = {max(c)}" for name, c in curves.items()
    )
    return draw_svg(title, paint, description=f"{measure} against the serving budget. {values}.")


def sweep(title: str, curves: dict[str, tuple[Array, Array, tuple[float, float]]], styles: dict[str, Style]) -> str:
    """Overlap at every cutoff against the share it keeps: (retention, overlap, both at the frozen cutoff, the large marker)."""

    def paint(ax: Axes) -> None:
        for name, (kept, overlap, at) in curves.items():
            ax.plot(100 * kept, overlap, color=styles[name].colour, linewidth=1.6)
            ax.plot(100 * at[0], at[1], styles[name].marker, color=styles[name].colour, markersize=9, clip_on=False)
        ax.set(xlim=(0, 100), ylim=SHARES, xlabel="share of the pool kept, %", ylabel="overlap")

    values = "; ".join(f"{n}: overlap {at[1]:.2f} where {100 * at[0]:.0f} % is kept" for n, (_, _, at) in curves.items())
    return draw_svg(title, paint, description=f"Overlap of retained sets at every cutoff. At the frozen cutoff, {values}.")
