"""What a page says of how its runs were made: settings in words, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.audit import Audit
from ..results.names import in_words
from ..results.notes import fitting_words
from ..scoring.starts import start_remarks, starts_of

LISTED = 100
"""Queries or windows that one sentence names."""


def describe_settings(audit: Audit) -> list[tuple[str, str]]:
    """The settings of a run and what its means are without, as (term, text)."""
    record, made = audit.record, audit.record.fingerprint
    cutoff, scoring = audit.measured.cutoff, record.coverage
    used = cutoff.how if cutoff.value is None else f"{cutoff.value:.4g}, {cutoff.how}"
    if cutoff.fitted_on is not None:
        used += f"; {fitting_words(cutoff)} (split seed {cutoff.seed})"
    parts = ((made.queries, "queries"), (made.pool, "candidates of each pool"))
    cut = [f"only the first {count} {what}" for count, what in parts if count]
    cut += [f"{len(made.query_ids)} queries by id"] if made.query_ids else []
    starts = starts_of(record)
    terms = {
        "scorer": in_words(made.keys.get("scorer", record.name)),
        "capabilities": in_words(record.capabilities and record.capabilities.to_json()),
        "collection": f"{record.collection} ({audit.task.label}), from {record.source or 'a score file'}",
        "data checksum": made.data and made.data.sha256,
        "part scored": "; ".join(cut) or "the whole collection",
        "queries": f"{audit.measured.coverage.queries} scored",
        "candidates": f"{pool_sizes(audit)} per query",
        "permutations": ", ".join(map(str, audit.measured.coverage.permutations))
        + (" per query, beside the first-stage order" if audit.queries[0].first_stage is not None else " per query"),
        "served as": f"the mean of {served} permutations" if (served := audit.view.serving_permutations) > 1 else None,
        "permutation seed": None if made.seed is None else f"{made.seed} ({made.scheme})",
        "width": "the whole pool" if "width" in made.keys and made.width is None else made.width,
        "characters kept": "all" if "chars" in made.keys and made.chars is None else made.chars,
        "partition": made.partition,
        "markers": made.markers,
        "placeholder": made.placeholder,
        "instruction": made.instruction,
        "prompt hash": made.prompt_hash,
        "cutoff": used,
        "scoring": f"{scoring.windows:,} windows in {scoring.seconds:,} s" if scoring and scoring.seconds is not None else None,
        "versions": in_words(record.versions),
        "endpoint": " then ".join(dict.fromkeys(start.endpoint for start in starts if start.endpoint)),
        "watched files": "; ".join(dict.fromkeys(f"{f} {d}" for start in starts for f, d in start.files.items())),
        "scored": " ".join(start_remarks(record)),
        "created": record.created,
    }
    left_out = describe_left_out(audit) or ["nothing left out: every query was scored and has a relevant candidate"]
    return [
        *((term, str(text)) for term, text in terms.items() if text not in (None, "")),
        *(("coverage", text) for text in left_out),
    ]


def pool_sizes(audit: Audit) -> str:
    sizes = sorted({len(query.candidate_ids) for query in audit.queries})
    return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def describe_left_out(audit: Audit) -> list[str]:
    """Everything that is in no mean, counts as 0 or was cut, by name; of many the first ones."""
    scoring, measured = audit.record.coverage, audit.measured.coverage
    asked = measured.queries if scoring is None else scoring.queries
    by_reason = {
        f"of {asked} queries could not be scored and are in no mean": [
            f"{query} ({why})" for query, why in measured.failed.items()
        ],
        f"of {asked} queries have no judgement and are in no quality mean": measured.unjudged,
        f"of {asked} queries have no relevant candidate in the pool; their quality counts as 0": measured.without_relevant,
        f"of {asked} queries have one candidate and are in no measure of movement": measured.left_out.get("moves", []),
        "windows were cut to fit the model": [
            f"{cut.query_id}, window {cut.window}, {cut.chars} characters kept" for cut in (scoring and scoring.shrunk) or []
        ],
    }
    return [f"{len(names)} {what}: {_listed(names)}." for what, names in by_reason.items() if names]


def _listed(names: Sequence[str]) -> str:
    more = f"; and {len(names) - LISTED:,} more, which status.json and summary.json name" if len(names) > LISTED else ""
    return "; ".join(names[:LISTED]) + more
