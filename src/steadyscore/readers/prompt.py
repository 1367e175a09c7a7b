"""What a reader is asked: the evidence in scorer order, then the question or the claim (§F.3).

The words are ours. Evidence, question and claim are untrusted pieces, so that nothing they say can end the user turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from ..tasks import Task, reader_kind
from ..terms import Candidate, Verdict
from ..window.encoding import Encoder
from ..window.prompt import Piece, collapse

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Question:
    """What a reader is asked, as text."""

    system: str
    user: tuple[Piece, ...]


ANSWER_SYSTEM = (
    "You answer questions from the given passages and from nothing else. Reply with the shortest exact answer, a span of "
    "a passage or yes or no, and no explanation."
)
VERDICT_SYSTEM = (
    "You check claims against the given evidence and nothing else. SUPPORTED: the evidence shows that the claim is true. "
    "REFUTED: it shows that the claim is false. NOT ENOUGH INFO: it shows neither."
)


def build_question(task: Task, query: str, evidence: Sequence[Candidate]) -> Question:
    """The evidence, numbered from 1 and whole (no cut to the scorer's characters), and what is asked of it."""
    is_claim = reader_kind(task).writes == "verdict"
    user = [
        Piece(
            "Reply with one label: SUPPORTED, REFUTED or NOT ENOUGH INFO." if is_claim else "Give the shortest exact answer.",
            True,
        )
    ]
    for number, candidate in enumerate(evidence, start=1):
        title = f"{candidate.title}. " if candidate.title else ""
        user += [Piece(f"\n\n[{number}]", True), Piece(" " + collapse(title + candidate.text), False)]
    user += [Piece("\n\nClaim:" if is_claim else "\n\nQuestion:", True), Piece(" " + collapse(query), False)]
    return Question(VERDICT_SYSTEM if is_claim else ANSWER_SYSTEM, tuple(user))


def chat_messages(question: Question) -> list[dict[str, str]]:
    """The two messages, for engines that take text."""
    user = "".join(piece.text for piece in question.user)
    return [{"role": "system", "content": question.system}, {"role": "user", "content": user}]


def encode_question(encoder: Encoder, question: Question) -> tuple[int, ...]:
    """Token ids up to where the reader begins to answer."""
    before, after = encoder.template(question.system)
    return (*encoder.fixed(before), *encoder.pieces(question.user), *encoder.fixed(after))


def first_line(written: str) -> str:
    """A generated answer: its first line that says something, without a leading tag."""
    line = next((line.strip() for line in written.splitlines() if line.strip()), "")
    head, colon, rest = line.partition(":")
    return rest.strip() if colon and head.strip().lower() in ("answer", "final answer", "the answer is") else line
