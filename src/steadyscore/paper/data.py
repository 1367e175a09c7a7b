"""The collections of a scale: which takes the place of a paper's, parts of it and rearranged pools, and how large each is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..collection import Source, open_collection, write
from ..collection.catalogue import CATALOGUE
from ..errors import InputError
from ..scoring.perturbation import forced_position, score_noise, strongest_candidate
from ..terms import Instance
from ..window.presentation import generator
from ..window.prompt import shown
from .names import COLLECTIONS, TaskKind, task_of
from .recipe import Arrangement, Request
from .scale import Choices

EMBEDDED: dict[TaskKind, tuple[str, int]] = {
    "passage_reranking": ("passages", 4),
    "multidoc_qa": ("multidoc_qa", 3),
    "response_ranking": ("responses", 5),
}
"""The embedded collection of a task, and the parts into which the tiny scale cuts it."""
CLAIMS = ("climate-fever", "scifact")


def embedded_part(collection: str) -> tuple[str, int, int]:
    """Embedded collection, part and number of parts that take a paper collection's place at the tiny scale."""
    if collection in CLAIMS:
        return "claims", CLAIMS.index(collection), len(CLAIMS)
    name, parts = EMBEDDED[task_of(collection)]
    members = [c for c in COLLECTIONS if task_of(c) == task_of(collection) and c not in CLAIMS]
    return name, members.index(collection) % parts, parts


@dataclass(frozen=True)
class Content:
    """What a run, a label set or an adapter is, as JSON; the key follows from it."""

    value: dict[str, Any]

    @cached_property
    def key(self) -> str:
        return hashlib.blake2b(json.dumps(self.value, sort_keys=True).encode(), digest_size=10).hexdigest()


def data_of(request: Request, choices: Choices) -> Content:
    """The collection of a run: the user's, the paper's, or the part of an embedded one that takes its place."""
    collection, arranged = request.collection, {"arrangement": request.arrangement, "first_stage": request.first_stage}
    is_other_stage = bool(request.first_stage) and choices.scale.name == "paper"  # made with the data, not by rearranging it
    if (given := choices.collections.get(collection)) and not is_other_stage:
        return Content({"collection": given, "part": None, **arranged})
    if choices.scale.name == "paper":
        name = f"{collection}-{request.first_stage}" if request.first_stage else collection
        return Content({"collection": name, "part": None, "arrangement": request.arrangement, "first_stage": ""})
    name, part, parts = embedded_part(collection)
    return Content({"collection": name, "part": [part, parts] if choices.scale.is_planted else None, **arranged})


# -- parts and rearranged pools

SEED = 0


def open_data(data: Content, folder: Path) -> Source:
    """The collection of a run; one that is derived is written into `folder` first."""
    value = data.value
    if not is_derived(data):
        return open_collection(value["collection"])
    file = folder / f"{data.key}.jsonl"
    if not file.exists():
        source = open_collection(value["collection"])
        details = {**(source.collection.details or {}), "derived": dict(value)}
        details.pop("sha256", None)
        write(file, replace(source.collection, name=derived_name(data), details=details), derive(source, data))
    return open_collection(file)


def is_derived(data: Content) -> bool:
    """Whether it is a part of a collection, or has pools in another order."""
    return data.value["part"] is not None or data.value["arrangement"] != "first-stage" or bool(data.value["first_stage"])


def derived_name(data: Content) -> str:
    """`passages, part 1 of 4, reverse`."""
    value = data.value
    parts = [value["collection"]]
    if value["part"] is not None:
        parts.append(f"part {value['part'][0] + 1} of {value['part'][1]}")
    parts += [word for word in (value["first_stage"], value["arrangement"]) if word not in ("", "first-stage")]
    return ", ".join(map(str, parts))


def derive(source: Source, data: Content) -> Iterator[Instance]:
    """The instances of a part, each pool arranged. A pool without a relevant candidate has no forced position and stays."""
    value = data.value
    for instance in part_of(source, value["part"]):
        if value["first_stage"]:
            instance = arranged(instance, "noise", value["first_stage"])
        yield arranged(instance, value["arrangement"])


def part_of(source: Source, part: Sequence[int] | None) -> Iterator[Instance]:
    """Every instance, or those of one part of so many."""
    return (one for place, one in enumerate(source.instances()) if part is None or place % part[1] == part[0])


def arranged(instance: Instance, arrangement: Arrangement, tag: str = "") -> Instance:
    """An instance with its pool in another order, ranked anew. The candidates stay the same."""
    order = pool_order(instance, arrangement, tag)
    ranked = (replace(instance.pool[int(i)], rank=place, score=None) for place, i in enumerate(order, start=1))
    return replace(instance, pool=tuple(ranked))


def pool_order(instance: Instance, arrangement: Arrangement, tag: str = "") -> np.ndarray:
    """Position -> place in the pool as it was."""
    n = len(instance.pool)
    rng = generator(arrangement + tag, SEED, instance.id)
    if arrangement == "reverse":
        return np.arange(n)[::-1]
    if arrangement in ("top", "middle", "bottom"):
        best = strongest_candidate([c.relevance or 0 for c in instance.pool], [c.id for c in instance.pool])
        return np.arange(n) if best is None else forced_position(n, best, arrangement)
    if arrangement == "noise":
        scores = [-float(i) if c.score is None else c.score for i, c in enumerate(instance.pool)]
        return np.asarray(score_noise(scores, 0.3, rng))
    return np.arange(n)


# -- sizes


class Shape(NamedTuple):
    """How large a collection is."""

    queries: int
    pool: float
    characters: float
    """Shown of a candidate, on average; the limit where the collection is not here."""
    is_here: bool

    def cut(self, queries: int | None, pool: int | None, characters: int | None = None) -> Shape:
        """What is left of it under limits; None: no limit."""
        most = (queries or self.queries, pool or self.pool, characters or self.characters)
        return Shape(min(self.queries, most[0]), min(self.pool, most[1]), min(self.characters, most[2]), self.is_here)


@cache
def shape_of_collection(collection: str, part: tuple[int, int] | None = None) -> Shape:
    try:
        source = open_collection(collection)
    except InputError:
        known = CATALOGUE.get(collection.partition(".")[0])
        if known is None:
            return Shape(100, 100, 500, False)
        parts = known.parts.get(collection.partition(".")[2])
        return Shape(parts or known.queries, known.pool, known.chars, False)
    instances = list(part_of(source, part))
    texts = [len(shown(c, source.collection.chars)) for i in instances for c in i.pool]
    return Shape(len(instances), len(texts) / max(len(instances), 1), sum(texts) / max(len(texts), 1), True)


def shape_of(data: Content) -> Shape:
    part = data.value["part"]
    return shape_of_collection(str(data.value["collection"]), None if part is None else (part[0], part[1]))
