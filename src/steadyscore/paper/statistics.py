"""What a cell can be: statistics by name, each a function of a cell and the library, made of the pure ones in `collate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from ..collection import open_collection
from ..errors import InputError
from ..measures import decomposition, pairing
from ..measures.answers import EVIDENCE
from ..measures.intervals import mean_interval, median_interval
from ..measures.pairing import Observation, align, combine, discordance_of
from ..readers.outputs import compare_on_same_evidence
from ..studies.width import score_width_effect
from ..tasks import TASKS
from ..terms import Array
from .collate import (
    Basis,
    Value,
    closed_value,
    equal_quality_example,
    extreme_value,
    is_primacy,
    is_u_shape,
    lead_value,
    mean_value,
    wins_value,
)
from .data import data_of, derive
from .jobs import PLACES, teacher_side
from .library import At, Library, MissingRun, better_of
from .names import bases_in
from .recipe import Cell, Request

Statistic = Callable[[Cell, Library], Value]
Pick = Callable[[Sequence[float]], float]
"""`min` or `max`."""


def observations(cell: Cell, library: Library) -> list[Observation]:
    """The cell's weighted sum of sides for every base, collection and seed. A side with one seed is paired with all."""
    sides = [(sign, library.side(side)) for sign, side in cell.sides()]
    count = max(len(side.seeds) for _, side in sides)
    sums: list[Observation] = []
    absent: list[tuple[int, str]] = []
    for base, collection, i in product(bases_in(cell.base), library.choices.members(cell.collections), range(count)):
        terms = []
        try:
            for sign, side in sides:
                own = side.base if side.base and len(bases_in(side.base)) == 1 else base
                seed = side.seeds[min(i, len(side.seeds) - 1)]
                at = At(replace(side, collections=collection, seeds=()), own, seed, collection)
                terms.append((sign, library.observation(at, cell.measure)))
            sums.append(replace(combine(terms), base=base, seed=i))
        except MissingRun as missing:
            absent.append((i, str(missing)))
    if absent:
        raise MissingRun(_half_finished(absent, count))
    return sums


def _half_finished(absent: list[tuple[int, str]], count: int) -> str:
    """One sentence about what is not there; a mean over half of the seeds is never given."""
    reason = absent[0][1]
    complete = set(range(count)) - {i for i, _ in absent}
    if count > 1 and complete:
        reason = f"{len(complete)} of {count} seeds are complete: {reason}"
    return reason if len(absent) == 1 else f"{reason[:-1]}, and {len(absent) - 1} more are missing."


def mean(cell: Cell, library: Library) -> Value:
    return mean_value(observations(cell, library), cell.scheme, cell.draws, library.method)


def count(cell: Cell, library: Library) -> Value:
    """Queries that the mean is taken over."""
    value = mean(cell, library)
    return Value(float(value.basis.queries), basis=value.basis)


def wins(cell: Cell, library: Library, better: str = "") -> Value:
    return wins_value(observations(cell, library), better or better_of(cell.measure))


def extreme(cell: Cell, library: Library, pick: Pick) -> Value:
    return extreme_value(observations(cell, library), pick)


def _of(cell: Cell, library: Library, system: str, measure: str = "") -> list[Observation]:
    return observations(replace(cell, system=system, measure=measure or cell.measure, rivals=()), library)


def setting_leads(cell: Cell, library: Library) -> Value:
    """Collections on which a readout or a placeholder is the best; `rivals` are the other values of the setting `second`."""
    variants, own = [], str(getattr(cell, cell.second))
    for value in dict.fromkeys((own, *cell.rivals)):
        change: dict[str, Any] = {"rivals": (), cell.second: value}
        variants += [replace(o, system=value) for o in observations(replace(cell, **change), library)]
    return lead_value(variants, list(dict.fromkeys(o.system for o in variants)), own, better_of(cell.measure))


def percent_closed(cell: Cell, library: Library) -> Value:
    """Of the gap between the two rivals, single-order distillation and OC-SFT."""
    single, oc = (mean_value(_of(cell, library, rival)) for rival in cell.rivals)
    return closed_value(single, mean_value(_of(cell, library, cell.system)), oc)


def discordant(cell: Cell, library: Library, how: Literal["count", "pairs"]) -> Value:
    """Collections whose best rival by one measure is not the best by the other; or the median share of differing pairs."""
    first, second = (
        [o for rival in cell.rivals for o in _of(cell, library, rival, measure)] for measure in (cell.measure, cell.second)
    )
    winners = discordance_of(first, second, cell.rivals, (better_of(cell.measure), better_of(cell.second)))
    basis = Basis(0, winners.collections, 1, 1)
    if how == "pairs":
        return Value(winners.median, basis=basis)
    return Value(float(winners.discordant), basis=basis, of=winners.collections)


def spread_of_rivals(cell: Cell, library: Library) -> Value:
    """Lowest to highest mean among several systems."""
    means = [mean_value(_of(cell, library, rival)) for rival in cell.rivals]
    values = [value.value for value in means if value.value is not None]
    return Value(max(values) - min(values), min(values), max(values), basis=means[0].basis)


def seed_extreme(cell: Cell, library: Library, pick: Pick) -> Value:
    value = mean(cell, library)
    return replace(value, value=pick(value.by_seed), low=None, high=None, sd=None)


def size(cell: Cell, library: Library) -> Value:
    """Queries of a collection on this machine, or of the part that takes its place."""
    data = data_of(Request("off-the-shelf", "", 0, cell.collections), library.choices)
    queries = sum(1 for _ in derive(open_collection(data.value["collection"]), data))
    return Value(float(queries), basis=Basis(queries, 1, 0, 0))


# -- studies


def slot_value(cell: Cell, library: Library) -> Value:
    """psi(p): what slot p (counted from 1) adds to a score, mean over collections; `second` gold: to relevant candidates."""
    slot, profiles, queries = int(cell.at) - 1, [], 0
    for place in library.places(cell):
        scored = library.queries(place)
        profile = decomposition.slot_profile(scored, gold=cell.second == "gold").profile
        queries += len(scored)
        if slot < len(profile):
            profiles.append(profile[slot])
    if not profiles or np.isnan(profiles).all():
        return Value(reason=f"no window has {slot + 1} slots at this scale")
    return Value(float(np.nanmean(profiles)), basis=Basis(queries, len(profiles), 1, 1))


def relative_residual(cell: Cell, library: Library) -> Value:
    """Residual variance relative to the rival's, collection by collection."""
    own = observations(cell, library)
    other = {o.collection: o.mean for o in _of(cell, library, cell.rivals[0])}
    ratios = [replace(o, values=o.values / other[o.collection]) for o in own]
    return mean_value(ratios, "collections", cell.draws, library.method)


def width_effect(cell: Cell, library: Library) -> Value:
    """Score-level width effect of the cell's system against itself at width 1; of the second term, subtracted."""
    total: dict[str, float] = {}
    for sign, side in cell.sides():
        for at in library.places(cell, side):
            alone = library.queries(at._replace(side=replace(at.side, width=1, permutations=1)))
            effect = score_width_effect(library.queries(at), alone)
            total[at.collection] = total.get(at.collection, 0.0) + sign * effect
    shift = mean_interval([[value] for value in total.values()], scheme="collections", draws=cell.draws, method=library.method)
    many = len(total) > 1
    return Value(shift.value, shift.low if many else None, shift.high if many else None, basis=Basis(0, len(total), 1, 1))


def _shared_values(observations: Sequence[Observation]) -> Array:
    """(S, Q) values on the queries that all have; undefined where one is."""
    values = np.stack([o.values for o in align(observations)])
    values[:, np.isnan(values).any(axis=0)] = np.nan
    return values


def gain(cell: Cell, library: Library, part: str) -> Value:
    """How quality moves query by query from the rival's, in one of the parts of `Gains`."""
    after = observations(cell, library)
    before, shaky = (_of(cell, library, cell.rivals[0], measure) for measure in ("", "tau_psi"))
    value = getattr(pairing.gains(*_shared_values([before[0], after[0], shaky[0]])), part)
    basis = mean_value(after).basis
    return Value(basis=basis, reason="fewer than three queries vary") if np.isnan(value) else Value(value, basis=basis)


def preference(cell: Cell, library: Library, decides: Callable[[Array, Array, Array], bool]) -> Value:
    """Collections on which the place of the strongest candidate decides quality."""
    counts = []
    for collection in library.choices.members(cell.collections):
        at = replace(cell, collections=collection)
        places = [observations(replace(at, arrangement=place), library)[0] for place in PLACES]
        counts.append(decides(*_shared_values(places)))
    return Value(float(sum(counts)), basis=Basis(0, len(counts), 1, 1), of=len(counts))


def cells(cell: Cell, library: Library) -> Value:
    """Pairs of a base and a collection that the cell has."""
    pairs = {(o.base, o.collection) for o in observations(cell, library)}
    bases, collections = (len({pair[side] for pair in pairs}) for side in (0, 1))
    return Value(float(len(pairs)), basis=Basis(0, collections, 1, bases))


def _seconds(cell: Cell, library: Library, way: int) -> list[Array]:
    """Seconds of every query at a width, collection by collection."""
    return [library.seconds(place, way) for place in library.places(cell)]


def latency(cell: Cell, library: Library) -> Value:
    """Median seconds of a query; of several collections, the median of theirs. `second` names the width that was timed."""
    timed = _seconds(cell, library, int(cell.second))
    return _median(timed[0] if len(timed) == 1 else np.array([np.median(seconds) for seconds in timed]), timed, cell)


def latency_reduction(cell: Cell, library: Library) -> Value:
    """How much less time a query takes than at width 1, as a share: of medians; the median over several collections."""
    timed, alone = _seconds(cell, library, int(cell.second)), _seconds(cell, library, 1)
    shares = [1 - np.median(wide) / np.median(one) for wide, one in zip(timed, alone, strict=True)]
    if len(shares) == 1:
        return Value(float(shares[0]), basis=Basis(len(timed[0]), 1, 1, 1))
    return _median(np.array(shares), timed, cell)


def _median(values: Array, timed: Sequence[Array], cell: Cell) -> Value:
    median = median_interval(values, draws=cell.draws)
    basis = Basis(sum(map(len, timed)), len(timed), 1, 1)
    if len(values) == 1:
        return Value(median.value, basis=basis)
    return Value(median.value, median.low, median.high, basis=basis)


def leader_reversals(cell: Cell, library: Library) -> Value:
    """Permutations that put the cell's system on the other side of its rival than their mean does."""
    quality = library.quality(library.places(cell)[0])
    rival = _of(cell, library, cell.rivals[0])[0].mean
    means = np.nanmean(quality, axis=0)
    return Value(float(pairing.leader_reversals(means, rival)), basis=Basis(len(quality), 1, 1, 1), of=len(means))


def same_evidence(cell: Cell, library: Library) -> Value:
    """Flip of the rival minus that of the cell's system, where both showed the reader the same candidates."""
    before, after = (library.places(cell, cell.side(system=system)) for system in (cell.rivals[0], cell.system))
    matched = []
    for places in zip(before, after, strict=True):
        one, other = ((library.queries(place), library.readings(place).outputs) for place in places)
        matched.append(compare_on_same_evidence(TASKS[library.run(places[0]).record.task], one, other, EVIDENCE))
    values = np.array([getattr(each, cell.second) for each in matched], float)
    if np.isnan(values).all():
        return Value(reason="no query has the same evidence under every permutation")
    return Value(float(np.nanmean(values)), basis=Basis(sum(each.queries for each in matched), len(values), 1, 1))


def teacher_correlation(cell: Cell, library: Library) -> Value:
    """Correlation over teachers of two of: silver_beta and ndcg@10 of the teacher, ndcg@10 of the student."""

    def level(student: str, name: str) -> float:
        at = replace(cell, system=student, measure=name, rivals=())
        value = mean_value(_of(cell, library, student, "ndcg@10")) if name == "student" else teacher_figure(at, library)
        return float(value.value or np.nan)

    correlation = pairing.correlation(*([level(rival, name) for rival in cell.rivals] for name in (cell.measure, cell.second)))
    if np.isnan(correlation):
        return Value(reason="fewer than three teachers vary")
    return Value(correlation, basis=Basis(0, 0, 1, len(cell.rivals)))


def teacher_figure(cell: Cell, library: Library) -> Value:
    """A figure of the teacher of the cell's student, on held-out training pools."""
    side = teacher_side(cell.side())
    at = replace(cell, system=side.system, base=side.base, collections=side.collections)
    return mean_value(observations(at, library), "queries")


def example(cell: Cell, library: Library) -> Value:
    """A query whose two orders are equally good and decide otherwise; `at` says which order, `second` which fact of it."""
    place = library.places(cell)[0]
    cutoff = library.measured(place).cutoff.value
    if cutoff is None:
        return Value(reason="no cutoff was tuned")
    orders = equal_quality_example(library.queries(place), library.readings(place).outputs, cutoff)
    if orders is None:
        return Value(reason="no query has two orders of equal quality that retain different sets")
    order = orders[int(cell.at) - 1]
    if cell.second == "documents":
        return Value(text="".join("●" if kept else "○" for kept in order.kept), parts=tuple(map(float, order.kept)))
    fact = order.kept.sum() if cell.second == "retained" else getattr(order, cell.second)
    return Value(text=fact) if isinstance(fact, str) else Value(float(fact), basis=Basis(1, 1, 1, 1))


STATISTICS: dict[str, Statistic] = {
    "below": partial(wins, better="lower"),
    "above": partial(wins, better="higher"),
    "minimum": partial(extreme, pick=min),
    "maximum": partial(extreme, pick=max),
    "seed_minimum": partial(seed_extreme, pick=min),
    "seed_maximum": partial(seed_extreme, pick=max),
    "discordant": partial(discordant, how="count"),
    "disagreement": partial(discordant, how="pairs"),
    "gain_correlation": partial(gain, part="correlation"),
    "improving": partial(gain, part="improving"),
    "regressing": partial(gain, part="regressing"),
    "primacy": partial(preference, decides=is_primacy),
    "u_shape": partial(preference, decides=is_u_shape),
    **{
        function.__name__: function
        for function in (
            mean, count, wins, setting_leads, percent_closed, spread_of_rivals, size, slot_value, relative_residual,
            width_effect, cells, latency, latency_reduction, leader_reversals, same_evidence, teacher_figure,
            teacher_correlation, example,
        )
    },
}  # fmt: skip


def value_of(cell: Cell, library: Library) -> Value:
    """The number of a cell, or the reason why there is none."""
    if cell.text:
        return Value(text=cell.text)
    try:
        return STATISTICS[cell.statistic](cell, library)
    except InputError as error:
        return Value(reason=error.mistakes[0])
