"""What scored a run, start by start: noted in every part, compared before a run goes on, and said in its report.

A fingerprint holds what was asked for. What answers to the same words may change between two starts: the code of a
scorer, the address of an endpoint, the weights behind a name. Such a change, be it one of a watched file or one that stored
windows show (`canary.py`), would mix two scorers in one table, so it is refused unless the user lets it pass, and then the run
says so. What an endpoint answers otherwise is said, not refused: it need not answer twice alike. Another version of this
package or of a library is noted and said: an upgrade should not cost a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..engines import Backend
from ..errors import RunMismatch
from ..machine.extras import versions
from ..runs.folder import Run
from ..runs.records import RunRecord, Start
from .canary import Canary

NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
CARRIERS = ("httpx", "httpx2")
"""Libraries that carry requests and answers: no version of them changes a score."""


def start_of(backend: Backend, canary: Canary | None = None) -> Start:
    """What scores now, and whether stored windows show that it is another one; an endpoint's answers are no proof of that."""
    identity = backend.identity()
    revision = identity.get("weights") or identity.get("revision")
    endpoint = None if backend.endpoint is None else backend.endpoint.base
    now = Start(versions(), endpoint, str(revision) if revision else None, backend.watch())
    is_another = canary is not None and canary.is_changed and endpoint is None
    return replace(now, changed=(canary.words,), answers=canary.answers) if canary and is_another else now


def check_start(run: Run, now: Start, *, allow_scorer_change: bool = False) -> Start:
    """The start as it is noted: one whose scorer is not that of the session before, or a run of workers who found several, is
    refused, or let pass and said.
    """
    noted, sessions, accepted = starts_of(run.record), run.record.sessions, run.record.accepted
    before = noted[sessions[-1].start or 0] if sessions else None
    of_workers = [change for start in noted for change in start.changed if change not in accepted]
    own = [*(scorer_changes(before, now) if before else []), *now.changed]
    if changed := list(dict.fromkeys([*own, *of_workers])):
        if not allow_scorer_change:
            raise RunMismatch(refusal(run, changed))
        run.update_record(accepted=[*accepted, *changed])
    if own:
        return replace(now, changed=tuple(own), queries_before=len(run.scored_ids()))
    return replace(before, times=()) if before is not None and _is_same(now, before) else now


def _is_same(one: Start, other: Start) -> bool:
    """Whether the same scored at two starts."""
    rest = {"changed": one.changed, "queries_before": one.queries_before, "answers": one.answers, "times": one.times}
    return one == replace(other, **rest)  # type: ignore[arg-type]


def accepted_answers(record: RunRecord) -> dict[str, dict[str, float]]:
    """What stored windows scored when a change was last let pass; empty where none was."""
    return next((start.answers for start in reversed(starts_of(record)) if start.answers), {})


def starts_of(record: RunRecord) -> list[Start]:
    """The starts of a run, one after the other. What differs between two of workers, who let nothing pass, is named too."""
    noted: list[Start] = []
    for start in record.starts:
        if noted and not start.changed and (changed := scorer_changes(noted[-1], start)):
            start = replace(start, changed=tuple(changed))
        noted.append(start)
    return noted


def refusal(run: Run, changed: Sequence[str]) -> str:
    """What is said of a run whose scorer has changed."""
    state = "holds the scores of" if run.was_complete else "was begun with"
    return (
        f"{run.folder} {state} another version of its scorer: {'; '.join(changed)}. Score into another --out, delete the "
        "folder, or pass --allow-scorer-change to keep what was scored and have the run say so."
    )


def scorer_changes(before: Start, now: Start) -> list[str]:
    """Both values of whatever is known to have changed. A file that only one of the starts watched has not."""
    changes = [
        f"{what} was {old}, now {new}"
        for what, old, new in (("endpoint", before.endpoint, now.endpoint), ("model revision", before.revision, now.revision))
        if old and old != new
    ]
    shared = [file for file in before.files if file in now.files and now.files[file] != before.files[file]]
    return changes + [f"{file} was {before.files[file]}, now {now.files[file]}" for file in shared]


# -- what a run says about its starts


def start_remarks(record: RunRecord) -> list[str]:
    """What a reader of a run's numbers must know of the starts that scored them."""
    noted = starts_of(record)
    scored = sorted({session.start or 0 for session in record.sessions if session.windows})
    versions = _version_remarks([noted[i] for i in scored if i < len(noted)])
    return _change_remarks(noted, scored) + _endpoint_remarks(record, noted) + versions


def _change_remarks(noted: Sequence[Start], scored: Sequence[int]) -> list[str]:
    last = max(scored, default=0)
    during = [start for start in noted[: last + 1] if start.changed]
    later = [start for start in noted[last + 1 :] if start.changed]
    remarks = []
    if during:
        when = [f"after {start.queries_before} queries" if start.queries_before else "in other parts" for start in during]
        changes = "; ".join(f"{', '.join(start.changed)} ({where})" for start, where in zip(during, when, strict=True))
        count = len(during) + 1
        remarks.append(f"scored by {NUMBERS.get(count, count)} versions: {changes}.")
    if later:
        changes = "; ".join(change for start in later for change in start.changed)
        remarks.append(f"its scorer changed after its table was scored: {changes}.")
    return remarks


def _endpoint_remarks(record: RunRecord, noted: Sequence[Start]) -> list[str]:
    """What an endpoint answered otherwise when stored windows were asked again: the largest of several starts."""
    of_endpoints = [s.scored_again for s in record.sessions if s.scored_again and noted[s.start or 0].endpoint]
    if not of_endpoints:
        return []
    asked = max(of_endpoints, key=lambda again: again.difference)
    floor = asked.noise_floor
    known = (
        "no noise floor was measured by then; --noise-floor measures it" if floor is None else f"its noise floor is {floor:.3g}"
    )
    return [f"{asked.windows} stored windows were asked again when it went on: scores moved by up to "
            f"{asked.difference:.3g}; {known}."]  # fmt: skip


def _version_remarks(scored: Sequence[Start]) -> list[str]:
    names = dict.fromkeys(name for start in scored for name in start.versions if name not in CARRIERS)
    seen = {name: list(dict.fromkeys(start.versions.get(name, "not installed") for start in scored)) for name in names}
    changes = [f"{name} {', then '.join(values)}" for name, values in seen.items() if len(values) > 1]
    return [f"scored under several versions of what it runs on: {'; '.join(changes)}."] if changes else []
