"""A recipe: the blocks of a table or figure, and what each cell says. Values without behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from ..measures.intervals import Scheme
from ..measures.views import ScoreView
from ..studies.width import Condition
from ..terms import Partition, Perturbation, Placeholder, Readout, Ties
from .names import SEEDS

Arrangement = Literal["first-stage", "reverse", "top", "middle", "bottom", "noise"]
"""The order of a pool before it is permuted: as the first stage has it, reversed, with its strongest candidate moved to the
top, middle or bottom, or after score noise."""
Form = Literal[
    "level", "signed", "percent", "closed", "count", "of", "interval", "with_interval", "starred", "range", "spread", "sd"
]
"""How a number is printed: as it is, with its sign, with a star too where its interval excludes zero, as a share in percent, as
percent of a gap, as a whole number, as n/N, as its interval alone, with its interval, as lowest to highest, with its seed SD, as
its seed SD alone."""
Bold = Literal["every_seed", "seed_spread", "best", ""]


class Drawing(NamedTuple):
    """How a block is drawn, and what its axes show."""

    kind: Literal["lines", "points", "boxes", "chips"]
    x: str
    y: str


Fields = dict[str, Any]
"""What a block, a row or a column says of its cells, as fields of `Cell`; the row adds to the block, the column to both."""


@dataclass(frozen=True)
class Term:
    """A side of a difference: a sign, and what differs from the cell itself."""

    sign: int
    change: Mapping[str, Any] = field(default_factory=dict)


def minus(**other: Any) -> tuple[Term, ...]:
    """The cell itself minus the same with something changed."""
    return (Term(1), Term(-1, other))


def minus_cell(**itself: Any) -> tuple[Term, ...]:
    """Something else minus the cell itself."""
    return (Term(1, itself), Term(-1))


def gain_of_gains(one: Fields, other: Fields) -> tuple[Term, ...]:
    """How much a change (`one`) adds, and how much less it adds after another change (`other`): a contrast of contrasts."""
    both: Fields = {**one, **other}
    return (Term(1, one), Term(-1), Term(-1, both), Term(1, other))


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How a run shows candidates."""

    width: int | None = None
    """None: the width at which the system was trained, or the task's."""
    partition: Partition = "contiguous"
    placeholder: Placeholder = "0"
    arrangement: Arrangement = "first-stage"
    first_stage: str = ""
    """Empty: the collection's own."""
    condition: Condition = "companions"
    """What a candidate is shown with."""
    mitigation: str = ""
    pool: int | None = None
    queries: int | None = None
    """Only the first of a collection; None: all."""


@dataclass(frozen=True)
class Request(RunSettings):
    """One run: a system on a collection in one presentation."""

    system: str
    base: str
    seed: int
    collection: str


@dataclass(frozen=True)
class Side(RunSettings):
    """What one run of a cell is, apart from base, seed and collection."""

    system: str = ""
    base: str = "qwen3-4b"
    collections: str = ""
    seeds: tuple[int, ...] = SEEDS[:1]
    permutations: int = 10
    perturb: tuple[Perturbation, ...] = ()
    noise: bool = False
    """Whether one order of every query is read ten times, in addition to the run."""
    is_reread: bool = False
    """Whether scores are the mean of these reads, instead of the run's own."""
    timed: tuple[int, ...] = ()
    """Widths at which single requests are timed together; 0: the side's own."""
    reader: str = ""
    serving: int = 1
    """K, permutations averaged before anything is measured."""
    readout: Readout = "expected"
    ties: Ties = "id"
    matched_to: str = ""
    """The system whose share of the pool the cutoff keeps, at the same budget; empty: tuned to F1."""

    @property
    def view(self) -> ScoreView:
        return ScoreView(self.readout, self.ties, self.serving)


@dataclass(frozen=True)
class Cell(Side):
    """One number: sides, what is measured on them, and how it is averaged and printed."""

    measure: str = ""
    statistic: str = "mean"
    """A name in `statistics.STATISTICS`."""
    terms: tuple[Term, ...] = (Term(1),)
    rivals: tuple[str, ...] = ()
    """Systems that the statistic compares with."""
    second: str = ""
    """The other measure, of a statistic that takes two."""
    scheme: Scheme = "collections_then_queries"
    draws: int = 20_000
    form: Form = "level"
    digits: int = 3
    at: float = 0
    """Its place on the x axis of a figure; the slot of a slot profile, or the number of an order."""
    text: str = ""
    """What the cell says without being measured."""

    def sides(self) -> list[tuple[int, Side]]:
        """The runs that a cell weighs against each other, with their signs."""
        return [(term.sign, self.side(**term.change)) for term in self.terms]

    def side(self, **change: Any) -> Side:
        """What a run of it is, with something changed."""
        return Side(**({field.name: getattr(self, field.name) for field in fields(Side)} | change))


@dataclass(frozen=True)
class Line:
    """A row or a column."""

    label: str
    fields: Fields = field(default_factory=Fields)
    group: str = ""
    """The heading that it shares with its neighbours."""
    is_rival: bool = False
    """Whether the bold rule compares it: in the paper, the trained variants."""
    mark: str = ""
    """Of a note below the table, printed after the label."""

    @property
    def key(self) -> str:
        """Its name, with the heading it shares where it has one."""
        return f"{self.group}: {self.label}" if self.group else self.label


def line(label: str, /, group: str = "", is_rival: bool = False, **given: Any) -> Line:
    return Line(label, given, group, is_rival)


@dataclass(frozen=True)
class Block:
    """A grid of cells, or one panel of a figure: then rows are series and columns are places on the x axis."""

    title: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    fields: Fields = field(default_factory=Fields)
    corner: str = ""
    """Heading of the row labels."""
    special: Mapping[tuple[int, int], Fields] = field(default_factory=dict)
    """(row, column) -> what this cell alone says."""
    bold: Bold = ""
    """Which of its rivals is marked: of its rows, else of its columns."""
    draw: Drawing | None = None

    def cell(self, row: int, column: int) -> Cell:
        own = self.special.get((row, column), Fields())
        given: dict[str, Any] = {**self.fields, **self.rows[row].fields, **self.columns[column].fields, **own}
        return Cell(**given)

    def cells(self) -> Iterator[tuple[int, int, Cell]]:
        for row in range(len(self.rows)):
            for column in range(len(self.columns)):
                yield row, column, self.cell(row, column)


@dataclass(frozen=True)
class Artifact:
    """A table or figure of the paper."""

    name: str
    title: str
    basis: str = ""
    """What the caption says about the numbers, and what we chose where it says nothing."""
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences below the table, each with the mark that its rows or cells have."""
    is_diagram: bool = False
    number: str = ""
    """`Table 1`, as the paper counts."""

    @property
    def is_figure(self) -> bool:
        return self.is_diagram or any(block.draw for block in self.blocks)

    @property
    def label(self) -> str:
        """As the paper labels it: `tab:levels`."""
        return f"{'fig' if self.is_figure else 'tab'}:{self.name}"

    def cells(self) -> Iterator[Cell]:
        for block in self.blocks:
            for _, _, cell in block.cells():
                yield cell


def panels(name: str, title: str, basis: str, *blocks: Block, notes: tuple[str, ...] = ()) -> Artifact:
    """A table or figure of several blocks."""
    return Artifact(name, title, basis, blocks, notes)
