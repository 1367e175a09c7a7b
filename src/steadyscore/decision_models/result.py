"""An audit of decisions: its folder, its measures, its table and its page. It is read from the folder without a model.

The folder holds `decision-run.json` and one JSON record per state, each whole, with its checksum. A kill loses the state that was
being asked and no other: the same command goes on from there. A record that is damaged is asked for again; a folder of another
command is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import DamagedFile, InputError
from ..machine.contents import record_state
from ..machine.disk import is_there, read_json, write_record
from ..machine.extras import versions
from ..machine.names import short_repr
from ..machine.places import Place, parse_place
from ..machine.schemas import read_as
from ..report import templating
from ..results.figure import Figure, beside_floor, mean_figure
from ..results.notes import answer_remarks, saved_line, stop_note
from ..results.render import Printed
from ..results.table import DETECTABLE, Cell, Column, Note, Row, Table
from ..runs.folder import find_decision_folders, own_or_only
from ..runs.layout import DECISIONS_FILE
from ..runs.records import EarlyStop, to_json
from ..runs.requests import check_same_command
from ..terms import Array, Failure, JsonObject
from .cases import Case, read_case
from .measures import (
    AS_GIVEN,
    CALIBRATION,
    INSTABILITIES,
    MEANINGS,
    NOISE,
    QUALITIES,
    Asked,
    TwoStates,
    calibration_error,
    find_example,
    measure_state,
    stack,
)
from .presentations import CHANNELS, CasePresentation, Channel, irrelevance
from .questions import Answer

STATES_FOLDER = "states"
FORMAT = 1

COLUMNS = (
    Column("channel"),
    Column("value"),
    *(Column(name, name.replace("_", " ")) for name in NOISE),
    Column("states"),
    Column("detectable"),
)


class DecisionRun:
    """What was asked of one model about one file, and what it answered."""

    def __init__(self, folder: Place, record: dict[str, Any]):
        self.folder, self.record = folder, record

    @classmethod
    def create_or_resume(cls, folder: Place, fingerprint: JsonObject, **about: Any) -> DecisionRun:
        if is_there(folder / DECISIONS_FILE):
            run = cls.open(folder)
            check_same_command(folder, run.record["fingerprint"], fingerprint)
            return run
        created = datetime.now(UTC).isoformat(timespec="seconds")
        begun = {"format": FORMAT, "status": "asking", "created": created, "fingerprint": fingerprint}
        run = cls(folder, {**begun, **about, "versions": versions(), "sessions": []})
        run.write_record()
        return run

    @classmethod
    def open(cls, folder: Place) -> DecisionRun:
        try:
            record = read_json(folder / DECISIONS_FILE)
        except FileNotFoundError:
            raise InputError(f"{folder} holds no audit of decisions: it has no {DECISIONS_FILE}.") from None
        missing = [key for key in ("status", "fingerprint", "name", "collection", "states") if key not in record]
        if record_state(record) != "OK" or missing or record.get("format") != FORMAT:
            raise DamagedFile(folder / DECISIONS_FILE, "is not what was written", "Delete the folder and run the command again.")
        return cls(folder, record)

    @property
    def is_complete(self) -> bool:
        return bool(self.record["status"] == "complete")

    def write_record(self, **about: Any) -> None:
        self.record |= about
        write_record(self.folder / DECISIONS_FILE, self.record)

    def _file(self, number: int) -> Place:
        return self.folder / STATES_FOLDER / f"{number:06d}.json"

    def has(self, number: int) -> bool:
        """Whether a state is on disk, whole."""
        try:
            return record_state(read_json(self._file(number))) == "OK"
        except (FileNotFoundError, DamagedFile):
            return False

    def write(self, number: int, case: Case, asked: Asked) -> None:
        entries = [
            {
                "channel": channel,
                "presentation": {name: value for name, value in asdict(presentation).items() if value},
                "answers": [{name: value for name, value in asdict(answer).items() if value is not None} for answer in answers],
            }
            for channel, (presentation, answers) in asked
        ]
        write_record(self._file(number), {"state": case.row, "asked": entries})

    def read(self) -> list[tuple[Case, Asked]]:
        """Every state that was answered, in the order of the file."""
        if not self.is_complete:
            raise InputError(f"{self.folder} is not complete. Run the command that made it again; it resumes where it stopped.")
        numbers = self.record.get("looked") or range(self.record["states"])
        return [self.read_state(number) for number in numbers if is_there(self._file(number))]

    def read_state(self, number: int) -> tuple[Case, Asked]:
        file = self._file(number)
        record = read_json(file)
        if record_state(record) != "OK":
            raise DamagedFile(file, "is not what was written", "Run the command that made it again.")
        asked: Asked = [
            (entry["channel"], (read_as(CasePresentation, entry["presentation"]), [read_as(Answer, a) for a in entry["answers"]]))
            for entry in record["asked"]
        ]
        return read_case(record["state"]), asked


@dataclass(frozen=True)
class DecisionAudit(Printed):
    """One decision model on one file of states: what was decided, and what moved it. Prints as its table."""

    name: str
    """The model's address."""
    collection: str
    """The name of the file."""
    cases: Sequence[Case]
    asked: Sequence[Asked]
    """Per state, every presentation with its answers, the one of the file first."""
    failed: Sequence[Failure] = ()
    """States without a usable answer: in no mean, asked again by the same command."""
    spent: dict[str, float] = field(default_factory=dict)
    stop: EarlyStop | None = None
    """What was to be known before the rest was asked, and what is."""
    folder: Place | None = None

    @property
    def query_ids(self) -> list[str]:
        return [case.id for case in self.cases]

    @cached_property
    def values(self) -> dict[str, Array]:
        """`measure.channel` -> (S,) over states."""
        return stack([measure_state(case, asked) for case, asked in zip(self.cases, self.asked, strict=True)])

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """`measure.channel` -> its mean over states with its interval, beside the larger noise floor."""
        figures = {name: mean_figure(values) for name, values in self.values.items()}
        for name, figure in figures.items():
            measure, _, channel = name.partition(".")
            floors = [figures[floor].value for noise in NOISE if (floor := f"{measure}.{noise}") in figures]
            if channel in CHANNELS and floors:
                figures[name] = beside_floor(figure, max(floors))
        error = calibration_error(self.cases, [asked[0][1][1] for asked in self.asked])
        judged = sum(any(gold is not None for gold in case.gold) for case in self.cases)
        whole = {} if np.isnan(error) else {f"{CALIBRATION}.{AS_GIVEN}": Figure(error, None, None, judged)}
        return figures | whole

    @property
    def compared(self) -> list[str]:
        """What is compared where no measure is named: all but the noise."""
        return [name for name in self.values if not name.endswith(NOISE)]

    @property
    def saved(self) -> str:
        """What stopping early saved; nothing where nobody asked."""
        return saved_line(self.stop, sum(map(len, self.asked)), "states", "requests") if self.stop else ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known to read the figures."""
        return (stop_note(self.name, self.stop),) if self.stop else ()

    def __getitem__(self, measure: str) -> Figure:
        return self.figures[measure]

    @property
    def example(self) -> TwoStates | None:
        """The state and presentation under which most decisions are others than in the file; None where none is."""
        return find_example(self.cases, self.asked)

    @property
    def channels(self) -> dict[str, str]:
        """What each channel was changed in, or why it cannot matter."""
        return {channel: self._describe_channel(channel) for channel in CHANNELS}

    def _describe_channel(self, channel: Channel) -> str:
        reasons = Counter(reason for case in self.cases if (reason := irrelevance(case, channel)))
        changed = len(self.cases) - reasons.total()
        said = [f"changed in {changed} of {len(self.cases)} states"] if changed else []
        return "; ".join([*said, *(f"cannot matter in {count}: {reason}" for reason, count in reasons.items())])

    def to_json(self) -> JsonObject:
        """As `--json` and `summary.json` have it."""
        return {
            "scorer": self.name,
            "data": self.collection,
            "run": None if self.folder is None else str(self.folder),
            "measures": {name: figure.to_json() for name, figure in self.figures.items()},
            "channels": self.channels,
            "states": len(self.cases) + len(self.failed),
            "failed": [failure.to_json() for failure in self.failed],
            "spent": self.spent,
            **({"stop": to_json(self.stop)} if self.stop else {}),
        }

    def tables(self) -> list[Table]:
        """A row per measure and channel, with both noise floors; below it what each channel was changed in."""
        rows = []
        for measure in (*INSTABILITIES, *QUALITIES, CALIBRATION):
            noise = [
                Cell(self.figures[name].value) if (name := f"{measure}.{floor}") in self.figures else Cell() for floor in NOISE
            ]
            for channel in (*CHANNELS, AS_GIVEN):
                if figure := self.figures.get(f"{measure}.{channel}"):
                    floors = noise if channel in CHANNELS else [Cell(), Cell()]
                    counts = Cell(figure.queries), Cell(figure.detectable)
                    rows.append(Row(measure, (Cell(channel), Cell(replace(figure, floor=None)), *floors, *counts)))
        said = [*self.remarks, *(f"{channel}: {what}" for channel, what in self.channels.items()), DETECTABLE]
        said += answer_remarks(self.name, self.name.partition(":")[2].partition("@")[0], self.spent)
        title = f"{self.name} on {self.collection}"
        return [Table(COLUMNS, tuple(rows), title, "measure", "measure", tuple(map(Note, said)))]

    def report(self, folder: str | Place) -> Place:
        """Write the page; returns its path."""
        return write_decisions_report([self], parse_place(folder))

    def __repr__(self) -> str:
        return short_repr(self, f"{self.name} on {self.collection}, {len(self.cases)} states")


def load_decisions(folder: str | Place) -> DecisionAudit:
    """The audit in a folder, or the only one below it, measured again; no model is needed."""
    place = parse_place(folder)
    return load_decision_run(DecisionRun.open(own_or_only(place, find_decision_folders([place]) or [place])))


def load_decision_run(run: DecisionRun) -> DecisionAudit:
    cases, asked = zip(*run.read(), strict=True)
    spent: Counter[str] = Counter()
    for session in run.record["sessions"]:
        spent.update(session)
    failed = [Failure(**failure) for failure in run.record.get("failed", [])]
    stop = EarlyStop(**told) if (told := run.record.get("stop")) else None
    return DecisionAudit(run.record["name"], run.record["collection"], cases, asked, failed, dict(spent), stop, run.folder)


def is_decision_measure(name: str) -> bool:
    """Whether a name is a `measure.channel` of decisions."""
    measure, _, channel = name.partition(".")
    known = measure in INSTABILITIES and channel in (*CHANNELS, *NOISE)
    return known or (measure in (*QUALITIES, CALIBRATION) and channel == AS_GIVEN)


def write_decisions_report(audits: Sequence[DecisionAudit], folder: Place) -> Place:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page."""
    if not audits:
        raise InputError("no audit of decisions was given to report. Name at least one folder.")
    return templating.write_page("decisions", folder, meanings=MEANINGS, audits=audits)
