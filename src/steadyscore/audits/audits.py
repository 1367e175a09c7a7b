"""The audits of one call as one value, from a scoring or from folders: a first look, every measure, rows, the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, overload

from ..errors import InputError
from ..machine.extras import check_installed
from ..machine.names import short_repr
from ..machine.places import Place, parse_place
from ..measures.threshold import Threshold
from ..results.audit import Audit
from ..results.load import load_runs
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
from ..runs.folder import find_runs
from ..terms import Readout, Ties

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


def load(
    folder: str | Place,
    *more: str | Place,
    threshold: Threshold | None = None,
    serving_permutations: int = 1,
    readout: Readout | None = None,
    ties: Ties | None = None,
) -> Audits:
    """The audits of complete runs in and below some folders, in the order of the folders, each measured as it was audited
    (threshold, readout, ties) unless something else is given.
    """
    runs = find_runs([folder, *more])
    return Audits(load_runs(runs, threshold, serving_permutations, readout, ties))


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


def collect_audits(
    given: Sequence[Given],
    threshold: Threshold | None = None,
    serving_permutations: int = 1,
    readout: Readout | None = None,
    ties: Ties | None = None,
    *,
    together: bool = True,
) -> list[Audit]:
    """Audits as they are, and those of the runs in and below folders, measured as was asked.

    together  with the figures of the readers that all runs of a collection have; otherwise each run with those of its own
    """
    given = [one for part in given for one in (part if isinstance(part, list | tuple) else [part])]
    if odd := [one for one in given if not isinstance(one, Audits | Audit | str | Place)]:
        raise InputError(f"a {type(odd[0]).__name__} is not an audit and not a folder of runs. Give audits or folders.")
    runs = {place: find_runs([one]) for place, one in enumerate(given) if isinstance(one, str | Place)}
    if len(runs) < len(given) and (threshold, serving_permutations, readout, ties) != (None, 1, None, None):
        raise InputError(
            "a threshold, serving permutations, a readout and a tie rule are for run folders; "
            "audits in memory are measured already."
        )
    every = [run for members in runs.values() for run in members]
    groups = [every] if together else [[run] for run in every]
    loaded = (audit for group in groups for audit in load_runs(group, threshold, serving_permutations, readout, ties))
    audits: list[Audit] = []
    for place, one in enumerate(given):  # in the order they were named: the first is a baseline
        if isinstance(one, Audit):
            audits.append(one)
        else:
            audits += islice(loaded, len(runs[place])) if place in runs else one  # type: ignore[arg-type]
    return audits
