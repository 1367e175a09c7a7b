"""Windows that are sets: every candidate is read alone, and its grade is given in sight of the others.

A candidate's block is its text, what closes it, and the answer line that asks for its grade. Blocks begin at the same
position and carry the same marker, so nothing in them tells a place. The *segment*, the last tokens of a block, sees two
things: its own block as it was read, and the texts of the other candidates, all of them `EARLIER` positions earlier than
they were read. What is another's is told apart by distance, which no order can touch; attention sums over the others as
over a set. Equal texts are one member of the set and get one grade.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from ..terms import Prompt
from . import isolation

EARLIER = 512
"""Positions by which the others' texts stand earlier for a segment: one constant, whatever the pool holds."""


def lay_out(
    prefix: Sequence[int], texts: Sequence[tuple[int, ...]], closing: Sequence[int], line: Sequence[int],
    grade_tokens: tuple[int, ...], *, is_sorted: bool = True,
) -> Prompt:  # fmt: skip
    """A window as ids: what comes before the candidates, and for every distinct text a block of it, its closing and its line.

    Blocks stand in the order of their token ids, so that equal sets are equal prompts to the last bit. The scores do not
    need that: without sorting they agree within rounding.
    """
    members = list(dict.fromkeys(sorted(texts) if is_sorted else texts))
    ends = list(accumulate((len(text) + len(closing) + len(line) for text in members), initial=len(prefix)))
    last = {text: end - 1 for text, end in zip(members, ends[1:], strict=True)}
    return Prompt(
        prefix=tuple(prefix),
        body=tuple(token for text in members for token in (*text, *closing, *line)),
        slots=tuple(last[text] for text in texts),
        grade_tokens=grade_tokens,
        candidates=tuple((first, first + len(text), end) for text, (first, end) in zip(members, pairwise(ends), strict=True)),
        segment=len(line),
    )


def members(prompt: Prompt) -> list[int]:
    """The block of each candidate, in the order the window was given in; candidates of equal text share one."""
    place = {end - 1: number for number, (_, _, end) in enumerate(prompt.candidates)}
    return [place[slot] for slot in prompt.slots]


def positions(prompt: Prompt, tokens: int) -> np.ndarray:
    """(tokens,) every block begins where the first one does. What is padding stands at 0."""
    places = isolation.positions(prompt.candidates, tokens)
    places[len(prompt) :] = 0
    return places


def visible_alone(prompt: Prompt, tokens: int) -> np.ndarray:
    """(tokens, tokens) True where a row's token sees a column's as it was read: the prefix, and its own block up to itself."""
    return isolation.visible(prompt.candidates, tokens, from_outside=False)


def text_tokens(prompt: Prompt) -> np.ndarray:
    """Indices of all texts' tokens, one text after the other."""
    return np.concatenate([np.arange(first, closing) for first, closing, _ in prompt.candidates])


def visible_earlier(prompt: Prompt, tokens: int) -> np.ndarray:
    """(tokens, text tokens) True where a segment's token sees another candidate's text, which stands earlier for it."""
    lengths = [closing - first for first, closing, _ in prompt.candidates]
    visible = np.zeros((tokens, sum(lengths)), bool)
    ends = list(accumulate(lengths, initial=0))
    for (_, _, end), (begin, past) in zip(prompt.candidates, pairwise(ends), strict=True):
        visible[end - prompt.segment : end] = True
        visible[end - prompt.segment : end, begin:past] = False
    return visible


def reach(prompt: Prompt) -> int:
    """Positions that a window takes of a model's context: as many as it has tokens; of a set, those of its longest candidate."""
    if not prompt.segment:
        return len(prompt)
    return len(prompt.prefix) + EARLIER + max(end - first for first, _, end in prompt.candidates)
