"""The parity check: an engine must read what a plain forward over the whole vocabulary says, before its figures count.

Engine `hf` is compared with the model's own logits, position by position; every other engine with `hf` on the same
weights and the same token ids. What differs is then the engine, not the prompt. An engine is admitted once per version
and weights (`admit`); the result stands among the engine's capabilities, and so in every run and report.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import ModelError
from ..machine.disk import cache_folder, write_json
from ..models.adapter import split_address
from ..models.embedded import EMBEDDED, is_present, model_path
from ..tasks import PASSAGE_RERANKING
from ..terms import Prompt, PromptStyle
from ..window import readout
from ..window.prompt import prompt_text
from . import Engine, EngineOptions
from .address import open_local_model
from .endpoint import Unusable

TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "quantised": 5e-2}
"""How far two ways to the same prompt may differ in score, by the precision of the less precise one."""

MAX_REFERENCE_BYTES = 16e9
"""Memory that `admit` may take for `hf`'s copy of the weights; larger models are left to `steadyscore doctor`."""

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
    reference: str
    tolerance: float

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


def compare(engine: Engine, options: EngineOptions | None = None, reference: str | None = None) -> Parity:
    """Any engine against `hf` on the same prompts; `hf` itself against a plain forward.

    `reference` is the hf address of the same weights; an engine that loads them itself knows it, a server's model does not.
    """
    if not engine.needs_parity:
        return compare_readout(engine)
    if (reference := reference or engine.reference) is None:
        raise ModelError(f"{engine.name} does not say where its weights are. Name them: --reference hf:<id or folder>.")
    options = options or EngineOptions()
    return _compare_with(open_local_model(reference, options), engine, reference, options)


def _compare_with(plain: Engine, engine: Engine, reference: str, options: EngineOptions) -> Parity:
    precision = "quantised" if engine.identity()["kind"] == "llamacpp" else options.dtype
    prompts = probe_prompts(plain)
    if probe_prompts(engine) != prompts:
        raise ModelError(f"{engine.name} and {reference} turn the same window into different tokens; they are different models.")
    return _compare(engine, prompts, plain.grade_logits(prompts), reference, TOLERANCE[precision])


def compare_readout(engine: Engine) -> Parity:
    """Engine `hf` against the model's own logits over the whole vocabulary, one prompt at a time."""
    prompts = probe_prompts(engine, engine.trained_settings.get("prompt") or "paper")
    plain = [logits for prompt in prompts if (logits := engine.plain_logits(prompt)) is not None]
    if not plain:
        raise ModelError(f"{engine.name} has no model in this process to be compared with. Check its base: hf:<id or folder>.")
    return _compare(engine, prompts, plain, "a plain forward", TOLERANCE["float32"])


def _compare(
    engine: Engine, prompts: list[Prompt], plain: Sequence[readout.SlotLogits], reference: str, tolerance: float
) -> Parity:
    first, again = (engine.grade_logits(prompts, label_mass=engine.capabilities.label_mass) for _ in range(2))
    masses = [window.label_mass for window in first if window.label_mass is not None]
    return Parity(
        float(np.max(np.abs(slot_scores(first) - slot_scores(plain)))),
        bool(np.array_equal(slot_scores(first), slot_scores(again))),
        prompts[0].grade_tokens,
        float(np.concatenate(masses).mean()) if masses else float("nan"),
        reference,
        tolerance,
    )


def slot_scores(windows: Sequence[readout.SlotLogits]) -> np.ndarray:
    """Scores of all slots of some windows, one after the other."""
    return np.concatenate([readout.score(readout.grade_distribution(window.logits)) for window in windows])


# -- the first use of an engine


def admit(engine: Engine, options: EngineOptions) -> Engine:
    """Compare an engine with `hf` on its first use with a model, and refuse it or mark it with the result."""
    parity = remembered().get(subject(engine) or "") or _check(engine, options)
    engine.capabilities = replace(engine.capabilities, parity=parity)
    return engine


def _check(engine: Engine, options: EngineOptions) -> str:
    address = engine.reference
    if address is None:
        return f"not checked: it does not say where its weights are; {_doctor(engine)} --reference hf:<id or folder>"
    if obstacle := _obstacle(address, options):
        return f"not checked: {obstacle}; {_doctor(engine)}"
    try:
        # The engine may have filled the GPU; the processor has room for a second copy.
        plain = open_local_model(address, replace(options, device="cpu"))
    except Exception as refusal:  # whatever the libraries below have to say of a file
        return f"not checked: {address} does not open ({type(refusal).__name__}: {refusal})"
    try:
        parity = _compare_with(plain, engine, address, options)
    except Unusable as refusal:  # a route that cannot tell every grade of the probe has nothing to be compared
        raise ModelError(f"{engine.name} does not pass the parity check: {refusal}") from refusal
    if not parity.passed:
        raise ModelError(
            f"{engine.name} differs from {address} by {parity.difference:.2g} in score on the same prompts; "
            f"{parity.tolerance:g} is allowed. To use it all the same, and have every run record this: {_doctor(engine)} --accept"
        )
    return remember(engine, parity)


def _doctor(engine: Engine) -> str:
    return f"steadyscore doctor --scorer {engine.name}"


def remember(engine: Engine, parity: Parity, *, accepted: bool = False) -> str:
    """Keep the result for an engine on these weights, in the words that runs record."""
    verdict = (
        f"differs from {parity.reference} by {parity.difference:.1e} in score, {parity.tolerance:g} allowed"
        f"{', accepted all the same' if accepted else ''}, {datetime.now(UTC):%Y-%m-%d}"
    )
    if key := subject(engine):
        write_json(_file(), remembered() | {key: verdict})
    return verdict


def remembered() -> dict[str, str]:
    """Results of the check on this machine, by engine, version and weights."""
    try:
        known: dict[str, str] = json.loads(_file().read_text())
        return known
    except (OSError, json.JSONDecodeError):
        return {}


def _file() -> Path:
    return cache_folder() / "parity.json"


def subject(engine: Engine) -> str | None:
    """What a result holds for: engine, version and weights, or a server's address. None where a part of it is unknown."""
    if engine.endpoint is not None:
        return engine.name
    identity = engine.identity()
    library = sys.modules.get({"llamacpp": "llama_cpp"}.get(identity["kind"], identity["kind"]))
    version = getattr(library, "__version__", None)
    weights = identity.get("weights") or (engine.reference and _signature(engine.reference))
    known = {**identity, "version": version, "weights": weights}
    return ", ".join(f"{name} {value}" for name, value in known.items()) if version and weights else None


def _obstacle(reference: str, options: EngineOptions) -> str | None:
    """Why `hf` cannot have these weights in passing."""
    files = weight_files(reference)
    if not files:
        return f"{reference} is not on this disk"
    wide = 2 if options.dtype == "float32" else 1  # most weights are kept in 16 bits, those of a GGUF file in about 4
    needs = sum(f.stat().st_size * wide * (4 if f.suffix == ".gguf" else 1) for f in files)
    return f"{reference} would take about {needs / 1e9:.0f} GB of memory" if needs > MAX_REFERENCE_BYTES else None


def _signature(reference: str) -> str | None:
    """Identity of weight files by name, size and time: enough to notice that they were replaced."""
    files = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in weight_files(reference)]
    return hashlib.blake2b(json.dumps(files).encode(), digest_size=8).hexdigest() if files else None


def weight_files(reference: str) -> list[Path]:
    """Weights of an hf address that are on this disk, the adapter's with them."""
    base, adapter = split_address(reference.removeprefix("hf:"))
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
