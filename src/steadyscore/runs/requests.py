"""What was asked of a run, command by command: an identity that never changes, and how much of it, which may grow."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from ..errors import DamagedFile, InputError, RunMismatch
from ..machine.contents import record_state
from ..machine.disk import explaining_os_errors, list_files, read_json, write_record_once
from ..machine.places import Place
from ..terms import JsonObject
from .layout import FORMAT, RECORD_FILE, REQUESTS_FOLDER
from .records import Fingerprint, Request, RunRecord, read_record

RESTORE = "Copy it back from a backup, or score into another --out."


class Requests:
    """All that was asked of a run, the first of it in run.json; a later one is added and none is changed."""

    def __init__(self, folder: Place, first: RunRecord):
        self._folder, self.first = folder, first
        self._identity = {key: value for key, value in first.fingerprint.keys.items() if key not in GROWS}
        self._later = read_requests(folder)

    def all(self) -> list[Request]:
        return [cast("Request", {**self.first.keys, "fingerprint": asked_of(self.first.fingerprint.keys)}), *self._later]

    @property
    def newest(self) -> Request:
        return self.all()[-1]

    def fingerprint(self, asked: JsonObject) -> JsonObject:
        """The whole fingerprint of what is asked for."""
        return {**self._identity, **asked}

    def allow(self, fingerprint: JsonObject) -> bool:
        """Whether something was asked of the run before, or adds to what was."""
        now = Fingerprint.of(fingerprint)
        known = [Fingerprint.of(self.fingerprint(request["fingerprint"])) for request in self.all()]
        return any(old == now or is_growth(old, now) for old in known)

    def check(self, fingerprint: JsonObject) -> None:
        """Refuse what is not allowed, with what differs."""
        if not self.allow(fingerprint):
            check_same_command(self._folder, self.fingerprint(self.newest["fingerprint"]), fingerprint)

    def add(self, about: JsonObject) -> bool:
        """Write one more request, the newest with these keys, if they change it; gives whether there are other requests now."""
        is_changed = False
        while True:
            kept = {key: value for key, value in self.newest.items() if key in Request.__annotations__}
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
    return read_record({**record, **status}, f"{file} cannot be used", RESTORE)


def _read_sealed(file: Place) -> dict[str, object]:
    """A record as it was written, without its checksum."""
    try:
        record = read_json(file)
    except DamagedFile as damage:
        raise DamagedFile(file, damage.what, RESTORE) from damage
    if record_state(record) == "damaged":
        remedy = f'If you changed it on purpose, delete its line "sha256" and it is taken as it stands; if not: {RESTORE}'
        raise DamagedFile(file, "was changed since it was written", remedy)
    return {key: value for key, value in record.items() if key != "sha256"}


# -- growth

GROWS = ("permutations", "queries", "query_ids")
"""Keys of the fingerprint that may grow."""


def is_growth(old: Fingerprint, new: Fingerprint) -> bool:
    """Whether a run of the new fingerprint holds everything that one of the old holds, and more."""
    differing = [key for key in {**old.keys, **new.keys} if old.keys.get(key) != new.keys.get(key)]
    permutations, queries, query_ids = old.permutations, old.queries, old.query_ids
    more = {
        # Permutations are drawn by their number, but those of a Latin square all depend on how many there are.
        "permutations": permutations is not None and (new.permutations or 0) > permutations and new.scheme != "balanced",
        # The first N of a collection are among the first N + 1.
        "queries": queries is not None and (new.queries is None or new.queries > queries),
        "query_ids": query_ids is not None
        and new.queries is None
        and (new.query_ids is None or set(query_ids) <= set(new.query_ids)),
    }
    return bool(differing) and all(more.get(key, False) for key in differing)


def asked_of(fingerprint: JsonObject) -> dict[str, object]:
    """The keys of a fingerprint that may grow."""
    return {key: fingerprint[key] for key in GROWS if key in fingerprint}


def asked_digest(asked: JsonObject) -> str:
    """A name for what is asked for, by which the list of its queries is known."""
    kept = {key: value for key, value in asked.items() if value is not None}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def check_same_command(folder: Place, old: JsonObject, new: JsonObject) -> None:
    """Refuse to go on in a folder whose record was made with other settings."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if keys:
        differing = "; ".join(describe_difference(key, old.get(key), new.get(key)) for key in keys)
        raise RunMismatch(f"{folder} was made by another command: {differing}. Choose another --out, or delete the folder.")


def describe_difference(key: str, old: Any, new: Any) -> str:
    """Both values, of long ones the part in which they differ."""
    was, now = (json.dumps(value, ensure_ascii=False) for value in (old, new))
    first = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    keep = {"chars": f"--chars {old}", "scheme": f"--set scheme={old}"}.get(key) if old else None
    kept = "" if keep is None else f" ({'whole texts; ' if key == 'chars' and new is None else ''}{keep} goes on as it was)"
    return f"{key} was {_excerpt(was, first)}, now {_excerpt(now, first)}{kept}"


def _excerpt(text: str, place: int) -> str:
    start = max(0, place - 20)
    return text if len(text) <= 80 else "..." * bool(start) + text[start : start + 74] + "..." * (start + 74 < len(text))
