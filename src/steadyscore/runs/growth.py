"""How a complete run grows: to more queries or more permutations of the same command, so that only what is missing is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..terms import Array
from .table import Scored

Fingerprint = Mapping[str, Any]


def is_growth(old: Fingerprint, new: Fingerprint) -> bool:
    """Whether a run of the new fingerprint holds everything that one of the old holds, and more."""
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return bool(differing) and all(key in GROWS and GROWS[key](old, new) for key in differing)


def has_more_permutations(old: Fingerprint, new: Fingerprint) -> bool:
    """Permutations are drawn by their number, but those of a Latin square all depend on how many there are."""
    before, now = old.get("permutations"), new.get("permutations")
    return before is not None and now is not None and now > before and new.get("scheme") != "balanced"


def _has_more_queries(old: Fingerprint, new: Fingerprint) -> bool:
    """The first N of a collection are among the first N + 1."""
    before, now = old.get("queries"), new.get("queries")
    return before is not None and (now is None or now > before)


def _names_more_queries(old: Fingerprint, new: Fingerprint) -> bool:
    before, now = old.get("query_ids"), new.get("query_ids")
    if before is None or new.get("queries") is not None:
        return False
    return now is None or set(before) <= set(now)


GROWS: dict[str, Callable[[Fingerprint, Fingerprint], bool]] = {
    "permutations": has_more_permutations,
    "queries": _has_more_queries,
    "query_ids": _names_more_queries,
}
"""By key of the fingerprint, whether the new value only adds to the old one."""


def join_presentations(known: Scored, more: Scored) -> Scored:
    """One query's rows of an earlier scoring, and those that were missing."""

    def rows(a: Array | None, b: Array | None) -> Array | None:
        return None if a is None or b is None else np.concatenate([a, b])

    return replace(
        more,
        permutations=np.concatenate([known.permutations, more.permutations]),
        scores=np.concatenate([known.scores, more.scores]),
        slots=rows(known.slots, more.slots),
        windows=rows(known.windows, more.windows),
        grades=rows(known.grades, more.grades),
        label_mass=rows(known.label_mass, more.label_mass),
    )
