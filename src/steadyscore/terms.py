"""The paper's nouns as frozen values (section 3 of the paper; glossary in docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of numbers or of true and false; docstrings give its shape, as (M, n)."""

JsonObject = Mapping[str, object]
"""A JSON object whose values are checked where they are read, or only written."""

GRADES = (0, 1, 2, 3)
"""The four grades of every rubric (§4, score readout)."""

LARGEST_SCORE = 1e100
"""Beyond this size sums of squares over a pool overflow, and a variance would read as infinite."""

TaskName = str
"""A key of `tasks.TASKS`, which holds everything that a task is."""
Partition = Literal["contiguous", "round_robin"]
Markers = Literal["numeric", "letters", "roman", "doc", "random3"]
Placeholder = Literal["0", "1", "2", "3", "?"]
Readout = Literal["expected", "argmax", "p2"]
Ties = Literal["id", "input"]
Perturbation = Literal["replace", "drop", "churn", "markers", "held-out-markers", "reverse", "forced-position", "swaps", "noise"]
PERTURBATIONS: tuple[Perturbation, ...] = get_args(Perturbation)
PromptStyle = Literal["paper", "compact", "isolated", "set"]
Verdict = Literal["SUPPORTED", "REFUTED", "NOT ENOUGH INFO"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document or a response that is scored."""

    id: str
    text: str
    title: str | None = None
    relevance: int | None = None
    """The human judgement, where there is one: the gold grade."""
    rank: int | None = None
    """1-based first-stage rank."""
    score: float | None = None
    """First-stage score."""
    planted: str = ""
    """Words that a study has put into the text: a query of which the scorer is not shown them is not measured."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A query and its candidate set, x = (q, D). The pool stands in first-stage order."""

    id: str
    query: str
    pool: tuple[Candidate, ...]
    answers: tuple[str, ...] = ()
    verdict: Verdict | None = None
    judged: dict[str, int] | None = None
    """Relevance of judged documents outside the pool, which nDCG's ideal ranking counts (§5)."""

    def relevance(self, candidate_ids: Sequence[str] | None = None) -> Array | None:
        """(n,) judgements of the pool, or of these candidates of it, NaN where one is not judged; None where none is."""
        judged = {c.id: c.relevance for c in self.pool if c.relevance is not None}
        ids = [c.id for c in self.pool] if candidate_ids is None else candidate_ids
        return np.array([judged.get(id, np.nan) for id in ids], dtype=float) if judged else None

    def judgements(self) -> dict[str, int]:
        """Relevance of every judged document, in the pool and outside it."""
        return {c.id: c.relevance for c in self.pool if c.relevance is not None} | (self.judged or {})


@dataclass(frozen=True, slots=True)
class Collection:
    """What all instances of a file share: its header line. Instances themselves are streamed."""

    name: str
    task: TaskName
    instruction: str | None = None
    """Replaces the task's own instruction line."""
    chars: int | None = 1200
    """Characters of each candidate shown to the model (§B.1: 1200 on TREC-DL, QA and responses; 500 on BEIR); None keeps all."""
    queries: int | None = None
    """Number of instances, where the header states it."""
    details: dict[str, Any] | None = field(default=None, repr=False)
    """Provenance: licence, source, first stage, filters; written unchanged."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A query that could not be scored, labelled or read: in no mean, and tried again by the same command."""

    query_id: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"query_id": self.query_id, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Presentation:
    """One setting of the four channels (§3): what may vary while query and pool stay as they are."""

    order: tuple[int, ...]
    """Position in the prompt sequence -> index of the candidate in the pool."""
    partition: Partition = "contiguous"
    markers: Markers = "numeric"
    placeholder: Placeholder = "0"
    """The grade that stands in every slot of the answer skeleton."""
    marker_seed: int | None = None
    """Shuffles the labels over the slots; None: in slot order."""


@dataclass(frozen=True, slots=True)
class Window:
    """The candidates that share a prompt; its position in the tuple is a candidate's slot."""

    index: int
    """0-based place of this window among those of its presentation."""
    candidates: tuple[int, ...]
    """Indices into the pool, in slot order."""
    first: int = 0
    """Slot of the first candidate: above 0 only where the answer skeleton has more lines than there are candidates."""
    lines: int | None = None
    """Lines of the answer skeleton; None: one per candidate."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A window as token ids, with the places where its grades are read."""

    prefix: tuple[int, ...]
    """System message, instruction and query: shared by every window of a query."""
    body: tuple[int, ...]
    """Candidates, rubric and answer skeleton."""
    slots: tuple[int, ...]
    """Per candidate, the index in prefix + body of the token whose successor is the grade."""
    grade_tokens: tuple[int, ...]
    """Token ids of the grades 0, 1, 2, 3."""
    candidates: tuple[tuple[int, int, int], ...] = ()
    """Where candidates must not see each other: first token, closing marker and end of each. Else empty."""
    segment: int = 0
    """In a set window, how many tokens at the end of each candidate see the others' texts. Else 0."""

    def __len__(self) -> int:
        return len(self.prefix) + len(self.body)

    @property
    def ids(self) -> tuple[int, ...]:
        """All of it."""
        return (*self.prefix, *self.body)
