"""What studies share that score: one scorer on one collection in several variants, each into a run folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..audits.audit import ScorerInput, open_backend
from ..collection import Source
from ..engines import Recording
from ..errors import InputError
from ..machine.console import bar
from ..machine.places import Place
from ..runs.folder import Run
from ..scoring.config import in_precision_of, scorer_for
from ..scoring.score import score_collection
from ..scoring.scorer import PoolScorer

Name = TypeVar("Name", bound=str)


class Variant(NamedTuple):
    """What one run of a study scores."""

    scorer: PoolScorer
    source: Source
    may_fail: bool = False
    """Whether the study goes on where no query could be scored."""


def open_one(given: ScorerInput, study: str) -> Source:
    """The collection of a study that takes one, and one scorer; what is wrong with them is said at once."""
    if len(given.scorers) > 1:
        raise InputError(f"{study} takes one scorer at a time, and {len(given.scorers)} were given.")
    (source,) = given.open_sources()
    return source


def run_variants(
    given: ScorerInput, source: Source, variants: Callable[[PoolScorer], Mapping[Name, Variant]], folder: Place
) -> Iterator[tuple[Name, Run]]:
    """Load the scorer and score what `variants` makes of it, each into the folder of its name; every run when it is complete."""
    ((name, scorer),) = given.scorers.items()
    before = sorted(folder.glob("*")) if isinstance(folder, Path) else []
    backend = open_backend(name, scorer, in_precision_of(before, scorer, given.options))
    if isinstance(backend, Recording):
        raise InputError(
            f"{backend.name} holds scores and reads no text, so it scores no variant of one. Name what gave the scores; "
            "finished runs of a study are read with --runs."
        )
    for variant, (served, shown, may_fail) in variants(scorer_for(backend, source.collection, given.config)).items():
        progress, place = bar(f"{name} on {shown.collection.name}, {variant}", given.quiet), folder / variant
        how, command = given.config, list(given.command)
        yield variant, score_collection(served, shown, place, how, command=command, progress=progress, may_fail=may_fail)
