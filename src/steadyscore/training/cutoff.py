"""The cutoff that goes with an adapter: fitted as an audit fits it, kept in its card, and what a server decides with."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from ..audits.audit import audit
from ..audits.audits import load
from ..collection import Data, Names
from ..errors import InputError
from ..measures.threshold import KEPT, Threshold
from ..models.adapter import adapter_identity
from ..models.card import CardCutoff, adapter_address, read_card, write_card
from ..models.embedded import shipped_adapters
from ..results.audit import Audit
from ..runs.records import Fingerprint
from ..scoring.config import AuditConfig
from ..terms import JsonObject

log = logging.getLogger("steadyscore")

PERMUTATIONS = 3
"""Orders under which the stored overlap is measured, where no run is named."""


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
