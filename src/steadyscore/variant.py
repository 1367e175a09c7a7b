"""A variant: one scorer on one collection, as a run folder holds it, measured and with its settings in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .collection import open_collection, path_of
from .disk import sha256
from .errors import InputError
from .measurement import Measured, Threshold
from .readings import Readings, label_parts, readings_of, shared_readers
from .runs import Run
from .scores import Scored
from .starts import start_remarks, starts_of, unwatched
from .summary import audited, own_threshold, served_queries
from .terms import Instance

TASK_LABELS = {
    "passage_reranking": "passage reranking", "multidoc_qa": "multi-document QA", "claim_verification": "claim verification",
    "response_ranking": "response ranking",
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """One scorer on one collection, measured."""

    name: str
    collection: str
    task: str
    record: dict[str, Any]
    """run.json"""
    measured: Measured
    summary: dict[str, Any]
    """`summary.summary`: what `--json` prints, with the noise floor where it was measured."""
    scored: list[Scored]
    """As they are served: means of `serving_permutations` presentations each."""
    instances: dict[str, Instance] | None
    """Texts by query id; None where the collection is not what was scored any more."""
    threshold: Threshold = field(default_factory=Threshold)
    serving_permutations: int = 1
    readers: dict[str, Readings] = field(default_factory=dict)
    """What each reader made of it, by its name in `outputs.parquet`."""
    reader: str | None = None
    """The one whose figures are among the measures."""


def load_variants(runs: Sequence[Run], threshold: Threshold | None = None, serving_permutations: int = 1) -> list[Variant]:
    """Complete runs, measured; where readers read them, with the figures of the first that read all runs of a collection."""
    found = []
    for run in runs:
        rivals = [other for other in runs if other.record["collection"] == run.record["collection"]]
        readers = shared_readers(rivals, serving_permutations)
        found.append(load_variant(run, threshold, readers, serving_permutations))
    return found


def load_variant(
    run: Run, threshold: Threshold | None = None, readers: Sequence[str] | None = None, serving_permutations: int = 1
) -> Variant:
    """A complete run, measured, with the figures of the first of its readers (of `readers`, where given)."""
    scored = served_queries(run, serving_permutations)
    read = readings_of(run, [query.query_id for query in scored])
    served = [label for label in read if label_parts(label)[2] == serving_permutations]
    reader = next((label for label in (served if readers is None else readers) if label in served), None)
    measured, figures = audited(run, threshold, serving_permutations, [reader] if reader else [])
    record = run.record
    return Variant(
        name=record["name"],
        collection=record["collection"],
        task=record["task"],
        record=record,
        measured=measured,
        summary=figures,
        scored=scored,
        instances=_texts(record, scored),
        threshold=threshold or own_threshold(run),
        serving_permutations=serving_permutations,
        readers=read,
        reader=reader,
    )


def _texts(record: dict[str, Any], scored: Sequence[Scored]) -> dict[str, Instance] | None:
    """The instances that were scored, or None where their file is gone or has changed since."""
    source, scored_from = record.get("source"), record.get("fingerprint", {}).get("data", {}).get("sha256", "")
    try:
        if not sha256(path_of(source)).startswith(scored_from):  # type: ignore[arg-type]
            return None
        wanted = {q.query_id for q in scored}
        return {i.id: i for i in open_collection(source)[1]() if i.id in wanted}  # type: ignore[arg-type]
    except (InputError, OSError, AttributeError):  # AttributeError: a run without a source
        return None


def distinct(variants: Sequence[Variant]) -> list[Variant]:
    names = distinct_names([(v.name, v.collection, v.record.get("fingerprint", {})) for v in variants])
    return [replace(v, name=name) for v, name in zip(variants, names, strict=True)]


def distinct_names(runs: Sequence[tuple[str, str, dict[str, Any]]]) -> list[str]:
    """Names of (name, collection, fingerprint): two runs of one scorer on one collection are told apart by what differs."""
    named = []
    for name, collection, mine in runs:
        twins = [other for n, c, other in runs if (n, c) == (name, collection)]
        differing = [key for key in mine if any(twin.get(key) != mine[key] for twin in twins)]
        told = ", ".join(f"{key.replace('_', ' ')} {_plain(mine[key])}" for key in differing)
        named.append((f"{name} ({told})" if told else name, collection))
    if twice := {key for key in named if named.count(key) > 1}:
        raise InputError([f"{name} on {collection} is given more than once. Name each run once." for name, collection in twice])
    return [name for name, _ in named]


def settings(variant: Variant) -> list[tuple[str, str]]:
    """The settings of a run, as (term, text)."""
    record, made = variant.record, variant.record.get("fingerprint", {})
    cutoff, scoring = variant.measured.cutoff, record.get("coverage", {})
    used = cutoff["how"] if cutoff["value"] is None else f"{cutoff['value']:.4g}, {cutoff['how']}"
    if "fitted_on" in cutoff:
        used += (
            f"; fitted on {cutoff['fitted_on']} queries in {cutoff['canonical']}, "
            f"measured on the other {cutoff['measured_on']} (split seed {cutoff['seed']})"
        )
    cut = [
        f"only the first {made[key]} {what}"
        for key, what in (("queries", "queries"), ("pool", "candidates of each pool"))
        if made.get(key)
    ]
    starts = starts_of(record)
    sizes = sorted({len(q.candidate_ids) for q in variant.scored})
    told = {
        "scorer": _plain(made.get("scorer", record.get("name"))),
        "capabilities": _plain(record.get("capabilities")),
        "collection": f"{record.get('collection')} ({TASK_LABELS[variant.task]}), from {record.get('source', 'a score file')}",
        "data checksum": made.get("data", {}).get("sha256"),
        "part scored": "; ".join(cut) or "the whole collection",
        "queries": f"{variant.measured.coverage['queries']} scored",
        "candidates": f"{sizes[0]} per query" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} per query",
        "permutations": ", ".join(map(str, variant.measured.coverage["permutations"]))
        + (" per query, beside the first-stage order" if variant.scored[0].canonical is not None else " per query"),
        "served as": f"the mean of {variant.serving_permutations} permutations" if variant.serving_permutations > 1 else None,
        "permutation seed": f"{made['seed']} ({made['scheme']})" if "seed" in made else None,
        "width": "the whole pool" if "width" in made and made["width"] is None else made.get("width"),
        "characters kept": "all" if "chars" in made and made["chars"] is None else made.get("chars"),
        "partition": made.get("partition"),
        "markers": made.get("markers"),
        "placeholder": made.get("placeholder"),
        "instruction": made.get("instruction"),
        "prompt hash": made.get("prompt_hash"),
        "cutoff": used,
        "scoring": f"{scoring['windows']:,} windows in {scoring['seconds']:,} s" if "windows" in scoring else None,
        "versions": _plain(record.get("versions")),
        "endpoint": " then ".join(dict.fromkeys(start.endpoint for start in starts if start.endpoint)),
        "watched files": "; ".join(dict.fromkeys(f"{f} {d}" for start in starts for f, d in start.files.items())),
        "not watched": " ".join(unwatched(record)),
        "scored": " ".join(start_remarks(record)),
        "created": record.get("created"),
    }
    return [(term, str(text)) for term, text in told.items() if text not in (None, "")]


def left_out(variant: Variant) -> list[str]:
    """Everything that is in no mean, counts as 0 or was cut, by name."""
    scoring, measured = variant.record.get("coverage", {}), variant.measured.coverage
    asked = scoring.get("queries", measured["queries"])
    found = {
        f"of {asked} queries could not be scored and are in no mean": [
            f"{f['query_id']} ({f['reason']})" for f in scoring.get("failed", [])
        ],
        f"of {asked} queries have no judgement and are in no quality mean": measured["unjudged"],
        f"of {asked} queries have no relevant candidate in the pool; their quality counts as 0": measured["without_relevant"],
        "windows were cut to fit the model": [
            f"{s['query_id']}, window {s['window']}, {s['chars']} characters kept" for s in scoring.get("shrunk", [])
        ],
    }
    return [f"{len(names)} {what}: {'; '.join(names)}." for what, names in found.items() if names]


def _plain(value: Any) -> str:
    """A setting as a person reads it."""
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_plain(v)}" for key, v in value.items() if v is not None)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "default"}[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
