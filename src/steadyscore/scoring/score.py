"""Audit: a collection under M permutations, scored once, then measured as often as one likes.

Scoring is slow and resumable (`score_collection`); measuring reads the table and needs no model (`measures/measurement.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..collection import Data, Source, open_collection
from ..collection.apart import shared_mistakes
from ..engines import Backend, Engine, EngineOptions
from ..engines.address import open_engine
from ..errors import InputError, SteadyscoreError
from ..machine.bounds import Positive, check_fields
from ..machine.credentials import redact
from ..machine.disk import is_there, lock_folder
from ..machine.stopping import finishing
from ..measures.measurement import Threshold
from ..measures.planning import balanced_orders
from ..measures.reading import Reading
from ..models.adapter import prompt_mistakes, refuse_mismatches
from ..models.card import TrainedSettings
from ..runs.folder import Run, versions
from ..runs.growth import join_presentations
from ..runs.layout import RECORD_FILE, Coverage, FailedQuery, QueryRow, Session, ShrunkWindow
from ..runs.table import FIRST_STAGE, Scored
from ..tasks import TASKS
from ..terms import Candidate, Collection, Failure, Instance, Prompt, Window
from ..window.presentation import generator, permutations
from .mitigations import count_windows
from .scorer import PoolScorer, Scorer, Settings, ideal_gains, resolve_settings
from .starts import Start, collect_parts, note_start, start_of, sum_sessions


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of a collection is scored; the rest is named in the run, not hidden."""

    queries: Positive | None = None
    """Only the first N queries."""
    pool: Positive | None = None
    """Only the first N candidates of each pool."""
    query_ids: tuple[str, ...] | None = None
    """Only these queries, by id."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """What an audit does with one collection."""

    permutations: Positive = 10
    """Random orders to score, M."""
    seed: int = 0
    """Seed of the permutations."""
    scheme: Literal["hashed", "reference", "balanced"] = "hashed"
    """Where permutations come from; reference: the released code's global seeds; balanced: every candidate in every slot
    equally often."""
    settings: Settings = field(default_factory=Settings)
    canonical: bool = True
    """Score the first-stage order too; quality and cutoffs are read off it."""
    chars: Positive | None = None
    """Characters kept of each candidate (default: the adapter's, else the collection's; whole texts for `system:`)."""
    cut: Cut = field(default_factory=Cut)
    threshold: Threshold = field(default_factory=Threshold)
    reading: Reading = field(default_factory=Reading)
    noise_floor: bool = False
    """Also score one order repeatedly in other batches, and print what that alone moves."""
    noise_reads: Positive | None = None
    """Read every window of every query so often for the noise floor, shuffled over all queries (default: 3 times, 20 queries)."""


GIVEN = "scores"
"""What stands for the name of a collection where scores were given, and nothing is known of their texts."""

Progress = Callable[[Iterable[Instance], int | None], Iterable[Instance]]
"""Instances as they come, and how many there will be -> the same instances, with progress shown to the user."""


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


def open_scorer(address: str, collection: Collection, config: AuditConfig, options: EngineOptions | None = None) -> Scorer:
    """A scorer for a collection: its task, its instruction, its characters kept."""
    return scorer_for(open_engine(address, options), collection, config)


def refuse_mismatch(scorer: Scorer) -> None:
    """An adapter behind another prompt than it was trained with is another scorer; another task's words are transfer."""
    trained = scorer.backend.identity().get("adapter")
    if trained is None or not isinstance(scorer.backend, Engine):
        return
    at_home = Scorer(scorer.backend, TASKS[trained["task"]], scorer.settings)
    probe = at_home.prompt(Instance("probe", "probe", (Candidate("a", "a"),)), Window(0, (0,)))
    allowed = scorer.backend.options.allow_base_mismatch
    assert isinstance(probe, Prompt)
    refuse_mismatches(prompt_mistakes(trained, at_home.identity()["prompt_hash"], probe.grade_tokens), allowed)


def settings_for(
    config: AuditConfig, collection: Collection, trained: TrainedSettings, *, takes_whole_text: bool = False
) -> Settings:
    """How a collection is presented: as was asked, else as an adapter was trained, else as the collection says.

    A system that is not ours gets whole texts unless a number of characters is asked for.
    """
    settings = replace(
        config.settings,
        chars=config.chars or trained.get("chars") or (None if takes_whole_text else collection.chars),
        instruction=config.settings.instruction or collection.instruction,
    )
    return resolve_settings(settings, trained)


def scorer_for(backend: Backend, collection: Collection, config: AuditConfig) -> Scorer:
    settings = settings_for(config, collection, backend.trained_settings, takes_whole_text=backend.takes_whole_text)
    scorer = Scorer(backend, TASKS[collection.task], settings)
    refuse_mismatch(scorer)
    return scorer


@contextmanager
def naming_failures(failed: list[Failure], query_id: str) -> Iterator[None]:
    """Somebody else's code may fail on a query: name it, count it, go on. A mistake that the user can fix goes through."""
    try:
        yield
    except SteadyscoreError:
        raise
    except Exception as fault:
        failed.append(Failure(query_id, redact(f"{type(fault).__name__}: {fault}")))


def refuse_none_scored(name: str, failed: Sequence[Failure], queries: int) -> None:
    if len(failed) == queries:
        reason = failed[0].reason if failed else "the collection is empty"
        raise InputError(f"{name} scored none of the {queries} queries: {reason}.")


def score_collection(
    scorer: PoolScorer,
    data: Data,
    folder: Path,
    config: AuditConfig,
    *,
    command: list[str] | None = None,
    progress: Progress | None = None,
    allow_scorer_change: bool = False,
) -> Run:
    """Score what is not yet on disk, query by query, and complete the run.

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
        collect_parts(run, allow_scorer_change=allow_scorer_change)
        note_start(run, start_of(scorer.backend), allow_scorer_change=allow_scorer_change)
        run.grow(fingerprint, about["command"])  # only now: a run whose scorer is refused stays as it is
        if not run.is_complete or run.record["coverage"]["failed"]:
            _score_missing(run, scorer, source, config, progress)
        return run


def fingerprint_of(scorer: PoolScorer, source: Source, config: AuditConfig) -> dict[str, Any]:
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


def _score_missing(run: Run, scorer: PoolScorer, source: Source, config: AuditConfig, progress: Progress | None) -> None:
    """Score the queries that are not on disk and complete the run. Of the others only the ids are held."""
    if run.is_complete:
        run.reopen()
    done, earlier, order = run.scored_ids(), run.earlier_queries(), []
    failed: list[Failure] = []
    session, began, before = run.begin_session(), time.monotonic(), scorer.backend.spent()
    charges = scorer.backend.endpoint is not None

    def account() -> None:
        session["seconds"], session["spent"] = round(time.monotonic() - began, 1), scorer.backend.spent_since(before)

    def missing() -> Iterator[Instance]:
        for instance in cut_instances(source.instances(), config.cut):
            order.append(instance.id)
            if instance.id not in done:
                yield instance

    everyone = _count(source.collection, config.cut)
    try:
        for instance in progress(missing(), everyone and max(everyone - len(done), 0)) if progress else missing():
            with finishing(f"query {instance.id}"), naming_failures(failed, instance.id):
                scored = score_query(scorer, instance, config, session, earlier.take(instance.id))
                account()
                run.append(scored, at_once=charges)
    finally:  # what was scored before a mistake or a stop stays, and so does what it cost
        account()
        with finishing("writing what was scored"):
            run.flush()
    refuse_none_scored(scorer.name, failed, len(order))
    named = [FailedQuery(query_id=failure.query_id, reason=failure.reason) for failure in failed]
    counts = Coverage(queries=len(order), scored=len(order) - len(failed), failed=named)
    coverage: Coverage = {**counts, **sum_sessions(run.record["sessions"])}
    run.finish(coverage, order, map(_query_row, cut_instances(source.instances(), config.cut)))


def score_query(
    scorer: PoolScorer, instance: Instance, config: AuditConfig, session: Session, known: Scored | None = None
) -> Scored:
    """A query under all its orders, of which some may be known; windows, tokens and cuts go to the session's account."""
    n, cuts, shown = len(instance.pool), len(scorer.shrunk), scorer.tokens
    orders, permutation = draw_orders(instance, config, scorer.width or n), [*range(config.permutations)]
    if config.canonical:
        orders, permutation = np.vstack([np.arange(n)[None], orders]), [FIRST_STAGE, *permutation]
    missing = [row for row, number in enumerate(permutation) if known is None or number not in known.permutations]
    if known is not None and not missing:
        return known
    scored = scorer.score_orders(instance, orders[missing], [permutation[row] for row in missing])
    session["windows"] = session.get("windows", 0) + windows_of(scorer, instance, len(missing))
    session["tokens"] = session.get("tokens", 0) + scorer.tokens - shown
    shrunk = [ShrunkWindow(query_id=q, window=w + 1, chars=c) for q, w, c in scorer.shrunk[cuts:]]
    if known is not None:
        shrunk = [ShrunkWindow(**cut, known=len(known.permutations)) for cut in shrunk]
    session["shrunk"] = [*session.get("shrunk", []), *shrunk]
    return scored if known is None else join_presentations(known, scored)


def windows_of(scorer: PoolScorer, instance: Instance, orders: int) -> int:
    """Windows that a query takes under so many orders."""
    width = 1 if scorer.shows_one_by_one else scorer.width
    return round(count_windows(len(instance.pool), width, scorer.mitigations, orders))


def keep_scores(
    queries: Sequence[Scored], name: str, digests: Sequence[str], folder: Path, command: list[str] | None = None
) -> Run:
    """Scores that somebody else gave, as a run folder like any other: for a page, a gate, a comparison."""
    fingerprint = {"scores": list(digests)}
    about = {"name": name, "collection": GIVEN, "task": "passage_reranking"}
    with lock_folder(folder):
        run = Run.create_or_resume(folder, fingerprint, **about, command=command or [])
        note_start(run, Start(versions()))
        if run.is_complete:
            return run
        done = run.scored_ids()
        for query in queries:
            if query.query_id not in done:
                run.append(query)
        rows = (QueryRow(query_id=q.query_id, judged=None if q.ideal is None else q.ideal.astype(int).tolist()) for q in queries)
        coverage = Coverage(queries=len(queries), scored=len(queries), failed=[])
        run.finish(coverage, [query.query_id for query in queries], rows)
    return run


def draw_orders(instance: Instance, config: AuditConfig, width: int) -> np.ndarray:
    """The M permutations of a query under the run's scheme, (M, n)."""
    n = len(instance.pool)
    if config.scheme == "balanced":
        # A Latin square narrows order-marginals and slot profiles; its rows are not independent (docs/planning.md).
        return balanced_orders(n, config.permutations, generator("balanced", config.seed, instance.id), width=width)
    return permutations(n, config.permutations, seed=config.seed, query_id=instance.id, scheme=config.scheme)


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
