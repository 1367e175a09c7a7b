"""The parity gate: an engine must read what a plain forward over the whole vocabulary says, before its figures count."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import readout
from .engines import Engine
from .prompt import prompt_text
from .tasks import PASSAGE_RERANKING
from .terms import Prompt

_TEXTS = (
    "Short waves of light scatter more in air than long ones, so the daytime sky looks blue.",
    "The ferry leaves the harbour at nine and at noon.",
    "Blue paint was once made from a stone that had to be carried over mountains for months before it reached a workshop.",
)


class Parity(NamedTuple):
    difference: float
    """Largest difference in score between the engine and the plain forward."""
    repeatable: bool
    grade_tokens: tuple[int, ...]
    label_mass: float


def probe_prompts(engine: Engine) -> list[Prompt]:
    """Windows of different lengths that share a prefix: what batching and the shared prefix work on."""
    orders = ([0, 1, 2], [2, 0, 1], [1], [0, 2])
    return [
        engine.encoder.prompt(prompt_text(PASSAGE_RERANKING, "why is the sky blue", [_TEXTS[i] for i in order]))
        for order in orders
    ]


def probe_readout(engine: Any) -> Parity:
    """Engine `hf` against the model's own logits over the whole vocabulary, one prompt at a time."""
    prompts = probe_prompts(engine)
    first, second = (_scores(engine.grade_logits(prompts, label_mass=True)) for _ in range(2))
    plain = _scores([plain_reading(engine, prompt) for prompt in prompts])
    mass = np.concatenate([reading.label_mass for reading in engine.grade_logits(prompts, label_mass=True)])
    return Parity(
        difference=float(np.max(np.abs(first - plain))),
        repeatable=bool(np.array_equal(first, second)),
        grade_tokens=prompts[0].grade_tokens,
        label_mass=float(mass.mean()),
    )


def plain_reading(engine: Any, prompt: Prompt) -> readout.Reading:
    """The textbook way: one full forward, logits of every position, rows picked afterwards."""
    import torch

    with torch.inference_mode():
        ids = torch.tensor([(*prompt.prefix, *prompt.body)], device=engine.model.device)
        logits = engine.model(input_ids=ids, use_cache=False).logits[0].float()
    return readout.Reading(logits[list(prompt.slots)][:, list(prompt.grade_tokens)].cpu().numpy())


def _scores(readings: list[readout.Reading]) -> np.ndarray:
    return np.concatenate([readout.score(readout.grade_distribution(reading.logits)) for reading in readings])
