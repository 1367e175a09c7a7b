"""What studies share that score: one scorer on one collection in several variants, each into a run folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..audits.audit import name_scorers, open_backend, open_sources
from ..collection import Data, Source
from ..engines import EngineOptions, Recording
from ..errors import InputError
from ..machine.console import bar
from ..machine.places import Place
from ..runs.folder import Run
from ..scoring.config import AuditConfig
from ..scoring.opening import check_use, in_precision_of, scorer_for
from ..scoring.score import check_query_ids, score_collection
from ..scoring.scorer import PoolScorer

Name = TypeVar("Name", bound=str)


class Opened(NamedTuple):
    """The scorer of a study, which is not loaded yet, and its collection."""

    name: str
    scorer: Any
    """An address, or an object of Python."""
    source: Source


class Variant(NamedTuple):
    """What one run of a study scores."""

    scorer: PoolScorer
    source: Source
    may_fail: bool = False
    """Whether the study goes on where no query could be scored."""


def open_one(scorer: Any, data: Data, config: AuditConfig, options: EngineOptions | None, study: str) -> Opened:
    """The scorer and the collection of a study that takes one of each; what is wrong with them is said at once."""
    (name, one), *others = name_scorers(scorer).items()
    if others:
        raise InputError(f"{study} takes one scorer at a time, and {len(others) + 1} were given.")
    (source,) = open_sources({name: one}, [data], config)
    check_query_ids([source], config.cut)
    check_use({name: one}, config, options)
    return Opened(name, one, source)


def run_variants(
    opened: Opened, variants: Callable[[PoolScorer], Mapping[Name, Variant]], config: AuditConfig, folder: Place,
    options: EngineOptions | None = None, *, quiet: bool = False, command: Sequence[str] = (),
) -> Iterator[tuple[Name, Run]]:  # fmt: skip
    """Load the scorer and score what `variants` makes of it, each into the folder of its name; every run when it is complete."""
    before = sorted(folder.glob("*")) if isinstance(folder, Path) else []
    backend = open_backend(opened.name, opened.scorer, in_precision_of(before, opened.scorer, options or EngineOptions()))
    if isinstance(backend, Recording):
        raise InputError(
            f"{backend.name} holds scores and reads no text, so it scores no variant of one. Name what gave the scores; "
            "finished runs of a study are read with --runs."
        )
    for name, (scorer, source, may_fail) in variants(scorer_for(backend, opened.source.collection, config)).items():
        progress = bar(f"{opened.name} on {source.collection.name}, {name}", quiet)
        yield (
            name,
            score_collection(scorer, source, folder / name, config, command=list(command), progress=progress, may_fail=may_fail),
        )
