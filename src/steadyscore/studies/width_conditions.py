"""Four conditions under which the same candidate is scored, which tell apart why width changes a score (§G.2).

`alone`: one text, one line to answer. `skeleton`: one text, marked as in its window, under the whole answer of that window.
`fillers`: the window, its companions replaced by texts of like length from other queries. `companions`: the window as it is.
From one to the next only one thing changes: the answer, the prompt's length and the place in it, the companions' content.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from ..collection import Data, open_collection
from ..engines import Grader
from ..errors import InputError
from ..scoring.presented import Presented, WindowReading
from ..scoring.scorer import PoolScorer, Scorer, Settings, WrappedScorer
from ..terms import Candidate, Instance, Window
from ..window.presentation import windows
from ..window.prompt import shown

Condition = Literal["companions", "fillers", "skeleton", "alone"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
MOST_FILLERS = 20_000
"""Texts that are held to fill with; of a larger collection those with the smallest hashes."""


def under_condition(scorer: PoolScorer, condition: Condition, data: Data) -> PoolScorer:
    """The scorer as it is under one of the four conditions; fillers come from the whole collection, whatever part is scored."""
    if condition == "companions":
        return scorer
    if condition == "alone":
        return scorer.with_settings(replace(scorer.settings, width=1))
    if not isinstance(scorer, Scorer):
        raise InputError(
            f"{scorer.name} is served under a mitigation; the width study takes the scorer itself apart. Leave it out."
        )
    if scorer.settings.prompt in ("isolated", "set"):
        raise InputError(
            f"--prompt {scorer.settings.prompt} has no answer that the candidates share, so there is nothing to take apart. "
            "Use --prompt paper or compact."
        )
    if condition == "skeleton" and not has_fixed_answer(scorer):
        return under_condition(scorer, "alone", data)  # a scorer without a fixed answer has nothing that could be longer
    fillers = Fillers(open_collection(data).instances(), scorer.settings.chars) if condition == "fillers" else None
    return ConditionScorer(scorer, fillers)


def has_fixed_answer(scorer: PoolScorer) -> bool:
    """Whether grades are read at the lines of a fixed answer, rather than written or given as scores."""
    return isinstance(scorer.backend, Grader) and scorer.backend.reads_skeleton


class Fillers:
    """Texts of a collection by their length, to fill the windows of other queries with."""

    def __init__(self, instances: Iterable[Instance], chars: int | None):
        self.chars = chars
        self._queries: dict[str, set[str]] = {}
        """Text -> the queries that have it as a candidate, scored or not."""
        for instance in instances:
            for candidate in instance.pool:
                self._queries.setdefault(shown(candidate, chars), set()).add(instance.id)
        kept = sorted((_hash(text), text) for text in self._queries if text)[:MOST_FILLERS]
        self._texts = sorted((len(text), key, text) for key, text in kept)

    def fill(self, instance: Instance) -> tuple[Candidate, ...]:
        """For every candidate of a pool the text of nearest length that the query does not have itself; each used once."""
        used = {shown(candidate, self.chars) for candidate in instance.pool}
        fillers: list[Candidate] = []
        for candidate in instance.pool:
            near = self._nearest(len(shown(candidate, self.chars)))
            text = next((text for text in near if text not in used and instance.id not in self._queries[text]), None)
            if text is None:
                raise InputError(
                    f"the other queries hold too few texts to fill the windows of query {instance.id} with: "
                    f"{len(fillers)} for a pool of {len(instance.pool)}. Use a collection of more queries."
                )
            used.add(text)
            fillers.append(Candidate(f"filler of {candidate.id}", text))
        return tuple(fillers)

    def _nearest(self, length: int) -> Iterator[str]:
        """Every text, nearest in length first; of two that are equally near the shorter one."""
        right = bisect.bisect_left(self._texts, (length,))
        left = right - 1
        while left >= 0 or right < len(self._texts):
            is_left = right == len(self._texts) or (left >= 0 and length - self._texts[left][0] <= self._texts[right][0] - length)
            yield self._texts[left if is_left else right][-1]
            left, right = (left - 1, right) if is_left else (left, right + 1)


class ConditionScorer(WrappedScorer):
    """A scorer that shows every candidate in the slot that it has in its window, without its companions.

    With fillers they take the companions' places; without, the candidate is alone under the window's answer.
    """

    scorer: Scorer
    shows_one_by_one = True

    def __init__(self, scorer: Scorer, fillers: Fillers | None):
        super().__init__(scorer)
        self.fillers = fillers

    @property
    def condition(self) -> Condition:
        return "fillers" if self.fillers else "skeleton"

    @property
    def name(self) -> str:
        return f"{self.scorer.name} ({self.condition})"

    def identity(self) -> dict[str, object]:
        return self.scorer.identity() | {"condition": self.condition}

    def with_settings(self, settings: Settings) -> ConditionScorer:
        return ConditionScorer(self.scorer.with_settings(settings), self.fillers)

    def score_orders(self, instance: Instance, orders: np.ndarray, permutations: Sequence[int]) -> Presented:
        n = len(instance.pool)
        cuts = [windows(order, self.width or n, self.settings.partition) for order in orders]
        filled = replace(instance, pool=(*instance.pool, *self.fillers.fill(instance))) if self.fillers else instance
        targets = [(window, slot) for cut in cuts for window in cut for slot in range(len(window.candidates))]
        readings, cost = self.scorer.read_windows([(filled, self._around(window, slot, n)) for window, slot in targets])
        lines = iter([_line(reading, slot) for reading, (_, slot) in zip(readings, targets, strict=True)])
        rows = [[_join([next(lines) for _ in window.candidates]) for window in cut] for cut in cuts]
        return self.scorer.present(instance, cuts, rows, permutations, cost)

    def _around(self, window: Window, slot: int, n: int) -> Window:
        """What a slot's candidate is shown in: the fillers of its companions, which come after the pool of n, or nothing."""
        own = window.candidates[slot]
        if self.fillers is None:
            return Window(window.index, (own,), first=slot, lines=len(window.candidates))
        return Window(window.index, tuple(i if i == own else n + i for i in window.candidates))


def _line(reading: WindowReading, at: int) -> WindowReading:
    return WindowReading(*(None if values is None else values[at : at + 1] for values in reading))  # type: ignore[arg-type]


def _join(parts: Sequence[WindowReading]) -> WindowReading:
    columns = zip(*parts, strict=True)
    return WindowReading(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
