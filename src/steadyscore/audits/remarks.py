"""What must be known to read a table of figures, one sentence each: what is not in the means, what the cutoff does, and
where a figure flatters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..measures.measurement import Coverage, Cutoff
from .first_stage import ranker_of

if TYPE_CHECKING:
    from .result import Audit

NAMED = 10
"""Queries that a sentence names before it only counts."""
NEARLY_ALL = 0.95
"""Above this share kept, a threshold hardly decides anything."""
OFF_TARGET = 1.5
"""A matched retention that is missed by more than this factor on the measured half is said."""
MANY_EMPTY = 0.05
"""From this share of empty sets on, their part in the overlap is said."""


def remarks(of: str, audit: Audit) -> list[str]:
    """Every sentence behind `of`, the name of the collection."""
    kept = audit.figures.get("retention")
    sentences = [*_coverage(audit.measured.coverage), *_cutoff(audit.measured.cutoff), *warnings(audit)]
    if unranked := unranked_remark(audit):
        sentences.append(unranked)
    sentences += _pool_remains(audit)
    if kept and kept.value > NEARLY_ALL:
        sentences.append(
            f"the cutoff keeps {kept.value:.0%} of the pool, so its overlap says little. Try --match-retention 0.25 or --cutoff."
        )
    return [f"{of}: {sentence}" for sentence in sentences]


def warnings(audit: Audit) -> list[str]:
    """Where the figures of an audit look better than they are."""
    return [*not_ahead(audit), *_below_chance(audit), *_off_target(audit), *_empty_sets(audit), *_balanced_orders(audit)]


def unranked_remark(audit: Audit) -> str | None:
    """Why a table has no row of the first-stage order."""
    if ranker_of(audit.record) is None:
        return "The order of the pools is not a ranking, so there is no first stage to compare with; chance is the row to beat."
    return None


def _pool_remains(audit: Audit) -> list[str]:
    """Of a scorer that reads a pool as a set: no order can move it, and who else is in the pool can."""
    record = audit.record
    if record["fingerprint"].get("prompt") != "set" or not record.get("capabilities", {}).get("order_free"):
        return []
    moved = {"replaced": audit.figures.get("pool_psi"), "dropped": audit.figures.get("pool_psi_drop")}
    known = [f"{figure.value:.3f} when one candidate is {what}" for what, figure in moved.items() if figure is not None]
    rest = f"Pool-PSI {' and '.join(known)}" if known else "--perturb drop replace measures it"
    return [f"{audit.name} reads a pool as a set, which no order can move. What can is who else is in the pool: {rest}."]


def not_ahead(audit: Audit) -> list[str]:
    """A scorer that does not rank better than its input, by the interval of the paired difference."""
    first, quality = audit.first_stage, audit.task.quality
    if first is None or first.gain is None or first.gain.low > 0:
        return []
    verdict = "ranks below its first stage" if first.gain.high < 0 else "does not rank better than its first stage"
    levels = f"{quality} {audit.figures[quality].value:.3f} against {first.figures[quality].value:.3f}"
    difference = f"{first.gain.value:+.3f} [{first.gain.low:+.3f}, {first.gain.high:+.3f}]"
    return [f"{audit.name} {verdict}: {levels}, difference {difference}."]


def _below_chance(audit: Audit) -> list[str]:
    """A scorer that ranks worse than a random order, by its interval."""
    quality, chance = audit.figures.get(audit.task.quality), audit.figures.get(f"chance@{audit.task.quality_cutoff}")
    if quality is None or quality.high is None or chance is None or quality.high >= chance.value:
        return []
    return [f"{audit.name} ranks below a random order: {audit.task.quality} {quality.value:.3f} against {chance.value:.3f}."]


def _off_target(audit: Audit) -> list[str]:
    """A cutoff that was fitted to keep a share and keeps another one where it is measured."""
    asked, kept = audit.measured.cutoff.retention, audit.figures.get("retention")
    if asked is None or kept is None or asked / OFF_TARGET <= kept.value <= asked * OFF_TARGET:
        return []
    return [
        f"{audit.name} keeps {kept.value:.0%} of the pools it is measured on, while its cutoff was fitted to keep "
        f"{100 * asked:.3g}%: its overlap and F1 are those of other set sizes. --keep-share {asked:.3g} keeps that share of "
        "every pool."
    ]


def _empty_sets(audit: Audit) -> list[str]:
    """An overlap that agreement on keeping nothing has made."""
    empty, overlap = audit.figures.get("empty_sets"), audit.figures.get("overlap")
    if empty is None or overlap is None or empty.value < MANY_EMPTY:
        return []
    counted = audit.figures.get("overlap_nonempty")
    without = "and no other pair is left" if counted is None else f"{counted.value:.3f} without"
    return [
        f"{audit.name} keeps nothing in {empty.value:.0%} of the cases, and two empty sets count as equal: overlap "
        f"{overlap.value:.3f} with such pairs, {without}."
    ]


def _balanced_orders(audit: Audit) -> list[str]:
    """Measures between two orders, of orders that were not drawn independently."""
    pairwise = [name for name in ("tau_psi", "overlap", "pair_flip") if name in audit.figures]
    if audit.record.get("fingerprint", {}).get("scheme") != "balanced" or not pairwise:
        return []
    return [
        f"{audit.name} was shown balanced orders, which move candidates in step and agree more than two random ones: "
        f"{', '.join(pairwise)} look steadier than they are. --scheme hashed draws orders for them."
    ]


def _coverage(coverage: Coverage) -> list[str]:
    sentences = []
    if coverage.permutations == [1]:
        sentences.append("only one permutation was scored, and what changes between orders needs two.")
    if unjudged := coverage.unjudged:
        share = f"{len(unjudged)} of {coverage.queries} queries"
        named = ", ".join(unjudged[:NAMED])
        sentences.append(f"{share} have no judgement and are not in the means that need one: {named}.")
    if missed := coverage.without_relevant:
        share, named = f"{len(missed)} of {coverage.queries} queries", ", ".join(missed[:NAMED])
        sentences.append(f"{share} have judgements but no relevant candidate; their quality counts as 0: {named}.")
    if lacking := coverage.without_first_stage:
        share, named = f"{len(lacking)} of {coverage.queries} queries", ", ".join(lacking[:NAMED])
        sentences.append(f"{share} have no scores in first-stage order, so quality is that of the permutations for all: {named}.")
    if fewer := coverage.fewer_permutations:
        share = f"{len(fewer)} of {coverage.queries} queries have fewer than {coverage.permutations[-1]} permutations"
        alone = " A query with one is in no mean that compares them." if 1 in fewer.values() else ""
        named = ", ".join(f"{query} has {count}" for query, count in list(fewer.items())[:NAMED])
        sentences.append(f"{share}: {named}.{alone}")
    return sentences


def _cutoff(cutoff: Cutoff) -> list[str]:
    if cutoff.is_per_query:
        return [f"no cutoff is fitted: {cutoff.how} is kept, measured on all queries."]
    if cutoff.value is None:
        return [f"no cutoff: {cutoff.how.removeprefix('none: ')}."]
    if cutoff.fitted_on is None:
        return []
    fitted = f"{cutoff.fitted_on} {'query' if cutoff.fitted_on == 1 else 'queries'}"
    where = f"fitted on {fitted} in {cutoff.fitted_in}, measured on the other {cutoff.measured_on}"
    return [f"cutoff {cutoff.value:.3f}, {cutoff.how}, {where}."]


def presentation_remarks(audits: Sequence[Audit]) -> list[str]:
    """What differs between the runs of a collection, besides the scorer, and moves their measures by itself."""
    remarks = []
    for collection in dict.fromkeys(audit.collection for audit in audits):
        here = [audit for audit in audits if audit.collection == collection]
        made = [audit.record["fingerprint"] for audit in here]
        if len({(one.get("data") or {}).get("sha256") for one in made} - {None}) > 1:
            remarks.append(f"{collection}: the runs share a name and were made of different files; queries are paired by id.")
        remarks += [f"{collection}: {sentence}" for other in here[1:] for sentence in _other_pools(here[0], other)]
        settings: dict[str, list[object]] = {key: [one[key] for one in made if key in one] for key in ("pool", "seed", "scheme")}
        settings["permutations"] = [audit.measured.coverage.permutations[-1] for audit in here]
        settings["serving permutations"] = [audit.serving_permutations for audit in here]
        for key, values in settings.items():
            different = list(dict.fromkeys("all" if value is None else str(value) for value in values))
            if len(different) > 1:
                listed = ", ".join(different)
                remarks.append(f"{collection}: the runs differ in {key} ({listed}), which moves measures by itself.")
    return remarks


def _other_pools(first: Audit, other: Audit) -> list[str]:
    """Whether two audits scored other candidates for the same queries, where their records do not rule it out."""
    keys = ("data", "pool")
    stated = [tuple(audit.record["fingerprint"].get(key) for key in keys) for audit in (first, other)]
    if stated[0][0] is not None and stated[0] == stated[1]:
        return []
    pools = {query.query_id: query.candidate_ids for query in first.queries}
    shared = [query for query in other.queries if query.query_id in pools]
    differ = sum(query.candidate_ids != pools[query.query_id] for query in shared)
    if not differ:
        return []
    return [f"{first.name} and {other.name} scored other candidates for {differ} of {len(shared)} shared queries."]
