"""`recommend`: which way of serving reaches a target, and at what price: from measured runs, not from advice (§D.4, §D.6).

A pilot's stored scores hold every budget K of batched self-consistency up to half of its permutations. Other runs, with
another model, adapter or mitigation, are listed too, with what they measured. Price is windows per query.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..errors import InputError, UsageError
from ..machine.bounds import parse_number
from ..machine.names import short_repr
from ..machine.places import Place
from ..measures.measurement import fewest_permutations
from ..measures.registry import MEASURES
from ..measures.threshold import Threshold
from ..models.adapter import shipped_findings
from ..results.audit import Audit, presentation_remarks, with_distinct_names
from ..results.figure import Figure, mean_figures, paired_gain
from ..results.load import check_one_threshold, load_run, measure_budgets
from ..results.notes import failed_remarks, not_ahead, trained_otherwise
from ..results.render import Printed
from ..results.table import NOTHING, Cell, Column, Note, Row, Table
from ..runs.folder import Run, find_run
from ..scoring.mitigations import count_windows
from .gate import Bound


@dataclass(frozen=True, slots=True)
class Option:
    """One way of serving."""

    scorer: str
    run: str
    serving_permutations: int
    windows: float | None
    """Windows per query, mean over the run's queries; None where scores were given without their windows."""
    value: float | None
    low: float | None
    high: float | None
    quality: float | None
    """nDCG at the task's k."""
    is_reached: bool | None
    """None where the run has too few permutations to measure it."""
    is_certain: bool | None
    """The whole 95 % interval is on the right side."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def row(self, target: Bound) -> Row:
        """Its row of the table."""
        value = None if self.value is None else target.shown(self.value)
        interval = NOTHING if self.low is None else f"[{self.low:.3f}, {self.high:.3f}]"
        reached = {None: "not measured", False: "no", True: "yes"}[self.is_reached]
        cells = [
            Cell(self.serving_permutations),
            Cell(self.windows, None if self.windows is None else f"{self.windows:.1f}"),
            Cell(self.value, value),
            Cell(interval),
            Cell(self.quality),
            Cell("yes, whole interval" if self.is_certain and self.is_reached else reached),
        ]
        return Row(self.scorer, tuple(cells))


def parse_target(text: str) -> Bound:
    """`overlap=0.8`: at least for a measure where higher is better, at most where lower is."""
    name, _, number = text.partition("=")
    mistakes, value = [], parse_number(number)
    has_side = name in MEASURES and MEASURES[name].better != "neither"
    target = Bound(name, least=value) if has_side and MEASURES[name].better == "higher" else Bound(name, most=value)
    if not has_side:
        known = ", ".join(m.name for m in MEASURES.values() if m.value and m.better != "neither")
        mistakes.append(f"target {text!r} is not a measure with a better side. Known: {known}.")
    if math.isnan(value):
        mistakes.append(f"target {text!r} has no value. Write it as measure=value, for example overlap=0.8.")
    elif beyond := target.beyond_range():
        mistakes.append(f"target {text!r}: {beyond}")
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return target


@dataclass(frozen=True, slots=True)
class Recommendation(Printed):
    """Every measured way of serving against a target. Prints as the table of `steadyscore compare --target`."""

    target: Bound
    options: tuple[Option, ...]
    """Cheapest first; among equally cheap ones those that reach the target, then the better quality."""
    quality: str
    """The quality measure of the task."""
    missing: tuple[str, ...] = ()
    """Sentences about queries that are in no mean."""
    advice: tuple[str, ...] = ()
    """Scorers that are below their first stage, and those that no order moves and that are better all the same."""
    findings: tuple[str, ...] = ()
    """Where else a shipped scorer helps and where it does not, as its card says."""

    @property
    def best(self) -> Option | None:
        """The cheapest option that reaches the target; None where none does."""
        return next((option for option in self.options if option.is_reached), None)

    def to_json(self) -> dict[str, object]:
        """As `steadyscore compare --target ... --json` prints it."""
        return {
            "target": {"measure": self.target.measure, "value": self.target.number},
            "recommended": None if self.best is None else self.best.to_json(),
            "options": [option.to_json() for option in self.options],
            "missing": list(self.missing),
            "advice": list(self.advice),
            "findings": list(self.findings),
        }

    def tables(self) -> list[Table]:
        columns = (
            Column("serving_permutations", "K"), Column("windows", "windows/query"), Column(self.target.measure),
            Column("interval", "95 % interval"), Column(self.quality), Column("reached"),
        )  # fmt: skip
        rows = tuple(option.row(self.target) for option in self.options)
        return [Table(columns, rows, corner="scorer", key="scorer", notes=tuple(map(Note, self.sentences)))]

    def __repr__(self) -> str:
        return short_repr(self, f"for {self.target}: {self.best.scorer if self.best else 'no option reaches it'}")

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences below the table."""
        return (*self.missing, *self.advice, *self.findings, self.conclusion)

    @property
    def conclusion(self) -> str:
        """What to serve, in one sentence."""
        wanted = str(self.target).replace(">=", "at least").replace("<=", "at most")
        if self.best is None:
            most = max(option.serving_permutations for option in self.options)
            return f"{wanted}: not reached by any run, nor by averaging up to K = {most} permutations of the pilot."
        budget = self.best.serving_permutations
        way = f"averaging K = {budget} permutations" if budget > 1 else "one permutation"
        price = "its windows not known" if self.best.windows is None else f"{self.best.windows:.1f} windows a query"
        return f"{wanted}: {self.best.scorer}, {way}, {price}."


def recommend(
    pilot: str | Place | Run, *others: str | Place | Run, target: str | Bound, threshold: Threshold | None = None
) -> Recommendation:
    """Every measured way of serving against a target such as `overlap=0.8`, from runs on one collection.

    pilot   a run whose permutations are averaged at every budget K
    others  runs of other scorers or mitigations, as they are
    """
    wanted = parse_target(target) if isinstance(target, str) else target
    first, *rest = (run if isinstance(run, Run) else find_run(run) for run in (pilot, *others))
    _check_one_collection(first, rest)
    queries = first.read_queries()
    measured = load_run(first, threshold, queries=queries)
    audits = with_distinct_names([measured, *(load_run(run, threshold) for run in rest)])
    if "cutoff" in MEASURES[wanted.measure].needs:
        check_one_threshold(audits)
    ways = [(audit, audit.view.serving_permutations, audit.figures) for audit in audits]
    budgets = range(2, fewest_permutations(queries) // 2 + 1)  # a flip needs two disjoint ensembles
    served = measure_budgets(first, queries, measured.threshold, measured.view, budgets)
    ways += [(audits[0], budget, mean_figures(at)) for budget, at in zip(budgets, served, strict=True)]
    price = {audit.name: windows_per_query(audit) for audit in audits}
    options = [_option(audit, budget, figures, wanted, price[audit.name]) for audit, budget, figures in ways]
    if all(option.value is None for option in options):
        raise InputError(
            f"no run measures {wanted.measure}. It needs {', '.join(MEASURES[wanted.measure].needs)}; "
            f"{first.folder} has {', '.join(audits[0].figures)}."
        )
    options.sort(key=_price_then_merit)
    missing = [f"{audit.collection}: {sentence}" for audit in audits for sentence in failed_remarks(audit)]
    missing += presentation_remarks(audits)
    advice, findings = _advice(audits), [sentence for audit in audits for sentence in _findings(audit)]
    return Recommendation(wanted, tuple(options), audits[0].task.quality, tuple(missing), tuple(advice), tuple(findings))


def _advice(audits: Sequence[Audit]) -> list[str]:
    """What a choice among these runs should know beyond the target."""
    below = [sentence for audit in audits for sentence in (*trained_otherwise(audit), *not_ahead(audit))]
    pairs = ((free, other) for free in audits for other in audits if _is_order_free(free) and not _is_order_free(other))
    return [*below, *(sentence for free, other in pairs for sentence in _better_and_steadier(free, other))]


def _findings(audit: Audit) -> list[str]:
    """What the card of a shipped adapter says of it; nothing of any other scorer."""
    adapter = audit.record.fingerprint.adapter
    findings = list(map(str, shipped_findings(adapter.get("sha256")))) if adapter else []
    purpose = ["shows the method on two cores and does not compete with larger scorers."] if findings else []
    return [f"{audit.name} {sentence}" for sentence in purpose + findings]


def _is_order_free(audit: Audit) -> bool:
    """Whether no order can move the scorer: it reads one candidate at a time, or the pool as a set."""
    return audit.record.fingerprint.width == 1 or audit.record.is_order_free


def _better_and_steadier(free: Audit, other: Audit) -> list[str]:
    quality = free.task.quality
    ahead = paired_gain(quality, free.measured, other.measured)
    steadiness = [audit.figures["tau_psi"].value for audit in (free, other) if "tau_psi" in audit.figures]
    if ahead is None or ahead.value <= 0 or len(steadiness) < 2 or steadiness[0] >= steadiness[1]:
        return []
    way = "scores every candidate alone" if free.record.fingerprint.width == 1 else "reads the pool as a set"
    lead = f"{quality} {ahead.value:+.3f} [{ahead.low:+.3f}, {ahead.high:+.3f}]"
    better = f"better ({lead})" if ahead.low > 0 else f"ahead, which {ahead.queries} queries do not settle ({lead})"
    moves = f"tau_psi {steadiness[0]:.3f} against {steadiness[1]:.3f}"
    return [f"{free.name}, which {way}, is steadier than {other.name} ({moves}) and {better}."]


def _check_one_collection(pilot: Run, others: Sequence[Run]) -> None:
    here = pilot.record.collection
    if elsewhere := [run for run in others if run.record.collection != here]:
        named = " and ".join(f"{run.folder} is a run on {run.record.collection}" for run in elsewhere)
        raise InputError(f"{named}, the pilot {pilot.folder} one on {here}. Give runs on {here} only.")


def windows_per_query(audit: Audit) -> float | None:
    """What one permutation of a request costs, from the width and the mitigations that the run was made with.

    Of scores that were given, from the windows they name; None where they name none.
    """
    made = audit.record.fingerprint
    if "width" not in made.keys:
        named = [len(np.unique(row)) for query in audit.queries if query.windows is not None for row in query.windows]
        return float(np.mean(named)) if named else None
    costs = [count_windows(len(query.candidate_ids), made.width, made.mitigations) for query in audit.queries]
    return float(np.mean(costs))


def _price_then_merit(option: Option) -> tuple[float, float, bool, float]:
    """Cheapest first, by permutations where windows are not known; then what reaches the target, then the better quality."""
    windows = option.windows or math.inf
    return windows, option.windows or option.serving_permutations, not option.is_reached, -(option.quality or 0)


def _option(audit: Audit, budget: int, figures: Mapping[str, Figure], target: Bound, price: float | None) -> Option:
    reached, quality = figures.get(target.measure), figures.get(audit.task.quality)
    # The unlucky end of the interval decides whether a target is reached beyond doubt.
    worst = None if reached is None else reached.high if target.least is None else reached.low
    return Option(
        scorer=audit.name,
        run=str(audit.folder) if audit.folder else "-",
        serving_permutations=budget,
        windows=None if price is None else budget * price,
        value=None if reached is None else reached.value,
        low=None if reached is None else reached.low,
        high=None if reached is None else reached.high,
        quality=None if quality is None else quality.value,
        is_reached=None if reached is None else target.holds(reached.value),
        is_certain=None if worst is None else target.holds(worst),
    )
