"""The folder of an audit of decisions: `decision-run.json` and one JSON record per state, each whole, with its checksum.

A kill loses the state that was being asked and no other: the same command goes on from there. A record that is damaged is asked
for again; a folder of another command is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ..errors import DamagedFile, InputError
from ..machine.contents import record_state
from ..machine.disk import is_there, read_json, write_record
from ..machine.extras import versions
from ..machine.places import Place
from ..runs.layout import DECISIONS_FILE
from ..runs.requests import check_same_command
from ..terms import JsonObject
from .cases import Case, read_case
from .measures import Shown
from .presentations import CasePresentation
from .questions import Answer

STATES_FOLDER = "states"
FORMAT = 1
AS_GIVEN = "as_given"
"""The channel of the presentation of the file."""

Asked = list[tuple[str, Shown]]
"""Every presentation of a state by its channel, the one of the file first."""


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

    def write(self, number: int, row: JsonObject, asked: Asked) -> None:
        entries = [
            {
                "channel": channel,
                "presentation": {name: value for name, value in asdict(presentation).items() if value},
                "answers": [{name: value for name, value in asdict(answer).items() if value is not None} for answer in answers],
            }
            for channel, (presentation, answers) in asked
        ]
        write_record(self._file(number), {"state": row, "asked": entries})

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
            (entry["channel"], (_read_presentation(entry["presentation"]), [_read_answer(given) for given in entry["answers"]]))
            for entry in record["asked"]
        ]
        return read_case(record["state"]), asked


def _read_presentation(given: dict[str, Any]) -> CasePresentation:
    def order(values: Sequence[int] | None) -> tuple[int, ...] | None:
        return None if values is None else tuple(values)

    return CasePresentation(
        order(given.get("candidates")), order(given.get("questions")), tuple(order(each) for each in given.get("outcomes", ()))
    )


def _read_answer(given: dict[str, Any]) -> Answer:
    return Answer(tuple(given["probabilities"]), given.get("label_mass"), given.get("argmax_is_label"), given.get("named"))
