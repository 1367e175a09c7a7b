"""What run.json and the requests of a run say: an identity, and what was asked of it, command by command."""

from __future__ import annotations

from typing import Any, cast

from ..errors import DamagedFile, InputError
from ..machine.checksums import record_state
from ..machine.disk import explaining_os_errors, list_files, read_json, write_record_once
from ..machine.places import Place
from .layout import FORMAT, RECORD_FILE, REQUESTS_FOLDER, Request, RunRecord, check_run_record
from .requests import asked_of, check_same_command, is_growth

RESTORE = "Copy it back from a backup, or score into another --out."


class Requests:
    """All that was asked of a run, the first of it in run.json; a later one is added and none is changed."""

    def __init__(self, folder: Place, first: RunRecord):
        self._folder, self.first = folder, first
        self._later = read_requests(folder)

    def all(self) -> list[Request]:
        return [cast("Request", {**self.first, "fingerprint": asked_of(self.first["fingerprint"])}), *self._later]

    @property
    def newest(self) -> Request:
        return self.all()[-1]

    def fingerprint(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The whole fingerprint of what is asked for."""
        fixed = {key: value for key, value in self.first["fingerprint"].items() if key not in asked_of(self.first["fingerprint"])}
        return fixed | asked

    def allow(self, fingerprint: dict[str, Any]) -> bool:
        """Whether something was asked of the run before, or adds to what was."""
        known = [self.fingerprint(request["fingerprint"]) for request in self.all()]
        return any(old == fingerprint or is_growth(old, fingerprint) for old in known)

    def check(self, folder: Place, fingerprint: dict[str, Any]) -> None:
        """Refuse what is not allowed, with what differs."""
        if not self.allow(fingerprint):
            check_same_command(folder, self.fingerprint(self.newest["fingerprint"]), fingerprint)

    def add(self, about: dict[str, Any]) -> bool:
        """Write one more request, the newest with these keys, if they change it; gives whether there are other requests now."""
        is_changed = False
        while True:
            kept = {key: self.newest[key] for key in Request.__annotations__ if key in self.newest and key != "start"}  # type: ignore[literal-required]
            changed = {**kept, **about}
            if changed == {"files": {}, **kept}:
                return is_changed
            is_changed = True
            with explaining_os_errors(self._folder):
                last = max(
                    (int(file.stem) for file in list_files(self._folder / REQUESTS_FOLDER) if file.stem.isdigit()), default=0
                )
                is_written = write_record_once(self._folder / REQUESTS_FOLDER / f"{last + 1:06d}.json", changed)
            self._later = read_requests(self._folder)
            if is_written:
                return True


def read_requests(folder: Place) -> list[Request]:
    """The requests after the first, in their order."""
    from ..machine.schemas import kind_mistakes

    requests: list[Request] = []
    for file in list_files(folder / REQUESTS_FOLDER):
        record = _read_sealed(file)
        mistakes = kind_mistakes(Request, record)
        if mistakes := [*mistakes, *([] if "fingerprint" in record else ["fingerprint: field required"])]:
            raise InputError(f"{file} cannot be used: {'; '.join(mistakes)}. {RESTORE}")
        requests.append(cast("Request", record))
    return requests


def read_run_record(folder: Place) -> RunRecord:
    """run.json of a folder, as it was written and of the kinds that this version reads, without its checksum."""
    file = folder / RECORD_FILE
    try:
        record = _read_sealed(file)
    except FileNotFoundError:
        raise InputError(f"{folder} is not a run folder: it has no run.json.") from None
    if record.get("format") not in (1, FORMAT):
        raise InputError(f"{folder} has format {record.get('format')}, this version reads 1 and {FORMAT}. Score it again.")
    status = {} if record["format"] == 1 else {"status": "scoring"}  # which is seen by the parts now
    check_run_record(record | status, f"{file} cannot be used", RESTORE)
    return cast("RunRecord", record)


def _read_sealed(file: Place) -> dict[str, Any]:
    """A record as it was written, without its checksum."""
    try:
        record = read_json(file)
    except DamagedFile as damage:
        raise DamagedFile(file, damage.what, RESTORE) from damage
    if record_state(record) == "damaged":
        remedy = f'If you changed it on purpose, delete its line "sha256" and it is taken as it stands; if not: {RESTORE}'
        raise DamagedFile(file, "was changed since it was written", remedy)
    return {key: value for key, value in record.items() if key != "sha256"}
