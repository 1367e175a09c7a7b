"""Before a model's first set window: does it read a set as one? Refused where it does not.

A configuration says most of it (no sliding windows, no states, fixed rotations). The rest is tried: that keys can be
turned, that a set of one is graded as a plain pass grades it, and that a shuffled set gives the same scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from ..errors import ModelError
from ..tasks import PASSAGE_RERANKING
from ..window import set_windows
from ..window.prompt import PromptText, prompt_text
from ..window.readout import grade_distribution, score
from . import hf_set
from .hf_isolated import read_behind

TEXTS = (
    "Short waves of light scatter more in air than long ones, so the daytime sky looks blue.",
    "The ferry leaves the harbour at nine and at noon.",
    "Blue paint was once made from a stone that had to be carried over mountains.",
    "The ferry leaves the harbour at nine and at noon.",
)
ORDERS = ((0, 1, 2, 3), (2, 3, 0, 1), (3, 2, 1, 0))
TOLERANCE = {torch.float32: 1e-4}
"""How far the scores of two ways may differ; in half precision by `HALF`."""
HALF = 3e-2


@torch.inference_mode()
def check(engine: Any) -> None:
    """Refuse a model whose set windows would not be sets."""
    training = engine.model.training
    engine.model.eval()
    try:
        mistake = turn_mistake(engine.model) or plain_mistake(engine) or order_mistake(engine)
    finally:
        engine.model.train(training)
    if mistake:
        raise ModelError(f"{engine.name} cannot read a window as a set: {mistake} Choose another --prompt.")


def turn_mistake(model: Any) -> str | None:
    """Keys read later and turned back must be the keys read earlier, in every layer."""
    placed = np.arange(8)
    found = []
    for start in (0, set_windows.EARLIER):
        cache: Any = DynamicCache()
        read_behind(model, cache, [list(range(1, 9))], start + placed)
        found.append([layer.keys for layer in cache.layers])
    try:
        turn = hf_set.Turn(model)
        apart = max(float((turn(late) - early).abs().max() / early.abs().max()) for early, late in zip(*found, strict=True))
    except (StopIteration, KeyError, RuntimeError, TypeError, AttributeError) as refusal:
        return f"its keys cannot be turned to other positions ({type(refusal).__name__}: {refusal})."
    if not apart <= 10 * _tolerance(model):
        return f"keys that are turned to another position differ from keys that are read there, by {apart:.2g} of the largest."
    return None


def plain_mistake(engine: Any) -> str | None:
    """A set of one is the compact prompt of one candidate, which the model reads without any help of ours."""
    (one,) = engine.grade_logits([engine.encoder.set_prompt(_window((0,)))])
    plain = engine.encoder.prompt(prompt_text(PASSAGE_RERANKING, "why is the sky blue", TEXTS[:1], style="compact"))
    apart = float(np.abs(_scores(one) - _scores(engine.grade_logits([plain])[0])).max())
    if not apart <= _tolerance(engine.model):
        return f"one candidate alone is scored otherwise than in a plain pass, by {apart:.2g}."
    return None


def order_mistake(engine: Any) -> str | None:
    """A shuffled set must give the same bits where its members are sorted, and the same scores where they are not."""
    for is_sorted, allowed in ((True, 0.0), (False, _tolerance(engine.model))):
        found = []
        for order in ORDERS:
            (reading,) = engine.grade_logits([engine.encoder.set_prompt(_window(order), is_sorted=is_sorted)])
            found.append(_scores(reading)[np.argsort(order)])
        apart = float(np.ptp(np.stack(found), axis=0).max())
        if not apart <= allowed:
            return f"a shuffled window changes a score by {apart:.2g}."
    return None


def _window(order: tuple[int, ...]) -> PromptText:
    return prompt_text(PASSAGE_RERANKING, "why is the sky blue", [TEXTS[i] for i in order], style="set")


def _scores(reading: Any) -> np.ndarray:
    return score(grade_distribution(reading.logits))


def _tolerance(model: Any) -> float:
    return TOLERANCE.get(model.dtype, HALF)
