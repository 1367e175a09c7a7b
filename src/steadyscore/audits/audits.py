"""The audits of one call as one value, from a scoring or from folders; and what `compare` and `gate` take of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, Unpack, overload

from ..errors import InputError
from ..machine.extras import check_installed
from ..machine.names import did_you_mean, short_repr
from ..machine.places import Place, parse_place
from ..measures.registry import MEASURES
from ..results.audit import Audit
from ..results.figure import ByQuery, Figure
from ..results.load import Measuring, load_runs
from ..results.notes import most_important, notes, saved_by
from ..results.render import FORMATS, to_html, to_text
from ..results.screen import (
    by_collection,
    cause_tables,
    every_measure,
    first_look,
    fit_terminal,
    measure_tables,
    measured_by,
    screen_measures,
)
from ..results.table import Note, Table, with_notes
from ..runs.folder import find_decision_folders, find_runs
from ..terms import Failure

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ..report.drawings import Drawing


class Audits(Sequence[Audit]):
    """The audits of one call: several scorers on several collections. Prints as a first look."""

    def __init__(self, audits: Iterable[Audit], page: Place | None = None, unfinished: Sequence[Place] = ()):
        self._audits = list(audits)
        self.page = page
        """The report page, where one was written."""
        self.unfinished = list(unfinished)
        """Folders of runs that are not complete and were left out."""

    @overload
    def __getitem__(self, index: int) -> Audit: ...
    @overload
    def __getitem__(self, index: slice) -> Audits: ...
    def __getitem__(self, index: int | slice) -> Audit | Audits:
        chosen = self._audits[index]
        return Audits(chosen) if isinstance(chosen, list) else chosen

    def __len__(self) -> int:
        return len(self._audits)

    def to_json(self) -> dict[str, object]:
        rows = [audit.to_json() for audit in self]
        single = {key: rows[0][key] for key in ("measures", "coverage", "cutoff")} if len(rows) == 1 else {}
        return {**single, "remarks": self.remarks(), "runs": rows}

    @property
    def table(self) -> str:
        """A first look at the figures, without what must be known to read them."""
        return to_text([*map(fit_terminal, first_look(self))]).rstrip("\n")

    def remarks(self, of: str | None = None) -> list[str]:
        """What must be known to read the figures, each sentence once; `of` names scores that belong to no collection."""
        return list(map(str, notes(self, of)))

    def to_text(self, *, everything: bool = False, of: str | None = None, more: str = "to_text(everything=True)") -> str:
        """A first look: the table, the notes that matter most, and how much more there is; or every measure and every note.

        of          what scores are called that belong to no collection
        more        where the rest is, as the last line says it
        """
        told = notes(self, of)
        saved = [f"{audit.name} on {audit.collection}: {line}" for audit in self if (line := saved_by(audit))]
        table = "\n".join([*saved, *[""] * bool(saved), self.table])
        if everything:
            rest = to_text([*every_measure(self), *cause_tables(self)])
            return "\n".join([table, "", rest, *map(str, told)]).rstrip("\n")
        brief, rest = most_important(told), self._beyond(told)
        return "\n".join([table, "", *map(str, brief), *([f"{rest}: {more}"] if rest else [])]).rstrip("\n")

    def tables(self, *, everything: bool = False, of: str | None = None) -> list[Table]:
        """A first look with the notes that matter most; or every measure, why decisions flip, and every note."""
        told = notes(self, of)
        if not everything:
            return with_notes(first_look(self), most_important(told))
        return with_notes([*every_measure(self), *cause_tables(self)], told)

    def to_format(self, name: str, *, everything: bool = False, of: str | None = None) -> str:
        """`tables` as `table` (text), `markdown`, `latex`, `csv`, `json` or `html`."""
        return FORMATS[name](self.tables(everything=everything, of=of))

    def _beyond(self, told: Sequence[Note]) -> str:
        """How many notes and measures a first look leaves out."""
        measures = {*measured_by(self)} - {name for members in by_collection(self) for name in screen_measures(members)}
        left = {"note": len(told) - len(most_important(told)), "measure": len(measures)}
        return ", ".join(f"{count} more {noun}{'s' * (count > 1)}" for noun, count in left.items() if count)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return short_repr(self, f"({len(self)}): {'; '.join(f'{audit.name} on {audit.collection}' for audit in self)}")

    def _repr_html_(self) -> str:
        told = notes(self)
        brief = most_important(told)
        rest, first = (
            "".join(f"<p>{escape(str(note))}</p>" for note in told if (note in brief) is is_first) for is_first in (False, True)
        )
        folded = f"<details><summary>{self._beyond(told)}</summary>{rest}{to_html(every_measure(self))}</details>"
        return to_html(first_look(self)) + first + folded

    def to_arrow(self) -> pa.Table:
        """Per-query rows: variant, collection, query_id, measure, value."""
        import pyarrow as pa

        return pa.concat_tables(measure_tables(self))

    def to_pandas(self, *, queries: bool = False) -> pd.DataFrame:
        """One row per scorer, collection and measure, which says how its run was made; with `queries` one per query too."""
        check_installed("to_pandas()", "pandas")
        if queries:
            return self.to_arrow().to_pandas()
        import pandas as pd

        rows = [
            {"variant": audit.name, "collection": audit.collection, "measure": name, **figure.to_json(), **_how_made(audit)}
            for audit in self
            for name, figure in audit.figures.items()
        ]
        return pd.DataFrame(rows)

    def plot(self, kind: str = "decisions", collection: str | None = None) -> Drawing:
        """A figure of the report: `spread`, `slots`, `decisions`, `quality`, `budget` or `cutoffs`. A notebook shows it."""
        from ..report.drawings import plot

        return plot(self, kind, collection)

    def report(self, folder: str | Place) -> Place:
        """Write the page that `steadyscore report` writes; returns its path."""
        from ..report.page import write_report

        return write_report(self, parse_place(folder))


def load(folder: str | Place, *more: str | Place, **how: Unpack[Measuring]) -> Audits:
    """The audits of complete runs in and below some folders, in the order of the folders.

    how  threshold, serving_permutations, readout, ties: each run is measured as it was audited, where they are not given
    """
    return Audits(load_runs(find_runs([folder, *more]), **how))


def _how_made(audit: Audit) -> dict[str, str | int | float | None]:
    """The run's folder, task and date, and its settings of one value."""
    made = {key: value for key, value in audit.record.fingerprint.keys.items() if key not in ("queries", "scorer")}
    single = {key: value for key, value in made.items() if isinstance(value, str | int | float | None)}
    about = {
        "run": None if audit.folder is None else str(audit.folder),
        "task": audit.task.name,
        "created": audit.record.created,
    }
    return single | about | {"serving_permutations": audit.view.serving_permutations}


def load_all(folder: str | Place, *more: str | Place) -> Audits:
    """The audits of all complete runs in and below some folders, as one frame: `load_all("runs").to_pandas()`."""
    runs = find_runs([folder, *more])
    unfinished = [run.folder for run in runs if not run.is_complete]
    return Audits(load_runs([run for run in runs if run.is_complete]), unfinished=unfinished)


Given = Audits | Audit | str | Place
"""What `compare` and `gate` take: audits, or folders that hold runs."""


def collect_audits(given: Sequence[Given], *, together: bool = True, **how: Unpack[Measuring]) -> list[Audit]:
    """Audits as they are, and those of the runs in and below folders, measured as was asked.

    together  with the figures of the readers that all runs of a collection have; otherwise each run with those of its own
    """
    given = [one for part in given for one in (part if isinstance(part, list | tuple) else [part])]
    if odd := [one for one in given if not isinstance(one, Audits | Audit | str | Place)]:
        raise InputError(f"a {type(odd[0]).__name__} is not an audit and not a folder of runs. Give audits or folders.")
    runs = {place: find_runs([one]) for place, one in enumerate(given) if isinstance(one, str | Place)}
    if len(runs) < len(given) and any(value not in (None, 1) for value in how.values()):
        raise InputError(
            "a threshold, serving permutations, a readout and a tie rule are for run folders; "
            "audits in memory are measured already."
        )
    every = [run for members in runs.values() for run in members]
    groups = [[run] for run in every] if every and not together else [every]
    loaded = iter([audit for group in groups for audit in load_runs(group, **how)])
    audits: list[Audit] = []
    for place, one in enumerate(given):  # in the order they were named: the first is a baseline
        if isinstance(one, Audit):
            audits.append(one)
        else:
            audits += islice(loaded, len(runs[place])) if place in runs else one  # type: ignore[arg-type]
    return audits


# -- audits of other things than scores

DECISION_AUDITS = "steadyscore.decision_models.result"
"""The module that knows what a decision model decided: its `DecisionAudit`, how one is loaded, what it measures."""


class OtherAudit(ByQuery, Protocol):
    """What is compared and checked of an audit that measured no scores, but answers: of a package that comes later."""

    @property
    def name(self) -> str: ...
    @property
    def collection(self) -> str: ...
    @property
    def folder(self) -> Place | None: ...
    @property
    def figures(self) -> dict[str, Figure]: ...
    @property
    def failed(self) -> Sequence[Failure]: ...
    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known to read the figures."""

    @property
    def compared(self) -> list[str]:
        """What is compared where no measure is named."""


def split_audits(given: Sequence[Any]) -> tuple[list[OtherAudit], list[Any]]:
    """The audits of decisions among audits and folders, and the rest, which are audits of scores."""
    decided: list[OtherAudit] = []
    rest: list[Any] = []
    for one in given:
        if isinstance(one, str | Place) and (folders := find_decision_folders([one])):
            decided += map(_decision_audits().load_decisions, folders)
        elif not isinstance(one, Audits | Audit | str | Place) and isinstance(one, _decision_audits().DecisionAudit):
            decided.append(one)
        else:
            rest.append(one)
    return decided, rest


def is_measure(name: str) -> bool:
    """Whether a gate or a comparison may name it: a measure of scores, or `measure.channel` of decisions."""
    return name in MEASURES or ("." in name and bool(_decision_audits().is_decision_measure(name)))


def unknown_measure(
    name: str, is_known: Callable[[str], bool] = is_measure, listed: str = "`steadyscore list measures` prints them"
) -> str:
    """What is said of a measure that does not exist: the nearest one, or where all are listed."""
    return f"unknown measure {name!r}; {did_you_mean(name, filter(is_known, MEASURES), f'{listed}.')}"


def _decision_audits() -> Any:
    return import_module(DECISION_AUDITS)
