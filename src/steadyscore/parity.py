"""The parity gate: an engine must read what a plain forward over the whole vocabulary says, before its figures count.

Engine `hf` is compared with the model's own logits, position by position; every other engine with `hf` on the same
weights and the same token ids. What differs is then the engine, not the prompt. The door lets an engine pass once per
version and weights (`gated`); what was found stands among the engine's capabilities, and so in every run and report.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import readout
from .adapter import split
from .disk import cache_folder, write_json
from .engines import Engine, EngineOptions, open_engine
from .engines.http import Unusable
from .errors import ModelError
from .models import EMBEDDED, is_present, model_path
from .prompt import prompt_text
from .tasks import PASSAGE_RERANKING
from .terms import Prompt, PromptStyle

TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "quantised": 5e-2}
"""How far two ways to the same prompt may differ in score, by the precision of the less precise one."""

UNASKED = 16e9
"""Bytes of memory that the door may take for `hf`'s copy of the weights; beyond it the gate is left to `steadyscore doctor`."""

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


def probe_prompts(engine: Engine, style: PromptStyle = "paper") -> list[Prompt]:
    """Windows of different lengths that share a prefix and candidates: what batching and sharing work on."""
    orders = ([0, 1, 2], [2, 0, 1], [1], [0, 2])
    return [
        engine.encoder.prompt(prompt_text(PASSAGE_RERANKING, "why is the sky blue", [_TEXTS[i] for i in order], style=style))
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
    return _against(engine, open_engine(reference, options), reference, options)


def _against(engine: Any, plain: Any, reference: str, options: EngineOptions) -> Parity:
    precision = "quantised" if engine.identity()["kind"] == "llamacpp" else options.dtype
    prompts = probe_prompts(plain)
    if (mine := probe_prompts(engine)) != prompts:
        raise ModelError(f"{engine.name} and {reference} turn the same window into different tokens; they are different models.")
    return _compared(engine, mine, plain.grade_logits(prompts), reference, TOLERANCE[precision])


def probe_readout(engine: Any) -> Parity:
    """Engine `hf` against the model's own logits over the whole vocabulary, one prompt at a time."""
    prompts = probe_prompts(engine, engine.trained_settings.get("prompt") or "paper")
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

    from .engines.hf_set import whole_states
    from .engines.isolated import whole

    with torch.inference_mode():
        if prompt.segment:
            logits = engine.project(whole_states(engine.model, [prompt])[0]).float()
            return readout.Reading(logits[:, list(prompt.grade_tokens)].cpu().numpy())
        ids = torch.tensor([(*prompt.prefix, *prompt.body)], device=engine.model.device)
        options = whole([prompt], len(prompt), engine.model) if prompt.candidates else {}
        logits = engine.model(input_ids=ids, use_cache=False, **options).logits[0].float()
    return readout.Reading(logits[list(prompt.slots)][:, list(prompt.grade_tokens)].cpu().numpy())


def scores(readings: Sequence[readout.Reading]) -> np.ndarray:
    """Scores of all slots of some windows, one after the other."""
    return np.concatenate([readout.score(readout.grade_distribution(reading.logits)) for reading in readings])


# -- the gate at the door


def gated(engine: Any, options: EngineOptions) -> Any:
    """An engine on its first use with a model: compared with `hf` and refused, or marked with what is known of it."""
    engine.capabilities = replace(engine.capabilities, parity=_known(engine) or _examined(engine, options))
    return engine


def _known(engine: Any) -> str | None:
    return remembered().get(subject(engine) or "")


def _examined(engine: Any, options: EngineOptions) -> str:
    address = engine.reference
    if address is None:
        return f"not checked: it does not say where its weights are; {_doctor(engine)} --reference hf:<id or folder>"
    if obstacle := _obstacle(address, options):
        return f"not checked: {obstacle}; {_doctor(engine)}"
    try:
        # The engine may have filled the GPU; the processor has room for a second copy.
        plain = open_engine(address, replace(options, device="cpu"))
    except Exception as refusal:  # whatever the libraries below have to say of a file
        return f"not checked: {address} does not open ({type(refusal).__name__}: {refusal})"
    try:
        found = _against(engine, plain, address, options)
    except Unusable as refusal:  # a route that cannot tell every grade of the probe has nothing to be compared
        raise ModelError(f"{engine.name} does not pass the parity gate: {refusal}") from refusal
    if not found.passed:
        raise ModelError(
            f"{engine.name} differs from {address} by {found.difference:.2g} in score on the same prompts; "
            f"{found.tolerance:g} is allowed. To use it all the same, and have every run record this: {_doctor(engine)} --accept"
        )
    return remember(engine, found)


def _doctor(engine: Any) -> str:
    return f"steadyscore doctor --scorer {engine.name}"


def remember(engine: Any, found: Parity, *, accepted: bool = False) -> str:
    """Keep what the gate found of an engine on these weights, in the words that runs record."""
    verdict = (
        f"differs from {found.reference} by {found.difference:.1e} in score, {found.tolerance:g} allowed"
        f"{', accepted all the same' if accepted else ''}, {datetime.now(UTC):%Y-%m-%d}"
    )
    if key := subject(engine):
        write_json(_file(), remembered() | {key: verdict})
    return verdict


def remembered() -> dict[str, str]:
    """Findings of the gate on this machine, by engine, version and weights."""
    try:
        known: dict[str, str] = json.loads(_file().read_text())
        return known
    except (OSError, json.JSONDecodeError):
        return {}


def _file() -> Path:
    return cache_folder() / "parity.json"


def subject(engine: Any) -> str | None:
    """What a finding holds for: engine, version and weights, or a server's address. None where a part of it is unknown."""
    if hasattr(engine, "endpoint"):
        return engine.name
    told = engine.identity()
    version = getattr(sys.modules.get({"llamacpp": "llama_cpp"}.get(told["kind"], told["kind"])), "__version__", None)
    weights = told.get("weights") or _signature(engine.reference)
    known = {**told, "version": version, "weights": weights}
    return ", ".join(f"{name} {value}" for name, value in known.items()) if version and weights else None


def _obstacle(reference: str, options: EngineOptions) -> str | None:
    """Why `hf` cannot have these weights in passing."""
    files = weight_files(reference)
    if not files:
        return f"{reference} is not on this disk"
    wide = 2 if options.dtype == "float32" else 1  # most weights are kept in 16 bits, those of a GGUF file in about 4
    needs = sum(f.stat().st_size * wide * (4 if f.suffix == ".gguf" else 1) for f in files)
    return f"{reference} would take about {needs / 1e9:.0f} GB of memory" if needs > UNASKED else None


def _signature(reference: str) -> str | None:
    """Identity of weight files by name, size and time: enough to notice that they were replaced."""
    files = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in weight_files(reference)]
    return hashlib.blake2b(json.dumps(files).encode(), digest_size=8).hexdigest() if files else None


def weight_files(reference: str) -> list[Path]:
    """Weights of an hf address that are on this disk, the adapter's with them."""
    base, adapter = split(reference.removeprefix("hf:"))
    if base in EMBEDDED:
        base = str(model_path(base)) if is_present(EMBEDDED[base]) else ""
    elif not Path(base).exists():
        base = _snapshot(base)
    if not base or base.endswith(".gguf"):
        return [Path(base)] if base else []
    return sorted(f for part in (base, adapter) if part for f in Path(part).glob("*.safetensors"))


def _snapshot(hub_id: str) -> str:
    """Where the hub's own cache keeps a model; empty where it does not."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(hub_id, "config.json")
    except HFValidationError:  # a path that does not exist
        return ""
    return str(Path(config).parent) if isinstance(config, str) else ""
