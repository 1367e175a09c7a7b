"""The reader consumer: a frozen model reads the first k candidates of every permutation (§5, §F.3).

A verdict is the likeliest of the three labels, from the log-probabilities of the labels' tokens wherever an engine tells
them; an answer is decoded greedily. Equal evidence in equal order is one prompt, read once ever: outputs are kept by the
hash of the prompt, so a stopped reading goes on where it was and a flip is never noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..collection import Data, open_collection
from ..engines import Backend, EngineOptions
from ..engines.address import check_address, open_engine
from ..engines.endpoint import TooLong
from ..engines.generator import Generator, cannot_read
from ..errors import InputError, ModelError
from ..machine.disk import cache_folder, make_folder, open_to_write, storage
from ..measures import answers as arithmetic
from ..measures.answers import EVIDENCE
from ..measures.measurement import at_budget
from ..runs.folder import Run
from ..runs.table import Scored
from ..scoring.score import naming_failures
from ..tasks import TASKS, Task
from ..terms import Failure, Instance
from .outputs import keep_outputs, reader_label, readings_of
from .prompt import VERDICTS, Question, chat, encoded, first_line, question

MOST_TOKENS = 64
"""Tokens of a generated answer."""


def check_readable(task: Task) -> None:
    if task.reader is None:
        readable = " or ".join(sorted(name for name, known in TASKS.items() if known.reader))
        raise InputError(f"a reader reads for {readable}; {task.name} has neither verdicts nor answers.")


class Reader:
    """A frozen model that reads, with everything it ever read."""

    def __init__(self, engine: Backend, task: Task):
        check_readable(task)
        if not isinstance(engine, Generator):
            raise cannot_read(engine.name)
        self.engine = engine
        self.task, self.name = task, engine.name
        self.writes = task.reader.writes if task.reader else None
        identity = json.dumps([engine.identity(), task.name, MOST_TOKENS], sort_keys=True, default=str)
        self.file = cache_folder() / "readings" / f"{_digest(identity)}.jsonl"
        self._known = _kept(self.file)
        self.asked = 0
        """Prompts that the model was shown; the others were known."""

    def read(self, instance: Instance, evidence: Sequence[Sequence[int]]) -> list[str]:
        """The verdict or answer on each selection of the pool's candidates, in the order given."""
        asked = [question(self.task, instance.query, [instance.pool[i] for i in shown]) for shown in evidence]
        keys = [_digest(json.dumps(chat(one))) for one in asked]
        new = {key: one for key, one in zip(keys, asked, strict=True) if key not in self._known}
        if new:
            try:
                said = self._answer(list(new.values()), instance.id)
            except TooLong as refusal:
                raise InputError(f"the evidence of query {instance.id} does not fit: {refusal}. Lower --reader-k.") from refusal
            self._keep(dict(zip(new, said, strict=True)))
        return [self._known[key] for key in keys]

    def _keep(self, said: dict[str, str]) -> None:
        self._known |= said
        self.asked += len(said)
        with storage(self.file):
            make_folder(self.file.parent)
            with open_to_write(self.file, "a", encoding="utf-8") as stream:
                for key, output in said.items():  # the break comes first: it ends a line a kill cut short
                    stream.write("\n" + json.dumps({"prompt": key, "output": output}, ensure_ascii=False))

    def _answer(self, asked: list[Question], query_id: str) -> list[str]:
        prompts, labels = self._prompts(asked, query_id)
        if self.writes == "answer":
            return [first_line(text) for text in self.engine.generate(prompts, MOST_TOKENS)]
        found = self.engine.label_log_probabilities(prompts, labels)  # (P, 3)
        if np.isneginf(found).all(axis=1).any():
            raise ModelError(f"{self.name} gives none of the labels any probability on query {query_id}. Choose another reader.")
        return [VERDICTS[i] for i in found.argmax(axis=1)]

    def _prompts(self, asked: list[Question], query_id: str) -> tuple[list[Any], list[Any]]:
        """Questions and labels as the engine takes them: token ids that fit its context, or text."""
        encoder = self.engine.encoder
        if encoder is None:
            return [chat(one) for one in asked], list(VERDICTS)
        labels = [encoder.plain(label) for label in VERDICTS]
        prompts = [encoded(encoder, one) for one in asked]
        needed = max(map(len, prompts)) + (MOST_TOKENS if self.writes == "answer" else max(map(len, labels)))
        if needed > self.engine.context:
            raise InputError(
                f"the evidence of query {query_id} does not fit: it needs {needed:,} tokens, {self.name} takes "
                f"{self.engine.context:,}. Lower --reader-k, or choose a reader with a longer context."
            )
        return prompts, labels


@lru_cache(maxsize=2)  # the runs of one command share their readers
def open_reader(address: str, options: EngineOptions | None = None) -> Backend:
    """The engine of an address, which need not grade; vLLM in this process loads a model either to grade or to generate."""
    kind, _, rest = address.partition(":")
    if kind.partition("+")[0] != "vllm" or "@http" in rest:
        return open_engine(address, options, check_parity=False)
    check_address(address)
    from ..engines.vllm import VllmReader

    return VllmReader.open(rest, options or EngineOptions())


# -- a run's outputs


class Read(NamedTuple):
    """What a reader made of a run."""

    values: dict[str, np.ndarray]
    """measure -> (Q,) over the run's queries"""
    failed: list[Failure]
    """Queries without a usable output under some permutation, with the reason: in no mean, asked again by the same command."""
    asked: int
    """Prompts that the model was shown; the others were known."""
    spent: dict[str, Any]
    """Requests, tokens and cost, of an endpoint that charges."""


def read_run(
    run: Run,
    source: Data,
    address: str,
    *,
    scored: Sequence[Scored] | None = None,
    k: int = EVIDENCE,
    serving_permutations: int = 1,
    options: EngineOptions | None = None,
    engine: Any = None,
    progress: Callable[[Iterable[Instance], int | None], Iterable[Instance]] | None = None,
) -> Read:
    """Read the first k under every permutation of a run, keep the outputs beside it and measure them.

    Whoever has read the table hands over its queries (`scored`).
    """
    reader = Reader(engine or open_reader(address, options), TASKS[run.record["task"]])
    before = reader.engine.spent()
    stored = run.scored() if scored is None else scored
    served = stored if serving_permutations == 1 else [at_budget(query, serving_permutations) for query in stored]
    queries = {query.query_id: query for query in served}
    wanted = (instance for instance in open_collection(source).instances() if instance.id in queries)
    outputs: dict[str, list[str]] = {}
    failed: list[Failure] = []
    for instance in progress(wanted, len(queries)) if progress else wanted:
        with naming_failures(failed, instance.id):
            outputs[instance.id] = _read_query(reader, instance, queries[instance.id], k)
    if failed and not outputs:
        raise InputError(f"{address} read none of the {len(queries)} queries: {failed[0].reason}.")
    label = reader_label(address, k, serving_permutations)
    keep_outputs(run, label, outputs)
    return Read(readings_of(run, list(queries))[label].values, failed, reader.asked, reader.engine.spent_since(before))


def _read_query(reader: Reader, instance: Instance, query: Scored, k: int) -> list[str]:
    index = {candidate.id: i for i, candidate in enumerate(instance.pool)}
    columns = np.array([index[candidate] for candidate in query.candidate_ids])
    return reader.read(instance, [columns[shown].tolist() for shown in arithmetic.evidence(query.permuted, k)])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _kept(file: Path) -> dict[str, str]:
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
