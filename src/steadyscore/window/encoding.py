"""Prompt text to token ids, piece by piece, with the slots known by construction.

A joined string is never re-tokenised: the ids of a piece do not depend on its neighbours, the prefix of a query is the
same ids in every window, and nothing inside a candidate can become a special token or move a slot. The tokenizer is
passed in (any Hugging Face tokenizer); this module imports neither torch nor transformers.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

from ..errors import ModelError
from ..terms import GRADES, Prompt
from . import set_windows
from .prompt import SKELETON_HEADER, Piece, PromptText, skeleton_line

_BODY = "\ue000user turn\ue001"
DAY = datetime(2024, 7, 26)
"""What a chat template that asks is told to be today: the day that Llama 3's own template falls back to."""


DATE = re.compile(r"""\bstrftime_now\(\s*(["'])(.*?)\1\s*\)""")


def _undated(template: Any) -> str | None:
    """A chat template that prints DAY where it would print today's date; None for one that asks for no date."""
    text = template.get("default") if isinstance(template, dict) else template
    if not isinstance(text, str) or not DATE.search(text):
        return None
    return DATE.sub(lambda call: repr(DAY.strftime(call[2])), text)


class Encoder:
    """Turns `PromptText` into `Prompt` for one tokenizer."""

    def __init__(self, tokenizer: Any, name: str):
        self.tokenizer, self.name = tokenizer, name
        if not getattr(tokenizer, "chat_template", None):
            raise ModelError(
                f"{name} has no chat template, so its prompt format is unknown. Use an instruction-tuned model, "
                "or put the template file of its family beside the model."
            )
        # One-character entries are ordinary text that a tokenizer happens to list; only longer ones act as markup.
        added = {text: index for text, index in tokenizer.get_added_vocab().items() if len(text) > 1}
        self._markup_ids = frozenset(added.values())
        self._markup = re.compile("|".join(map(re.escape, sorted(added, key=len, reverse=True)))) if added else None
        # SentencePiece tokenizers begin every text with a word boundary; encoding behind a line break avoids it.
        self._anchor = tokenizer.encode("\n", add_special_tokens=False) if self._adds_boundary() else []
        self.fixed = lru_cache(maxsize=4096)(self._encode)
        """Ids of text of ours, markup included."""
        self.skeleton = lru_cache(maxsize=64)(self._skeleton_ids)
        """(markers, placeholder) -> ids of the answer skeleton, read positions in them, grade tokens."""

    def _adds_boundary(self) -> bool:
        tokens = self.tokenizer.convert_ids_to_tokens(self.tokenizer.encode("x", add_special_tokens=False))
        return str(tokens[0]).startswith("▁")

    def _encode(self, text: str) -> tuple[int, ...]:
        if not self._anchor:
            return tuple(self.tokenizer.encode(text, add_special_tokens=False))
        ids = self.tokenizer.encode("\n" + text, add_special_tokens=False)
        if ids[: len(self._anchor)] != self._anchor:
            raise ModelError(f"the tokenizer of {self.name} merges a line break with what follows, so pieces cannot be joined.")
        return tuple(ids[len(self._anchor) :])

    def plain(self, text: str) -> tuple[int, ...]:
        """Ids of somebody's text. Markup in it is cut in two before tokenisation, so that it stays letters."""
        ids = tuple(i for part in self._defused(text) for i in self._encode(part))
        if self._markup_ids.isdisjoint(ids):
            return ids
        # A normaliser rebuilt the markup (full-width look-alikes): characters one by one cannot be rebuilt.
        ids = tuple(i for char in text for i in self._encode(char))
        if not self._markup_ids.isdisjoint(ids):
            raise ModelError(f"the tokenizer of {self.name} turns plain text into special tokens: {text[:40]!r}.")
        return ids

    def _defused(self, text: str) -> list[str]:
        parts, start = [], 0
        while self._markup is not None and (match := self._markup.search(text, start)):
            parts.append(text[start : match.start() + 1])
            start = match.start() + 1
        return [*parts, text[start:]]

    def pieces(self, pieces: tuple[Piece, ...]) -> list[int]:
        """Ids of a text that several wrote."""
        ids: list[int] = []
        for piece in pieces:
            ids += self.fixed(piece.text) if piece.trusted else self.plain(piece.text)
        return ids

    @lru_cache(maxsize=16)  # noqa: B019 - encoders live as long as their model
    def template(self, system: str | None) -> tuple[str, str]:
        """The chat template's text before and after the user turn; thinking is off where a template has it.

        Without a system message the template says what it says by itself. To one that prints today's date every day is the
        same: a prompt that changes overnight is another scorer.
        """
        user = {"role": "user", "content": _BODY}
        turns = [user] if system is None else [{"role": "system", "content": system}, user]
        options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False, "thinking": False}
        options |= {"date_string": f"{DAY:%d %b %Y}", "chat_template": _undated(self.tokenizer.chat_template)}
        try:
            text = self.tokenizer.apply_chat_template(turns, **options)
        except Exception as refusal:  # templates raise whatever jinja lets them: some have no system role
            if system is None or "system" not in str(refusal).lower():
                raise ModelError(f"the chat template of {self.name} cannot be rendered: {refusal}.") from refusal
            user = {"role": "user", "content": f"{system}\n\n{_BODY}"}
            text = self.tokenizer.apply_chat_template([user], **options)
        before, body, after = text.partition(_BODY)
        if not body:
            raise ModelError(f"the chat template of {self.name} does not show the user turn as it is.")
        return before, after

    def _skeleton_ids(self, markers: tuple[str, ...], placeholder: str) -> tuple[list[int], list[int], tuple[int, ...]]:
        """Ids of the answer skeleton, the read position of each slot in them, and the grade tokens.

        Swapping the placeholder for each grade shows which token is the grade's, whatever the tokenizer: a bare digit,
        a digit merged with the space before it, or a SentencePiece piece.
        """
        ids, slots = list(self._encode(SKELETON_HEADER)), []
        grades: set[tuple[int, ...]] = set()
        for marker in markers:
            by_grade = [self._encode(skeleton_line(marker, str(grade))) for grade in GRADES]
            place, tokens = self._grade_position(by_grade)
            grades.add(tokens)
            line = self._encode(skeleton_line(marker, placeholder))
            if line[:place] != by_grade[0][:place]:
                raise ModelError(f"placeholder {placeholder!r} changes the tokens before it in the tokenizer of {self.name}.")
            slots.append(len(ids) + place - 1)
            ids += line
        if len(grades) != 1:
            raise ModelError(f"the grade tokens of {self.name} differ between slots; choose other markers.")
        return ids, slots, grades.pop()

    def _grade_position(self, by_grade: list[tuple[int, ...]]) -> tuple[int, tuple[int, ...]]:
        lengths = {len(line) for line in by_grade}
        if len(lengths) == 1:
            differing = [p for p, tokens in enumerate(zip(*by_grade, strict=True)) if len(set(tokens)) > 1]
            if len(differing) == 1:
                tokens = tuple(line[differing[0]] for line in by_grade)
                if len(set(tokens)) == len(GRADES):
                    return differing[0], tokens
        for grade in map(str, GRADES):
            count = min(len(self._encode(grade)), len(self._encode(" " + grade)))
            if count != 1:
                raise ModelError(
                    f'grade "{grade}" is {count} tokens for this tokenizer; the readout needs one token per grade. '
                    f'Tried "{grade}" and " {grade}".'
                )
        raise ModelError(f"the four grades do not stand in one token position in the tokenizer of {self.name}.")

    def prompt(self, text: PromptText) -> Prompt:
        """A window as ids, with its slots checked."""
        if text.is_set:
            return self.set_prompt(text)
        before, after = self.template(text.system)
        prefix = [*self.fixed(before), *self.pieces(text.prefix)]
        pieces = [self.pieces((piece,)) for piece in text.body]
        body = [*chain.from_iterable(pieces), *self.fixed(after)]
        skeleton, slots, grade_tokens = self.skeleton(text.markers, text.placeholder)
        start = len(prefix) + len(body)
        return Prompt(
            prefix=tuple(prefix),
            body=(*body, *skeleton),
            slots=tuple(start + slot for slot in slots),
            grade_tokens=grade_tokens,
            candidates=_candidates(len(prefix), [len(piece) for piece in pieces]) if text.isolated else (),
        )

    def set_prompt(self, text: PromptText, *, is_sorted: bool = True) -> Prompt:
        """A set window as ids; its answer lines end where the grade is read."""
        before, after = self.template(text.system)
        lead, *pieces = text.body
        skeleton, slots, grade_tokens = self.skeleton(text.markers[:1], text.placeholder)
        header = self.fixed(SKELETON_HEADER)
        return set_windows.lay_out(
            prefix=(*self.fixed(before), *self.pieces(text.prefix), *self.fixed(lead.text)),
            texts=[self.plain(piece.text) for piece in pieces[::2]],
            closing=(*self.fixed(pieces[1].text), *self.fixed(after), *header),
            line=skeleton[len(header) : slots[0] + 1],
            grade_tokens=grade_tokens,
            is_sorted=is_sorted,
        )


def _candidates(prefix: int, lengths: list[int]) -> tuple[tuple[int, int, int], ...]:
    """First token, closing marker and end of each candidate in prefix + body: behind the lead, a text and its marker each."""
    _, *ends = accumulate(lengths, initial=prefix)
    return tuple(zip(ends[::2], ends[1::2], ends[2::2], strict=False))
