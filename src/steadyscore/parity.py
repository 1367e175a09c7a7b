"""The parity gate: an engine must read what a plain forward over the whole vocabulary says, before its figures count.

Engine `hf` is compared with the model's own logits, position by position; every other engine with `hf` on the same
weights and the same token ids. What differs is then the engine, not the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import readout
from .engines import Engine, EngineOptions, open_engine
from .errors import ModelError
from .prompt import prompt_text
from .tasks import PASSAGE_RERANKING
from .terms import Prompt

TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "quantised": 5e-2}
"""How far two ways to the same prompt may differ in score, by the precision of the less precise one."""

_TEXTS = (
    "Short waves of light scatter more in air than long ones, so the daytime sky looks blue.",
    "The ferry leaves the harbour at nine and at noon.",
    "Blue paint was once made from a stone that had to be carried over mountains for months before it reached a workshop.",
)


class Parity(NamedTuple):
    difference: float
    """Largest difference in score between the engine and the reference."""
    repeatable: bool
    grade_tokens: tuple[int, ...]
    label_mass: float
    """Mean probability on the four grades; NaN where the engine cannot tell."""
    reference: str = "a plain forward"
    tolerance: float = TOLERANCE["float32"]

    @property
    def passed(self) -> bool:
        return self.difference <= self.tolerance


def probe_prompts(engine: Engine) -> list[Prompt]:
    """Windows of different lengths that share a prefix: what batching and the shared prefix work on."""
    orders = ([0, 1, 2], [2, 0, 1], [1], [0, 2])
    return [
        engine.encoder.prompt(prompt_text(PASSAGE_RERANKING, "why is the sky blue", [_TEXTS[i] for i in order]))
        for order in orders
    ]


def probe(engine: Any, options: EngineOptions | None = None, reference: str | None = None) -> Parity:
    """Any engine against `hf` on the same prompts; `hf` itself against a plain forward.

    `reference` is the hf address of the same weights; an engine that loads them itself knows it, a server's model does not.
    """
    reference = reference or getattr(engine, "reference", None)
    if hasattr(engine, "model") and hasattr(engine.model, "forward"):
        return probe_readout(engine)
    if reference is None:
        raise ModelError(f"{engine.name} does not say where its weights are. Name them: --reference hf:<id or folder>.")
    options = options or EngineOptions()
    precision = "quantised" if engine.identity()["kind"] == "llamacpp" else options.dtype
    plain = open_engine(reference, options)
    prompts = probe_prompts(plain)
    if (mine := probe_prompts(engine)) != prompts:
        raise ModelError(f"{engine.name} and {reference} turn the same window into different tokens; they are different models.")
    return _compared(engine, mine, plain.grade_logits(prompts), reference, TOLERANCE[precision])


def probe_readout(engine: Any) -> Parity:
    """Engine `hf` against the model's own logits over the whole vocabulary, one prompt at a time."""
    prompts = probe_prompts(engine)
    return _compared(engine, prompts, [plain_reading(engine, prompt) for prompt in prompts])


def _compared(engine: Engine, prompts: list[Prompt], plain: Sequence[readout.Reading], *named: Any) -> Parity:
    readings, again = (engine.grade_logits(prompts, label_mass=engine.capabilities.label_mass) for _ in range(2))
    first, second = scores(readings), scores(again)
    told = [reading.label_mass for reading in readings if reading.label_mass is not None]
    return Parity(
        float(np.max(np.abs(first - scores(plain)))),
        bool(np.array_equal(first, second)),
        prompts[0].grade_tokens,
        float(np.concatenate(told).mean()) if told else float("nan"),
        *named,
    )


def plain_reading(engine: Any, prompt: Prompt) -> readout.Reading:
    """The textbook way: one full forward, logits of every position, rows picked afterwards."""
    import torch

    with torch.inference_mode():
        ids = torch.tensor([(*prompt.prefix, *prompt.body)], device=engine.model.device)
        logits = engine.model(input_ids=ids, use_cache=False).logits[0].float()
    return readout.Reading(logits[list(prompt.slots)][:, list(prompt.grade_tokens)].cpu().numpy())


def scores(readings: Sequence[readout.Reading]) -> np.ndarray:
    """Scores of all slots of some windows, one after the other."""
    return np.concatenate([readout.score(readout.grade_distribution(reading.logits)) for reading in readings])
