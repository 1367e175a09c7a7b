"""The paper's three tasks, and claim verification as a reading of the first: rubric, width, quality measure, weight.

The passage prompt is the paper's printed one, to the letter (§B.1). The other two rubrics are ours, on the same scale.
"""

from __future__ import annotations

from dataclasses import dataclass

from .terms import TaskName


@dataclass(frozen=True, slots=True)
class Task:
    name: TaskName
    system: str
    instruction: str
    """Default instruction line; a collection may bring its own."""
    query_label: str
    item_label: str
    """Header above the candidates."""
    rubric: str
    """Everything between the candidates and the answer skeleton."""
    compact: str
    """The whole rubric in one sentence: the system message of the compact prompt."""
    width: int
    """Candidates per prompt, B (table of configurations, §B.3)."""
    quality_cutoff: int
    """k of the quality measure nDCG@k (§5)."""
    weight: float
    """Consistency weight of the paper's recipe, on the released code's pairwise scale (§B.3; docs/objectives.md)."""


PASSAGE_RERANKING = Task(
    name="passage_reranking",
    system=(
        "You are a search relevance grader. For each numbered document, output one fixed integer relevance grade in "
        "{0, 1, 2, 3}. Do not rank the documents and do not explain."
    ),
    instruction="Given a web search query, retrieve relevant passages that answer the query",
    query_label="Query",
    item_label="Documents",
    rubric=(
        "Evaluate every document independently for relevance to the query.\n"
        "Assign exactly one integer relevance grade to every document:\n"
        "- 3 = directly and completely answers the query\n"
        "- 2 = strongly relevant but incomplete\n"
        "- 1 = weakly relevant or topical background\n"
        "- 0 = not relevant\n"
        "Output one line per document in the form: [<id>] Grade: <0|1|2|3>"
    ),
    compact="Grade each passage from 0 (irrelevant) to 3 (answers the query).",
    width=20,
    quality_cutoff=10,
    weight=5.0,
)

MULTIDOC_QA = Task(
    name="multidoc_qa",
    system=(
        "You are an evidence grader for question answering. For each numbered passage, output one fixed integer "
        "support grade in {0, 1, 2, 3}. Do not answer the question and do not explain."
    ),
    instruction="Given a question that may need several passages, find the passages that hold facts needed to answer it",
    query_label="Question",
    item_label="Passages",
    rubric=(
        "Evaluate every passage for the evidence it supplies, not for sharing a topic with the question.\n"
        "Assign exactly one integer support grade to every passage:\n"
        "- 3 = states a fact that the answer needs\n"
        "- 2 = strong evidence that does not suffice alone\n"
        "- 1 = background or a weak link to the evidence\n"
        "- 0 = no evidence\n"
        "Output one line per passage in the form: [<id>] Grade: <0|1|2|3>"
    ),
    compact="Grade each passage from 0 (no evidence) to 3 (states a fact that the answer needs).",
    width=10,
    quality_cutoff=10,
    weight=3.0,
)

RESPONSE_RANKING = Task(
    name="response_ranking",
    system=(
        "You are a response quality grader. For each numbered response, output one fixed integer quality grade in "
        "{0, 1, 2, 3}. Do not compare the responses aloud and do not explain."
    ),
    instruction="Given a prompt, rate how good each response to it is",
    query_label="Prompt",
    item_label="Responses",
    rubric=(
        "Evaluate every response for correctness, helpfulness and how well it follows the prompt.\n"
        "Assign exactly one integer quality grade to every response:\n"
        "- 3 = correct, complete and helpful\n"
        "- 2 = good with small faults\n"
        "- 1 = poor, with clear errors or omissions\n"
        "- 0 = wrong, unhelpful or off the task\n"
        "Output one line per response in the form: [<id>] Grade: <0|1|2|3>"
    ),
    compact="Grade each response from 0 (wrong or unhelpful) to 3 (correct and helpful).",
    width=4,
    quality_cutoff=1,
    weight=1.0,
)

TASKS: dict[str, Task] = {
    "passage_reranking": PASSAGE_RERANKING,
    "multidoc_qa": MULTIDOC_QA,
    "response_ranking": RESPONSE_RANKING,
    # Evidence for a claim is retrieved as passages are; the verdict belongs to the reader that consumes it (§5).
    "claim_verification": PASSAGE_RERANKING,
}
