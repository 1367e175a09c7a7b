"""Audit: a collection under M permutations, scored once, then measured as often as one likes.

Scoring is slow and resumable (`score_collection`); measuring reads the table and needs no model (`measures/measurement.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from ..collection import Data, Source, open_collection
from ..collection.splits import shared_mistakes
from ..engines import Recording
from ..errors import InputError
from ..machine.disk import is_there, lock_folder
from ..machine.extras import versions
from ..machine.places import Place
from ..machine.process import finishing
from ..runs.folder import Run
from ..runs.layout import RECORD_FILE, QueryRow
from ..runs.records import Session, Start
from ..runs.table import FIRST_STAGE, Scored
from ..tasks import TASKS
from ..terms import Collection, Failure, Instance, JsonObject
from ..window.presentation import balanced_orders, count_orders, generator, permutations
from ..window.prompt import shown
from .config import AuditConfig, Cut
from .loop import Progress, QueryTask, never_enough, run_tasks
from .mitigations import count_windows
from .presented import Presented
from .scorer import PoolScorer, ideal_gains
from .starts import (
    SHUFFLED_POOLS,
    WINDOWS,
    Canary,
    accepted_answers,
    check_start,
    is_claimed_order_free,
    keep_answers,
    note_canary,
    score_again,
    score_shuffled,
    start_of,
)
from .until import Stopper

GIVEN = "scores"
"""What stands for the name of a collection where scores were given, and nothing is known of their texts."""


def cut_instances(instances: Iterable[Instance], cut: Cut) -> Iterator[Instance]:
    """The first queries, of those named, and the first candidates of each. What leaves the pool stays judged, so the ideal
    ranking keeps it.
    """
    named = None if cut.query_ids is None else set(cut.query_ids)
    wanted = (instance for instance in instances if named is None or instance.id in named)
    for instance in islice(wanted, cut.queries):
        outside = instance.pool[cut.pool :] if cut.pool else ()
        judged = {c.id: c.relevance for c in outside if c.relevance is not None}
        if outside:
            instance = replace(instance, pool=instance.pool[: cut.pool], judged=(instance.judged or {}) | judged or None)
        yield instance


def check_query_ids(sources: Sequence[Source], cut: Cut) -> None:
    """Refuse ids that no collection has, and a collection that has none of them."""
    if cut.query_ids is None:
        return
    wanted = set(cut.query_ids)
    there = {source.name: wanted.intersection(instance.id for instance in source.instances()) for source in sources}
    unknown = sorted(wanted.difference(*there.values()))
    mistakes = [f"no query has the id {', '.join(unknown)} in {', '.join(there)}."] if unknown else []
    if len(unknown) < len(wanted):
        mistakes += [f"{name} has none of the queries that were named by id." for name, ids in there.items() if not ids]
    if mistakes:
        raise InputError(mistakes)


def check_apart(sources: Sequence[Source], cut: Cut, apart_from: Sequence[Data]) -> None:
    """Refuse collections that share queries or candidates with others, such as those that a scorer was trained on."""

    def scored_part(source: Source) -> Iterator[Instance]:
        return cut_instances(source.instances(), cut)

    if mistakes := [m for source in sources for m in shared_mistakes(source.name, partial(scored_part, source), apart_from)]:
        raise InputError(mistakes)


def refuse_none_scored(name: str, failed: Sequence[Failure], queries: int) -> None:
    if len(failed) == queries:
        reason = failed[0].reason if failed else "the collection is empty"
        raise InputError(f"{name} scored none of the {queries} queries: {reason.rstrip('.')}.")


def score_collection(
    scorer: PoolScorer,
    data: Data,
    folder: Place,
    config: AuditConfig,
    *,
    command: list[str] | None = None,
    progress: Progress | None = None,
    allow_scorer_change: bool = False,
    may_fail: bool = False,
) -> Run:
    """Score what is not yet on disk, query by query, and complete the run; one without any is refused unless it `may_fail`.

    A query whose scorer fails (an exception in somebody's function, an endpoint that gave up) is named in the coverage
    and left out, and the same command tries it again; a mistake that the user can fix stops the run, and nothing scored
    is lost. A run whose scorer has changed since is refused, or goes on and says so (`starts.py`).
    """
    source = open_collection(data)
    if not is_there(folder / RECORD_FILE):  # a mistake in the data leaves no folder behind
        for _ in cut_instances(source.instances(), config.cut):
            pass
    with lock_folder(folder):
        fingerprint, about = fingerprint_of(scorer, source, config), about_run(scorer, source, command or [])
        run = Run.create_or_resume(folder, fingerprint, **about)
        spent = scorer.backend.spent()
        goes_on = not run.is_complete or bool(run.record.failed)
        # A whole run is mixed with nothing. But a function or a program, of which only the name is known, must still be its own.
        is_only_a_name = scorer.backend.endpoint is None and not scorer.capabilities.deterministic
        canary = ask_stored(run, scorer, source, config) if goes_on or is_only_a_name else None
        start = check_start(run, start_of(scorer.backend, canary), allow_scorer_change=allow_scorer_change)
        run.ask(fingerprint, about["command"])  # only now: a run whose scorer is refused stays as it is
        if goes_on:
            session = run.begin_session(start)
            if canary is not None:
                session.scored_again = note_canary(canary, run)
            with keep_answers(run, scorer.backend, canary):
                _score_missing(run, scorer, source, config, progress, session, spent, may_fail)
        elif start.changed:
            run.begin_session(start)
            run.flush()
        return run


def ask_stored(run: Run, scorer: PoolScorer, source: Source, config: AuditConfig) -> Canary | None:
    """Have a scorer score again what is stored of a few queries; None where nothing can be compared."""
    if isinstance(scorer.backend, Recording):
        return None
    first = FIRST_STAGE if config.canonical else 0
    stored = accepted_answers(run.record) or {
        query.query_id: dict(zip(query.candidate_ids, row.tolist(), strict=True))
        for query in run.some_queries(WINDOWS)
        for row in query.scores[query.permutations == first]
    }
    wanted = (instance for instance in cut_instances(source.instances(), config.cut) if instance.id in stored)
    shown = []
    for instance in islice(wanted, len(stored)):
        n = len(instance.pool)
        shown.append((instance, np.arange(n) if config.canonical else draw_orders(instance, config, scorer.width or n)[0]))
    return score_again(scorer, shown, stored)


def fingerprint_of(scorer: PoolScorer, source: Source, config: AuditConfig) -> JsonObject:
    """What must be equal for two commands to work on one run."""
    return scorer.identity() | {
        "data": {"name": source.collection.name, "sha256": source.digest},
        "queries": config.cut.queries,
        **({} if config.cut.query_ids is None else {"query_ids": sorted(config.cut.query_ids)}),
        "pool": config.cut.pool,
        "permutations": config.permutations,
        "canonical": config.canonical,
        "seed": config.seed,
        "scheme": config.scheme,
    }


def about_run(scorer: PoolScorer, source: Source, command: list[str]) -> dict[str, Any]:
    """What run.json says of a run beside its fingerprint."""
    collection = source.collection
    return {
        "name": scorer.name,
        "collection": collection.name,
        "task": collection.task,
        "source": source.name,
        **({"columns": dict(source.columns)} if source.columns else {}),
        "first_stage": first_stage_of(collection),
        "capabilities": scorer.capabilities.to_json(),
        "command": command,
    }


def first_stage_of(collection: Collection) -> str | None:
    """What ranked the pools of a collection: as its header says, else the task; None where their order is not a ranking."""
    named = (collection.details or {}).get("first_stage")
    if named:
        return ", ".join(f"{key} {value}" for key, value in named.items()) if isinstance(named, dict) else str(named)
    return "the order of the file" if TASKS[collection.task].has_ranked_pools else None


def _score_missing(
    run: Run,
    scorer: PoolScorer,
    source: Source,
    config: AuditConfig,
    progress: Progress | None,
    session: Session,
    before: dict[str, float],
    may_fail: bool,
) -> None:
    """Score the queries that are not on disk and complete the run. Of the others only the ids are held.

    The session's account begins with what was spent `before`.
    """
    queries, stopper = 0, None
    cut, risen, chars = 0, 0, None if isinstance(scorer.backend, Recording) else scorer.settings.chars

    def read(config: AuditConfig) -> Iterator[Instance]:
        return cut_instances(source.instances(), config.cut)

    def count(instance: Instance) -> None:
        nonlocal cut, risen, queries
        queries += 1
        cut += sum(len(shown(candidate, None)) > chars for candidate in instance.pool) if chars else 0
        risen += bool((np.diff(np.array([candidate.score for candidate in instance.pool], float)) > 0).any())

    def missing() -> Iterator[QueryTask]:
        for place, instance in enumerate(read(config)):
            count(instance)
            if task := missing_task(run, scorer, instance, config, place):
                yield task

    coming: Iterable[QueryTask | None] = missing()
    everyone, done = _count(source.collection, config.cut), len(run.ledger.where) if run.is_of_one_request else 0
    total = everyone and max(everyone - done, 0)
    if config.until is not None:
        stopper = Stopper(config, partial(read, config))
        coming, total = stopper.missing(run, partial(missing_task, run, scorer)), None
    failed = score_queries(run, scorer, coming, session, before, progress, total, stopper)
    stop = None
    if stopper is not None:
        stop = stopper.record(sum(windows_of(scorer, one, count_shown(config, len(one.pool))) for one in read(config)))
        config = stopper.narrowed()
        run.ask(fingerprint_of(scorer, source, config), run.record.command)
        lost, failed = {failure.query_id: failure for failure in failed}, []
        for instance in read(config):
            count(instance)
            failed += [lost[instance.id]] if instance.id in lost and missing_task(run, scorer, instance, config, 0) else []
    if not may_fail:
        refuse_none_scored(scorer.name, failed, queries)
    told = f"the first-stage scores of {risen} of {queries} queries contradict the order of the pool; the order was taken."
    notes = [told] if risen else []
    if stop is None and config.cut.queries is not None and config.cut.queries > queries:
        notes.append(f"{config.cut.queries} queries were asked for, and {queries} are all there are.")
    run.finish(map(_query_row, read(config)), failed, cut=cut, notes=notes, stop=stop)


def score_queries(
    run: Run,
    scorer: PoolScorer,
    tasks: Iterable[QueryTask | None],
    session: Session,
    before: dict[str, float],
    progress: Progress | None = None,
    total: int | None = None,
    stopper: Stopper | None = None,
) -> list[Failure]:
    """Score queries under the orders that a run lacks of them; gives those that failed.

    What was scored before a mistake or a stop stays, and so does what it cost: the session is charged for what the scorer spent
    since `before`. What an endpoint has answered is written as soon as it is there. The `stopper` is shown each query that ended.
    """
    began, seconds, charged = time.monotonic(), session.seconds or 0.0, session.spent or {}

    def account() -> None:
        session.seconds = round(seconds + time.monotonic() - began, 1)
        spent = scorer.backend.spent_since(before)
        session.spent = {what: charged.get(what, 0) + spent.get(what, 0) for what in (charged | spent)}

    def keep(instance: Instance, scored: Presented) -> None:
        session.add(scored.cost)
        account()
        run.append(scored)

    try:
        write = run.flush if scorer.backend.endpoint is not None else lambda: None
        is_enough = never_enough if stopper is None else stopper.look
        return run_tasks(tasks, keep, scorer.backend, progress, total, write=write, is_enough=is_enough)
    finally:
        account()
        with finishing("writing what was scored"):
            run.flush()


def missing_task(run: Run, scorer: PoolScorer, instance: Instance, config: AuditConfig, place: int) -> QueryTask | None:
    """Scoring a query under those of its orders that a run lacks; None where it lacks none. `place`: as `score_query` has it."""
    known = run.ledger.numbers(instance.id)
    if not (missing := missing_numbers(scorer, instance, config, known)):
        return None
    windows = windows_of(scorer, instance, len(missing))
    return QueryTask(instance, partial(score_query, scorer, instance, config, known, place=place), windows)


def missing_numbers(scorer: PoolScorer, instance: Instance, config: AuditConfig, known: AbstractSet[int]) -> list[int]:
    """The permutations of a query that are still to be scored; a table of given scores has no first-stage row, or has it."""
    wanted = [*([FIRST_STAGE] if config.canonical else []), *range(count_shown(config, len(instance.pool)) - config.canonical)]
    missing = [number for number in wanted if number not in known]
    return [] if known and missing == [FIRST_STAGE] and isinstance(scorer.backend, Recording) else missing


def score_query(
    scorer: PoolScorer,
    instance: Instance,
    config: AuditConfig,
    known: AbstractSet[int] = frozenset(),
    *,
    place: int = SHUFFLED_POOLS,
) -> Presented:
    """A query under those of its orders that are not known, at least one, with what that took.

    By its place among the queries of a run, counted from 0 in the order in which they are scored, it is shuffled too, where the
    scorer says that no order moves its scores; without one not.
    """
    missing = missing_numbers(scorer, instance, config, known)
    n = len(instance.pool)
    orders = draw_orders(instance, config, scorer.width or n)
    rows = np.stack([np.arange(n) if number == FIRST_STAGE else orders[number] for number in missing])
    scored = scorer.score_orders(instance, rows, missing)
    cost = replace(scored.cost, windows=windows_of(scorer, instance, len(missing)) - scored.cost.skipped)
    if known:
        cost = replace(cost, shrunk=tuple(replace(cut, known=len(known)) for cut in cost.shrunk))
    elif place < SHUFFLED_POOLS and n > 1 and config.permutations > 1 and is_claimed_order_free(scorer):
        cost = replace(cost, shuffled=score_shuffled(scorer, instance, scored))
    return replace(scored, cost=cost)


def windows_of(scorer: PoolScorer, instance: Instance, orders: int) -> int:
    """Windows that a query takes under so many orders."""
    width = 1 if scorer.shows_one_by_one else scorer.width
    return round(count_windows(len(instance.pool), width, scorer.mitigations, orders))


def keep_scores(
    queries: Sequence[Scored], name: str, digests: Sequence[str], folder: Place, command: list[str] | None = None
) -> Run:
    """Scores that somebody else gave, as a run folder like any other: for a page, a gate, a comparison."""
    fingerprint = {"scores": list(digests)}
    about = {"name": name, "collection": GIVEN, "task": "passage_reranking"}
    with lock_folder(folder):
        run = Run.create_or_resume(folder, fingerprint, **about, command=command or [])
        if run.is_complete:
            return run
        done = run.scored_ids()
        run.begin_session(Start(versions()))
        for query in queries:
            if query.query_id not in done:
                run.append(query)
        rows = (QueryRow(query_id=q.query_id, judged=None if q.ideal is None else q.ideal.astype(int).tolist()) for q in queries)
        run.finish(rows, [])
    return run


def draw_orders(instance: Instance, config: AuditConfig, width: int) -> np.ndarray:
    """The permutations of a query under the run's scheme, (M, n)."""
    n = len(instance.pool)
    if config.scheme == "balanced" and config.permutations < count_orders(n):  # else all orders: nothing is more balanced
        # A Latin square narrows order-marginals and slot profiles; its rows are not independent (docs/planning.md).
        return balanced_orders(n, config.permutations, generator("balanced", config.seed, instance.id), width=width)
    scheme = "distinct" if config.scheme == "balanced" else config.scheme
    return permutations(n, config.permutations, seed=config.seed, query_id=instance.id, scheme=scheme)


def count_shown(config: AuditConfig, n: int) -> int:
    """How many orders of a pool of n are scored, that of the first stage too."""
    drawn = min(config.permutations, count_orders(n)) if config.scheme in ("distinct", "balanced") else config.permutations
    return int(drawn) + config.canonical


def _count(collection: Collection, cut: Cut) -> int | None:
    named = None if cut.query_ids is None else len(cut.query_ids)
    known = [value for value in (collection.queries, cut.queries, named) if value is not None]
    return min(known) if known else None


def _query_row(instance: Instance) -> QueryRow:
    ideal = ideal_gains(instance)
    return {
        "query_id": instance.id,
        "query": instance.query,
        "answers": list(instance.answers) or None,
        "verdict": instance.verdict,
        "judged": None if ideal is None else ideal.astype(int).tolist(),
    }
