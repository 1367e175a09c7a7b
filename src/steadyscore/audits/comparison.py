"""The values of a comparison: contrasts with a baseline, winners by two measures, gains query by query. They print as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..machine.extras import check_installed
from ..machine.names import short_repr
from ..machine.places import Place
from ..measures.intervals import Interval
from ..measures.ranking import unless_nan
from ..results.figure import Figure
from ..results.notes import FLATTERS, notes
from ..results.render import Printed
from ..results.table import DETECTABLE, Cell, Column, Note, Row, Table, with_notes
from ..tasks import TASKS
from .audits import Audits

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Contrast:
    """A variant minus the baseline on one measure, over the collections of one task that both have."""

    task: str
    variant: str
    measure: str
    level: float
    baseline_level: float
    """Of the baseline on the same queries."""
    difference: Interval
    adjusted_p: float
    """After Benjamini-Hochberg over every contrast of the comparison."""
    wins: int
    """Collections on which the variant is better than the baseline."""
    collections: int
    better: str

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"difference": Figure.of(self.difference).to_json(), "adjusted_p": unless_nan(self.adjusted_p)}

    def row(self) -> Row:
        """Its row of the table."""
        difference = Figure.of(self.difference)
        won, p = f"{self.wins}/{self.collections}", unless_nan(self.adjusted_p)
        values = (self.measure, self.level, self.baseline_level, difference, difference.detectable, p, won, self.better)
        return Row(self.variant, tuple(map(Cell, values)))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Whether two measures, mostly quality and a decision, choose the same variant of a task (§F.2)."""

    task: str
    quality: str
    decision: str
    discordant: int
    """Collections whose best variant by quality is not the best by decision."""
    collections: int
    median_disagreement: float
    """Over collections, the share of pairs of variants that the two measures order differently."""
    winners: dict[str, tuple[str, str]]
    """Of the discordant collections: the best by quality, the best by decision."""

    def __str__(self) -> str:
        verdict, share = ("is not", self.discordant) if self.discordant else ("is also", self.collections)
        named = ", ".join(f"{name}: {first}, {second}" for name, (first, second) in self.winners.items())
        where = f"{share} of {self.collections} collections" + (f" ({named})." if named else ".")
        return f"The best by {self.quality} {verdict} the best by {self.decision} on {where}"


@dataclass(frozen=True, slots=True)
class Gain:
    """How a variant's quality moves from the baseline's, query by query; means over the collections of one task."""

    task: str
    variant: str
    measure: str
    improving: float
    """Share of queries whose quality does not fall."""
    regressing: float
    """Share of queries whose quality falls."""
    correlation: float | None
    """Size of Pearson's correlation of the gain with the baseline's tau_psi; None where fewer than three queries vary."""
    reversals: int
    """Permutations, over all collections, under which the mean quality puts the other of the two ahead."""
    permutations: int
    """Permutations that were compared."""

    def row(self) -> Row:
        """Its row of the table."""
        reversals = f"{self.reversals}/{self.permutations}"
        values = (self.measure, self.improving, self.regressing, self.correlation, reversals)
        return Row(self.variant, tuple(map(Cell, values)))


GAIN_COLUMNS = (
    Column("measure"), Column("improving", "not worse"), Column("regressing", "worse"), Column("correlation", "with tau_psi"),
    Column("reversals", "leader reversed"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison(Printed):
    """Every variant against the baseline, task by task. Prints as the tables of `steadyscore compare`."""

    baseline: str
    contrasts: tuple[Contrast, ...]
    disagreements: tuple[Disagreement, ...]
    gains: tuple[Gain, ...]
    """Query by query, where that was asked for."""
    missing: tuple[str, ...]
    """Sentences about queries that are in no mean, and tasks that nothing is compared on."""
    audits: Audits
    """What was compared, under names that tell the audits apart."""

    @property
    def columns(self) -> tuple[Column, ...]:
        difference = Column("difference", f"minus {self.baseline}", sign="+")
        levels = Column("level"), Column("baseline_level", f"{self.baseline}'s")
        tested = Column("detectable"), Column("adjusted_p", "adjusted p")
        return (Column("measure"), *levels, difference, *tested, Column("wins"), Column("better"))

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(contrast.task for contrast in self.contrasts))

    def to_json(self) -> dict[str, object]:
        """As `steadyscore compare --json` prints it."""
        return {
            "baseline": self.baseline,
            "contrasts": [contrast.to_json() for contrast in self.contrasts],
            "discordance": list(map(asdict, self.disagreements)),
            **({"gains": list(map(asdict, self.gains))} if self.gains else {}),
            "missing": list(self.missing),
            "warnings": self.warnings(),
            "remarks": self._remarks(),
        }

    def warnings(self) -> list[str]:
        """What could not be scored, and where a figure misleads or flatters, each sentence once."""
        return [str(note) for note in notes(self.audits) if note.weight <= FLATTERS]

    def to_pandas(self) -> pd.DataFrame:
        """A row per task, variant and measure."""
        check_installed("to_pandas()", "pandas")
        import pandas as pd

        rows = [{**contrast.to_json(), **Figure.of(contrast.difference).to_json()} for contrast in self.contrasts]
        return pd.DataFrame(rows).drop(columns="difference", errors="ignore")

    def report(self, folder: str | Place) -> Place:
        """Write the page of all audits, with quality against decision; returns its path."""
        return self.audits.report(folder)

    def __repr__(self) -> str:
        variants = dict.fromkeys(contrast.variant for contrast in self.contrasts)
        return short_repr(self, f"with {self.baseline}: {', '.join(variants)}; {len(self.contrasts)} contrasts")

    def tables(self) -> list[Table]:
        """A table for each task, which has a title where there are several; below it the gains, query by query."""
        return with_notes([*self._tables()], [*map(Note, [DETECTABLE, *self._remarks()])])

    def _tables(self) -> Iterator[Table]:
        for task in self.tasks:
            title = self._label(task) if len(self.tasks) > 1 else ""
            rows = tuple(contrast.row() for contrast in self.contrasts if contrast.task == task)
            yield Table(self.columns, rows, title, "variant", "variant")
            if moved := tuple(gain.row() for gain in self.gains if gain.task == task):
                yield Table(GAIN_COLUMNS, moved, f"{self._label(task)}, query by query", "variant", "variant")

    def _remarks(self) -> list[str]:
        many = len(self.tasks) > 1
        winners = [f"{self._label(one.task)}: {one}" if many else str(one) for one in self.disagreements]
        return list(dict.fromkeys([*winners, *self.missing, *self.warnings()]))

    def _label(self, task: str) -> str:
        members = [audit for audit in self.audits if audit.record.task == task]
        return f"{members[0].task.label} ({', '.join(dict.fromkeys(audit.collection for audit in members))})"


def label_of(task: str) -> str:
    """What messages call a task; audits of decisions have none, and go by that name."""
    return TASKS[task].label if task in TASKS else task
