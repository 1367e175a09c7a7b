"""The values of a comparison: contrasts with a baseline, winners by two measures, gains query by query. They print as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ..machine.extras import check_installed
from ..machine.names import short_repr
from ..machine.places import Place
from ..measures.intervals import Interval
from ..measures.ranking import unless_nan
from ..tasks import TASKS
from .remarks import FLATTERS, notes
from .result import Audits
from .table import html_table, text_table

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

    def to_json(self) -> dict[str, Any]:
        value, low, high, queries, *_ = self.difference
        difference = {"value": value, "low": unless_nan(low), "high": unless_nan(high), "queries": queries}
        return asdict(self) | {"difference": difference, "adjusted_p": unless_nan(self.adjusted_p)}

    def cells(self) -> list[Any]:
        """A row of the table."""
        value, low, high, *_ = self.difference
        between = f"{value:+.3f}" if math.isnan(low) else f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
        won, p = f"{self.wins}/{self.collections}", unless_nan(self.adjusted_p)
        return [self.variant, self.measure, self.level, self.baseline_level, between, p, won, self.better]


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

    def cells(self) -> list[Any]:
        """A row of the table."""
        reversed_ = f"{self.reversals}/{self.permutations}"
        by = "-" if self.correlation is None else self.correlation
        return [self.variant, self.measure, self.improving, self.regressing, by, reversed_]


GAIN_HEADER = ("variant", "measure", "not worse", "worse", "with tau_psi", "leader reversed")


@dataclass(frozen=True, slots=True)
class Comparison:
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
    def header(self) -> tuple[str, ...]:
        own = f"{self.baseline}'s"
        return ("variant", "measure", "level", own, f"minus {self.baseline}", "adjusted p", "wins", "better")

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(contrast.task for contrast in self.contrasts))

    def to_json(self) -> dict[str, Any]:
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

        return pd.DataFrame([row | row.pop("difference") for row in self.to_json()["contrasts"]])

    def report(self, folder: str | Place) -> Place:
        """Write the page of all audits, with quality against decision; returns its path."""
        return self.audits.report(folder)

    def __str__(self) -> str:
        parts = [
            *(f"{title}\n" * bool(title) + text_table(header, rows) for title, header, rows in self._tables()),
            *self._remarks(),
        ]
        return "\n".join(parts).rstrip("\n")

    def __repr__(self) -> str:
        variants = dict.fromkeys(contrast.variant for contrast in self.contrasts)
        return short_repr(self, f"with {self.baseline}: {', '.join(variants)}; {len(self.contrasts)} contrasts")

    def _repr_html_(self) -> str:
        tables = (f"<p>{escape(title)}</p>" * bool(title) + html_table(header, rows) for title, header, rows in self._tables())
        return "".join(tables) + "".join(f"<p>{escape(remark)}</p>" for remark in self._remarks())

    def _tables(self) -> Iterator[tuple[str, Sequence[str], list[list[Any]]]]:
        """Title, header and rows of every table; one task needs no title."""
        for task in self.tasks:
            title = self._label(task) if len(self.tasks) > 1 else ""
            yield title, self.header, [contrast.cells() for contrast in self.contrasts if contrast.task == task]
            if moved := [gain.cells() for gain in self.gains if gain.task == task]:
                yield f"{self._label(task)}, query by query", GAIN_HEADER, moved

    def _remarks(self) -> list[str]:
        many = len(self.tasks) > 1
        winners = [f"{self._label(one.task)}: {one}" if many else str(one) for one in self.disagreements]
        return list(dict.fromkeys([*winners, *self.missing, *self.warnings()]))

    def _label(self, task: str) -> str:
        members = [audit for audit in self.audits if audit.record["task"] == task]
        return f"{members[0].task.label} ({', '.join(dict.fromkeys(audit.collection for audit in members))})"


def label_of(task: str) -> str:
    """What messages call a task; audits of decisions have none, and go by that name."""
    return TASKS[task].label if task in TASKS else task
