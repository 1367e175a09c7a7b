"""What must hold of a model before its figures count, tried once for its weights on this machine and remembered.

The parity check: an engine must read what a plain forward over the whole vocabulary says. Engine `hf` is compared with the
model's own logits, position by position; every other engine with `hf` on the same weights and the same token ids. What differs
is then the engine, not the prompt. An engine is admitted once per version and weights (`admit`); the result stands among the
engine's capabilities, and so in every run and report.

The set check: a model must read a set as one. A configuration says most of it (no sliding windows, no states, fixed rotations).
The rest is tried: that keys can be turned, that a set of one is graded as a plain pass grades it, and that a shuffled set gives
the same scores.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import ModelError, StorageError
from ...machine.disk import cache_folder, write_json
from ...models.adapter import split_address
from ...models.embedded import EMBEDDED, hub_folder, is_present, model_path
from ...tasks import PASSAGE_RERANKING
from ...terms import JsonObject, Prompt, PromptStyle
from ...window import readout, set_windows
from ...window.prompt import PromptText, prompt_text
from .. import Engine, EngineOptions
from ..http import Unusable

TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "quantised": 5e-2}
"""How far two ways to the same prompt may differ in score, by the precision of the less precise one."""
HALF = 3e-2
"""The same of two ways to the same set, in half precision."""
MAX_REFERENCE_BYTES = 16e9
"""Memory that `admit` may take for `hf`'s copy of the weights; larger models are left to `steadyscore doctor`."""
SETS = 2
"""Number of the set check: what an earlier one passed is tried again."""

QUERY = "why is the sky blue"
TEXTS = (
    "Short waves of light scatter more in air than long ones, so the daytime sky looks blue.",
    "The ferry leaves the harbour at nine and at noon.",
    "Blue paint was once made from a stone that had to be carried over mountains for months before it reached a workshop.",
)
MEMBERS = (*TEXTS[:2], "Blue paint was once made from a stone that had to be carried over mountains.", TEXTS[1])
ORDERS = ((0, 1, 2, 3), (2, 3, 0, 1), (3, 2, 1, 0))

log = logging.getLogger("steadyscore.engines")

Open = Callable[[str, EngineOptions], Engine]


# -- verdicts on this machine


def remembered() -> dict[str, str]:
    """Results of the checks on this machine, by engine, version and weights. A damaged file holds none, and is written anew."""
    try:
        known = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _file() -> Path:
    return cache_folder() / "parity.json"


def _keep(subject: str | None, verdict: str) -> None:
    if subject:
        try:
            write_json(_file(), remembered() | {subject: verdict})
        except StorageError as refusal:
            log.warning("the check of this model is made again at the next start: %s", refusal)


def subject_of(engine: Engine) -> str | None:
    """What a result holds for: engine, version and weights, or a server's address. None where a part of it is unknown."""
    if engine.endpoint is not None:
        return engine.name
    identity = engine.identity()
    return _subject(identity, identity.get("weights"), str(identity.get("kind")))


def _subject(facts: JsonObject, weights: object, *libraries: str) -> str | None:
    versions = [getattr(sys.modules.get(library), "__version__", "") for library in libraries]
    known = {**facts, "version": " ".join(versions), "weights": weights}
    return ", ".join(f"{name} {value}" for name, value in known.items()) if all(versions) and weights else None


def weight_files(reference: str) -> list[Path]:
    """Weights of an hf address that are on this disk, the adapter's with them."""
    base, adapter = split_address(reference.removeprefix("hf:"))
    if base in EMBEDDED:
        folder = model_path(base) if is_present(EMBEDDED[base]) else None
    else:
        folder = Path(base) if Path(base).exists() else hub_folder(base)
    if folder is None or folder.suffix == ".gguf":
        return [folder] if folder else []
    return sorted(file for part in (folder, adapter) if part for file in part.glob("*.safetensors"))


# -- parity


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
        engine.encoder.prompt(prompt_text(PASSAGE_RERANKING, QUERY, [TEXTS[i] for i in order], style=style)) for order in orders
    ]


def compare(engine: Engine, plain: Engine) -> Parity:
    """Any engine against an `hf` engine of the same weights, on the same prompts."""
    reference, given, other = f"hf:{plain.name}", engine.identity(), plain.identity()
    halves = "bfloat16" in (given.get("dtype"), other.get("dtype"))
    precision = "quantised" if given["kind"] == "llamacpp" else "bfloat16" if halves else "float32"
    prompts = probe_prompts(plain)
    if probe_prompts(engine) != prompts:
        raise ModelError(f"{engine.name} and {reference} turn the same window into different tokens; they are different models.")
    return _compare(engine, prompts, plain.grade_logits(prompts), reference, TOLERANCE[precision])


def compare_readout(engine: Engine, exact: Engine | None = None) -> Parity:
    """Engine `hf` against the model's own logits over the whole vocabulary, one prompt at a time; in half precision against those
    of `exact`, the same model in float32.
    """
    prompts = probe_prompts(engine, engine.trained_settings.get("prompt") or "paper")
    plain = [logits for prompt in prompts if (logits := (exact or engine).plain_logits(prompt)) is not None]
    if not plain:
        raise ModelError(f"{engine.name} has no model in this process to be compared with. Check its base: hf:<id or folder>.")
    precision = str(engine.identity().get("dtype", "float32"))
    words = "a plain forward" if precision == "float32" else "a plain forward in float32"
    return _compare(engine, prompts, plain, words, TOLERANCE[precision])


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


def examine(engine: Engine, options: EngineOptions, reference: str | None, open_reference: Open) -> Parity:
    """The parity check as `steadyscore doctor` makes it.

    `reference` is the hf address of the same weights; an engine that loads them itself knows it, a server's model does not.
    """
    exact = replace(options, dtype="float32")
    if not engine.needs_parity:
        is_exact = engine.identity().get("dtype", "float32") == "float32"
        return compare_readout(engine, engine if is_exact else open_reference(f"hf:{engine.name}", exact))
    if (reference := reference or engine.reference) is None:
        raise ModelError(f"{engine.name} does not say where its weights are. Name them: --reference hf:<id or folder>.")
    return compare(engine, open_reference(reference, exact if options.dtype == "auto" else options))


def admit(engine: Engine, options: EngineOptions, open_reference: Open) -> Engine:
    """Compare an engine with `hf` on its first use with a model, and refuse it or mark it with the result."""
    parity = remembered().get(subject_of(engine) or "") or _check_parity(engine, options, open_reference)
    engine.capabilities = replace(engine.capabilities, parity=parity)
    return engine


def _check_parity(engine: Engine, options: EngineOptions, open_reference: Open) -> str:
    address = engine.reference
    if address is None:
        return f"not checked: it does not say where its weights are; {_doctor(engine)} --reference hf:<id or folder>"
    if obstacle := _obstacle(address, options):
        return f"not checked: {obstacle}; {_doctor(engine)}"
    try:
        # The engine may have filled the GPU; the processor has room for a second copy.
        exact = "float32" if options.dtype == "auto" else options.dtype
        plain = open_reference(address, replace(options, device="cpu", dtype=exact))
    except Exception as refusal:  # whatever the libraries below have to say of a file
        return f"not checked: {address} does not open ({type(refusal).__name__}: {refusal})"
    try:
        parity = compare(engine, plain)
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
    _keep(subject_of(engine), verdict)
    return verdict


def _obstacle(reference: str, options: EngineOptions) -> str | None:
    """Why `hf` cannot have these weights in passing."""
    files = weight_files(reference)
    if not files:
        return f"{reference} is not on this disk"
    wide = 1 if options.dtype == "bfloat16" else 2  # most weights are kept in 16 bits, those of a GGUF file in about 4
    needs = sum(f.stat().st_size * wide * (4 if f.suffix == ".gguf" else 1) for f in files)
    return f"{reference} would take about {needs / 1e9:.0f} GB of memory" if needs > MAX_REFERENCE_BYTES else None


# -- sets


def check_sets(engine: Engine, model: Any) -> None:
    """Refuse a model whose set windows would not be sets."""
    import torch

    from .device import arithmetic

    # With an adapter that its identity does not name, as in training, the weights are others than it says.
    identity = engine.identity()
    is_named = "adapter" in identity or not any("lora_" in name for name, _ in model.named_parameters())
    facts = {"check": f"sets {SETS}", **{name: value for name, value in identity.items() if name != "model"}}
    subject = _subject(facts, identity.get("weights"), "torch", "transformers") if is_named else None
    if subject in remembered():
        return
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), arithmetic(model):
            mistake = turn_mistake(engine, model) or plain_mistake(engine, model) or order_mistake(engine, model)
    finally:
        model.train(training)
    if mistake:
        raise ModelError(f"{engine.name} cannot read a window as a set: {mistake} Choose another --prompt.")
    _keep(subject, f"read as sets, {datetime.now(UTC):%Y-%m-%d}")


def turn_mistake(engine: Engine, model: Any) -> str | None:
    """Keys read later and turned back must be the keys read earlier, in every layer. Read are tokens of a text: control tokens
    differ between the precisions by more than between two places."""
    from transformers import DynamicCache

    from .windows import Turn, read_behind

    tokens = engine.encoder.tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"][:8]
    placed = np.arange(len(tokens))
    keys = []
    for start in (0, set_windows.EARLIER):
        cache: Any = DynamicCache()
        read_behind(model, cache, [tokens], start + placed)
        keys.append([layer.keys for layer in cache.layers])
    try:
        turn = Turn(model)
        apart = max(float((turn(late) - early).abs().max() / early.abs().max()) for early, late in zip(*keys, strict=True))
    except (StopIteration, KeyError, RuntimeError, TypeError, AttributeError) as refusal:
        return f"its keys cannot be turned to other positions ({type(refusal).__name__}: {refusal})."
    if not apart <= 10 * _tolerance(model):
        return f"keys that are turned to another position differ from keys that are read there, by {apart:.2g} of the largest."
    return None


def plain_mistake(engine: Engine, model: Any) -> str | None:
    """A set of one is the compact prompt of one candidate, which the model reads without any help of ours."""
    one = engine.grade_logits([engine.encoder.set_prompt(_set_of((0,)))])
    plain = engine.encoder.prompt(prompt_text(PASSAGE_RERANKING, QUERY, MEMBERS[:1], style="compact"))
    apart = float(np.abs(slot_scores(one) - slot_scores(engine.grade_logits([plain]))).max())
    if not apart <= _tolerance(model):
        return f"one candidate alone is scored otherwise than in a plain pass, by {apart:.2g}."
    return None


def order_mistake(engine: Engine, model: Any) -> str | None:
    """A shuffled set must give the same bits where its members are sorted, and the same scores where they are not."""
    for is_sorted, allowed in ((True, 0.0), (False, _tolerance(model))):
        rows = []
        for order in ORDERS[: 2 if is_sorted else None]:
            reading = engine.grade_logits([engine.encoder.set_prompt(_set_of(order), is_sorted=is_sorted)])
            rows.append(slot_scores(reading)[np.argsort(order)])
        apart = float(np.ptp(np.stack(rows), axis=0).max())
        if not apart <= allowed:
            return f"a shuffled window changes a score by {apart:.2g}."
    return None


def _set_of(order: tuple[int, ...]) -> PromptText:
    return prompt_text(PASSAGE_RERANKING, QUERY, [MEMBERS[i] for i in order], style="set")


def _tolerance(model: Any) -> float:
    return TOLERANCE["float32"] if str(model.dtype) == "torch.float32" else HALF
