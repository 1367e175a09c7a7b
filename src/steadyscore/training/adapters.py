"""What is done with a trained adapter: checked against its base, merged into it, given the cutoff that a server decides with."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..audits.audit import audit
from ..audits.audits import load
from ..collection import Data, Names
from ..engines import Backend, EngineOptions
from ..engines.kinds import open_local_model
from ..errors import InputError, ModelError
from ..machine.disk import atomic_folder, explaining_os_errors, make_folder, write_json
from ..measures.threshold import KEPT, Threshold
from ..models.adapter import adapter_identity, card_for_base, prompt_mistakes, read_weights, refuse_mismatches, refuse_pickles
from ..models.card import MERGED, Card, CardCutoff, adapter_address, describe_base, read_card, scorer_address, write_card
from ..models.embedded import shipped_adapters
from ..results.audit import Audit
from ..runs.records import Fingerprint
from ..scoring.config import AuditConfig
from ..scoring.scorer import Scorer, Settings
from ..tasks import TASKS
from ..terms import Candidate, Instance, JsonObject, Prompt
from ..window.presentation import windows

log = logging.getLogger("steadyscore")

AGREEMENT = 1e-4
"""Largest difference of a score between merged and unmerged weights."""
PERMUTATIONS = 3
"""Orders under which the overlap that goes with a cutoff is measured, where no run is named."""
PROBE = Instance(
    "probe",
    "what is the capital of portugal",
    (
        Candidate("0", "Lisbon is the capital of Portugal."),
        Candidate("1", "The river Tagus reaches the sea near Lisbon."),
        Candidate("2", "Bread rises because yeast makes gas."),
    ),
)
"""What an adapter and a merged model are tried on."""


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
    prompt = scorers[1].prompt(PROBE, windows(range(len(PROBE.pool)), scorers[1].width or len(PROBE.pool))[0])
    assert isinstance(prompt, Prompt)
    refuse_mismatches(prompt_mistakes(adapter_identity(folder, card), now, prompt.grade_tokens), allow_base_mismatch)
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


def _probe_scores(scorer: Scorer) -> np.ndarray:
    return np.stack([scorer.score(PROBE, order) for order in ([0, 1, 2], [2, 0, 1])])


# -- the cutoff


def store_cutoff(
    adapter: str | Path,
    data: Data = None,
    *,
    run: str | Path | None = None,
    columns: Names = None,
    keep: float = KEPT,
    quiet: bool = False,
) -> CardCutoff:
    """Fit the cutoff of an adapter to keep a share of the pool, and write it into its card and README.

    data   what it is fitted on: the adapter scores it in first-stage order, and in three others for the overlap; or
    run    an audit of the adapter, whose scores are used as they are
    """
    folder, by = Path(adapter), Threshold(retention=keep)
    if folder.resolve() in (shipped.resolve() for shipped in shipped_adapters().values()):
        raise InputError(f"{folder.name} is part of the package and keeps its card. Give a server another --cutoff instead.")
    if (data is None) == (run is None):
        raise InputError("a cutoff is fitted on data or on a run. Give one of them.")
    card = read_card(folder)
    if run is None:
        config = AuditConfig(threshold=by, permutations=PERMUTATIONS)
        audits = audit(adapter_address(card, folder), data, columns=columns, config=config, report=False, quiet=quiet)
    else:
        audits = load(run, threshold=by)
    if len(audits) != 1:
        raise InputError(f"{run} holds {len(audits)} runs. Name the one to fit the cutoff on.")
    scored = audits[0]
    asked = scored.record.fingerprint
    if mistake := _mistake(asked, {**card.settings} | {"adapter": adapter_identity(folder, card)["sha256"]}):
        raise InputError(f"{run} {mistake} Audit {adapter_address(card, folder)} itself, or give data.")
    if asked.data is not None and asked.data.sha256 == card.data.sha256:
        log.warning("the cutoff is fitted on what the adapter was trained on; other queries may keep another share.")
    fitted = _card_cutoff(scored)
    write_card(folder, replace(card, cutoff=fitted))
    return fitted


def _mistake(asked: Fingerprint, served: JsonObject) -> str | None:
    """Why the scores of a run are not those that a server of the adapter gives."""
    if asked.adapter is None or asked.adapter.get("sha256") != served["adapter"]:
        return "was scored by another adapter."
    differ = [f"{name} {was} and not {value}" for name, value in served.items() if (was := asked.keys.get(name, value)) != value]
    changed = [*differ, *(f"mitigation {name}" for name in asked.mitigations)]
    return f"was scored with {', '.join(changed)}." if changed else None


def _card_cutoff(scored: Audit) -> CardCutoff:
    cutoff = scored.measured.cutoff
    if cutoff.value is None:
        raise InputError(f"no cutoff can be fitted on {scored.collection}: {cutoff.how}.")
    means = {name: scored.figures[name].value for name in ("overlap", "retention") if name in scored.figures}
    return CardCutoff(
        value=cutoff.value,
        overlap=means.get("overlap"),
        retention=means["retention"],
        how=cutoff.how,
        on=f"{cutoff.fitted_on} queries of {scored.collection}",
        sha256="" if (data := scored.record.fingerprint.data) is None else data.sha256,
    )
