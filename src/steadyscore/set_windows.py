"""Windows that are sets: every candidate is read alone, and its grade is given in sight of the others.

A candidate's block is its text, what closes it, and the answer line that asks for its grade. Blocks begin at the same
position and carry the same marker, so nothing in them tells a place. The *segment*, the last tokens of a block, sees two
things: its own block as it was read, and the texts of the other candidates, all of them `EARLIER` positions earlier than
they were read. What is another's is told apart by distance, which no order can touch; attention sums over the others as
over a set. Equal texts are one member of the set and get one grade.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from .prompt import SKELETON_HEADER, PromptText
from .terms import Prompt

if TYPE_CHECKING:
    from .encoding import Encoder

EARLIER = 512
"""Positions by which the others' texts stand earlier for a segment: one constant, whatever the pool holds."""


def encode(encoder: Encoder, text: PromptText, *, is_sorted: bool = True) -> Prompt:
    """A window as ids: what comes before the candidates, and one block per distinct text.

    Blocks stand in the order of their token ids, so that equal sets are equal prompts to the last bit. The scores do not
    need that: without sorting they agree within rounding.
    """
    before, after = encoder.template(text.system)
    lead, *pieces = text.body
    texts = [tuple(encoder.plain(piece.text)) for piece in pieces[::2]]
    closing = encoder.fixed(pieces[1].text)
    skeleton, (slot,), grade_tokens = encoder.skeleton(text.markers[:1], text.placeholder)
    rest = (*closing, *encoder.fixed(after), *skeleton[: slot + 1])
    members = list(dict.fromkeys(sorted(texts) if is_sorted else texts))
    prefix = (*encoder.fixed(before), *encoder.pieces(text.prefix), *encoder.fixed(lead.text))
    ends = list(accumulate((len(member) + len(rest) for member in members), initial=len(prefix)))
    place = {member: number for number, member in enumerate(members)}
    return Prompt(
        prefix=prefix,
        body=tuple(token for member in members for token in (*member, *rest)),
        slots=tuple(ends[place[own] + 1] - 1 for own in texts),
        grade_tokens=grade_tokens,
        candidates=tuple((first, end - len(rest), end) for first, end in pairwise(ends)),
        segment=slot + 1 - len(encoder.fixed(SKELETON_HEADER)),
    )


def members(prompt: Prompt) -> list[int]:
    """The block of each candidate, in the order the window was given in; candidates of equal text share one."""
    place = {end - 1: number for number, (_, _, end) in enumerate(prompt.candidates)}
    return [place[slot] for slot in prompt.slots]


def positions(prompt: Prompt, tokens: int) -> np.ndarray:
    """(tokens,) every block begins where the first one does. What is padding stands at 0."""
    found = np.zeros(tokens, int)
    found[: len(prompt.prefix)] = np.arange(len(prompt.prefix))
    for first, _, end in prompt.candidates:
        found[first:end] = len(prompt.prefix) + np.arange(end - first)
    return found


def visible_alone(prompt: Prompt, tokens: int) -> np.ndarray:
    """(tokens, tokens) True where a row's token sees a column's as it was read: the prefix, and its own block up to itself."""
    owner = np.full(tokens, -1)
    owner[: len(prompt.prefix)] = 0
    for number, (first, _, end) in enumerate(prompt.candidates, start=1):
        owner[first:end] = number
    return np.tri(tokens, dtype=bool) & ((owner[:, None] == owner[None, :]) | (owner[None, :] == 0))


def text_tokens(prompt: Prompt) -> np.ndarray:
    """Indices of all texts' tokens, one text after the other."""
    return np.concatenate([np.arange(first, closing) for first, closing, _ in prompt.candidates])


def visible_earlier(prompt: Prompt, tokens: int) -> np.ndarray:
    """(tokens, text tokens) True where a segment's token sees another candidate's text, which stands earlier for it."""
    lengths = [closing - first for first, closing, _ in prompt.candidates]
    found = np.zeros((tokens, sum(lengths)), bool)
    ends = list(accumulate(lengths, initial=0))
    for (_, _, end), (begin, past) in zip(prompt.candidates, pairwise(ends), strict=True):
        found[end - prompt.segment : end] = True
        found[end - prompt.segment : end, begin:past] = False
    return found


def reach(prompt: Prompt) -> int:
    """Positions that a window takes of a model's context: as many as it has tokens; of a set, those of its longest candidate."""
    if not prompt.segment:
        return len(prompt)
    return len(prompt.prefix) + EARLIER + max(end - first for first, _, end in prompt.candidates)
