"""The reader consumer: a frozen model reads the first k candidates of every permutation (§5, §F.3, PROTOCOL 7).

A verdict is the label of highest probability among the three, from the log-probabilities of the labels' tokens: nothing
is generated and nothing parsed. An answer is decoded greedily. Equal evidence in equal order is one prompt, read once
ever: outputs are kept by the hash of the prompt, so a stopped reading goes on where it was and a flip is never noise.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .collection import open_collection
from .consumers import reader as arithmetic
from .consumers.reader import EVIDENCE
from .disk import cache_folder, storage, write_parquet
from .engines import EngineOptions, open_engine
from .errors import InputError
from .reader_prompt import VERDICTS, Question, chat, encoded, first_line, question
from .runs import Run
from .scores import Scored, read_table
from .summary import served_queries
from .terms import Instance, TaskName

MOST_TOKENS = 64
"""Tokens of a generated answer."""
READ = ("claim_verification", "multidoc_qa")
"""Tasks that have something to read for: a verdict or answers."""


@runtime_checkable
class Generator(Protocol):
    """An engine that continues a chat greedily: what any other engine needs to be a reader."""

    name: str

    def identity(self) -> dict[str, Any]: ...

    def generate(self, messages: list[dict[str, str]], most_tokens: int) -> str: ...


def check_readable(task: str) -> None:
    if task not in READ:
        raise InputError(f"a reader reads for {' or '.join(READ)}; {task} has neither verdicts nor answers.")


class Reader:
    """A frozen model that reads, with everything it ever read."""

    def __init__(self, engine: Any, task: TaskName):
        check_readable(task)
        if not isinstance(engine, Generator) and engine.identity().get("kind") != "hf":
            raise InputError(f"{engine.name} cannot read: a reader is a local model (hf:...) or an engine that generates.")
        self.engine, self.task, self.name = engine, task, engine.name
        identity = json.dumps([engine.identity(), task, MOST_TOKENS], sort_keys=True, default=str)
        self.file = cache_folder() / "readings" / f"{_digest(identity)}.jsonl"
        self._known = _kept(self.file)
        self.asked = 0
        """Prompts that the model was shown; the others were known."""

    def read(self, instance: Instance, evidence: Sequence[int]) -> str:
        """The verdict or answer on some of the pool's candidates, in the order given."""
        asked = question(self.task, instance.query, [instance.pool[i] for i in evidence])
        key = _digest(json.dumps(chat(asked)))
        if key not in self._known:
            self._known[key] = self._answer(asked, instance.id)
            self.asked += 1
            with storage(self.file):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("a", encoding="utf-8") as stream:  # the break comes first: it ends a line a kill cut short
                    stream.write("\n" + json.dumps({"prompt": key, "output": self._known[key]}, ensure_ascii=False))
        return self._known[key]

    def _answer(self, asked: Question, query_id: str) -> str:
        if isinstance(self.engine, Generator):
            return first_line(self.engine.generate(chat(asked), MOST_TOKENS))
        ids = encoded(self.engine.encoder, asked)
        room = MOST_TOKENS if self.task == "multidoc_qa" else max(len(self.engine.encoder.plain(label)) for label in VERDICTS)
        if len(ids) + room > self.engine.context:
            raise InputError(
                f"the evidence of query {query_id} does not fit: it needs {len(ids) + room:,} tokens, {self.name} takes "
                f"{self.engine.context:,}. Lower --reader-k, or choose a reader with a longer context."
            )
        return verdict(self.engine, ids) if self.task == "claim_verification" else answer(self.engine, ids)


def verdict(engine: Any, ids: Sequence[int]) -> str:
    """The likeliest of the three labels."""
    found = label_log_probabilities(engine, ids)
    return VERDICTS[int(np.argmax(found))]


def label_log_probabilities(engine: Any, ids: Sequence[int]) -> np.ndarray:
    """(3,) log P(label | prompt), the sum over the label's tokens; the prompt is computed once."""
    import torch

    labels = [engine.encoder.plain(label) for label in VERDICTS]
    with torch.inference_mode():
        prompt = engine.model(input_ids=torch.tensor([ids], device=engine.model.device), use_cache=True, logits_to_keep=1)
        found = []
        for label in labels:
            logits = prompt.logits[0]
            if len(label) > 1:
                rest = torch.tensor([label[:-1]], device=engine.model.device)
                after = engine.model(input_ids=rest, past_key_values=copy.deepcopy(prompt.past_key_values), use_cache=True)
                logits = torch.cat([logits, after.logits[0]])
            told = torch.log_softmax(logits.float(), dim=-1)
            found.append(float(told[torch.arange(len(label)), torch.tensor(label)].sum()))
    return np.array(found)


def answer(engine: Any, ids: Sequence[int]) -> str:
    """The greedy continuation's first line."""
    import torch
    from transformers import GenerationConfig

    tokenizer, own = engine.encoder.tokenizer, engine.model.generation_config
    ends = own.eos_token_id if own is not None and own.eos_token_id is not None else []
    ends = {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None}
    greedy = GenerationConfig(
        do_sample=False, max_new_tokens=MOST_TOKENS, eos_token_id=sorted(ends), pad_token_id=tokenizer.pad_token_id or 0
    )
    prompt = torch.tensor([ids], device=engine.model.device)
    with torch.inference_mode():
        written = engine.model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=greedy)
    return first_line(tokenizer.decode(written[0, len(ids) :], skip_special_tokens=True))


# -- a run's outputs


def read_run(
    run: Run,
    source: str,
    address: str,
    *,
    k: int = EVIDENCE,
    serving_permutations: int = 1,
    options: EngineOptions | None = None,
    engine: Any = None,
    progress: Callable[[Iterable[Instance], int | None], Iterable[Instance]] | None = None,
) -> dict[str, np.ndarray]:
    """Read the first k under every permutation of a run; keep the outputs beside it; measure -> (Q,) over its queries."""
    reader = Reader(engine or _opened(address, options), run.record["task"])
    queries = {query.query_id: query for query in served_queries(run, serving_permutations)}
    _, instances = open_collection(source)
    wanted = (instance for instance in instances() if instance.id in queries)
    outputs: dict[str, list[str]] = {}
    golds: dict[str, Instance] = {}
    for instance in progress(wanted, len(queries)) if progress else wanted:
        outputs[instance.id] = _read_query(reader, instance, queries[instance.id], k)
        golds[instance.id] = instance
    _keep(run, reader_label(address, k, serving_permutations), outputs)
    found = [values(run.record["task"], outputs[query_id], golds[query_id]) for query_id in queries]
    measured = {name: np.array([each[name] for each in found]) for name in found[0]}
    return {name: each for name, each in measured.items() if not np.isnan(each).all()}


@lru_cache(maxsize=2)  # the runs of one command share their readers
def _opened(address: str, options: EngineOptions | None) -> Any:
    return open_engine(address, options)


def _read_query(reader: Reader, instance: Instance, query: Scored, k: int) -> list[str]:
    index = {candidate.id: i for i, candidate in enumerate(instance.pool)}
    columns = np.array([index[candidate] for candidate in query.candidate_ids])
    return [reader.read(instance, columns[shown].tolist()) for shown in arithmetic.evidence(query.permuted, k)]


def values(task: TaskName, outputs: Sequence[str], gold: Instance) -> dict[str, float]:
    """One query's measures: worth averaged over permutations, flips between them (§5). NaN without a gold label or answer."""
    if task == "claim_verification":
        worth = float("nan") if gold.verdict is None else arithmetic.verdict_accuracy(outputs, gold.verdict)
        return {"verdict_accuracy": worth, "verdict_flip": float(arithmetic.verdict_flip(outputs))}
    return {
        "answer_em": float(np.mean([arithmetic.exact_match(output, gold.answers) for output in outputs])),
        "answer_f1": float(np.mean([arithmetic.token_f1(output, gold.answers) for output in outputs])),
        "answer_flip": float(arithmetic.answer_flip(outputs)),
    }


def reader_label(address: str, k: int, serving_permutations: int = 1) -> str:
    """A reader's name in `outputs.parquet`: the same model at another k or budget is another reader."""
    return f"{address} k={k}" + (f" K={serving_permutations}" if serving_permutations > 1 else "")


def _keep(run: Run, reader: str, outputs: dict[str, list[str]]) -> None:
    """`outputs.parquet`: query_id, permutation, reader, output; other readers' rows stay."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.schema([("query_id", pa.string()), ("permutation", pa.int32()), ("reader", pa.string()), ("output", pa.string())])
    rows = [
        {"query_id": query_id, "permutation": permutation, "reader": reader, "output": output}
        for query_id, written in outputs.items()
        for permutation, output in enumerate(written)
    ]
    tables = [pa.Table.from_pylist(rows, schema=kinds)]
    file = run.folder / "outputs.parquet"
    if file.exists():
        before = read_table(file)
        tables.insert(0, before.filter(pc.not_equal(before.column("reader"), reader)))
    write_parquet(file, pa.concat_tables(tables))


def outputs_of(run: Run, reader: str) -> dict[str, list[str]]:
    """What a reader wrote, by query, in the order of the permutations."""
    file = run.folder / "outputs.parquet"
    rows = [row for row in read_table(file).to_pylist() if row["reader"] == reader] if file.exists() else []
    if not rows:
        raise InputError(f"{run.folder} holds no outputs of {reader}. Audit it with --reader first.")
    found: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row["permutation"]):
        found.setdefault(row["query_id"], []).append(row["output"])
    return found


def same_evidence_control(before: Run, after: Run, address: str, k: int = EVIDENCE) -> dict[str, Any]:
    """Flip before minus after where both scorers show the reader the same k candidates under every permutation (§F.3, block c).

    A positive reduction cannot come from other evidence: only the order of the same evidence is left.
    """
    flip = arithmetic.verdict_flip if before.record["task"] == "claim_verification" else arithmetic.answer_flip
    written = [outputs_of(run, reader_label(address, k)) for run in (before, after)]
    scored = [{query.query_id: query for query in run.scored()} for run in (before, after)]
    shared = [i for i in scored[0] if i in scored[1] and scored[0][i].permuted.shape == scored[1][i].permuted.shape]
    if not shared:
        raise InputError(f"{before.folder} and {after.folder} share no query with equally many permutations.")
    same = [bool(np.all(arithmetic.same_evidence(scored[0][i].permuted, scored[1][i].permuted, k))) for i in shared]
    flips = [[float(flip(side[i])) for i in shared] for side in written]
    share, reduction = arithmetic.same_evidence_control(flips[0], flips[1], same)
    return {"queries": len(shared), "share": share, "reduction": None if np.isnan(reduction) else reduction}


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
