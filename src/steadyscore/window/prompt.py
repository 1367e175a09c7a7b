"""The only place prompt text exists: a window of a query as text, in the paper's layout (§B.1).

Text is kept as pieces that are either ours (trusted) or somebody's (the instruction, the query, the candidates).
`encoding.py` turns the pieces into token ids one by one, so that nothing a candidate says can act as markup; hosted
engines join them into messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from ..tasks import Task
from ..terms import Candidate, Markers, Placeholder, PromptStyle
from .presentation import markers as slot_markers

SKELETON_HEADER = "Grades:\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text with one author. Only trusted pieces may hold markup."""

    text: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class PromptText:
    """A window as text."""

    task: Task
    """Whose words these are."""
    system: str
    prefix: tuple[Piece, ...]
    """The user turn up to the end of the query: the same for every window of a query."""
    body: tuple[Piece, ...]
    """The candidates and the rubric: the rest of the user turn."""
    markers: tuple[str, ...]
    placeholder: Placeholder
    isolated: bool = False
    """Candidates do not see each other; then `body` is a lead, and a text and its closing marker per candidate."""
    is_set: bool = False
    """The window is a set: every candidate has the same marker, and `body` is as above."""
    first: int = 0
    """Slot of the first candidate, where there are more markers, and lines to answer, than candidates."""

    @property
    def characters(self) -> int:
        """Of everything that is fixed before the grades."""
        return len(self.system) + sum(len(piece.text) for piece in (*self.prefix, *self.body))


def shown(candidate: Candidate, chars: int | None) -> str:
    """What the model sees of a candidate: title and text on one line, whitespace collapsed, cut to the first `chars`."""
    text = collapse(f"{candidate.title} {candidate.text}" if candidate.title else candidate.text)
    return text if chars is None else text[:chars]


def whole_text(candidate: Candidate) -> str:
    """A candidate as it is: the title, where it has one, on a line of its own."""
    return f"{candidate.title}\n{candidate.text}" if candidate.title else candidate.text


def collapse(text: str) -> str:
    return " ".join(text.split())


def skeleton_line(marker: str, grade: str) -> str:
    return f"[{marker}] Grade: {grade}\n"


def prompt_text(
    task: Task,
    query: str,
    texts: Sequence[str],
    *,
    instruction: str | None = None,
    markers: Markers = "numeric",
    placeholder: Placeholder = "0",
    style: PromptStyle = "paper",
    marker_seed: int | None = None,
    first: int = 0,
    lines: int | None = None,
) -> PromptText:
    """Lay out one window: `texts` in slot order, already as `shown`.

    The answer has one line per text, or more: `lines` in all, of which the texts have those from slot `first` on.

    `paper` is the printed prompt (§B.1). `compact` is ours, for small models: one sentence instead of the rubric, no
    instruction line, and each candidate *closed* by its marker. What a causal model has learned of a candidate stands
    at the candidate's end, so that is where the marker must be for a slot to find it by (docs/training.md). `isolated` has
    the words of `compact`, read by an attention in which candidates do not see each other (`isolation.py`). `set` has them
    too, with one marker for all: no candidate has a place (`set_windows.py`).
    """
    if style == "set":
        labels = own = tuple(slot_markers(markers, 1, seed=marker_seed)) * len(texts)
    else:
        labels = tuple(slot_markers(markers, lines or len(texts), seed=marker_seed))
        own = labels[first : first + len(texts)]
    asked, pairs = Piece(" " + collapse(query), False), list(zip(own, texts, strict=True))
    if style == "paper":
        instructed = (Piece("Instruction:", True), Piece(" " + collapse(instruction or task.instruction), False))
        prefix: tuple[Piece, ...] = (*instructed, Piece(f"\n{task.query_label}:", True), asked)
        leads = chain([f"\n\n{task.item_label}:\n"], repeat("\n"))
        opened = [(Piece(f"{next(leads)}[{label}]", True), Piece(" " + text, False)) for label, text in pairs]
        body = [*chain(*opened), _rubric_piece(task)]
    else:
        prefix = (Piece(f"{task.query_label}:", True), asked)
        closed = [(Piece(text, False), Piece(f"\n[{label}]\n", True)) for label, text in pairs]
        body = [Piece("\n\n", True), *chain(*closed)]
    return PromptText(
        task=task,
        system=task.system if style == "paper" else task.compact,
        prefix=prefix,
        body=tuple(body),
        markers=labels,
        placeholder=placeholder,
        isolated=style == "isolated",
        is_set=style == "set",
        first=first if lines and style != "set" else 0,
    )


def _rubric_piece(task: Task) -> Piece:
    return Piece("\n\n" + task.rubric, True)


CHARS_PER_TOKEN = 4.2
"""English under the tokenizers of today; good enough for a plan."""


def messages(prompt: PromptText) -> list[dict[str, str]]:
    """The two chat messages, for engines that take text."""
    user = "".join(piece.text for piece in prompt.prefix + prompt.body)
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": user}]


def state_text(prompt: PromptText) -> str:
    """Query and candidates without the rubric: what a decision model is asked about, marker by marker."""
    rubric = _rubric_piece(prompt.task)
    return "".join(piece.text for piece in prompt.prefix + prompt.body if piece != rubric)


def skeleton(prompt: PromptText) -> str:
    """The fixed answer whose grade positions are read."""
    return SKELETON_HEADER + "".join(skeleton_line(marker, prompt.placeholder) for marker in prompt.markers)


def prompt_hash(task: Task, markers: Markers, placeholder: Placeholder, style: PromptStyle = "paper", template: str = "") -> str:
    """Identity of the prompt apart from its contents: two runs with the same hash asked in the same words.

    The instruction belongs to the collection and is recorded beside it; `template` is the chat template's own text.
    """
    contents = {"instruction": "<instruction>", "markers": markers, "placeholder": placeholder, "style": style}
    probe = prompt_text(task, "<query>", ["<a>", "<b>"], **contents)  # type: ignore[arg-type]
    layout = ["isolated"] * probe.isolated + ["set"] * probe.is_set
    words = "\x1e".join([template, *(m["content"] for m in messages(probe)), skeleton(probe), *layout])
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()
