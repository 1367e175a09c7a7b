"""`steadyscore.gate`: bounds that the figures of an audit must hold, for a build or a notebook."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, cast
from xml.etree import ElementTree

from ..errors import GateFailed, InputError, UsageError
from ..machine.bounds import parse_number
from ..machine.names import short_repr
from ..measures.ranking import unless_nan
from ..measures.threshold import Threshold
from ..runs.folder import Run
from ..terms import Readout, Ties
from .decisions import DecisionAudit, is_measure, split_decisions
from .load import Given, collect_audits, load_run, reading_from
from .missing import missing_queries
from .remarks import NAMED
from .result import Audit
from .table import html_table, text_table

MISSING = "missing queries"
HEADER = ("run", "bound", "value", "result")
TOLERANCE = 1e-9
"""What a sum of fractions may miss a bound by and still meet it: 1/3 + 1/3 + 1/3 + 0 over 4 is a little below 0.25."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One requirement of a gate: `--min overlap=0.8`, `--max tau_psi=0.1`."""

    measure: str
    least: float | None = None
    most: float | None = None

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

    def __str__(self) -> str:
        return f"{self.measure} {'<=' if self.least is None else '>='} {self.number:.10g}"


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

    @property
    def ok(self) -> bool:
        return self.bound.holds(self.value)

    @property
    def reason(self) -> str:
        """Why the bound fails, and what to do about queries that are missing."""
        if self.bound.measure == MISSING:
            missing = "1 query is" if self.missing == 1 else f"{self.missing} queries are"
            return f"{missing} missing. Run the same command again, or accept that with --allow-missing"
        return f"{self.bound} " + (
            "is not measured" if math.isnan(self.value) else f"fails with {self.bound.shown(self.value, 4)}"
        )

    def to_json(self) -> dict[str, Any]:
        value = unless_nan(self.value)
        row = {"run": self.run, "bound": str(self.bound), "value": value, "ok": self.ok, "missing": self.missing}
        return row | {"remarks": list(self.remarks)}


@dataclass(frozen=True, slots=True)
class Gate:
    """Every bound on every run. True where all hold; prints as the table of `steadyscore gate`."""

    checks: tuple[Check, ...]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known to read the values, each sentence once."""
        return tuple(dict.fromkeys(remark for check in self.checks for remark in check.remarks))

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_failed(self) -> None:
        """Raise GateFailed with every bound that does not hold."""
        if failed := [f"{check.run}: {check.reason}" for check in self.checks if not check.ok]:
            raise GateFailed("; ".join(failed) + ".")

    def to_json(self) -> list[dict[str, Any]]:
        """As `steadyscore gate --json` prints it."""
        return [check.to_json() for check in self.checks]

    def to_junit(self) -> bytes:
        """As JUnit XML, which build servers show."""
        failures = sum(not check.ok for check in self.checks)
        suite = ElementTree.Element("testsuite", name="steadyscore gate", tests=str(len(self.checks)), failures=str(failures))
        for check in self.checks:
            case = ElementTree.SubElement(suite, "testcase", classname=check.run, name=str(check.bound))
            if not check.ok:
                ElementTree.SubElement(case, "failure", message=check.reason)
        return cast(bytes, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))

    def _rows(self) -> list[list[Any]]:
        return [[c.run, str(c.bound), c.bound.shown(c.value), "ok" if c.ok else "FAILED"] for c in self.checks]

    def __str__(self) -> str:
        return "\n".join([text_table(HEADER, self._rows()), *self.remarks])

    def __repr__(self) -> str:
        failed = [f"{check.run}: {check.reason}" for check in self.checks if not check.ok]
        return short_repr(self, "; ".join([f"{len(self.checks) - len(failed)} of {len(self.checks)} bounds hold", *failed]))

    def _repr_html_(self) -> str:
        return html_table(HEADER, self._rows()) + "".join(f"<p>{escape(remark)}</p>" for remark in self.remarks)


def gate(
    *audits: Given,
    min: Mapping[str, float] | None = None,
    max: Mapping[str, float] | None = None,
    allow_missing: int = 0,
    threshold: Threshold | None = None,
    serving_permutations: int = 1,
    readout: Readout | None = None,
    ties: Ties | None = None,
) -> Gate:
    """Check audits, or run folders, against bounds: `gate(audits, min={"overlap": 0.8}, max={"tau_psi": 0.1})`.

    allow_missing  queries of each run that may be in no mean, as they could not be scored or read
    threshold, serving_permutations, readout, ties  how folders are measured; audits stay as they were measured
    """
    bounds, reading = make_bounds(min or {}, max or {}), reading_from(readout, ties)

    def load(runs: Sequence[Run]) -> list[Audit]:
        return [load_run(run, threshold, serving_permutations, reading=reading) for run in runs]

    decided, scored = split_decisions(audits)
    is_measured_anew = (threshold, serving_permutations, reading) != (None, 1, None)
    loaded = collect_audits(scored, load, is_measured_anew=is_measured_anew)
    if not loaded and not decided:
        raise InputError("there is nothing to check. Give audits, or run folders.")
    checks: list[Check] = []
    for audit in loaded:
        missing = missing_queries(audit, [bound.measure for bound in bounds])
        others = ", ".join([query_id for query_id in missing if query_id not in audit.measured.coverage.failed][:NAMED])
        unread = [f"{_name(audit)}: a reader or a perturbation misses {others}, which are in no mean of it."] if others else []
        remarks = [*unread, *audit.remarks()]
        checks += [replace(check, remarks=tuple(remarks)) for check in _check(audit, bounds, len(missing), allow_missing)]
    for one in decided:
        checks += _check(one, bounds, len(one.failed), allow_missing)
    return Gate(tuple(checks))


def _check(audit: Audit | DecisionAudit, bounds: Sequence[Bound], missing: int, allowed: int) -> list[Check]:
    if absent := [bound.measure for bound in bounds if bound.measure not in audit.figures]:
        raise InputError(f"{audit.folder or _name(audit)} has no {', '.join(absent)}; it has {', '.join(audit.figures)}.")
    checks = [Check(_name(audit), bound, audit.figures[bound.measure].value, missing) for bound in bounds]
    return [*checks, *([check_missing(_name(audit), missing, allowed)] if missing else [])]


def check_missing(run: str, missing: int, allowed: int) -> Check:
    """The bound on the queries of a run that are in no mean."""
    return Check(run, Bound(MISSING, most=allowed), float(missing), missing)


def _name(audit: Audit | DecisionAudit) -> str:
    return f"{audit.name} on {audit.collection}"


def make_bounds(
    least: Mapping[str, float],
    most: Mapping[str, float],
    is_known: Callable[[str], bool] = is_measure,
    listed: str = "`steadyscore.MEASURES` has them all",
) -> list[Bound]:
    """Bounds by measure; every unknown measure is named at once, with where to find those that there are."""
    if unknown := [name for name in {**least, **most} if not is_known(name)]:
        raise InputError([f"unknown measure {name!r}; {listed}." for name in unknown])
    numbers = [(name, value) for bounds in (least, most) for name, value in bounds.items()]
    if odd := [(name, value) for name, value in numbers if not isinstance(value, int | float) or not math.isfinite(value)]:
        raise InputError([f"the bound on {name} is {value!r}: give a number." for name, value in odd])
    if not least and not most:
        raise InputError('a gate needs at least one bound, for example min={"overlap": 0.8}.')
    return [*(Bound(name, least=x) for name, x in least.items()), *(Bound(name, most=x) for name, x in most.items())]


def parse_bounds(
    least: Sequence[str],
    most: Sequence[str],
    is_known: Callable[[str], bool] = is_measure,
    listed: str = "`steadyscore measures list` prints them",
) -> list[Bound]:
    """Bounds as typed, `name=value`; every mistake at once."""
    bounds: list[Bound] = []
    mistakes = []
    for flag, texts in (("--min", least), ("--max", most)):
        for text in texts:
            name, _, number = text.partition("=")
            value = parse_number(number)
            bound = Bound(name, least=value) if flag == "--min" else Bound(name, most=value)
            if not is_known(name):
                mistakes.append(f"{flag} {text}: unknown measure {name!r}; {listed}.")
            elif math.isnan(value):
                mistakes.append(f"{flag} {text}: write a number, for example {flag} {name}=0.8.")
            elif any((other.measure, other.least is None) == (name, bound.least is None) for other in bounds):
                mistakes.append(f"{flag} {text}: {name} has such a bound already. Give one.")
            bounds.append(bound)
    if mistakes or not bounds:
        raise UsageError("\n".join(mistakes or ["a gate needs at least one bound, for example --min overlap=0.8."]))
    return bounds
