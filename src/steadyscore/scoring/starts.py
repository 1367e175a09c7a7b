"""What scored a run, start by start: noted in every part, compared before a run goes on, and said in its report.

A fingerprint holds what was asked for. What answers to the same words may change between two starts: the code of a
scorer, the address of an endpoint, the weights behind a name, and much that cannot be read off a file. So stored windows are
scored again before a run goes on; a change that moves none of them is not seen. A change would mix two scorers in one table, so
it is refused unless the user lets it pass, and then the run says so. What an endpoint answers otherwise is said, not refused: it
need not answer twice alike. Another version of this package or of a library is noted and said: an upgrade should not cost a run.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..engines import Backend, Engine, Grader, Recording
from ..errors import RunMismatch, SteadyscoreError, UnusableScorer
from ..machine.disk import cache_folder
from ..machine.extras import versions
from ..runs.folder import Run
from ..runs.records import RunRecord, ScoredAgain, Start
from ..runs.table import Scored
from ..terms import Array, Instance
from ..window.presentation import generator, windows
from .presented import in_pool_order
from .scorer import PoolScorer, Scorer

log = logging.getLogger("steadyscore")

WINDOWS = 3
"""Stored queries of which one window is scored again."""
SHUFFLED_POOLS = 8
"""First queries of a collection that a scorer which declares itself order-free is shown in another order too."""
SAME, SAME_LOCAL = 1e-5, 1e-3
"""Share of the score scale below which two scores are the same. A local model, whose weights are in its identity, moves by more
with the number of threads and with what shares a pass."""
NOISE = 3
"""A difference of up to so many times what two readings of the same window differ by is noise."""
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
CARRIERS = ("httpx", "httpx2")
"""Libraries that carry requests and answers: no version of them changes a score."""

# -- what scores now


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
    if before is not None and now == replace(before, changed=(), queries_before=0, answers={}, times=()):
        return replace(before, times=())  # the same scored
    return now


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


# -- windows scored again: stored ones, and shuffled ones of a scorer that declares itself order-free


Scores = Mapping[str, Mapping[str, float]]
"""Query -> candidate -> score."""


class Canary(NamedTuple):
    """Stored windows that were scored again."""

    answers: dict[str, dict[str, float]]
    """Query -> candidate -> its score now."""
    differences: dict[str, float]
    """Query -> the largest difference of a score from what is stored."""
    limit: float
    """Above this a difference is one."""

    @property
    def difference(self) -> float:
        return max(self.differences.values())

    @property
    def is_changed(self) -> bool:
        return self.difference > self.limit

    @property
    def words(self) -> str:
        moved = [query_id for query_id, difference in self.differences.items() if difference > self.limit]
        count = f"{len(moved)} of {len(self.differences)} stored windows"
        return f"{count} scored otherwise, by up to {self.difference:.3g} (queries {', '.join(moved)})"


def score_again(scorer: PoolScorer, shown: Sequence[tuple[Instance, Array]], stored: Scores) -> Canary | None:
    """The first window of each of these orders anew, against what is stored; None where none could be scored.

    Where they differ they are read once more, a local model's windows in another batch: what two readings of one window
    differ by is noise, be it a random function's or a short number format's.
    """
    answers = _read(scorer, shown)
    if not answers:
        return None
    limit = _limit(scorer.backend, [stored[query_id][one] for query_id, row in answers.items() for one in row])
    differences = {query_id: _largest(row, stored[query_id]) for query_id, row in answers.items()}
    if max(differences.values()) > limit:
        again = {query_id: row for query_id, row in _read(scorer, shown, is_second=True).items() if query_id in answers}
        limit = max([limit, *(NOISE * _largest(answers[query_id], row) for query_id, row in again.items())])
    return Canary(answers, differences, limit)


def _read(scorer: PoolScorer, shown: Sequence[tuple[Instance, Array]], *, is_second: bool = False) -> dict[str, dict[str, float]]:
    """Scores of the first window of each order, of a mitigated scorer of the whole order; what fails is left out."""
    answers: dict[str, dict[str, float]] = {}
    for instance, order in shown:
        try:
            if isinstance(scorer, Scorer):
                window = windows(order, scorer.width or len(order), scorer.settings.partition)[0]
                reverse = replace(window, candidates=window.candidates[::-1])
                is_batched = is_second and isinstance(scorer.backend, Engine) and scorer.backend.endpoint is None
                row = scorer.read_windows([(instance, window), *([(instance, reverse)] if is_batched else [])]).windows[0].scores
                places: Sequence[int] = window.candidates
            else:
                row, places = scorer.score(instance, order.tolist()), range(len(order))
        except SteadyscoreError:
            raise
        except Exception:  # somebody else's code may fail now and then; what it fails on is named when it is scored
            continue
        answers[instance.id] = {instance.pool[i].id: float(score) for i, score in zip(places, row, strict=True)}
    return answers


def _largest(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return max(abs(score - other[candidate]) for candidate, score in one.items())


def _limit(backend: Backend, scores: Sequence[float] | Array) -> float:
    """The difference up to which two scores count as the same, on the scale of these."""
    share = SAME_LOCAL if backend.capabilities.deterministic else SAME
    return share * (1.0 if isinstance(backend, Grader) else float(np.ptp(scores))) + 1e-9 * float(np.abs(scores).max())


def note_canary(canary: Canary, run: Run) -> ScoredAgain:
    """What a run keeps of it, beside its noise floor."""
    floor = max((float(np.ptp(query.scores, axis=0).max()) for query in run.read_noise()), default=None)
    return ScoredAgain(windows=len(canary.answers), difference=canary.difference, noise_floor=floor)


@contextmanager
def keep_answers(run: Run, backend: Backend, canary: Canary | None) -> Iterator[None]:
    """Inside, an endpoint's answers are kept for this run and no other, until all its queries are scored.

    Those of an earlier start are used where the endpoint still answers as it did.
    """
    if backend.endpoint is None:
        yield
        return
    name = f"{run.folder.absolute()} {run.record.created}"
    folder = cache_folder() / "responses" / hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    if canary is None or canary.is_changed:
        if folder.exists():
            why = "does not answer as it did" if canary else "has no whole query to be compared with"
            log.warning("%s %s: its answers that were kept are not used.", backend.name, why)
        shutil.rmtree(folder, ignore_errors=True)
    with backend.endpoint.keeping_answers(folder):
        yield
    if not run.record.failed:
        shutil.rmtree(folder, ignore_errors=True)


def is_claimed_order_free(scorer: PoolScorer) -> bool:
    """Whether a scorer says that no order moves its scores, and can be asked."""
    return scorer.capabilities.order_free and not isinstance(scorer.backend, Recording)


def score_shuffled(scorer: PoolScorer, instance: Instance, scored: Scored) -> float:
    """How far the scores of a pool move in another order and under other ids, read anew; beyond rounding it is an error."""
    n = len(instance.pool)
    order = generator("shuffled", instance.id).permutation(n)
    order = order[::-1] if (order == np.arange(n)).all() else order
    renamed = replace(instance, pool=tuple(replace(one, id=f"shuffled {place}") for place, one in enumerate(instance.pool)))
    stored = in_pool_order(scored, instance)
    difference = float(np.abs(scorer.score(renamed, order.tolist()) - stored).max())
    if difference > _limit(scorer.backend, stored):
        raise UnusableScorer(
            f"{scorer.name} declares that no order moves its scores, and another order of query {instance.id} moved one by "
            f"{difference:.3g}. Have it declare order_free=False."
        )
    return difference


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
