"""A pytest plugin: a scorer that decides otherwise when its candidates are reordered fails a test, with the query that shows it.

    def test_our_reranker(steadyscore):
        steadyscore.assert_order_stable("rerank:my-model@http://localhost:8080", "pools.jsonl", overlap=0.8)

pytest finds it by its entry point where the package is installed; without the fixture, import `assert_order_stable` from here.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest


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
    from ..machine.names import nearest
    from ..measures.registry import MEASURES

    limits = {name: bounds.pop(name) for name in [*bounds] if name in MEASURES}
    if not limits:
        meant = [near for name in bounds if (near := nearest(name, MEASURES))]
        raise UsageError(f"no measure has a bound: {f'did you mean {meant[0]}?' if meant else 'give one, such as overlap=0.8.'}")
    if aimless := [name for name in limits if MEASURES[name].better == "neither"]:
        raise UsageError(f"{', '.join(aimless)}: neither direction is better, so a bound on it says nothing of stability.")
    audits = audit(scorer, data, quiet=True, report=False, **bounds)
    sides = {side: {name: x for name, x in limits.items() if MEASURES[name].better == side} for side in ("higher", "lower")}
    checked = gate(audits, min=sides["higher"], max=sides["lower"])
    if not checked:
        pytest.fail("\n".join([*checked.failures, *checked.examples, _next_step(bounds.get("out"))]), pytrace=False)


def _next_step(out: Any) -> str:
    if out is not None:
        return f"next: steadyscore report {out}"
    return 'next: give out="runs/check" and look at the page, or serve it steadier with mitigations=["self-consistency:4"]'
