"""Audit: a collection under M permutations, scored once, then measured as often as one likes.

Scoring is slow and resumable (`score_collection`); measuring reads the table and needs no model (`measures/measurement.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np

from ..collection import Data, Source, open_collection
from ..collection.splits import shared_mistakes
from ..engines import Backend, Engine, EngineOptions, Recording, Reranker
from ..engines.kinds import open_engine, refuse_unhonoured
from ..engines.python import open_object
from ..errors import InputError, SteadyscoreError
from ..machine.bounds import Positive, changed_fields, check_fields
from ..machine.console import one_line
from ..machine.credentials import redact
from ..machine.disk import is_there, lock_folder
from ..machine.places import Place
from ..machine.stopping import finishing
from ..measures.planning import balanced_orders
from ..measures.reading import Reading
from ..measures.threshold import Threshold
from ..models.adapter import prompt_mistakes, refuse_mismatches
from ..models.card import TrainedSettings
from ..runs.folder import Run
from ..runs.layout import RECORD_FILE, FailedQuery, QueryRow, Session, ShrunkWindow
from ..runs.table import FIRST_STAGE, Scored
from ..runs.versions import versions
from ..tasks import TASKS
from ..terms import Candidate, Collection, Failure, Instance, Prompt, Window
from ..window.presentation import count_orders, generator, permutations
from ..window.prompt import shown
from .canary import SHUFFLED_POOLS, WINDOWS, Canary, is_claimed_order_free, keep_answers, note_canary, score_again, score_shuffled
from .mitigations import count_windows
from .scorer import PoolScorer, Scorer, Settings, ideal_gains, resolve_settings
from .starts import Start, accepted_answers, check_start, start_of


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
    scheme: Literal["distinct", "hashed", "reference", "balanced"] = "distinct"
    """Where permutations come from; distinct: no order of a pool twice, so a pool of few candidates has fewer; hashed: the
    same, but always M, as in the paper; reference: the released code's global seeds; balanced: every candidate in every slot
    equally often."""
    settings: Settings = field(default_factory=Settings)
    canonical: bool = True
    """Score the first-stage order too; quality and cutoffs are read off it."""
    chars: Positive | None = None
    """Characters kept of each candidate (default: the adapter's, else the collection's; whole texts without a prompt)."""
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


def check_use(
    scorers: Mapping[str, Any], config: AuditConfig, options: EngineOptions | None = None, readers: Sequence[str] = (),
    perturb: Sequence[str] = (),
) -> None:  # fmt: skip
    """Refuse settings and options that say nothing to any scorer of a call; readers are opened with the options too."""
    shown = [*(f"perturb {kind}" for kind in perturb if "markers" in kind), *changed_fields(config.settings)]
    shown += ["chars"] * (config.chars is not None)
    refuse_unhonoured([name for name in shown if name != "label_mass"], scorers)
    refuse_unhonoured(changed_fields(options or EngineOptions()), {**scorers, **{reader: reader for reader in readers}})


def open_scorer(scorer: Any, collection: Collection, config: AuditConfig, options: EngineOptions | None = None) -> Scorer:
    """A scorer for a collection, by its address or as a Python value: its task, its instruction, its characters kept."""
    value = None if isinstance(scorer, str) else open_object(scorer)
    check_use({scorer if value is None else value.name: scorer if value is None else value}, config, options)
    return scorer_for(value or open_engine(scorer, options), collection, config)


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


def settings_for(config: AuditConfig, collection: Collection, trained: TrainedSettings, *, is_whole: bool = False) -> Settings:
    """How a collection is presented: as was asked, else as an adapter was trained, else as the collection says.

    is_whole   of a reranker, which gets whole texts unless a number of characters is asked for
    """
    settings = replace(
        config.settings,
        chars=config.chars or trained.get("chars") or (None if is_whole else collection.chars),
        instruction=config.settings.instruction or collection.instruction,
    )
    return resolve_settings(settings, trained)


def scorer_for(backend: Backend, collection: Collection, config: AuditConfig) -> Scorer:
    settings = settings_for(config, collection, backend.trained_settings, is_whole=isinstance(backend, Reranker))
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
        failed.append(Failure(query_id, one_line(redact(f"{type(fault).__name__}: {fault}"))))


def refuse_none_scored(name: str, failed: Sequence[Failure], queries: int) -> None:
    if len(failed) == queries:
        reason = failed[0].reason if failed else "the collection is empty"
        raise InputError(f"{name} scored none of the {queries} queries: {reason}.")


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
        goes_on = not run.is_complete or bool(run.record["coverage"]["failed"])
        # A whole run is mixed with nothing. But a function or a program, of which only the name is known, must still be its own.
        is_only_a_name = scorer.backend.endpoint is None and not scorer.capabilities.deterministic
        canary = ask_stored(run, scorer, source, config) if goes_on or is_only_a_name else None
        start = check_start(run, start_of(scorer.backend, canary), allow_scorer_change=allow_scorer_change)
        run.ask(fingerprint, about["command"])  # only now: a run whose scorer is refused stays as it is
        if goes_on:
            session = run.begin_session(start.to_json())
            if canary is not None:
                session["scored_again"] = note_canary(canary, run)
            with keep_answers(run, scorer.backend, canary):
                _score_missing(run, scorer, source, config, progress, session, spent, may_fail)
        elif start.changed:
            run.note_start(start.to_json())
        return run


def ask_stored(run: Run, scorer: PoolScorer, source: Source, config: AuditConfig, besides: Sequence[str] = ()) -> Canary | None:
    """Have a scorer score again what is stored of a few queries; None where nothing can be compared."""
    if isinstance(scorer.backend, Recording):
        return None
    first = FIRST_STAGE if config.canonical else 0
    stored = accepted_answers(run.record) or {
        query.query_id: dict(zip(query.candidate_ids, row.tolist(), strict=True))
        for query in run.some_queries(WINDOWS, besides)
        for row in query.scores[query.permutations == first]
    }
    wanted = (instance for instance in cut_instances(source.instances(), config.cut) if instance.id in stored)
    shown = []
    for instance in islice(wanted, len(stored)):
        n = len(instance.pool)
        shown.append((instance, np.arange(n) if config.canonical else draw_orders(instance, config, scorer.width or n)[0]))
    return score_again(scorer, shown, stored)


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
    ledger, queries = run.ledger, 0
    cut, risen, chars = 0, 0, None if isinstance(scorer.backend, Recording) else scorer.settings.chars
    failed: list[Failure] = []
    began = time.monotonic()
    charges = scorer.backend.endpoint is not None

    def account() -> None:
        session["seconds"], session["spent"] = round(time.monotonic() - began, 1), scorer.backend.spent_since(before)

    def missing() -> Iterator[Instance]:
        nonlocal cut, risen, queries
        for instance in cut_instances(source.instances(), config.cut):
            queries += 1
            cut += sum(len(shown(candidate, None)) > chars for candidate in instance.pool) if chars else 0
            risen += bool((np.diff(np.array([candidate.score for candidate in instance.pool], float)) > 0).any())
            if missing_numbers(scorer, instance, config, ledger.numbers(instance.id)):
                yield instance

    everyone, done = _count(source.collection, config.cut), len(ledger.where) if run.is_of_one_request else 0
    try:
        for instance in progress(missing(), everyone and max(everyone - done, 0)) if progress else missing():
            with finishing(f"query {instance.id}"), naming_failures(failed, instance.id):
                known = ledger.numbers(instance.id)
                scored = score_query(scorer, instance, config, session, known, place=queries - 1)
                account()
                run.append(scored, at_once=charges)
    finally:  # what was scored before a mistake or a stop stays, and so does what it cost
        account()
        with finishing("writing what was scored"):
            run.flush()
    if not may_fail:
        refuse_none_scored(scorer.name, failed, queries)
    named = [FailedQuery(query_id=failure.query_id, reason=failure.reason) for failure in failed]
    told = f"the first-stage scores of {risen} of {queries} queries contradict the order of the pool; the order was taken."
    notes = [told] if risen else []
    if config.cut.queries is not None and config.cut.queries > queries:
        notes.append(f"{config.cut.queries} queries were asked for, and {queries} are all there are.")
    run.finish(map(_query_row, cut_instances(source.instances(), config.cut)), named, cut=cut, notes=notes)


def missing_numbers(scorer: PoolScorer, instance: Instance, config: AuditConfig, known: AbstractSet[int]) -> list[int]:
    """The permutations of a query that are still to be scored; a table of given scores has no first-stage row, or has it."""
    wanted = [*([FIRST_STAGE] if config.canonical else []), *range(count_shown(config, len(instance.pool)) - config.canonical)]
    missing = [number for number in wanted if number not in known]
    return [] if known and missing == [FIRST_STAGE] and isinstance(scorer.backend, Recording) else missing


def score_query(
    scorer: PoolScorer,
    instance: Instance,
    config: AuditConfig,
    session: Session,
    known: AbstractSet[int] = frozenset(),
    *,
    place: int = SHUFFLED_POOLS,
) -> Scored:
    """A query under those of its orders that are not known, at least one; windows, tokens and cuts go to the session's account.

    By its place in the collection it is shuffled too, where the scorer says that no order moves its scores; without one not.
    """
    missing = missing_numbers(scorer, instance, config, known)
    n, cuts, shown = len(instance.pool), len(scorer.shrunk), scorer.tokens
    orders = draw_orders(instance, config, scorer.width or n)
    rows = np.stack([np.arange(n) if number == FIRST_STAGE else orders[number] for number in missing])
    scored = scorer.score_orders(instance, rows, missing)
    shrunk = [ShrunkWindow(query_id=q, window=w + 1, chars=c) for q, w, c in scorer.shrunk[cuts:]]
    if not known and place < SHUFFLED_POOLS and n > 1 and config.permutations > 1 and is_claimed_order_free(scorer):
        moved = score_shuffled(scorer, instance, scored)
        session["shuffled_pools"] = session.get("shuffled_pools", 0) + 1
        session["shuffled_difference"] = max(session.get("shuffled_difference", 0.0), moved)
    session["windows"] = session.get("windows", 0) + windows_of(scorer, instance, len(missing))
    session["tokens"] = session.get("tokens", 0) + scorer.tokens - shown
    if known:
        shrunk = [ShrunkWindow(**cut, known=len(known)) for cut in shrunk]
    session["shrunk"] = [*session.get("shrunk", []), *shrunk]
    return scored


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
        run.begin_session(Start(versions()).to_json())
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
