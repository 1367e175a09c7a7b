"""Collections made from others: a part of one, or pools in another order. Written once, named by content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..collection import Source, open_collection, write
from ..scoring.perturbation import (
    forced_position,
    score_noise,
    strongest_candidate,
)
from ..terms import Instance
from ..window.presentation import generator
from .jobs import Content
from .recipe import Arrangement

SEED = 0


def open_data(data: Content, folder: Path) -> Source:
    """The collection of a run; one that is derived is written into `folder` first."""
    value = data.value
    if value["part"] is None and value["arrangement"] == "first-stage" and not value["first_stage"]:
        return open_collection(value["collection"])
    file = folder / f"{data.key}.jsonl"
    if not file.exists():
        source = open_collection(value["collection"])
        details = {**(source.collection.details or {}), "derived": dict(value)}
        details.pop("sha256", None)
        write(file, replace(source.collection, name=derived_name(data), details=details), derive(source, data))
    return open_collection(file)


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
    for place, instance in enumerate(source.instances()):
        if value["part"] is not None and place % value["part"][1] != value["part"][0]:
            continue
        if value["first_stage"]:
            instance = arranged(instance, "noise", value["first_stage"])
        yield arranged(instance, value["arrangement"])


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
