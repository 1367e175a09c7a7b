"""`steadyscore.gate`: bounds that the figures of an audit must hold, for a build or a notebook."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Unpack, cast
from xml.etree import ElementTree

import numpy as np

from ..errors import GateFailed, InputError, UsageError
from ..machine.bounds import parse_number
from ..machine.names import short_repr
from ..measures.intervals import FEWEST, LEVEL, Interval
from ..measures.ranking import unless_nan
from ..measures.registry import MEASURES, NOT_SHARES
from ..report.example import flip_lines
from ..results.audit import Audit, presentation_remarks
from ..results.figure import Figure, paired_gain
from ..results.load import Measuring
from ..results.notes import NAMED
from ..results.render import Printed
from ..results.table import Cell, Column, Note, Row, Table
from ..scoring.perturbation import perturbed_sample
from .audits import Given, OtherAudit, collect_audits, is_measure, split_audits, unknown_measure
from .compare import better_end, check_comparable

MISSING = "missing queries"
COLUMNS = (Column("bound"), Column("value"), Column("result"))
Z_LEVEL, Z_POWER = NormalDist().inv_cdf((1 + LEVEL) / 2), NormalDist().inv_cdf(0.8)
TOLERANCE = 1e-9
"""What a sum of fractions may miss a bound by and still meet it: 1/3 + 1/3 + 1/3 + 0 over 4 is a little below 0.25."""


OF_PERTURBATIONS = (
    "marker_tau_psi", "held_out_marker_tau_psi", "pool_psi_drop", "top10_changed_drop", "reverse_psi", "swap_psi",
    "first_stage_noise_psi",
)  # fmt: skip
"""Measures that every sampled query has; for `replace`, a pool without a next candidate has none."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One requirement of a gate: `--min overlap=0.8`, `--max tau_psi=0.1`."""

    measure: str
    least: float | None = None
    most: float | None = None
    is_drop: bool = False
    """Whether `most` bounds what the measure loses against a baseline, and not the measure: `--max-drop overlap=0.05`."""

    @property
    def number(self) -> float:
        return cast(float, self.most if self.least is None else self.least)

    def holds(self, value: float) -> bool:
        return (self.number - value if self.least is None else value - self.number) >= -TOLERANCE

    def shown(self, value: float, digits: int = 3) -> str:
        """A value with as many digits as it takes to see that it fails."""
        while not self.holds(value) and self.holds(float(f"{value:.{digits}f}")):
            digits += 1
        return f"{value:.{digits}f}"

    def beyond_range(self) -> str:
        """Why it can only hold, or only fail; empty for a number that the measure can have."""
        if self.measure not in MEASURES or self.measure in NOT_SHARES or 0 <= self.number <= 1:
            return ""
        return f"{self.measure} lies between 0 and 1, so a bound of {self.number:g} says nothing: give one between these."

    @property
    def what(self) -> str:
        """What is bounded."""
        if not self.is_drop:
            return self.measure
        return f"{'rise' if better_end(self.measure) == 'lower' else 'drop'} of {self.measure}"

    def __str__(self) -> str:
        return f"{self.what} {'<=' if self.least is None else '>='} {self.number:.10g}"


@dataclass(frozen=True, slots=True)
class Check:
    """One bound on one run."""

    run: str
    """Scorer and collection."""
    bound: Bound
    value: float
    missing: int
    """Queries of the run that are in no mean."""
    remarks: tuple[str, ...] = ()
    """What must be known to read the value."""
    drop: Interval | None = None
    """Of a bound on a drop: what is lost, paired by query; above zero is worse. The bound fails where the interval is beyond."""

    @property
    def ok(self) -> bool:
        return self.bound.holds(self.value if self.drop is None else self.drop.low)

    @property
    def smallest_seen(self) -> float | None:
        """The true drop that fails the bound in four of five cases, with as many queries that vary as much."""
        return self.drop and self.bound.number + (self.drop.value - self.drop.low) * (1 + Z_POWER / Z_LEVEL)

    @property
    def reason(self) -> str:
        """Why the bound fails, and what to do about queries that are missing."""
        if self.bound.measure == MISSING:
            missing = "1 query is" if self.missing == 1 else f"{self.missing} queries are"
            return f"{missing} missing. Run the same command again, or accept that with --allow-missing"
        if self.drop is not None:
            shown = [self.bound.shown(end, 4) for end in (self.value, self.drop.low, self.drop.high)]
            return f"{self.bound} fails with {shown[0]} [{shown[1]}, {shown[2]}] on {self.drop.queries} queries"
        return f"{self.bound} " + (
            "is not measured" if math.isnan(self.value) else f"fails with {self.bound.shown(self.value, 4)}"
        )

    def to_json(self) -> dict[str, object]:
        value = unless_nan(self.value)
        row = {"run": self.run, "bound": str(self.bound), "value": value, "ok": self.ok, "missing": self.missing}
        if self.drop is not None:
            row |= dict(zip(("low", "high", "queries"), self.drop[1:4], strict=True)) | {"smallest_seen": self.smallest_seen}
        return row | {"remarks": list(self.remarks)}

    def cells(self) -> tuple[Cell, ...]:
        """A row of the table."""
        value = Cell(self.value, self.bound.shown(self.value)) if self.drop is None else Cell(Figure.of(self.drop))
        return Cell(str(self.bound)), value, Cell("ok" if self.ok else "FAILED")


@dataclass(frozen=True, slots=True)
class Gate(Printed):
    """Every bound on every run. True where all hold; prints as the table of `steadyscore gate`."""

    checks: tuple[Check, ...]
    audits: tuple[Audit, ...] = field(default=(), compare=False)
    """The audits of scores that were checked."""

    @property
    def examples(self) -> list[str]:
        """Of every audit that fails a bound: a query, two orders of it, what they decide differently about, and why."""
        failed = {check.run for check in self.checks if not check.ok and check.bound.measure != MISSING}
        return [line for audit in self.audits if _name(audit) in failed for line in flip_lines(audit)]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known to read the values, each sentence once."""
        return tuple(dict.fromkeys(remark for check in self.checks for remark in check.remarks))

    @property
    def failures(self) -> list[str]:
        """A sentence for every bound that does not hold."""
        return [f"{check.run}: {check.reason}" for check in self.checks if not check.ok]

    @property
    def ok(self) -> bool:
        return not self.failures

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_failed(self) -> None:
        """Raise GateFailed with every bound that does not hold."""
        if self.failures:
            raise GateFailed("; ".join(self.failures) + ".")

    def to_json(self) -> list[dict[str, object]]:
        """As `steadyscore gate --json` prints it."""
        return [check.to_json() for check in self.checks]

    def to_junit(self) -> bytes:
        """As JUnit XML, which build servers show."""
        counts = {"tests": str(len(self.checks)), "failures": str(len(self.failures))}
        suite = ElementTree.Element("testsuite", counts, name="steadyscore gate")
        for check in self.checks:
            case = ElementTree.SubElement(suite, "testcase", classname=check.run, name=str(check.bound))
            if not check.ok:
                ElementTree.SubElement(case, "failure", message=check.reason)
        return cast(bytes, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))

    def tables(self) -> list[Table]:
        rows = tuple(Row(check.run, check.cells()) for check in self.checks)
        return [Table(COLUMNS, rows, corner="run", key="run", notes=tuple(map(Note, self.remarks)))]

    def __repr__(self) -> str:
        hold = f"{len(self.checks) - len(self.failures)} of {len(self.checks)} bounds hold"
        return short_repr(self, "; ".join([hold, *self.failures]))


def gate(
    *audits: Given,
    min: Mapping[str, float] | None = None,
    max: Mapping[str, float] | None = None,
    max_drop: Mapping[str, float] | None = None,
    baseline: Given | None = None,
    allow_missing: int = 0,
    **how: Unpack[Measuring],
) -> Gate:
    """Check audits, or run folders, against bounds: `gate(audits, min={"overlap": 0.8}, max={"tau_psi": 0.1})`.

    max_drop, baseline  `gate("runs/pr", max_drop={"overlap": 0.05}, baseline="runs/main")` fails where the 95 % interval of the
                   drop, paired by query, is beyond the bound; a measure that is better lower drops by rising
    allow_missing  queries of each run that may be in no mean, as they could not be scored or read
    how            threshold, serving_permutations, readout, ties: how folders are measured; audits stay as they were measured
    """
    for side, given in {"min": min, "max": max, "max_drop": max_drop}.items():
        if not isinstance(given, Mapping | None):
            raise InputError(f'{side} is {given!r}: give a bound for each measure, for example {side}={{"overlap": 0.8}}.')
    bounds = make_bounds(min or {}, max or {}, drops=max_drop or {})
    if bool(max_drop) != (baseline is not None):
        raise InputError("a drop is one against a baseline: give both, max_drop={'overlap': 0.05} and baseline='runs/main'.")

    def collect(given: Sequence[Given]) -> list[Audit | OtherAudit]:
        decided, scored = split_audits(given)
        return [*collect_audits(scored, together=False, **how), *decided]

    loaded, before = collect(audits), collect([] if baseline is None else [baseline])
    if not loaded:
        raise InputError("there is nothing to check. Give audits, or run folders.")
    checks = tuple(check for audit in loaded for check in _check(audit, bounds, before, allow_missing))
    return Gate(checks, tuple(audit for audit in loaded if isinstance(audit, Audit)))


def _check(audit: Audit | OtherAudit, bounds: Sequence[Bound], before: Sequence[Audit | OtherAudit], allowed: int) -> list[Check]:
    """Every bound on one run; a drop is that from the run of the same collection in `before`."""
    if absent := [bound.measure for bound in bounds if bound.measure not in audit.figures]:
        raise InputError(f"{audit.folder or _name(audit)} has no {', '.join(absent)}; it has {', '.join(audit.figures)}.")
    missing, remarks = _missing(audit, bounds)
    checks = [Check(_name(audit), b, audit.figures[b.measure].value, missing) for b in bounds if not b.is_drop]
    if drops := [bound for bound in bounds if bound.is_drop]:
        start = _baseline_of(audit, before)
        checks += [Check(_name(audit), b, drop.value, missing, drop=drop) for b in drops if (drop := _drop(b, audit, start))]
        remarks += presentation_remarks([one for one in (start, audit) if isinstance(one, Audit)])
    checks += [check_missing(_name(audit), missing, allowed)] if missing else []
    remarks += [
        f"{check.run}: with {check.drop.queries} queries a {check.bound.what} of {check.smallest_seen:.3f} fails in four of five "
        "cases, a smaller one less often."
        for check in checks if check.drop is not None
    ]  # fmt: skip
    return [replace(check, remarks=tuple(remarks)) for check in checks]


def _missing(audit: Audit | OtherAudit, bounds: Sequence[Bound]) -> tuple[int, list[str]]:
    """Queries that are in no mean, and what must be known to read the figures."""
    if not isinstance(audit, Audit):
        return len(audit.failed), list(audit.remarks)
    missing = missing_queries(audit, [bound.measure for bound in bounds])
    others = ", ".join([query_id for query_id in missing if query_id not in audit.measured.coverage.failed][:NAMED])
    unread = [f"{_name(audit)}: a reader or a perturbation misses {others}, which are in no mean of it."] if others else []
    return len(missing), [*unread, *audit.remarks()]


def _baseline_of(audit: Audit | OtherAudit, before: Sequence[Audit | OtherAudit]) -> Audit | OtherAudit:
    """The run of a baseline on the same collection; of several, that of the scorer with the same name."""
    alike = [one for one in before if one.collection == audit.collection and isinstance(one, Audit) is isinstance(audit, Audit)]
    named = alike if len(alike) == 1 else [one for one in alike if one.name == audit.name]
    if len(named) != 1:
        there = ", ".join(map(_name, before)) or "nothing"
        raise InputError(f"the baseline has {len(named) or 'no'} runs to hold {_name(audit)} against; it has {there}.")
    if scored := [one for one in (*named, audit) if isinstance(one, Audit)]:
        check_comparable(scored)
    return replace(named[0], name="the baseline") if isinstance(named[0], Audit) else named[0]


def _drop(bound: Bound, audit: Audit | OtherAudit, start: Audit | OtherAudit) -> Interval:
    """What an audit loses against another, paired by query: above zero is worse."""
    sides = (start, audit) if better_end(bound.measure) == "higher" else (audit, start)
    drop = paired_gain(bound.measure, *sides)
    if drop is None:
        raise InputError(
            f"the baseline and {_name(audit)} share fewer than {FEWEST} queries that have {bound.measure}, which is too few to "
            "tell a drop. Audit the same queries in both, and more of them."
        )
    return drop


def missing_queries(audit: Audit, measures: Iterable[str] = ()) -> list[str]:
    """Ids of the queries that could not be scored, and of those that a reader or a perturbation behind `measures` lacks."""
    missing = [failure.query_id for failure in audit.record.failed]
    names = [name for name in measures if name in MEASURES]
    if audit.reader is not None and any("reader" in MEASURES[name].needs for name in names):
        missing += audit.readers[audit.reader].unread
    for name in OF_PERTURBATIONS:
        if name in names and name in audit.measured.values:
            missing += _not_perturbed(audit, name)
    return list(dict.fromkeys(missing))


def _not_perturbed(audit: Audit, name: str) -> list[str]:
    """Sampled queries without a value, though their candidates can be ranked."""
    ids, values = audit.measured.query_ids, audit.measured.values
    sampled = set(perturbed_sample(list(ids), audit.record.fingerprint.seed or 0))
    can_be_ranked = ~np.isnan(values["tau_psi"]) if "tau_psi" in values else np.ones(len(ids), bool)
    lacking = np.isnan(values[name]) & can_be_ranked
    return sorted(query_id for query_id, is_lacking in zip(ids, lacking, strict=True) if is_lacking and query_id in sampled)


def check_missing(run: str, missing: int, allowed: int) -> Check:
    """The bound on the queries of a run that are in no mean."""
    return Check(run, Bound(MISSING, most=allowed), float(missing), missing)


def _name(audit: Audit | OtherAudit) -> str:
    return f"{audit.name} on {audit.collection}"


def make_bounds(
    least: Mapping[str, float],
    most: Mapping[str, float],
    is_known: Callable[[str], bool] = is_measure,
    listed: str = "`steadyscore.measures.MEASURES` has them all",
    drops: Mapping[str, float] | None = None,
) -> list[Bound]:
    """Bounds by measure; every unknown measure is named at once, with where to find those that there are."""
    drops = drops or {}
    bounds = [*(Bound(name, least=x) for name, x in least.items()), *(Bound(name, most=x) for name, x in most.items())]
    bounds += [Bound(name, most=x, is_drop=True) for name, x in drops.items()]
    if mistakes := dict.fromkeys(why for bound in bounds if (why := _mistake(bound, is_known, listed))):
        raise InputError([*mistakes])
    if sideless := [name for name in drops if better_end(name) == "neither"]:
        raise InputError([f"neither direction of {name} is better, so it cannot drop." for name in sideless])
    if not bounds:
        raise InputError('a gate needs at least one bound, for example min={"overlap": 0.8}.')
    return bounds


def _mistake(bound: Bound, is_known: Callable[[str], bool], listed: str) -> str:
    """Why a bound says nothing; empty where it does."""
    name, number = bound.measure, bound.number
    if not is_known(name):
        return unknown_measure(name, is_known, listed)
    if not isinstance(number, int | float) or not math.isfinite(number):
        return f"the bound on {name} is {number!r}: give a number."
    if bound.is_drop and number < 0:
        return f"the drop of {name} is bounded below zero; a drop that is allowed is 0 or more."
    return bound.beyond_range()


def parse_bounds(
    least: Sequence[str],
    most: Sequence[str],
    is_known: Callable[[str], bool] = is_measure,
    listed: str = "`steadyscore list measures` prints them",
    drops: Sequence[str] = (),
) -> list[Bound]:
    """Bounds as typed, `name=value`; every mistake at once."""
    bounds: list[Bound] = []
    mistakes = []
    for flag, texts in (("--min", least), ("--max", most), ("--max-drop", drops)):
        for text in texts:
            name, _, number = text.partition("=")
            value = parse_number(number)
            bound = Bound(name, least=value) if flag == "--min" else Bound(name, most=value, is_drop=flag == "--max-drop")
            if math.isnan(value) and is_known(name):
                mistakes.append(f"{flag} {text}: write a number, for example {flag} {name}=0.8.")
            elif why := _mistake(bound, is_known, listed):
                mistakes.append(f"{flag} {text}: {why}")
            elif any((other.what, other.least is None) == (bound.what, bound.least is None) for other in bounds):
                mistakes.append(f"{flag} {text}: {name} has such a bound already. Give one.")
            bounds.append(bound)
    if mistakes or not bounds:
        raise UsageError("\n".join(mistakes or ["a gate needs at least one bound, for example --min overlap=0.8."]))
    return bounds
