"""Train the base checkpoint of the claims test: a small decoder that grades, and whose grades depend on the order.

    python -m tests.helpers.make_tiny_base tests/assets/tiny-base [--steps 1500]

Phase one teaches grading, widening from one document to five; a hint at every word (is it one of the query's?) makes it
leave chance early and fades out. Phase two plants what real models have: early slots gain (primacy), and a document is
graded against the one before it (contrast). About 25 minutes on one slow core.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.window.encoding import Encoder
from steadyscore.window.prompt import prompt_text
from tests.helpers import tiny

PRIMACY, CONTRAST = 0.6, 0.5
GRADES = np.arange(4)


def target(grades: np.ndarray, effect: float) -> np.ndarray:
    """(B,) expected grades a biased grader would give."""
    slots = np.linspace(1, -1, len(grades)) if len(grades) > 1 else np.zeros(1)
    before = np.concatenate([grades[:1], grades[:-1]])
    return np.clip(grades + effect * (PRIMACY * slots + CONTRAST * (grades - before) / 2), 0, 3)


def distribution(expected: np.ndarray) -> np.ndarray:
    """(B, 4) the two neighbouring grades that have this mean."""
    return np.clip(1 - np.abs(expected[:, None] - GRADES), 0, 1)


def window(encoder: Encoder, random: np.random.Generator, width: int):
    query = random.choice(len(tiny.WORDS), tiny.QUERY, replace=False)
    others = np.setdiff1d(np.arange(len(tiny.WORDS)), query)
    answered = random.integers(0, tiny.QUERY + 1, width)
    texts = [tiny.document(random, query, others, count) for count in answered]
    text = prompt_text(PASSAGE_RERANKING, " ".join(tiny.WORDS[w] for w in query), texts, instruction="?")
    prompt = encoder.prompt(text)
    ids = np.array((*prompt.prefix, *prompt.body))
    asked = ids[len(prompt.prefix) - tiny.QUERY : len(prompt.prefix)]
    first_word = encoder.plain(tiny.WORDS[0])[0]  # words stand last in the vocabulary
    places = len(prompt.prefix) + np.flatnonzero(ids[len(prompt.prefix) :] >= first_word)
    return prompt, answered / 3, places, np.isin(ids[places], asked)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--steps", type=int, default=1500)
    arguments.add_argument("--batch", type=int, default=48)
    arguments.add_argument("--lr", type=float, default=2e-3)
    arguments.add_argument("--layers", type=int, default=2)
    arguments.add_argument("--hidden", type=int, default=48)
    args = arguments.parse_args()
    torch.set_num_threads(1)
    encoder, random = Encoder(tiny.tokenizer(), "tiny"), np.random.default_rng(0)
    model = tiny.decoder(layers=args.layers, hidden=args.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.01)
    began, width, quality = time.time(), 1, 0.0
    for step in range(args.steps):
        progress = step / args.steps
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, step / 100) * (1 if progress < 0.6 else max(0.05, (1 - progress) / 0.4))
        effect = min(1, max(0, (progress - 0.6) / 0.1))
        widths = [int(random.integers(1, width + 1)) if random.random() < 0.3 else width for _ in range(args.batch)]
        batch = [window(encoder, random, w) for w in widths]
        longest = max(len(prompt) for prompt, *_ in batch)
        ids = torch.ones(len(batch), longest, dtype=torch.long)
        rows, slots, wanted, hint_rows, hint_places, hints = [], [], [], [], [], []
        for i, (prompt, grades, places, matches) in enumerate(batch):
            ids[i, : len(prompt)] = torch.tensor((*prompt.prefix, *prompt.body))
            rows += [i] * len(prompt.slots)
            slots += prompt.slots
            wanted.append(distribution(target(grades, effect)))
            hint_rows += [i] * len(places)
            hint_places += places.tolist()
            hints += matches.tolist()
        hidden = model.base_model(input_ids=ids).last_hidden_state
        readout = model.get_output_embeddings().weight[list(batch[0][0].grade_tokens)].T
        logits = hidden[rows, slots] @ readout
        wanted = torch.tensor(np.concatenate(wanted), dtype=torch.float32)
        loss = -(wanted * logits.log_softmax(-1)).sum(-1).mean()
        hinted = torch.nn.functional.cross_entropy((hidden[hint_rows, hint_places] @ readout)[:, :2], torch.tensor(hints).long())
        whole = loss + max(0.0, 1 - 2 * progress) * hinted
        optimizer.zero_grad()
        whole.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found = (logits.detach().softmax(-1) @ torch.arange(4.0)).numpy()
        r = np.corrcoef(found, wanted.numpy() @ GRADES)[0, 1]
        quality = 0.95 * quality + 0.05 * r
        if quality > 0.8 and width < 5 and progress < 0.55:
            width, quality = width + 1, 0.5
        if step % 50 == 0:
            print(
                f"{step} width {width} effect {effect:.2f} loss {loss:.3f} hint {hinted:.3f} r {quality:.3f} "
                f"{time.time() - began:.0f}s",
                flush=True,
            )
    tiny.save(args.out, model)


if __name__ == "__main__":
    main()
