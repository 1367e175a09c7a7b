"""`steadyscore.study_variance`: where the movement of a score over orders comes from, from stored runs (§C.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..machine.names import short_repr
from ..measures.decomposition import SlotResidual, collection_shares
from ..measures.places import Estimator, slot_profile, variance_components
from ..measures.ranking import unless_nan
from ..runs.folder import Run
from .load import Given, collect_audits, load_runs
from .names import with_distinct_names
from .result import Audit
from .table import html_table, text_table

HEADER = (
    "collection", "scorer", "variance", "slot", "window", "companions", "residual", "of the first", "slot rms", "gold slot rms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class VarianceRow:
    """One run. Variances are those of a candidate's score over permutations, in squared score units."""

    scorer: str
    collection: str
    queries: int
    """Queries whose places are stored."""
    total: float
    slot_share: float | None
    window_share: float | None
    companion_share: float | None
    """What slot and window leave over; None where nothing varies."""
    residual: float
    """The level behind it: variance that neither slot nor window explains."""
    relative_residual: float | None
    """That level over the first run's on the same collection: 0.032 says that 96.8 % of it is gone."""
    slot_profile: list[float | None]
    """ψ(p): what a slot adds to a score, over all candidates."""
    slot_rms: float
    gold_slot_profile: list[float | None]
    """ψ(p) of the relevant candidates alone; None where none stood in a slot."""
    gold_slot_rms: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> list[Any]:
        """A row of the table."""
        shares = [_percent(share) for share in (self.slot_share, self.window_share, self.companion_share)]
        levels = [f"{self.total:.5f}", *shares, f"{self.residual:.5f}", _percent(self.relative_residual)]
        gold = "-" if self.gold_slot_rms is None else f"{self.gold_slot_rms:.4f}"
        return [self.collection, self.scorer, *levels, f"{self.slot_rms:.4f}", gold]


@dataclass(frozen=True, slots=True)
class VarianceStudy:
    """Every run. Prints as the table of `steadyscore variance`."""

    estimator: Estimator
    rows: tuple[VarianceRow, ...]

    def to_json(self) -> dict[str, Any]:
        """As `steadyscore variance --json` prints it."""
        return {"estimator": self.estimator, "runs": [row.to_json() for row in self.rows]}

    def __str__(self) -> str:
        return text_table(HEADER, [row.cells() for row in self.rows]).rstrip("\n")

    def __repr__(self) -> str:
        return short_repr(self, f"of {len(self.rows)} runs, {self.estimator}")

    def _repr_html_(self) -> str:
        return html_table(HEADER, [row.cells() for row in self.rows])


def study_variance(*audits: Given, estimator: Estimator = "unbiased") -> VarianceStudy:
    """Slot, window and companion variance of audits or run folders, its level, and what each slot adds, to gold too.

    estimator  `unbiased` fits the effects on two halves of the permutations, so that shares of chance are zero; `reference`
               is the paper's: the drop of the mean squared residual in one OLS fit to all of them
    """
    if estimator not in ("unbiased", "reference"):
        raise InputError(f"unknown estimator {estimator!r}: choose unbiased or reference.")

    def load(runs: Sequence[Run]) -> list[Audit]:
        return load_runs(runs)

    loaded = with_distinct_names(collect_audits(audits, load, is_measured_anew=False))
    if not loaded:
        raise InputError("there is nothing to look at. Give audits, or their run folders.")
    first: dict[str, float] = {}
    rows = []
    for audit in loaded:
        row = _row(audit, estimator, first)
        first.setdefault(audit.collection, row.residual)
        rows.append(row)
    return VarianceStudy(estimator, tuple(rows))


def _row(audit: Audit, estimator: Estimator, first: dict[str, float]) -> VarianceRow:
    queries = [query for query in audit.queries if query.is_placed and len(query.permuted) > 1]
    if not queries:
        raise InputError(
            f"{audit.name} on {audit.collection} has no stored slots and windows under two permutations. Audit a scorer "
            "with --permutations 2 or more; score files need the columns slot and window."
        )
    every, gold, found = slot_profile(queries), slot_profile(queries, gold=True), variance_components(queries, estimator)
    if np.isnan(found.companion):
        raise InputError(
            f"{audit.name} on {audit.collection} has too few permutations to fit its effects on two halves. Score four or more, "
            "or use --estimator reference."
        )
    shares = collection_shares([found])
    before = first.get(audit.collection)
    return VarianceRow(
        scorer=audit.name,
        collection=audit.collection,
        queries=len(queries),
        total=found.total,
        slot_share=unless_nan(shares.slot),
        window_share=unless_nan(shares.window),
        companion_share=unless_nan(shares.companion),
        residual=found.companion,
        relative_residual=None if before is None or not before > 0 else found.companion / before,
        slot_profile=_profile(every),
        slot_rms=every.rms,
        gold_slot_profile=_profile(gold),
        gold_slot_rms=unless_nan(gold.rms),
    )


def _profile(found: SlotResidual) -> list[float | None]:
    return [unless_nan(value) for value in found.profile]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
