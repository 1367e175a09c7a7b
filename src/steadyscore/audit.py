"""Audit: a collection under M permutations, scored once, then measured as often as one likes.

Scoring is slow and resumable (`score_collection`); measuring reads the table and needs no model (`measured_run`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .collection import open_collection, path_of
from .disk import cache_folder, sha256, write_json
from .engines import Engine, EngineOptions, Reranker, open_engine
from .errors import InputError, SteadyscoreError
from .intervals import mean_interval
from .measurement import Measured, Threshold, at_budget, measure, rows_of
from .measures import FLOORED, MEASURES
from .planning import balanced_orders
from .presentation import generator, permutations
from .prompt import prompt_text, shown
from .runs import Run
from .scorer import Scorer, Settings, ideal_gains
from .scores import CANONICAL, Scored
from .tasks import TASKS
from .terms import Collection, Instance

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of a collection is scored; the rest is named in the run, not hidden."""

    queries: int | None = None
    pool: int | None = None


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """What an audit does with one collection."""

    permutations: int = 10
    """M (§3)."""
    seed: int = 0
    scheme: Literal["hashed", "reference", "balanced"] = "hashed"
    """Where permutations come from (PROTOCOL 2.1); `balanced`: every candidate in every slot equally often."""
    settings: Settings = field(default_factory=Settings)
    chars: int | None = None
    """Overrides the collection's characters kept."""
    cut: Cut = field(default_factory=Cut)
    threshold: Threshold = field(default_factory=Threshold)
    noise_floor: bool = False
    """Score one presentation again in other batch compositions, and print what that alone moves."""


NOISE_REPEATS = 3
NOISE_QUERIES = 20


def cut_instances(instances: Iterable[Instance], cut: Cut) -> Iterator[Instance]:
    """The first queries and the first candidates of each. What leaves the pool stays judged, so the ideal ranking keeps it."""
    for instance in islice(instances, cut.queries):
        outside = instance.pool[cut.pool :] if cut.pool else ()
        judged = {c.id: c.relevance for c in outside if c.relevance is not None}
        if outside:
            instance = replace(instance, pool=instance.pool[: cut.pool], judged=(instance.judged or {}) | judged or None)
        yield instance


def open_scorer(address: str, collection: Collection, config: AuditConfig, options: EngineOptions | None = None) -> Scorer:
    """A scorer for a collection: its task, its instruction, its characters kept."""
    return scorer_for(open_engine(address, options), collection, config)


def scorer_for(backend: Engine | Reranker, collection: Collection, config: AuditConfig) -> Scorer:
    settings = replace(
        config.settings,
        chars=config.chars if config.chars is not None else collection.chars,
        instruction=config.settings.instruction or collection.instruction,
    )
    return Scorer(backend, TASKS[collection.task], settings)


def score_collection(
    scorer: Scorer,
    source: str,
    folder: Path,
    config: AuditConfig,
    *,
    command: list[str] | None = None,
    progress: Callable[[Iterable[Instance], int | None], Iterable[Instance]] | None = None,
) -> Run:
    """Score what is not yet on disk, query by query, and complete the run.

    A query whose scorer fails (an exception in somebody's function, an endpoint that gave up) is named in the coverage
    and left out; a mistake that the user can mend stops the run, and nothing scored is lost.
    """
    collection, instances = open_collection(source)
    fingerprint = scorer.identity() | {
        "data": {"name": collection.name, "sha256": sha256(path_of(source))[:16]},
        "queries": config.cut.queries,
        "pool": config.cut.pool,
        "permutations": config.permutations,
        "seed": config.seed,
        "scheme": config.scheme,
    }
    run = Run.begin(
        folder,
        fingerprint,
        name=scorer.name,
        collection=collection.name,
        task=collection.task,
        source=str(source),
        capabilities=scorer.backend.capabilities.to_json(),
        command=command or [],
    )
    if run.is_complete:
        return run
    done, failed, rows = run.done(), [], []
    began, windows_scored = time.monotonic(), 0
    todo = cut_instances(instances(), config.cut)
    for instance in progress(todo, _count(collection, config.cut)) if progress else todo:
        rows.append(_query_row(instance))
        if instance.id in done:
            continue
        n = len(instance.pool)
        orders = np.vstack([np.arange(n)[None], drawn_orders(instance, config, scorer.width or n)])
        try:
            run.append(scorer.score_orders(instance, orders, [CANONICAL, *range(config.permutations)]))
        except SteadyscoreError:
            run.flush()  # what was scored before the mistake stays
            raise
        except Exception as fault:  # somebody else's code: name it, count it, go on
            failed.append({"query_id": instance.id, "reason": f"{type(fault).__name__}: {fault}"})
        windows_scored += len(orders) * -(-n // (scorer.width or n))
    seconds = time.monotonic() - began
    coverage = {
        "queries": len(rows),
        "scored": len(rows) - len(failed),
        "failed": failed,
        "shrunk": [{"query_id": q, "window": w + 1, "chars": c} for q, w, c in scorer.shrunk],
        "seconds": round(seconds, 1),
        "windows": windows_scored,
    }
    if len(failed) == len(rows):
        reason = failed[0]["reason"] if failed else "the collection is empty"
        raise InputError(f"{scorer.name} scored none of the {len(rows)} queries: {reason}.")
    run.finish(coverage, _query_table(rows))
    return run


def drawn_orders(instance: Instance, config: AuditConfig, width: int) -> np.ndarray:
    """The M permutations of a query under the run's scheme, (M, n)."""
    n = len(instance.pool)
    if config.scheme == "balanced":
        # A Latin square narrows order-marginals and slot profiles; its rows are not independent (docs/planning.md).
        return balanced_orders(n, config.permutations, generator("balanced", config.seed, instance.id), width=width)
    return permutations(n, config.permutations, seed=config.seed, query_id=instance.id, scheme=config.scheme)


def noise_floor(scorer: Scorer, source: str, config: AuditConfig) -> list[Scored]:
    """The same presentation scored again, each time in another batch composition: what an engine moves by itself."""
    _, instances = open_collection(source)
    found = []
    for instance in cut_instances(
        instances(), replace(config.cut, queries=min(config.cut.queries or NOISE_QUERIES, NOISE_QUERIES))
    ):
        n = len(instance.pool)
        order = permutations(n, 1, seed=config.seed, query_id=instance.id)[0]
        rows = []
        for repeat in range(NOISE_REPEATS):
            # Other windows of the same query share the passes, as many as the repeat's number.
            others = permutations(n, repeat, seed=config.seed + 1, query_id=instance.id)
            rows.append(scorer.score_orders(instance, np.vstack([order[None], others]), range(repeat + 1)))
        scores = np.stack([row.scores[0] for row in rows])
        found.append(rows_of(rows[0], scores))
    return found


# -- from table to figures


def summary(measured: Measured, floor: Measured | None = None) -> dict[str, Any]:
    """One run's figures as `--json` prints them: {"measures": {name: {value, low, high, queries}}, "coverage", "cutoff"}.

    An instability is read against its noise floor: above it only where its whole interval is.
    """
    figures: dict[str, dict[str, Any]] = {}
    for name, values in measured.values.items():
        figures[name] = figure([values])
        if floor is not None and name in FLOORED and name in floor.values:
            at = float(np.nanmean(floor.values[name]))
            low, high = (
                figures[name][end] if figures[name][end] is not None else figures[name]["value"] for end in ("low", "high")
            )
            figures[name] |= {"floor": at, "above_floor": bool(high < at if MEASURES[name].better == "higher" else low > at)}
    for name, value in measured.overall.items():
        figures[name] = {"value": value, "low": None, "high": None, "queries": len(measured.query_ids)}
    return {
        "measures": figures,
        "coverage": measured.coverage,
        "cutoff": measured.cutoff,
        "slot_profile": measured.slot_profile,
    }


def figure(values: list[np.ndarray]) -> dict[str, Any]:
    """A mean with its interval, as JSON has it; one query has no spread to resample, so no interval."""
    value, low, high, queries, *_ = mean_interval(values, scheme="queries")
    return {"value": value, "low": low if queries > 1 else None, "high": high if queries > 1 else None, "queries": queries}


def measured_run(run: Run, threshold: Threshold | None = None, serving_permutations: int = 1) -> Measured:
    """The measures of a complete run, as a system that averages `serving_permutations` presentations would be measured."""
    return measure(served_queries(run, serving_permutations), threshold)


def served_queries(run: Run, serving_permutations: int = 1) -> list[Scored]:
    """A run's queries, or the disjoint ensembles of K permutations that batched self-consistency would serve (§D.4)."""
    queries = run.scored()
    return queries if serving_permutations == 1 else [at_budget(query, serving_permutations) for query in queries]


def curve(run: Run, threshold: Threshold | None = None, most: int = 10) -> dict[int, dict[str, float]]:
    """Every measure at each serving budget K, from stored scores: {K: {measure: value}}."""
    budgets = range(1, min(most, *(len(q.permuted) for q in run.scored())) + 1)
    return {
        budget: {name: float(np.nanmean(values)) for name, values in measured_run(run, threshold, budget).values.items()}
        for budget in budgets
    }


def measures_table(named: Iterable[tuple[str, str, Measured]]) -> pa.Table:
    """Per-query rows of several runs: (variant, collection, query_id, measure, value)."""
    import pyarrow as pa

    rows = [
        {"variant": variant, "collection": collection, "query_id": query_id, "measure": name, "value": float(value)}
        for variant, collection, measured in named
        for name, values in measured.values.items()
        for query_id, value in zip(measured.query_ids, values, strict=True)
    ]
    kinds = [
        ("variant", pa.string()),
        ("collection", pa.string()),
        ("query_id", pa.string()),
        ("measure", pa.string()),
        ("value", pa.float64()),
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


# -- planning a run before anything is loaded


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will cost."""

    queries: int
    windows: int
    tokens: int
    seconds: float | None
    """From the speed of this scorer's last run on this machine; None before its first."""


CHARS_PER_TOKEN = 4.2
"""English under the tokenizers of today; good enough for a plan."""


def estimate(address: str, source: str, config: AuditConfig) -> Estimate:
    """Windows, tokens and time of a run, without loading a model or a tokenizer."""
    collection, instances = open_collection(source)
    task = TASKS[collection.task]
    width = config.settings.width or task.width
    chars = config.chars if config.chars is not None else collection.chars
    passes = config.permutations + 1
    queries = windows = 0
    characters = 0.0
    for instance in cut_instances(instances(), config.cut):
        count = -(-len(instance.pool) // width)
        fixed = prompt_text(task, instance.query, [], instruction=config.settings.instruction or collection.instruction)
        frame = sum(len(piece.text) for piece in (*fixed.prefix, *fixed.body)) + len(fixed.system)
        pool = sum(len(shown(candidate, chars)) for candidate in instance.pool)
        queries, windows = queries + 1, windows + passes * count
        characters += passes * (count * frame + pool + 20 * len(instance.pool))
    tokens = round(characters / CHARS_PER_TOKEN)
    rate = _speeds().get(address)
    return Estimate(queries, windows, tokens, tokens / rate if rate else None)


def remember_speed(address: str, tokens: int, seconds: float) -> None:
    """Keep tokens per second of a scorer on this machine, for the next estimate."""
    if seconds > 1:
        file = cache_folder() / "speed.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, _speeds() | {address: tokens / seconds})


def _speeds() -> dict[str, float]:
    try:
        return json.loads((cache_folder() / "speed.json").read_text())
    except (OSError, json.JSONDecodeError):
        return {}


# -- small things


def bar(description: str, quiet: bool = False) -> Callable[[Iterable[Instance], int | None], Iterable[Instance]]:
    """A progress bar over queries on stderr, with rate and remaining time; silent where stderr is no terminal."""

    def wrap(items: Iterable[Instance], total: int | None) -> Iterable[Instance]:
        from tqdm import tqdm

        return tqdm(items, total=total, desc=description, unit="query", file=sys.stderr, disable=True if quiet else None)

    return wrap


def _count(collection: Collection, cut: Cut) -> int | None:
    known = [value for value in (collection.queries, cut.queries) if value is not None]
    return min(known) if known else None


def _query_row(instance: Instance) -> dict[str, Any]:
    ideal = ideal_gains(instance)
    return {
        "query_id": instance.id,
        "query": instance.query,
        "answers": list(instance.answers) or None,
        "verdict": instance.verdict,
        "judged": None if ideal is None else ideal.astype(int).tolist(),
    }


def _query_table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    kinds = [
        ("query_id", pa.string()),
        ("query", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("verdict", pa.string()),
        ("judged", pa.list_(pa.int32())),
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))
