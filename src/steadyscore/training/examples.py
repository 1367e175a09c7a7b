"""Data shaping for training: windows with targets, the views of a window, and which windows a step sees.

Everything is a function of (seed, epoch or step, query id, window): no generator is carried along, so a run that was
killed, or that runs on another number of processes, sees the same windows in the same orders.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..collection import Source, open_collection
from ..errors import InputError
from ..scoring.config import Cut
from ..scoring.score import cut_instances
from ..terms import Collection, Instance, Markers, Window
from ..window.presentation import generator, permutation, permutations, windows
from .labels import Label, first_orders, from_judgements, is_subset, labelled_data, read_labels, refuse_unlabelled, target
from .objectives import inverse_propensity
from .recipe import Plan, Schedule, TrainConfig, make_schedule, resolve_plan

log = logging.getLogger("steadyscore")

TRAINING_MARKERS: tuple[Markers, ...] = ("numeric", "letters", "doc")
"""Marker schemes a marker-consistency student sees; roman and random3 stay unseen (§C.1)."""


@dataclass(frozen=True, slots=True)
class Example:
    """One window of one training query, with what the teacher says of its candidates."""

    instance: Instance
    window: Window
    target: np.ndarray
    """(b,) grades from 0 to 3, in the window's own slot order."""
    grades: np.ndarray | None
    """(b, 4) the teacher's distribution, where it gives one."""
    slots: np.ndarray
    """(b,) first-stage slot of each candidate: what DebiasFirst's weights follow."""


@dataclass(frozen=True, slots=True)
class View:
    """One presentation of an example."""

    window: Window
    columns: np.ndarray
    """(b,) candidate -> its slot in this view: `scores[columns]` stand in the example's order."""
    markers: Markers | None = None


def examples(
    instances: Iterable[Instance],
    labels: dict[str, Label],
    widths: Sequence[int],
    *,
    teacher_orders: int | None,
    seed: int,
    pool_views: int = 0,
) -> list[Example]:
    """The windows of every labelled query, in first-stage order; with `pool_views`, of that many shuffled pools each.

    Labels must cover the pool: every query and candidate without one is named at once.
    """
    windows_of_all: list[Example] = []
    missing: list[str] = []
    for instance in instances:
        label = labels.get(instance.id)
        if label is None:
            missing.append(f"query {instance.id} has no label")
            continue
        if absent := sorted({c.id for c in instance.pool} - set(label.candidate_ids)):
            count = f"{len(absent)} of {len(instance.pool)} candidates"
            missing.append(f"query {instance.id} has no label for {count}: {', '.join(absent[:5])}")
            continue
        orders = [permutation(len(instance.pool), seed=seed, query_id=instance.id, index=v) for v in range(pool_views)]
        windows_of_all += _query_examples(instance, first_orders(label, teacher_orders), widths, seed, orders)
    refuse_unlabelled(missing)
    return windows_of_all


def _query_examples(
    instance: Instance, label: Label, widths: Sequence[int], seed: int, orders: Sequence[np.ndarray]
) -> list[Example]:
    """The windows of one query in each of these orders; without any, in first-stage order."""
    n = len(instance.pool)
    grades_by_id = dict(zip(label.candidate_ids, target(label), strict=True))
    shares_by_id = None if label.grades is None else dict(zip(label.candidate_ids, label.grades, strict=True))
    first_slots = np.concatenate([np.arange(len(w.candidates)) for w in cut(np.arange(n), widths, seed, instance.id)])
    windows_of_query = []
    for window in (w for order in orders or [np.arange(n)] for w in cut(order, widths, seed, instance.id)):
        ids = [instance.pool[i].id for i in window.candidates]
        windows_of_query.append(
            Example(
                instance,
                window,
                target=np.array([grades_by_id[i] for i in ids]),
                grades=None if shares_by_id is None else np.array([shares_by_id[i] for i in ids]),
                slots=first_slots[list(window.candidates)],
            )
        )
    return windows_of_query


def cut(order: np.ndarray, widths: Sequence[int], seed: int, query_id: str) -> list[Window]:
    """Contiguous windows; with several widths, each window's is drawn by a hash of (seed, query, window)."""
    if len(widths) == 1:
        return windows(order, widths[0])
    cuts: list[Window] = []
    start = 0
    while start < len(order):
        width = widths[int(generator("width", seed, query_id, len(cuts)).integers(len(widths)))]
        cuts.append(Window(len(cuts), tuple(int(i) for i in order[start : start + width])))
        start += width
    return cuts


def views(example: Example, count: int, *, seed: int, epoch: int, shuffled: bool, marked: bool = False) -> list[View]:
    """`count` presentations of a window: within-window shuffles without repeats while b! allows it (§B.3), other markers,
    or (neither) the window as it stands.
    """
    b = len(example.window.candidates)
    key = f"{epoch}\x1f{example.instance.id}\x1f{example.window.index}"
    orders = permutations(b, count, seed=seed, query_id=key) if shuffled else np.tile(np.arange(b), (count, 1))
    schemes: list[Markers | None] = [None] * count
    if marked:
        drawn = generator("markers", seed, key).permutation(len(TRAINING_MARKERS))
        schemes = [TRAINING_MARKERS[drawn[i % len(drawn)]] for i in range(count)]
    return [
        View(Window(example.window.index, tuple(example.window.candidates[i] for i in order)), np.argsort(order), scheme)
        for order, scheme in zip(orders, schemes, strict=True)
    ]


def step_indices(step: int, batch: int, total: int, seed: int) -> list[tuple[int, int]]:
    """(epoch, example) of every window of an optimizer step: epochs are permutations of all examples, end to end."""
    places = range(step * batch, (step + 1) * batch)
    orders = {epoch: generator("epoch", seed, epoch).permutation(total) for epoch in {place // total for place in places}}
    return [(place // total, int(orders[place // total][place % total])) for place in places]


def slot_counts(examples: Sequence[Example], relevant: dict[str, set[str]]) -> np.ndarray:
    """How many relevant candidates stand in each first-stage slot, (B,)."""
    counts = np.zeros(max(int(example.slots.max()) for example in examples) + 1)
    for example in examples:
        wanted = relevant.get(example.instance.id, set())
        for i, slot in zip(example.window.candidates, example.slots, strict=True):
            counts[slot] += example.instance.pool[i].id in wanted
    return counts


# -- what a run trains on


@dataclass(frozen=True, slots=True)
class Data:
    """What a run trains and is evaluated on."""

    plan: Plan
    schedule: Schedule
    collection: Collection
    examples: list[Example]
    held_out: list[Instance]
    queries: int
    slot_weights: np.ndarray | None


def training_data(config: TrainConfig) -> Data:
    """Everything that is wrong with data and labels is raised here, for a run and for its estimate alike."""
    source = open_collection(config.data)
    plan = resolve_plan(config, source.collection)
    pools = list(cut_instances(source.instances(), Cut(config.queries, config.pool)))
    if config.held_out >= len(pools):
        raise InputError(f"held_out {config.held_out} leaves nothing of {len(pools)} queries to train on. Hold out fewer.")
    held_out = pools[len(pools) - config.held_out :] if config.held_out else []
    pools = pools[: len(pools) - config.held_out]
    if config.held_out_data:
        held_out = list(cut_instances(open_collection(config.held_out_data).instances(), Cut(None, config.pool)))
    if held_out and not any(instance.judgements() for instance in held_out):
        raise InputError(
            "no held-out query has judgements, so its ranking quality is unknown. Give held-out data with relevance."
        )
    labels = _labels(config, pools)
    if plan.objective.teacher_orders is None and labels and all(len(label.vectors) == 1 for label in labels.values()):
        raise InputError(
            f"the labels of {config.labels} are of one order, so {config.objective} is single_order. "
            "Name it so, or label with --teacher-orders 2 or more."
        )
    _remark_other_data(config, source)
    if has_partial_labels(config):  # a query that nobody judged, or that is outside the subset, teaches nothing
        pools = [instance for instance in pools if instance.id in labels]
    if not any(instance.id in labels for instance in pools):
        raise InputError(
            f"no training query of {config.data} has a label in {config.labels}. "
            "Name labels of the same data, or lower --held-out."
        )
    windows = examples(
        pools, labels, plan.widths, teacher_orders=plan.teacher_orders, seed=config.seed, pool_views=plan.pool_views
    )
    if config.grade_share and any(example.grades is None for example in windows):
        raise InputError(
            "grade_share needs the teacher's grade distribution, and these labels have none for the orders used: "
            "they keep that of a language model, averaged over all its orders. Set teacher_orders to as many as were labelled, "
            "label with a language model under as many as are used, or set grade_share to 0."
        )
    weights = None
    if plan.objective.has_slot_weights:
        weights = inverse_propensity(slot_counts(windows, _relevant(config, pools, labels)))
    return Data(plan, make_schedule(plan, len(windows)), source.collection, windows, held_out, len(pools), weights)


def has_partial_labels(config: TrainConfig) -> bool:
    """Whether only some queries are meant to have labels: judged ones, or a subset."""
    return config.labels == "judgements" or is_subset(config.labels)


def _labels(config: TrainConfig, pools: list[Instance]) -> dict[str, Label]:
    if config.labels != "judgements":
        return {label.query_id: label for label in read_labels(config.labels)}
    labels = {instance.id: from_judgements(instance, config.judged_top) for instance in pools}
    judged = {query_id: label for query_id, label in labels.items() if label is not None}
    if not judged:
        raise InputError(f"no query of {config.data} has a judged candidate. Label it with: steadyscore label --scorer ...")
    return judged


def _remark_other_data(config: TrainConfig, source: Source) -> None:
    """Labels go by id, so those of other texts would be learned unseen. A part of the labelled file is another file, too."""
    made_of = None if config.labels == "judgements" else labelled_data(config.labels)
    if made_of and made_of.sha256 != source.digest:
        log.warning(
            "%s was made from %s with other contents than %s: ids are matched and texts are not. Label again if texts changed.",
            config.labels,
            made_of.name,
            config.data,
        )


def _relevant(config: TrainConfig, pools: list[Instance], labels: dict[str, Label]) -> dict[str, set[str]]:
    if config.propensity == "judgements":
        return {instance.id: {c.id for c in instance.pool if c.relevance} for instance in pools}
    if any(label.first is None for label in labels.values()):
        raise InputError(
            "propensity rankings needs the teacher's ranking of the first-stage order. "
            "Label with --rank-first-stage, or use propensity judgements."
        )
    return {query_id: {label.candidate_ids[i] for i in np.flatnonzero(label.first)} for query_id, label in labels.items()}  # type: ignore[arg-type]
