"""The reader consumer: a frozen model reads the first k candidates of every permutation (§5, §F.3).

It is asked with the evidence in scorer order, then the question or the claim. The words are ours. Evidence, question and claim
are untrusted pieces, so that nothing they say can end the user turn.

Verdicts and answers are decoded greedily; a verdict can be nothing but one of the three labels. Equal evidence in equal order
is one prompt, read once ever: outputs are stored by the hash of the prompt, so that a stopped reader resumes where it was
and a flip is never noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from ..collection import Data, open_collection
from ..engines import Backend, EngineOptions, Generator, Ids
from ..engines.http import TooLong
from ..engines.kinds import cannot_read, check_address, kind_of, open_engine, parse_address
from ..errors import InputError, ModelError
from ..machine.disk import cache_folder, explaining_os_errors, make_folder, open_to_write
from ..measures import answers as arithmetic
from ..measures.answers import EVIDENCE
from ..measures.views import ScoreView, ranked_permuted
from ..runs.folder import Run
from ..runs.table import Scored
from ..scoring.loop import Progress, QueryTask, run_tasks
from ..tasks import TASKS, Task, reader_kind
from ..terms import Array, Candidate, Failure, Instance, JsonObject, Verdict
from ..window.encoding import Encoder
from ..window.prompt import Piece, collapse
from .outputs import readable_queries, reader_label, reader_results, write_outputs

MOST_TOKENS = 64
"""Tokens of a generated answer."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
ANSWER_SYSTEM = (
    "You answer questions from the given passages and from nothing else. Reply with the shortest exact answer, a span of "
    "a passage or yes or no, and no explanation."
)
VERDICT_SYSTEM = (
    "You check claims against the given evidence and nothing else. SUPPORTED: the evidence shows that the claim is true. "
    "REFUTED: it shows that the claim is false. NOT ENOUGH INFO: it shows neither."
)


# -- what it is asked


@dataclass(frozen=True, slots=True)
class Question:
    """What a reader is asked, as text."""

    system: str
    user: tuple[Piece, ...]


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


# -- what it says


class Written(NamedTuple):
    """What a reader wrote about a query."""

    prompts: list[str]
    """The hash of each prompt, in order."""
    new: dict[str, str]
    """The outputs of prompts that were not stored."""


class Reader:
    """A frozen model that reads evidence, with the outputs of every prompt it was ever shown."""

    def __init__(self, engine: Backend, task: Task):
        self.kind = reader_kind(task)
        if not isinstance(engine, Generator):
            raise cannot_read(engine.name)
        self.engine = engine
        self.task, self.name = task, engine.name
        by_token = ["greedy"] if self.kind.writes == "verdict" and engine.encoder is not None else []
        identity = json.dumps([engine.identity(), task.name, MOST_TOKENS, *by_token], sort_keys=True, default=str)
        self.file = cache_folder() / "readings" / f"{_digest(identity)}.jsonl"
        self._known = _read_cache(self.file)
        self.asked = 0
        """Prompts that the model was shown; the outputs of the others were stored."""

    def read(self, instance: Instance, evidence: Sequence[Sequence[int]]) -> list[str]:
        """The verdict or answer on each selection of the pool's candidates, in the order given."""
        return self.keep(self.ask(instance, evidence))

    def ask(self, instance: Instance, evidence: Sequence[Sequence[int]]) -> Written:
        """What the model writes about the prompts that it was never shown."""
        questions = [build_question(self.task, instance.query, [instance.pool[i] for i in shown]) for shown in evidence]
        keys = [_digest(json.dumps(chat_messages(question))) for question in questions]
        new = {key: question for key, question in zip(keys, questions, strict=True) if key not in self._known}
        try:
            outputs = self._answer(list(new.values()), instance.id) if new else []
        except TooLong as refusal:
            raise InputError(f"the evidence of query {instance.id} does not fit: {refusal}. Lower reader_k.") from refusal
        return Written(keys, dict(zip(new, outputs, strict=True)))

    def keep(self, written: Written) -> list[str]:
        """Store what was written, and give the output of every prompt."""
        self.asked += len(written.new)
        new = {key: output for key, output in written.new.items() if key not in self._known}
        self._known |= new
        with explaining_os_errors(self.file):
            if new:
                make_folder(self.file.parent)
                with open_to_write(self.file, "a", encoding="utf-8") as stream:
                    for key, output in new.items():  # the break comes first: it ends a line that a kill cut short
                        stream.write("\n" + json.dumps({"prompt": key, "output": output}, ensure_ascii=False))
        return [self._known[key] for key in written.prompts]

    def _answer(self, questions: list[Question], query_id: str) -> list[str]:
        prompts, labels = self._prompts(questions, query_id)
        if self.kind.writes == "answer":
            return [first_line(text) for text in self.engine.generate(prompts, MOST_TOKENS)]
        if self.engine.encoder is not None:
            chosen = greedy_labels(self.engine, prompts, labels)
        else:  # an engine that takes text has decoded by itself
            logarithms = self.engine.label_log_probabilities(prompts, labels)  # (P, 3)
            chosen = [None if np.isneginf(row).all() else int(row.argmax()) for row in logarithms]
        if None in chosen:
            raise ModelError(f"{self.name} gives none of the labels any probability on query {query_id}. Choose another reader.")
        return [VERDICTS[i] for i in chosen if i is not None]

    def _prompts(self, questions: list[Question], query_id: str) -> tuple[list[Any], list[Any]]:
        """Questions and labels as the engine takes them: token ids that fit its context, or text."""
        encoder = self.engine.encoder
        if encoder is None:
            return [chat_messages(question) for question in questions], list(VERDICTS)
        labels = [encoder.plain(label) for label in VERDICTS]
        prompts = [encode_question(encoder, question) for question in questions]
        needed = max(map(len, prompts)) + (MOST_TOKENS if self.kind.writes == "answer" else max(map(len, labels)))
        if needed > self.engine.context:
            raise InputError(
                f"the evidence of query {query_id} does not fit: it needs {needed:,} tokens, {self.name} takes "
                f"{self.engine.context:,}. Lower reader_k, or choose a reader with a longer context."
            )
        return prompts, labels


def greedy_labels(engine: Generator, prompts: Sequence[Ids], labels: Sequence[Ids]) -> list[int | None]:
    """The label that greedy decoding writes behind each prompt if it may write nothing else; None where none has a chance.

    At every token the likeliest of those that continue a label is taken. A model is asked only where labels part: labels with
    different first tokens cost one token each. No label may be the beginning of another.
    """
    chosen: list[int | None] = [None] * len(prompts)
    open_groups: list[tuple[list[int], list[int]]] = [(list(range(len(prompts))), list(range(len(labels))))]
    while open_groups:
        asked, left = open_groups.pop()
        if len(left) == 1:
            for prompt in asked:
                chosen[prompt] = left[0]
            continue
        together = _shared_tokens([labels[i] for i in left])
        branches: dict[tuple[int, ...], list[int]] = {}
        for i in left:
            branches.setdefault(tuple(labels[i][: together + 1]), []).append(i)
        read = engine.label_log_probabilities([prompts[i] for i in asked], list(branches))
        for row, members in enumerate(branches.values()):
            followers = [i for i, each in zip(asked, read, strict=True) if each.argmax() == row and each[row] > -np.inf]
            if followers:
                open_groups.append((followers, members))
    return chosen


def _shared_tokens(labels: Sequence[Ids]) -> int:
    """Tokens with which all labels begin."""
    return next(t for t in range(len(labels[0]) + 1) if len({tuple(label[: t + 1]) for label in labels}) > 1)


@lru_cache(maxsize=2)  # the runs of one command share their readers
def open_reader(address: str, options: EngineOptions | None = None) -> Backend:
    """The engine of an address, which need not grade; vLLM in this process loads a model either to grade or to generate."""
    parsed = parse_address(address)
    if (open_to_read := kind_of(parsed).open_reader) is None:
        return open_engine(address, options, check_parity=False)
    check_address(address)
    return open_to_read(parsed, options or EngineOptions())


# -- a run's outputs


class ReaderRun(NamedTuple):
    """What a reader made of a run."""

    values: dict[str, Array]
    """measure -> (Q,) over the run's queries"""
    failed: list[Failure]
    """Queries without a usable output under some permutation, with the reason: in no mean, asked again by the same command."""
    asked: int
    """Prompts that the model was shown; the outputs of the others were stored."""
    spent: JsonObject
    """Requests, tokens and cost, of an endpoint that charges."""


def ask_reader(
    run: Run,
    source: Data,
    address: str,
    *,
    scored: Sequence[Scored] | None = None,
    k: int = EVIDENCE,
    view: ScoreView | None = None,
    options: EngineOptions | None = None,
    engine: Any = None,
    progress: Progress | None = None,
) -> ReaderRun:
    """Have a reader read the first k under every permutation of a run, write its outputs beside it and measure them.

    Claims without a verdict are not read where others have one (`readable_queries`). A caller that holds the queries of the
    run passes them as `scored`, as they are stored.
    """
    reader = Reader(engine or open_reader(address, options), TASKS[run.record.task])
    before = reader.engine.spent()
    view = view or ScoreView()
    served = view.of_all(run.read_queries() if scored is None else scored)
    readable = readable_queries(run)
    queries = {query.query_id: query for query in served if query.query_id in readable}
    outputs: dict[str, list[str]] = {}

    def tasks() -> Iterator[QueryTask]:
        for instance in open_collection(source).instances():
            if instance.id in queries:
                outputs[instance.id] = []  # in the order of the collection, whatever ends first
                query = queries[instance.id]
                yield QueryTask(instance, partial(_ask_query, reader, instance, query, k), len(query.permutations))

    def keep(instance: Instance, written: Written) -> None:
        outputs[instance.id] = reader.keep(written)

    failed = run_tasks(tasks(), keep, reader.engine, progress, len(queries))
    outputs = {query_id: written for query_id, written in outputs.items() if written}
    if failed and not outputs:
        raise InputError(f"{address} read none of the {len(queries)} queries: {failed[0].reason}.")
    label = reader_label(address, k, view)
    write_outputs(run, label, outputs)
    values = reader_results(run, [query.query_id for query in served])[label].values
    return ReaderRun(values, failed, reader.asked, reader.engine.spent_since(before))


def _ask_query(reader: Reader, instance: Instance, query: Scored, k: int) -> Written:
    index = {candidate.id: i for i, candidate in enumerate(instance.pool)}
    columns = np.array([index[candidate] for candidate in query.candidate_ids])
    return reader.ask(instance, [columns[shown].tolist() for shown in arithmetic.evidence(ranked_permuted(query), k)])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read_cache(file: Path) -> dict[str, str]:
    """Outputs by prompt hash; a line that a kill cut short is not one."""
    known: dict[str, str] = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
                known[row["prompt"]] = row["output"]
            except (ValueError, KeyError):
                continue
    return known
