"""A pytest plugin: a scorer that decides otherwise when its candidates are reordered fails a test, with the query that shows it.

    def test_our_reranker(steadyscore):
        steadyscore.assert_order_stable("rerank:my-model@http://localhost:8080", "pools.jsonl", overlap=0.8)

pytest finds it by its entry point where the package is installed; without the fixture, import `assert_order_stable` from here.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ..machine.names import shorten

if TYPE_CHECKING:
    from ..results.audit import Audit

WIDTH = 60
"""Characters of a candidate that a failure shows."""
MOST = 6
"""Candidates that a failure shows."""


@pytest.fixture(scope="session")
def steadyscore() -> ModuleType:
    """`steadyscore.assert_order_stable(scorer, data, overlap=0.8)`."""
    return sys.modules[__name__]


def assert_order_stable(scorer: Any, data: Any, **bounds: Any) -> None:
    """Audit a scorer and fail where a measure is on the wrong side of its bound.

    bounds  measures by name: `overlap=0.8` is at least 0.8, since higher is better, `tau_psi=0.1` at most 0.1. Any other keyword
            is one of `steadyscore.audit`: permutations=4, queries=50, out="runs/check" (the same call then scores what is new).
    """
    __tracebackhide__ = True
    from ..audits.audit import audit
    from ..audits.gate import gate
    from ..errors import UsageError
    from ..measures.registry import MEASURES

    limits = {name: bounds.pop(name) for name in [*bounds] if name in MEASURES}
    if aimless := [name for name in limits if MEASURES[name].better == "neither"]:
        raise UsageError(f"{', '.join(aimless)}: neither direction is better, so a bound on it says nothing of stability.")
    audits = audit(scorer, data, quiet=True, report=False, **bounds)
    sides = {side: {name: x for name, x in limits.items() if MEASURES[name].better == side} for side in ("higher", "lower")}
    checked = gate(audits, min=sides["higher"], max=sides["lower"])
    failed = [check for check in checked.checks if not check.ok]
    if failed:
        lines = [f"{check.run}: {check.reason}" for check in failed]
        seen = {check.run for check in failed}
        examples = [line for one in audits if f"{one.name} on {one.collection}" in seen for line in _example(one)]
        pytest.fail("\n".join([*lines, *examples, _next_step(bounds.get("out"))]), pytrace=False)


def _example(audit: Audit) -> list[str]:
    """The query whose decisions agree least, and what became of its candidates under two orders."""
    from ..report.example import make_example, most_affected

    if audit.explainer is None:
        return []
    measure = audit.explainer.measure
    steadiness = audit.measured.values[measure] * (-1 if measure == "pair_flip" else 1)
    index = most_affected(audit.queries, steadiness, measure, audit.measured.cutoff)
    if index is None:
        return []
    query, cutoff = audit.queries[index], audit.measured.cutoff.of(index)
    shown = make_example(query, audit.instance(query.query_id), audit.explainer, cutoff, audit.task.quality_cutoff)
    lines = [f"query {shown.query_id}: {_short(shown.query or '')}"]
    for row, number in enumerate(shown.permutations):
        if shown.orders is not None:
            lines.append(f"  order {number} shows {', '.join(shown.orders[row])}")
        kept = [candidate.id for candidate in shown.candidates if candidate.outcomes[row].state == 1]
        lines.append(f"  in order {number} it keeps {', '.join(kept) or 'nothing'}")
    differing = [candidate for candidate in shown.candidates if candidate.differs]
    for candidate in differing[:MOST]:
        places = [f" in place {outcome.place}" if outcome.place else "" for outcome in candidate.outcomes]
        words = [f"{o.word} with {o.score:.3f}{place}" for o, place in zip(candidate.outcomes, places, strict=True)]
        lines.append(f"  {candidate.id} is {', then '.join(words)} (cause: {candidate.cause}): {_short(candidate.text or '')}")
    more = [f"  and {len(differing) - MOST} more candidates"] if len(differing) > MOST else []
    return [*lines, *more, *([str(audit.causes)] if audit.causes else [])]


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), WIDTH)


def _next_step(out: Any) -> str:
    if out is not None:
        return f"next: steadyscore report {out}"
    return 'next: give out="runs/check" and look at the page, or serve it steadier with mitigations=["self-consistency:4"]'
