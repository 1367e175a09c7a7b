"""Adaptive self-consistency: a pool is presented again only while the rest is expected to change too many of its decisions.

The presentations are the first ones that plain self-consistency would average, so its decisions are what is spared or lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from ..errors import InputError
from ..measures.retained_sets import share_size
from ..measures.settling import DecisionRule, PairRule, ThresholdRule, TopKRule, is_decided
from ..measures.threshold import KEPT
from ..runs.table import stack_rows
from ..terms import Array
from .presented import Cost, Presented

Stopped = Literal["settled", "budget", "order_free"]


@dataclass(frozen=True, slots=True)
class ShareRule:
    """Keep this share of every pool, rounded, at least one document."""

    share: float


def for_pool(rule: DecisionRule | ShareRule, n: int) -> DecisionRule:
    """The rule for a pool of n: a share is a number of documents."""
    return TopKRule(share_size(rule.share, n)) if isinstance(rule, ShareRule) else rule


def parse_rule(words: str) -> DecisionRule | ShareRule:
    """A decision as mitigations and `Ranker.decide` name it."""
    name, _, value = words.partition("=")
    try:
        number = float(value or "nan")
    except ValueError:
        number = math.nan
    if words == "pair":
        return PairRule()
    if name == "cutoff" and math.isfinite(number):
        return ThresholdRule(number)
    if name == "top" and value.isdecimal() and int(value) > 0:
        return TopKRule(int(value))
    if name == "share" and 0 < number < 1:
        return ShareRule(number)
    raise InputError(f"{words!r} is not a decision. Write cutoff=0.5, top=3, share=0.3 (of every pool) or pair.")


USUAL_RULE = f"share={KEPT}"
"""The decision where none is named."""


class Ensembles(NamedTuple):
    """Presentations of one pool for several averages."""

    scored: Presented
    """A row for each presentation that was made."""
    owner: Array
    """(rows,) the average that each row belongs to."""

    def rows(self, which: int) -> Array:
        """(M, n) scores of one average."""
        scores: Array = self.scored.scores[self.owner == which]
        return scores


def present_until_decided(score: Callable[[Array, int], Presented], orders: Array, rule: DecisionRule) -> Ensembles:
    """Each pool of P averages under the first of its K orders, (P, K, n): two, then one more while it is not decided.

    score  orders (rows, n) and the number of the first one -> their scores
    """
    several, count, n = orders.shape
    parts, owners, made, undecided = list[Presented](), list[Array](), 0, list(range(several))
    while undecided and made < count:
        stop = min(count, max(2, made + 1))
        parts.append(score(orders[undecided, made:stop].reshape(-1, n), sum(map(len, owners))))
        owners.append(np.repeat(undecided, stop - made))
        made = stop
        ensembles = Ensembles(_joined(parts), np.concatenate(owners))
        undecided = [p for p in undecided if not is_decided(ensembles.rows(p), rule, count)]
    return ensembles


def _joined(parts: list[Presented]) -> Presented:
    return replace(stack_rows(parts), cost=sum((part.cost for part in parts), Cost()))
