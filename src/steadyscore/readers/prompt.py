"""What a reader is asked: the evidence in scorer order, then the question or the claim (§F.3).

The words are ours. Evidence, question and claim are untrusted pieces, so that nothing they say can end the user turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..tasks import Task
from ..terms import Candidate, Verdict
from ..window.encoding import Encoder
from ..window.prompt import Piece, collapse

VERDICTS: tuple[Verdict, ...] = ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")


@dataclass(frozen=True, slots=True)
class Question:
    """One reading as text."""

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


def question(task: Task, query: str, evidence: Sequence[Candidate]) -> Question:
    """The evidence, numbered from 1 and whole (no cut to the scorer's characters), and what is asked of it."""
    is_claim = task.reader is not None and task.reader.writes == "verdict"
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


def chat(asked: Question) -> list[dict[str, str]]:
    """The two messages, for engines that take text."""
    said = "".join(piece.text for piece in asked.user)
    return [{"role": "system", "content": asked.system}, {"role": "user", "content": said}]


def encoded(encoder: Encoder, asked: Question) -> tuple[int, ...]:
    """Token ids up to where the reader begins to answer."""
    before, after = encoder.template(asked.system)
    return (*encoder.fixed(before), *encoder.pieces(asked.user), *encoder.fixed(after))


def first_line(written: str) -> str:
    """A generated answer: its first line that says something, without a leading tag."""
    line = next((line.strip() for line in written.splitlines() if line.strip()), "")
    head, colon, rest = line.partition(":")
    return rest.strip() if colon and head.strip().lower() in ("answer", "final answer", "the answer is") else line
