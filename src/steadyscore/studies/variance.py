"""`steadyscore.study_variance`: where the movement of a score over orders comes from, from stored runs (§C.1)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ..audits.audits import Given, collect_audits
from ..errors import InputError
from ..machine.names import short_repr
from ..measures.decomposition import Estimator, SlotResidual, collection_shares, slot_profile, variance_components
from ..measures.ranking import unless_nan
from ..results.audit import Audit, with_distinct_names
from ..results.render import Printed
from ..results.table import Cell, Column, Row, Table

SHOWN = (
    ("total", "variance", ".5f"), ("slot_share", "slot", ".1%"), ("window_share", "window", ".1%"),
    ("companion_share", "companions", ".1%"), ("residual", "residual", ".5f"), ("relative_residual", "of the first", ".1%"),
    ("slot_rms", "slot rms", ".4f"), ("gold_slot_rms", "gold slot rms", ".4f"),
)  # fmt: skip
"""Columns behind that of the scorer: a field of a row, its heading, and how its numbers are printed."""


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

    def row(self) -> Row:
        """The row of the table."""
        values = [(getattr(self, name), digits) for name, _, digits in SHOWN]
        cells = [Cell() if value is None else Cell(value, text=f"{value:{digits}}") for value, digits in values]
        return Row(self.collection, (Cell(self.scorer), *cells))


@dataclass(frozen=True, slots=True)
class VarianceStudy(Printed):
    """Every run. Prints as the table of `steadyscore study variance`."""

    estimator: Estimator
    rows: tuple[VarianceRow, ...]

    def to_json(self) -> dict[str, object]:
        """As `steadyscore study variance --json` prints it."""
        return {"estimator": self.estimator, "runs": [asdict(row) for row in self.rows]}

    def tables(self) -> list[Table]:
        columns = (Column("scorer"), *(Column(name, heading) for name, heading, _ in SHOWN))
        return [Table(columns, tuple(row.row() for row in self.rows), corner="collection", key="collection")]

    def __repr__(self) -> str:
        return short_repr(self, f"of {len(self.rows)} runs, {self.estimator}")


def study_variance(*audits: Given, estimator: Estimator = "unbiased") -> VarianceStudy:
    """Slot, window and companion variance of audits or run folders, its level, and what each slot adds, to gold too.

    estimator  `unbiased` fits the effects on two halves of the permutations, so that shares of chance are zero; `reference`
               is the paper's: the drop of the mean squared residual in one OLS fit to all of them
    """
    if estimator not in ("unbiased", "reference"):
        raise InputError(f"unknown estimator {estimator!r}: choose unbiased or reference.")

    loaded = with_distinct_names(collect_audits(audits))
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
    every, gold, components = slot_profile(queries), slot_profile(queries, gold=True), variance_components(queries, estimator)
    if np.isnan(components.companion):
        raise InputError(
            f"{audit.name} on {audit.collection} has too few permutations to fit its effects on two halves. Score four or more, "
            "or use --estimator reference."
        )
    shares = collection_shares([components])
    before = first.get(audit.collection)
    return VarianceRow(
        scorer=audit.name,
        collection=audit.collection,
        queries=len(queries),
        total=components.total,
        slot_share=unless_nan(shares.slot),
        window_share=unless_nan(shares.window),
        companion_share=unless_nan(shares.companion),
        residual=components.companion,
        relative_residual=None if before is None or not before > 0 else components.companion / before,
        slot_profile=_profile(every),
        slot_rms=every.rms,
        gold_slot_profile=_profile(gold),
        gold_slot_rms=unless_nan(gold.rms),
    )


def _profile(residual: SlotResidual) -> list[float | None]:
    return [unless_nan(value) for value in residual.profile]
