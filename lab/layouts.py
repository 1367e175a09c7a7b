"""Layouts of a set window compared on tuning pools: what a segment sees of the others, at which positions, in which layers.

    MINILM=FOLDER python lab/layouts.py SCORER OUT/dev.jsonl [--each 14] [--pool 10]

Every layout reads the texts once, alone, as the engine does; what differs is the pass behind them. Agreement r with the
teacher's labels and squared error on the scale of 0 to 3 over all candidates, nDCG@10 against people, of the first `each`
queries of the two halves of the collection (SQuAD dev, WikiQA dev); differences are paired over queries.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from teacher import score as teacher_score

from steadyscore.collection import open_collection
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local import windows
from steadyscore.engines.local.windows import additive, cache_of
from steadyscore.measures.intervals import paired_interval
from steadyscore.measures.ranking import ndcg
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Instance, Prompt, Window
from steadyscore.window import set_windows
from steadyscore.window.prompt import shown
from steadyscore.window.readout import grade_distribution, score


class Layout(NamedTuple):
    """What the answer segment of a candidate sees of the others."""

    name: str
    sees: Literal["nothing", "texts", "closings", "sample"] = "texts"
    turned: bool = True
    """512 positions earlier than they were read, or where they were read."""
    first_layer: int = 0
    reads_again: bool = False
    """The own text is read a second time, in sight of the others."""


LAYOUTS = (
    Layout("(a) others' texts, turned 512 earlier (the engine's)"),
    Layout("nobody", "nothing"),
    Layout("others' texts where they were read", turned=False),
    Layout("(b) where they were read, layers 15 to 29", turned=False, first_layer=15),
    Layout("(b) where they were read, layers 22 to 29", turned=False, first_layer=22),
    Layout("(b) turned, layers 15 to 29", first_layer=15),
    Layout("(c) own text read again in sight of the others, turned", reads_again=True),
    Layout("others' closing tokens only, turned", "closings"),
    Layout("texts of three of the pool only, turned", "sample"),
)
SAMPLE = 3


class Texts(NamedTuple):
    """What was read before any answer: states of the prefix and of every block up to its segment."""

    prompt: Prompt
    head: torch.Tensor
    blocks: list[torch.Tensor]


def states_behind(model: Any, texts: Texts, layout: Layout) -> torch.Tensor:
    """Last hidden states at the end of each member, (members, hidden)."""
    lengths = [closing - first for first, closing, _ in texts.prompt.candidates]
    cuts = [slice(n, None) if layout.sees == "closings" else slice(0, n) for n in lengths]
    parts = [block[..., cut, :] for block, cut in zip(texts.blocks, cuts, strict=True)]
    others = torch.cat(parts, dim=-2)
    if layout.turned:
        others = torch.stack([windows.Turn(model)(others[:, 0]), others[:, 1]], dim=1)
    ends = list(accumulate((part.shape[-2] for part in parts), initial=0))
    shows = members_shown(texts.prompt, layout)
    if layout.reads_again:
        return second_reading(model, texts, others, ends)
    everyone = range(len(parts))
    seen = windows._visible_behind(texts.prompt, everyone, texts.head.shape[-2], ends)
    own = sum(block.shape[-2] for block in (texts.head, *texts.blocks))
    hidden = seen.copy()
    hidden[:, own : own + ends[-1]] = False
    for member in everyone:
        if member not in shows:
            seen[:, own + ends[member] : own + ends[member + 1]] = False
    known = torch.cat([texts.head, *texts.blocks, others], dim=-2)
    with masked_below(model, layout.first_layer, additive(hidden[None], model)):
        return windows._read_segments(model, texts.prompt, everyone, known, seen)


def members_shown(prompt: Prompt, layout: Layout) -> set[int]:
    """The members that others see; a sample is drawn by content, so that no order can touch it."""
    ids = (*prompt.prefix, *prompt.body)
    found = [hashlib.blake2b(repr(ids[first:closing]).encode()).digest() for first, closing, _ in prompt.candidates]
    count = {"nothing": 0, "sample": SAMPLE}.get(layout.sees, len(found))
    return set(sorted(range(len(found)), key=found.__getitem__)[:count])


def second_reading(model: Any, texts: Texts, others: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """Every block from its beginning, all of it in sight of what was read of the others."""
    prompt, prefix = texts.prompt, texts.head.shape[-2]
    ids = (*prompt.prefix, *prompt.body)
    rows = [ids[first:end] for first, _, end in prompt.candidates]
    longest = max(map(len, rows))
    seen = np.zeros((len(rows), longest, prefix + ends[-1] + longest), bool)
    seen[:, :, : prefix + ends[-1]] = True
    seen[:, :, prefix + ends[-1] :] = np.tri(longest, dtype=bool)
    for row in range(len(rows)):
        seen[row, :, prefix + ends[row] : prefix + ends[row + 1]] = False
    output = model.base_model(
        input_ids=torch.tensor([(*row, *[0] * (longest - len(row))) for row in rows]),
        position_ids=prefix + torch.arange(longest)[None],
        past_key_values=cache_of(torch.cat([texts.head, others], dim=-2), len(rows)),
        attention_mask=additive(seen, model),
        use_cache=True,
    )
    return output.last_hidden_state[range(len(rows)), [len(row) - 1 for row in rows]]


@contextmanager
def masked_below(model: Any, first: int, mask: torch.Tensor) -> Iterator[None]:
    """Layers before `first` see by another mask."""
    layers = [module for name, module in model.named_modules() if re.search(r"layers\.\d+$", name)]
    hooks = [
        layer.register_forward_pre_hook(lambda _, args, named: (args, {**named, "attention_mask": mask}), with_kwargs=True)
        for layer in layers[:first]
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class Answers(NamedTuple):
    """One query under every layout."""

    scores: np.ndarray
    """(layouts, n), between 0 and 1."""
    labels: np.ndarray
    relevance: np.ndarray


@torch.inference_mode()
def answers(scorer: Scorer, instance: Instance) -> Answers:
    engine: Any = scorer.backend
    prompt = scorer.prompt(instance, Window(0, tuple(range(len(instance.pool)))))
    texts = Texts(prompt, *windows.read_blocks(engine.model, prompt, engine.options.batch_tokens))
    rows = set_windows.members(prompt)
    found = [engine._read(states_behind(engine.model, texts, layout), prompt.grade_tokens, False) for layout in LAYOUTS]
    scores = np.stack([score(grade_distribution(reading.logits))[rows] for reading in found])
    labels = teacher_score(instance.query, [shown(candidate, 300) for candidate in instance.pool])
    return Answers(scores, np.array(labels), np.array([float(candidate.relevance or 0) for candidate in instance.pool]))


def difference(one: np.ndarray, other: np.ndarray) -> str:
    found = paired_interval([one], [other], scheme="queries")
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scorer")
    parser.add_argument("collection")
    parser.add_argument("--each", type=int, default=14)
    parser.add_argument("--pool", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    everything = list(open_collection(args.collection).instances())
    half = len(everything) // 2
    queries = [Instance(i.id, i.query, i.pool[: args.pool]) for start in (0, half) for i in everything[start : start + args.each]]
    scorer = Scorer(open_engine(args.scorer), PASSAGE_RERANKING, Settings(prompt="set", chars=300, label_mass=False))
    found = [answers(scorer, query) for query in queries]
    assert np.abs(scorer.score(queries[0]) - found[0].scores[0]).max() < 1e-5, "(a) is not what the engine does"

    labels = np.concatenate([a.labels for a in found])
    errors = np.stack([9 * ((a.scores - a.labels) ** 2).mean(axis=1) for a in found])
    quality = np.stack([ndcg(a.scores, a.relevance) for a in found])
    moved = np.stack([np.abs(a.scores - a.scores[1]).mean(axis=1) for a in found])
    print(f"{len(found)} queries, {len(labels)} candidates\n")
    print("| layout | r | squared error | minus (a) | nDCG@10 | minus (a) | moved from alone |\n|---|" + "---:|" * 6)
    for row, layout in enumerate(LAYOUTS):
        r = np.corrcoef(np.concatenate([a.scores[row] for a in found]), labels)[0, 1]
        cells = [f"{r:.3f}"]
        for table in (errors, quality):
            cells += [f"{table[:, row].mean():.3f}", difference(table[:, row], table[:, 0]) if row else ""]
        print("| " + " | ".join([layout.name, *cells, f"{moved[:, row].mean():.3f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
