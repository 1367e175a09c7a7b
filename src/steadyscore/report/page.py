"""The report: run folders to one self-contained page and its Markdown twin. Draws from files only; no model is needed.

The page states first what reordering does to decisions, then the table, then one query where it can be seen, then the
figures, every measure, and what was measured. It holds no script and loads nothing, which its own content policy enforces.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..audits.figure import Figure, mean_figure
from ..audits.names import with_distinct_names
from ..audits.result import Audit
from ..errors import InputError
from ..machine.disk import atomic
from ..machine.extras import PAGE, check_installed
from ..measures import ranking
from ..measures import threshold as threshold_consumer
from ..measures.intervals import Interval, mean_interval
from ..measures.measurement import average_permutations, measure
from ..measures.registry import MEASURES
from ..readers.outputs import compare_on_same_evidence, label_parts
from ..scoring.starts import start_remarks
from ..terms import Array
from . import exhibit, figures, sentences
from .sentences import BESIDE, LABELS
from .settings import left_out, settings

INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that reorder what stands beside them: after U+202E in a name, 0.33 would read 33.0."""
MARKUP = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
"""What Markdown takes for markup inside a line; an underscore within a word is none."""


def write_report(audits: Sequence[Audit], folder: Path) -> Path:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page."""
    if not audits:
        raise InputError("no run was given to report. Name at least one run folder.")
    check_installed("The report page", *PAGE)
    page = _page(with_distinct_names(audits))
    html, markdown = (_render(name, page) for name in ("report.html.jinja", "report.md.jinja"))
    for name, text in (("report.md", markdown), ("index.html", html)):
        with atomic(folder / name) as stream:
            stream.write(text.encode())
    return folder / "index.html"


def _render(template: str, page: dict[str, Any]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("steadyscore.report", "templates"),
        autoescape=lambda name: ".html" in (name or ""),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: type(value)(show_invisible(value)) if isinstance(value, str) else value,
    )
    environment.filters |= {
        "fixed": sentences.fixed,
        "percent": lambda share: "–" if share is None else sentences.percent(share),
        "plain": markdown_text,
        "code": markdown_code,
        "tied": lambda text: text.replace(" %", "\u00a0%"),
    }
    return environment.get_template(template).render(page)


def show_invisible(text: str) -> str:
    """Text in which characters that hide or reorder others are named by their number."""
    return INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is: on one line, without markup, links, images or table cells of its own."""
    line = MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
    return re.sub(r"&(?=#?\w+;)", "&amp;", line).replace("<", "&lt;")


def markdown_code(text: str) -> str:
    """A line of code: fenced by more backticks than it holds in a row."""
    line = " ".join(text.splitlines())
    if "`" not in line:
        return f"`{line}`"
    fence = "`" * (max(map(len, re.findall("`+", line))) + 1)
    return f"{fence} {line} {fence}"


def _page(audits: Sequence[Audit]) -> dict[str, Any]:
    """Everything both templates show."""
    from .. import __version__

    names = list(dict.fromkeys(v.name for v in audits))
    look = figures.looks(names)
    together: dict[str, list[Audit]] = {}
    for audit in audits:
        together.setdefault(audit.collection, []).append(audit)
    collections = [_section(members, look) for members in together.values()]
    return {
        "version": __version__,
        "looks": look,
        "collections": collections,
        "table": [{"name": name, "cells": [_row(section, name) for section in collections]} for name in names],
        "has_floor": any(f.floor is not None for v in audits for f in v.figures.values()),
        "has_lead": any(cell["leads"] for s in collections for row in s["cells"].values() for cell in row if cell),
        "runs": [
            {
                "name": v.name,
                "collection": v.collection,
                "settings": settings(v),
                "left_out": left_out(v),
                "command": shlex.join(v.record.get("command") or []),
            }
            for v in audits
        ],
    }


def _row(section: dict[str, Any], name: str) -> list[Any]:
    return section["cells"].get(name) or [None] * len(section["columns"])


# -- one collection


def _section(audits: list[Audit], look: dict[str, figures.Look]) -> dict[str, Any]:
    k = audits[0].task.quality_cutoff
    decision = sentences.decision(audits)
    also = "overlap" if decision == "overlap@10" and all("overlap" in v.measured.values for v in audits) else None
    columns = [name for name in (f"ndcg@{k}", "tau_psi", decision, also, BESIDE.get(also or decision or "")) if name]
    compared = [v for v in audits if not (decision == "overlap" and sentences.is_idle(v))]
    # From the least to the most steady; without a decision measure in the order given.
    ranked = sorted(compared, key=lambda v: -sentences.changed(v, decision)) if decision else audits
    return {
        "name": audits[0].collection,
        "task": audits[0].task.label,
        "share": sentences.percent(sentences.changed(ranked[0], decision)).replace("less than ", "< ") if decision else None,
        "sentence": sentences.sentence(ranked[0], decision, k, named=len(audits) > 1),
        "verdicts": [
            sentences.leader(among, name)
            for name, among in ((decision, compared), (f"ndcg@{k}", audits))
            if name and len(among) > 1 and all(name in v.measured.values for v in among)
        ],
        "notes": sentences.notes(ranked[0], decision, k)
        + ([f"The reader is {ranked[0].reader}."] if decision in READERS_OWN and ranked[0].reader else [])
        + [sentences.idle_note(v, decision) for v in audits if "overlap" in columns and sentences.is_idle(v)]
        + [f"{v.name}: {remark}" for v in audits for remark in start_remarks(v.record)],
        "columns": [{"name": name, "label": LABELS[name], "better": MEASURES[name].better} for name in columns],
        "cells": {v.name: [_cell(v, name, audits) for name in columns] for v in audits},
        "exhibits": _exhibits(ranked, decision, k),
        "readers": _readers(audits),
        "figures": _figures(audits, decision, k, look),
        "measures": _measures(audits),
        "absent": [m for m in MEASURES.values() if all(m.name not in v.figures for v in audits)],
        "names": [v.name for v in audits],
    }


def _cell(audit: Audit, name: str, audits: Sequence[Audit]) -> dict[str, Any] | None:
    """A table cell; it leads where it is better than every other audit by an interval that excludes zero.

    A cutoff that keeps nearly everything leads in no overlap: it decides nothing.
    """
    if (figure := audit.figures.get(name)) is None:
        return None
    rivals = [v for v in audits if v is not audit]
    idle = name == "overlap" and sentences.is_idle(audit)
    ahead = not idle and all(sentences.merit(audit, name) > sentences.merit(v, name) for v in rivals)
    leads = [sentences.lead(audit, v, name) for v in rivals] if ahead else []
    return figure.to_json() | {"leads": bool(leads) and all(lead is not None and lead.low > 0 for lead in leads)}


def _exhibits(ranked: list[Audit], decision: str | None, k: int) -> list[dict[str, Any]]:
    """Figure 1a under the least steady audit, and the same query under the steadiest."""
    if decision is None:
        return []
    worst = ranked[0]
    shown = decision if decision in ("overlap", "overlap@10", "pair_flip") else "overlap"  # a reader decides on what is kept
    if shown not in worst.measured.values:
        return []
    steadiness = worst.measured.values[shown] * (1 if MEASURES[shown].better == "higher" else -1)
    telling = np.array([q.relevance is not None and ranking.is_relevant(q.relevance).any() for q in worst.queries])
    if (telling & ~np.isnan(steadiness)).any():  # where nothing is relevant, nDCG is 0 whatever happens
        steadiness = np.where(telling, steadiness, np.nan)
    index = exhibit.most_affected(worst.queries, steadiness, shown, worst.measured.cutoff.value)
    if index is None:
        return []
    query_id, found = worst.queries[index].query_id, []
    for audit in [worst, ranked[-1]][: len(ranked)]:
        query = next((q for q in audit.queries if q.query_id == query_id), None)
        if query is not None and len(query.permuted) > 1:
            drawn = exhibit.exhibit(query, audit.instance(query_id), shown, audit.measured.cutoff.value, k)
            mean = audit.measured.values[shown][audit.measured.query_ids.index(query_id)]
            said = _said(audit, decision, query_id, drawn["permutations"])
            found.append(drawn | {"variant": audit.name, "measure": LABELS[shown], "mean": float(mean), "k": k, "said": said})
    return found


def _said(audit: Audit, decision: str, query_id: str, permutations: list[int]) -> list[str] | None:
    """What the reader made of both orders, where its decision is the one told."""
    if decision not in READERS_OWN or audit.reader is None:
        return None
    outputs = audit.readers[audit.reader].outputs
    return [outputs[query_id][permutation] for permutation in permutations] if query_id in outputs else None


READERS_OWN = ("answer_flip", "verdict_flip")


def _readers(audits: list[Audit]) -> dict[str, Any] | None:
    """Every reader under every audit that it read; against the first audit, the same-evidence control (§F.3)."""
    rows = [_reader_row(label, v, audits[0]) for label in _labels(audits) for v in audits if label in v.readers]
    if not rows:
        return None
    kind = audits[0].task.reader
    assert kind is not None  # only a task with something to read for has readers
    columns = [{"label": LABELS[name], "better": MEASURES[name].better} for name in (*kind.quality, kind.flip)]
    return {
        "columns": columns,
        "rows": rows,
        "what": kind.writes,
        "against": audits[0].name if any(row["control"] for row in rows) else None,
    }


def _labels(audits: list[Audit]) -> list[str]:
    return list(dict.fromkeys(label for v in audits for label in v.readers))


def _reader_row(label: str, audit: Audit, first: Audit) -> dict[str, Any]:
    read, (address, shown, budget) = audit.readers[label], label_parts(label)
    kind = audit.task.reader
    assert kind is not None
    known = audit.figures if label == audit.reader else {n: mean_figure(v) for n, v in read.values.items()}
    told = [known[name].to_json() if name in read.values else None for name in (*kind.quality, kind.flip)]
    compared = audit is not first and label in first.readers and budget == 1
    unread, asked = len(audit.queries) - len(read.outputs), len(audit.queries)
    return {
        "variant": audit.name,
        "reader": address,
        "shown": f"first {shown}" + (f", {budget} orders averaged" if budget > 1 else ""),
        "figures": told,
        "unread": f"{unread} of {asked} queries not read" if unread else "",
        "control": compare_on_same_evidence(
            audit.task, (first.queries, first.readers[label].outputs), (audit.queries, read.outputs), shown
        )
        if compared
        else None,
    }


def _figures(audits: list[Audit], decision: str | None, k: int, look: dict[str, figures.Look]) -> list[dict[str, Any]]:
    name, quality = audits[0].collection, f"nDCG@{k}"
    drawn: list[dict[str, Any]] = []

    def add(title: str, caption: str, draw: Any, data: dict[str, Any], *more: Any) -> None:
        if data:
            svg = draw(f"{title}: {name}", data, look, *more)
            drawn.append({"title": title, "caption": caption, "svg": svg, "names": list(data)})

    found = {v.name: sentences.qualities(v, k) for v in audits}
    add(
        f"{quality} of every query",
        "Each line is one query, from its worst to its best order; the mark is its mean. Spread is mean minus worst.",
        figures.spread,
        {n: values for n, values in found.items() if values.size and values.shape[1] > 1},
        quality,
    )
    add(
        "Slot profile ψ(p)",
        "What standing in a slot adds to a candidate's score, on average. A scorer that does not mind the slot is flat at 0.",
        figures.slot_profile,
        {v.name: v.measured.slot_profile for v in audits if v.measured.slot_profile},
    )
    if decision is None:
        return drawn
    label = LABELS[decision]
    way = "1 is the same decision every time" if MEASURES[decision].better == "higher" else "0 is the same decision every time"
    add(
        "Decisions, query by query",
        f"{label[0].upper()}{label[1:]} of every query, sorted; {way}.",
        figures.by_query,
        {v.name: v.measured.values[decision] for v in audits},
        label,
    )
    if len(audits) > 1:
        both = {v.name: (v.figures.get(f"ndcg@{k}"), v.figures[decision]) for v in audits}
        add(
            "Quality against decision",
            "One mark per variant, with 95 % intervals. Variants of equal quality can differ in what they decide.",
            figures.scatter,
            {n: pair for n, pair in both.items() if pair[0]},
            (quality, label),
        )
    add(
        "Averaging more orders",
        f"{label[0].upper()}{label[1:]} when K orders are averaged before deciding, between ensembles that share none; "
        "K orders cost K times the scoring.",
        figures.budget_curve,
        {v.name: curve for v in audits if len(curve := budget_curve(v, decision)) > 1},
        label,
    )
    if decision == "overlap":
        add(
            "Every other cutoff",
            "Overlap against the share kept, for all cutoffs; the large mark is the one in use. Compare variants at equal share.",
            figures.sweep,
            {v.name: swept(v) for v in audits},
        )
    return drawn


PLOTS = {
    "spread": "of every query",
    "slots": "Slot profile",
    "decisions": "Decisions, query by query",
    "quality": "Quality against decision",
    "budget": "Averaging more orders",
    "cutoffs": "Every other cutoff",
}
"""Names of `Audits.plot` -> a part of the title of a figure on the page."""


class Drawing(str):
    """SVG text that a notebook shows as a picture."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<style>:root {{ --faint: #666; --rule: #ccc; {_PALETTE} }}</style>{self}"


_PALETTE = " ".join(
    f"{variable.removeprefix('var(').removesuffix(')')}: {colour};"
    for colour, variable in figures.VARIABLES.items()
    if variable.startswith("var(") and variable not in ("var(--faint)", "var(--rule)")
)


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
    look = figures.looks([audit.name for audit in members])
    drawn = _figures(members, sentences.decision(members), members[0].task.quality_cutoff, look)
    found = next((figure for figure in drawn if PLOTS[kind] in figure["title"]), None)
    if found is None:
        raise InputError(f"these audits have nothing to draw as {kind!r}; they have {', '.join(_kinds(drawn))}.")
    return Drawing(found["svg"])


def _kinds(drawn: list[dict[str, Any]]) -> list[str]:
    return [kind for kind, part in PLOTS.items() if any(part in figure["title"] for figure in drawn)]


def budget_curve(audit: Audit, decision: str) -> dict[int, Interval]:
    """{K: a decision measure between ensembles of K permutations}, up to M / 2; the cutoff is fitted anew at each K."""
    fewest, own = min(len(q.permuted) for q in audit.queries), audit.serving_permutations
    found = {own: audit.measured.values[decision]} if fewest > 1 else {}
    for times in range(2, fewest // 2 + 1):
        served = measure([average_permutations(q, times) for q in audit.queries], audit.threshold).values
        if decision in served:
            found[own * times] = served[decision]
    return {budget: mean_interval([values], scheme="queries") for budget, values in found.items()}


def swept(audit: Audit, cutoffs: int = 31) -> tuple[Array, Array, tuple[float, float]]:
    """Mean retention and overlap at cutoffs over the range of the scores, and both at the cutoff in use."""
    tested = ~np.isnan(audit.measured.values["overlap"])
    queries = [q for q, mine in zip(audit.queries, tested, strict=True) if mine]
    scores = np.concatenate([q.permuted.ravel() for q in queries])
    grid = np.unique(np.quantile(scores, np.linspace(0, 1, cutoffs)))
    found = [threshold_consumer.sweep(q.permuted, np.zeros(q.permuted.shape[1]), grid) for q in queries]
    retention, overlap = (np.mean([f[name] for f in found], axis=0) for name in ("retention", "overlap"))
    in_use = tuple(audit.figures[name].value for name in ("retention", "overlap"))
    return retention, overlap, in_use  # type: ignore[return-value]


def _measures(audits: Sequence[Audit]) -> list[dict[str, Any]]:
    """Every measure that any audit has, with its meaning."""
    return [
        {"measure": m, "figures": [_json(v.figures.get(m.name)) for v in audits]}
        for m in MEASURES.values()
        if any(m.name in v.figures for v in audits)
    ]


def _json(figure: Figure | None) -> dict[str, Any] | None:
    return None if figure is None else figure.to_json()
