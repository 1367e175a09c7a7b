"""An adapter against its base: does it open, does it belong, and do merged weights give the same scores?"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..engines import Backend, EngineOptions
from ..engines.kinds import open_local_model
from ..errors import ModelError
from ..machine.disk import atomic_folder, explaining_os_errors, make_folder, write_json
from ..models.adapter import adapter_identity, card_for_base, prompt_mistakes, read_weights, refuse_mismatches, refuse_pickles
from ..models.card import MERGED, Card, describe_base, read_card, scorer_address
from ..scoring.scorer import Scorer, Settings
from ..tasks import TASKS
from ..terms import Candidate, Instance, JsonObject, Prompt
from ..window.presentation import windows

AGREEMENT = 1e-4
"""Largest difference of a score between merged and unmerged weights."""


def verify(folder: Path, base: str | None = None, allow_base_mismatch: bool = False) -> JsonObject:
    """Open the adapter on its base and score a probe; everything that is wrong is raised."""
    refuse_pickles(folder)
    card = read_card(folder)
    tensors = read_weights(folder)
    plain = open_local_model(scorer_address(base or card.base.model), EngineOptions(dtype="float32", share_prefix=False))
    adapted = open_local_model(
        f"{scorer_address(base or card.base.model)}+{folder}",
        EngineOptions(dtype="float32", share_prefix=False, allow_base_mismatch=allow_base_mismatch),
    )
    scorers = [_probe_scorer(engine, card) for engine in (plain, adapted)]
    now = scorers[1].prompt_hash
    prompts = _probe_prompts(scorers[1])
    refuse_mismatches(prompt_mistakes(adapter_identity(folder, card), now, prompts[0].grade_tokens), allow_base_mismatch)
    before, after = (_probe_scores(scorer) for scorer in scorers)
    return {
        "tensors": len(tensors),
        "parameters": int(sum(tensor.numel() for tensor in tensors.values())),
        "base": describe_base(card.base),
        "prompt_hash": now,
        "largest change of a probe score": float(np.abs(after - before).max()),
    }


def merge(folder: Path, out: Path, base: str | None = None, allow_base_mismatch: bool = False) -> float:
    """Write base and adapter as one model; refused where merged and unmerged scores differ by more than 1e-4."""
    from peft import PeftModel

    card = read_card(folder)
    engine = open_local_model(scorer_address(base or card.base.model), EngineOptions(dtype="float32", share_prefix=False))
    card_for_base(folder, engine.identity(), allow_base_mismatch)
    wrapped = PeftModel.from_pretrained(engine.model, str(folder))
    engine.model = wrapped.get_base_model().eval()
    unmerged = _probe_scores(_probe_scorer(engine, card))
    engine.model = merged = copy.deepcopy(wrapped).merge_and_unload().eval()
    difference = float(np.abs(_probe_scores(_probe_scorer(engine, card)) - unmerged).max())
    if not difference <= AGREEMENT:
        raise ModelError(
            f"merged and unmerged scores of {folder} differ by {difference:.2g}, more than {AGREEMENT:g}. "
            "The merged model was not written."
        )
    with _whole_files(out) as scratch:
        merged.save_pretrained(scratch)
        engine.encoder.tokenizer.save_pretrained(scratch)
        write_json(scratch / MERGED, {"adapter": card.to_json(), "largest difference of a probe score": difference})
    return difference


@contextmanager
def _whole_files(out: Path) -> Iterator[Path]:
    """A folder to fill, whose files go to `out` when all of them are whole; what else is there stays."""
    filled = out / ".merged"
    with explaining_os_errors(out):
        make_folder(out)
        with atomic_folder(filled) as scratch:
            yield scratch
        for file in filled.iterdir():
            os.replace(file, out / file.name)
        filled.rmdir()


def _probe_scorer(engine: Backend, card: Card) -> Scorer:
    known: dict[str, Any] = {key: value for key, value in card.settings.items() if key in Settings.__dataclass_fields__}
    return Scorer(engine, TASKS[card.task], Settings(**known))


def _probe_instance() -> Instance:
    texts = (
        "Lisbon is the capital of Portugal.",
        "The river Tagus reaches the sea near Lisbon.",
        "Bread rises because yeast makes gas.",
    )
    return Instance("probe", "what is the capital of portugal", tuple(Candidate(str(i), text) for i, text in enumerate(texts)))


def _probe_prompts(scorer: Scorer) -> list[Prompt]:
    instance = _probe_instance()
    n = len(instance.pool)
    prompts = [scorer.prompt(instance, window) for window in windows(range(n), scorer.width or n)]
    return [prompt for prompt in prompts if isinstance(prompt, Prompt)]


def _probe_scores(scorer: Scorer) -> np.ndarray:
    instance = _probe_instance()
    return np.stack([scorer.score(instance, order) for order in ([0, 1, 2], [2, 0, 1])])
