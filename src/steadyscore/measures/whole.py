"""What only a whole collection has, gathered stack by stack: benchmark ranges, Zeng's PSI, variance shares, the slot profile.

Of a query only its quality at 1 and at 10 under every permutation is kept; all else is sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runs.table import Scored
from ..terms import Array
from ..window.presentation import count_orders
from . import decomposition, instability, preference
from .ranking import ratio, unless_nan
from .registry import Stack


class WholeCollection:
    """Stacks of equally sized queries are added, then the figures of all of them read."""

    def __init__(self, width: int):
        self._stacks: dict[tuple[Any, ...], list[tuple[bool, Array, Array, Array | None]]] = {}
        """By shape: whether anything is judged, quality at 1 and at 10, and the buckets of what was shown."""
        self._components, self._with_components = np.zeros(4), 0
        """Sums over the queries that have all variance components, and how many those are."""
        self._profile, self._in_slot = np.zeros(width), np.zeros(width, int)
        """Sums of the queries' slot profiles, and how many queries each slot was occupied in."""
        self._placed = 0

    def add(self, stack: Stack) -> None:
        is_judged, shape = not np.isnan(stack.ideal).all(), stack.scores.shape
        nothing = np.full(shape[:2], np.nan)
        first, tenth = (stack.quality(1), stack.quality(10)) if is_judged else (nothing, nothing)
        labels = None
        if stack.orders is not None:  # a query without a relevant candidate has none to place: it is in no bucket
            has_positive = np.any(stack.relevance > 0, axis=-1, keepdims=True)
            labels = np.where(has_positive, stack.thirds(), -1).astype(np.int8)
        self._stacks.setdefault((shape[1:], stack.orders is None), []).append((is_judged, first, tenth, labels))

    def add_places(self, queries: list[Scored]) -> None:
        """Queries of one shape, whose places are known under two permutations or more."""
        scores, slots, windows = (np.stack(arrays) for arrays in zip(*map(decomposition.placed_scores, queries), strict=True))
        known = decomposition.known_components(decomposition.unbiased_components(scores, slots, windows))
        self._components += known.sum(axis=0)
        self._with_components += len(known)
        profiles = decomposition.slot_profiles(decomposition.order_residual(scores), slots, len(self._profile))
        self._profile += np.nansum(profiles, axis=0)
        self._in_slot += (~np.isnan(profiles)).sum(axis=0)
        self._placed += len(queries)

    def overall(self) -> dict[str, float]:
        """Measures that no single query has; those that are not defined are left out."""
        values_of: dict[str, float] = {}
        judged = [(shape, parts) for (shape, *_), parts in self._stacks.items() if any(part[0] for part in parts)]
        permutations = {m for (m, n), _ in judged if m < count_orders(n)} or {max((m for (m, _), _ in judged), default=0)}
        # What a benchmark reports under a permutation is a mean over its queries, so all must have it; their pools may differ.
        # One with fewer orders, all of which were shown, begins with the first again.
        if len(permutations) == 1 and (count := min(permutations)) > 1:

            def rows(values: Array) -> Array:
                return values[:, np.arange(count) % values.shape[1]]

            every = [part for _, parts in judged for part in parts]
            first = np.concatenate([rows(part[1]) for part in every])
            values_of["benchmark_range@1"], values_of["benchmark_sd@1"] = (
                preference.benchmark_range(first),
                preference.benchmark_sd(first),
            )
            if shown := [(rows(tenth), rows(labels)) for _, _, tenth, labels in every if labels is not None]:
                tenth, labels = (np.concatenate(arrays) for arrays in zip(*shown, strict=True))
                values_of["zeng_psi_corpus@10"] = instability.zeng_psi_corpus(tenth, labels)
        if self._placed:
            count = self._with_components
            shares = decomposition.shares_of(self._components / count if count else np.full(4, np.nan))
            values_of |= {"slot_share": shares.slot, "window_share": shares.window, "companion_share": shares.companion}
            values_of["slot_rms"] = self._slots().rms
        return {name: float(value) for name, value in values_of.items() if np.isfinite(value)}

    def counts(self) -> dict[str, int]:
        """How many queries each of them was computed from."""
        every = [part for parts in self._stacks.values() for part in parts]
        judged = sum(int(np.isfinite(first).any(axis=-1).sum()) for _, first, _, _ in every)
        shown = sum(int((labels >= 0).any(axis=-1).sum()) for _, _, _, labels in every if labels is not None)
        of_quality = {"benchmark_range@1": judged, "benchmark_sd@1": judged, "zeng_psi_corpus@10": shown}
        of_places = dict.fromkeys(("slot_share", "window_share", "companion_share"), self._with_components)
        return of_quality | of_places | {"slot_rms": self._placed}

    def slot_profile(self) -> list[float | None]:
        """ψ(p) of the collection, None for a slot that nobody held; empty where no places are known."""
        return [unless_nan(float(value)) for value in self._slots().profile] if self._placed else []

    def _slots(self) -> decomposition.SlotResidual:
        return decomposition.with_rms(ratio(self._profile, self._in_slot))
