"""The paper's three tasks, and claim verification, which is the first with a reader: everything that depends on the task.

The passage prompt is the paper's printed one, to the letter (§B.1). The other two rubrics are ours, on the same scale.
A further task is one more value of `TASKS`; `collection/schema.json`, which other languages read, repeats their names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .errors import InputError
from .terms import GRADES, TaskName


@dataclass(frozen=True, slots=True)
class ReaderKind:
    """What a reader writes for a task, and how that is measured."""

    writes: Literal["answer", "verdict"]
    quality: tuple[str, ...]
    """Measures of how good it is."""
    flip: str
    """The measure of how often it changes between two orders."""
    tokens: int
    """Tokens it writes, for estimates."""


ANSWER = ReaderKind("answer", ("answer_em", "answer_f1"), "answer_flip", 16)
VERDICT = ReaderKind("verdict", ("verdict_accuracy",), "verdict_flip", 5)


@dataclass(frozen=True, slots=True)
class Task:
    name: TaskName
    label: str
    """The task in the words of a sentence."""
    noun: str
    """What its candidates are called."""
    system: str
    instruction: str
    """Default instruction line; a collection may bring its own."""
    query_label: str
    item_label: str
    """Header above the candidates."""
    item: str
    """One candidate, as the rubric calls it."""
    evaluate: str
    """What the rubric asks to be done with every item."""
    grade: str
    """What the grades say."""
    question: str
    """How a decision model is asked about one candidate, with its marker in place of {}."""
    levels: tuple[str, str, str, str]
    """What the grades 0, 1, 2, 3 mean."""
    compact: str
    """The whole rubric in one sentence: the system message of the compact prompt."""
    width: int
    """Candidates per prompt, B (table of configurations, §B.3)."""
    quality_cutoff: int
    """k of the quality measure nDCG@k (§5)."""
    decisions: tuple[str, ...]
    """The measure of what its consumer decides (§5), then the nearest ones that a run may allow instead."""
    screen: tuple[str, ...]
    """What a first look shows where it was measured: quality, how far rankings and decisions move, what that is to be read
    against, the share kept."""
    weight: float
    """Consistency weight of the paper's recipe, on the released code's pairwise scale (§B.3; docs/objectives.md)."""
    reader: ReaderKind | None = None
    """What a reader of the first candidates writes; None where there is nothing to read for."""
    has_ranked_pools: bool = True
    """Whether a pool's order is a ranking where its collection names no first stage."""
    scored_as: TaskName | None = None
    """The task whose prompt scores it, where that is another."""

    @property
    def rubric(self) -> str:
        """Everything between the candidates and the answer skeleton."""
        return "\n".join(
            [
                self.evaluate,
                f"Assign exactly one integer {self.grade} grade to every {self.item}:",
                *(f"- {grade} = {self.levels[grade]}" for grade in reversed(GRADES)),
                f"Output one line per {self.item} in the form: [<id>] Grade: <0|1|2|3>",
            ]
        )

    @property
    def quality(self) -> str:
        """The quality measure's name."""
        return f"ndcg@{self.quality_cutoff}"

    @property
    def compared(self) -> tuple[str, ...]:
        """What the first-stage order and another tie rule are measured by too: the first look, and what a threshold keeps."""
        return tuple(dict.fromkeys((*self.screen, *SETS)))

    @property
    def prompt_task(self) -> TaskName:
        """The task that names the prompt: what a fingerprint and an adapter's card say."""
        return self.scored_as or self.name


def reader_kind(task: Task) -> ReaderKind:
    """What a reader of this task writes; a task that nobody reads for is refused."""
    if task.reader is None:
        readable = " or ".join(sorted(name for name, known in TASKS.items() if known.reader))
        raise InputError(
            f"a reader reads for {readable}; {task.name} has neither verdicts nor answers. "
            "SciFact and Climate-FEVER get verdicts by `steadyscore data build NAME --from FOLDER --verdicts FILE`."
        )
    return task.reader


SETS = ("overlap", "overlap_nonempty", "chance_overlap", "empty_sets", "retention", "retained_f1")
"""What a threshold keeps: how alike its sets are, what that is to be read against, and how good they are."""


PASSAGE_RERANKING = Task(
    name="passage_reranking",
    label="passage reranking",
    noun="candidates",
    system=(
        "You are a search relevance grader. For each numbered document, output one fixed integer relevance grade in "
        "{0, 1, 2, 3}. Do not rank the documents and do not explain."
    ),
    instruction="Given a web search query, retrieve relevant passages that answer the query",
    query_label="Query",
    item_label="Documents",
    item="document",
    evaluate="Evaluate every document independently for relevance to the query.",
    grade="relevance",
    question="How relevant to the query is document [{}]?",
    levels=(
        "not relevant",
        "weakly relevant or topical background",
        "strongly relevant but incomplete",
        "directly and completely answers the query",
    ),
    compact="Grade each passage from 0 (irrelevant) to 3 (answers the query).",
    width=20,
    quality_cutoff=10,
    decisions=("overlap", "overlap@10", "pair_flip"),
    screen=("ndcg@10", "tau_psi", "overlap", "chance_overlap", "retention"),
    weight=5.0,
)

MULTIDOC_QA = Task(
    name="multidoc_qa",
    label="multi-document QA",
    noun="candidates",
    system=(
        "You are an evidence grader for question answering. For each numbered passage, output one fixed integer "
        "support grade in {0, 1, 2, 3}. Do not answer the question and do not explain."
    ),
    instruction="Given a question that may need several passages, find the passages that hold facts needed to answer it",
    query_label="Question",
    item_label="Passages",
    item="passage",
    evaluate="Evaluate every passage for the evidence it supplies, not for sharing a topic with the question.",
    grade="support",
    question="How much of the evidence that the question needs does passage [{}] supply?",
    levels=(
        "no evidence",
        "background or a weak link to the evidence",
        "strong evidence that does not suffice alone",
        "states a fact that the answer needs",
    ),
    compact="Grade each passage from 0 (no evidence) to 3 (states a fact that the answer needs).",
    width=10,
    quality_cutoff=10,
    decisions=("answer_flip", "overlap", "overlap@10", "pair_flip"),
    screen=("ndcg@10", "tau_psi", "answer_flip", "overlap", "chance_overlap", "retention"),
    weight=3.0,
    reader=ANSWER,
    has_ranked_pools=False,
)

RESPONSE_RANKING = Task(
    name="response_ranking",
    label="response ranking",
    noun="responses",
    system=(
        "You are a response quality grader. For each numbered response, output one fixed integer quality grade in "
        "{0, 1, 2, 3}. Do not compare the responses aloud and do not explain."
    ),
    instruction="Given a prompt, rate how good each response to it is",
    query_label="Prompt",
    item_label="Responses",
    item="response",
    evaluate="Evaluate every response for correctness, helpfulness and how well it follows the prompt.",
    grade="quality",
    question="How good is response [{}] to the prompt?",
    levels=(
        "wrong, unhelpful or off the task",
        "poor, with clear errors or omissions",
        "good with small faults",
        "correct, complete and helpful",
    ),
    compact="Grade each response from 0 (wrong or unhelpful) to 3 (correct and helpful).",
    width=4,
    quality_cutoff=1,
    decisions=("pair_flip",),
    screen=("ndcg@1", "tau_psi", "pair_flip", "overlap", "retention"),
    weight=1.0,
    has_ranked_pools=False,
)

CLAIM_VERIFICATION = replace(  # evidence for a claim is retrieved as passages are; the verdict belongs to its reader (§5)
    PASSAGE_RERANKING,
    name="claim_verification",
    label="claim verification",
    decisions=("verdict_flip", "overlap", "overlap@10", "pair_flip"),
    screen=("ndcg@10", "tau_psi", "verdict_flip", "overlap", "chance_overlap", "retention"),
    reader=VERDICT,
    scored_as="passage_reranking",
)

TASKS: dict[str, Task] = {task.name: task for task in (PASSAGE_RERANKING, MULTIDOC_QA, RESPONSE_RANKING, CLAIM_VERIFICATION)}
