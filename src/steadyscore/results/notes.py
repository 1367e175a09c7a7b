"""What must be known to read a table of figures, one sentence each, by how much depends on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..engines.answers import ANSWERED, WARNED
from ..measures.stopping import Until
from ..measures.threshold import Cutoff
from ..models.adapter import other_task
from ..runs.records import EarlyStop
from ..terms import Failure
from ..window.presentation import count_orders
from .figure import mean_figure
from .measured_run import MeasuredRun, ranker_of
from .table import Note

NAMED = 10
"""Queries that a sentence names before it only counts."""
NEARLY_ALL = 0.95
"""Above this share kept, a threshold hardly decides anything."""
OFF_TARGET = 1.5
"""A matched retention that is missed by more than this factor where it is measured is said."""
TIES_MATTER = 0.005
"""From this difference on, what another tie rule gives is said."""
FEW_QUERIES = 10
"""Of fewer queries an interval is too narrow."""
MANY_EMPTY = 0.05
"""From this share of empty sets on, their part in the overlap is said."""

FIRST_NOTES = 3
"""Notes of a first look."""
FLATTERS = 2
"""Notes up to this weight are warnings."""


def notes(audits: Sequence[MeasuredRun], of: str | None = None) -> list[Note]:
    """All that must be known to read the figures, what matters most first, each sentence once."""
    told = (
        Note(text, weight, of or audit.collection)
        for weight, rules in enumerate(RULES)
        for rule in rules
        for audit in audits
        for text in rule(audit)
    )
    return list(dict.fromkeys(told))


def most_important(told: Sequence[Note]) -> list[Note]:
    """The notes of a first look: the first three, and what could not be scored in any case."""
    return [note for place, note in enumerate(told) if place < FIRST_NOTES or note.weight == 0]


def failed_remarks(audit: MeasuredRun) -> list[str]:
    """What could not be scored, for the run and for what was asked beside it, and what a reader could not read."""
    coverage = audit.measured.coverage
    failed = [Failure(query_id, reason) for query_id, reason in coverage.failed.items()]
    groups = [(failed, f"{coverage.queries + len(failed)}", "scored")]
    groups += [(failures, "the", f"scored for --{flag}") for flag, failures in audit.failed.items()]
    groups += [(report.failed, "the", f"read by {reader}") for reader, report in audit.reader_reports.items()]
    return [failed_remark(failures, f"{of} queries of {audit.name}", done) for failures, of, done in groups if failures]


def failed_remark(failed: Sequence[Failure], of: str, done: str = "scored") -> str:
    named = ", ".join(f"{failure.query_id} ({failure.reason})" for failure in failed[:NAMED])
    return f"{len(failed)} of {of} could not be {done}: {named}."


def _answered(audit: MeasuredRun) -> list[str]:
    scorer = audit.record.fingerprint.scorer
    asked = str(scorer.get("model", "")) if isinstance(scorer, Mapping) else ""
    scoring = audit.record.coverage
    return answer_remarks(audit.name, asked, scoring.spent or {} if scoring else {})


def unranked(audit: MeasuredRun) -> list[str]:
    """Why a table has no row of the first-stage order."""
    why = "The order of the pools is not a ranking, so there is no first stage to compare with; chance is the row to beat."
    return [why] if ranker_of(audit.record) is None else []


def _shuffled_pools(audit: MeasuredRun) -> list[str]:
    """Of a scorer that declares itself order-free: what was compared, as equal rows alone would not be a measurement."""
    scoring = audit.record.coverage
    if scoring is None or not (count := scoring.shuffled_pools):
        return []
    moved = scoring.shuffled_difference
    beyond = f" by more than {moved:.1g}" if moved else ""
    return [f"no order moved a score{beyond} in {count} shuffled {'pool' if count == 1 else 'pools'}."]


def _pool_remains(audit: MeasuredRun) -> list[str]:
    """Of a scorer that reads a pool as a set: no order can move it, and who else is in the pool can."""
    if audit.record.fingerprint.prompt != "set" or not audit.record.is_order_free:
        return []
    moved = {"replaced": audit.figures.get("pool_psi"), "dropped": audit.figures.get("pool_psi_drop")}
    known = [f"{figure.value:.3f} when one candidate is {what}" for what, figure in moved.items() if figure is not None]
    rest = f"Pool-PSI {' and '.join(known)}" if known else "--perturb drop replace measures it"
    return [f"{audit.name} reads a pool as a set, which no order can move. What can is who else is in the pool: {rest}."]


def trained_otherwise(audit: MeasuredRun) -> list[str]:
    """An adapter of another task: what it scores here is transfer."""
    what = other_task(audit.record.fingerprint.keys)
    return [f"{audit.name} is {what}: its figures say how far it transfers, not what it can do."] if what else []


def answer_remarks(name: str, asked: str, spent: Mapping[str, float]) -> list[str]:
    """What the answers of an endpoint said of themselves: that another model gave them than was asked for, and warnings."""
    said = [what for what, count in spent.items() if count and what != f"{ANSWERED}{asked}"]
    others = [what.removeprefix(ANSWERED) for what in said if what.startswith(ANSWERED) and "://" not in asked][:NAMED]
    warned = [what.removeprefix(WARNED) for what in said if what.startswith(WARNED)][:NAMED]
    sentences = [f"{name} was asked for {asked} and answered as {', '.join(others)}."] if others else []
    return [*sentences, *(f"{name} answered with a warning: {warning}" for warning in warned)]


def not_ahead(audit: MeasuredRun) -> list[str]:
    """A scorer whose lead over its input is not settled, or that has none, by the interval of the paired difference."""
    first, quality = audit.first_stage, audit.task.quality
    if first is None or first.gain is None or first.gain.low > 0:
        return []
    value, low, high, queries, *_ = first.gain
    side = "ahead of" if value > 0 else "behind"
    verdict = f"is {side} its first stage by {abs(value):.3f}, which {queries} queries do not settle"
    if low == high == 0:
        verdict = "ranks as well as its first stage"
    elif high < 0:
        verdict = "ranks below its first stage"
    levels = f"{quality} {audit.figures[quality].value:.3f} against {first.figures[quality].value:.3f}"
    return [f"{audit.name} {verdict}: {levels}, difference {value:+.3f} [{low:+.3f}, {high:+.3f}]."]


def _below_chance(audit: MeasuredRun) -> list[str]:
    """A scorer that ranks worse than a random order, by its interval."""
    quality, chance = audit.figures.get(audit.task.quality), audit.figures.get(f"chance@{audit.task.quality_cutoff}")
    if quality is None or quality.high is None or chance is None or quality.high >= chance.value:
        return []
    return [f"{audit.name} ranks below a random order: {audit.task.quality} {quality.value:.3f} against {chance.value:.3f}."]


def _ties(audit: MeasuredRun) -> list[str]:
    """Figures that the rule for equal scores has made."""
    levels = {name: (audit.figures[name].value, other) for name, other in audit.ties_reversed.items() if name in audit.figures}
    decided = [f"{name} {own:.3f} and {other:.3f}" for name, (own, other) in levels.items() if abs(own - other) > TIES_MATTER]
    if not decided:
        return []
    return [
        f"{audit.name} gives equal scores, and who goes first of them decides: {', '.join(decided)} with ties to the smaller and "
        "to the larger id."
    ]


def _chance_overlap(audit: MeasuredRun) -> list[str]:
    """Sets that agree as random ones of their sizes do, by the interval of the difference; not where those must agree."""
    overlap, chance, values = audit.figures.get("overlap"), audit.figures.get("chance_overlap"), audit.measured.values
    if overlap is None or chance is None or chance.value > NEARLY_ALL:
        return []
    gain = mean_figure(values["overlap"] - values["chance_overlap"])
    if (gain.value if gain.low is None else gain.low) > 0:
        return []
    verdict = "is not told apart from" if gain.high is None or gain.high >= 0 else "is below"
    span = "" if gain.low is None else f" [{gain.low:+.3f}, {gain.high:+.3f}]"
    return [
        f"the overlap of {audit.name} {verdict} that of random sets of the same sizes: {overlap.value:.3f} against "
        f"{chance.value:.3f}, difference {gain.value:+.3f}{span}."
    ]


def _off_target(audit: MeasuredRun) -> list[str]:
    """A cutoff that was fitted to keep a share and keeps another one where it is measured."""
    asked, kept = audit.measured.cutoff.retention, audit.figures.get("retention")
    if asked is None or kept is None or asked / OFF_TARGET <= kept.value <= asked * OFF_TARGET:
        return []
    return [
        f"{audit.name} keeps {kept.value:.0%} of the pools it is measured on, while its cutoff was fitted to keep "
        f"{100 * asked:.3g}%: its overlap and F1 are those of other set sizes. --keep {asked:.3g} keeps that share of "
        "every pool."
    ]


def _stopped_for_another(audit: MeasuredRun) -> list[str]:
    """`adaptive` that stopped as soon as another decision was taken than the one that is measured."""
    if (measured := _decision(audit.measured.cutoff)) is None:
        return []
    name, value = measured
    sentences = []
    for mitigation in audit.record.fingerprint.mitigations:
        kind, number, rule = [*mitigation.split(":"), "", ""][:3]
        taken, _, at = rule.partition("=")
        if kind == "adaptive" and rule and (taken != name or float(at) != value):
            sentences.append(
                f"{audit.name} asked again until {rule} was decided, and what is measured is {name}={value:g}: "
                f"adaptive:{number}:{name}={value:g} asks until that is."
            )
    return sentences


def _decision(cutoff: Cutoff) -> tuple[str, float] | None:
    """What decides about every pool, as `adaptive` names it; None of a cutoff that was fitted to the scores of many."""
    if cutoff.how == "fixed" and cutoff.value is not None:
        return "cutoff", cutoff.value
    if cutoff.keep_first is not None:
        return "top", cutoff.keep_first
    return None if cutoff.keep_share is None else ("share", cutoff.keep_share)


def _empty_sets(audit: MeasuredRun) -> list[str]:
    """An overlap that agreement on keeping nothing has made."""
    empty, overlap = audit.figures.get("empty_sets"), audit.figures.get("overlap")
    if empty is None or overlap is None or empty.value < MANY_EMPTY:
        return []
    counted = audit.figures.get("overlap_nonempty")
    without = "and no other pair is left" if counted is None else f"{counted.value:.3f} without"
    is_too_high = counted is None and audit.measured.cutoff.how == "fixed"
    return [
        f"{audit.name} keeps nothing in {empty.value:.0%} of the cases, and two empty sets count as equal: overlap "
        f"{overlap.value:.3f} with such pairs, {without}." + " Try --match-retention 0.3 or a lower --cutoff." * is_too_high
    ]


def _balanced_orders(audit: MeasuredRun) -> list[str]:
    """Measures between two orders, of orders that were not drawn independently."""
    pairwise = [name for name in ("tau_psi", "overlap", "pair_flip") if name in audit.figures]
    if audit.record.fingerprint.scheme != "balanced" or not pairwise:
        return []
    return [
        f"{audit.name} was shown balanced orders, which move candidates in step and agree more than two random ones: "
        f"{', '.join(pairwise)} look steadier than they are. --set scheme=distinct draws orders for them."
    ]


def _small_pools(audit: MeasuredRun, *, is_once: bool, then: str) -> list[str]:
    """Pools that have no more orders than were shown, each once, or some again."""
    scheme, coverage = audit.record.fingerprint.scheme, audit.measured.coverage
    pools = {n: count for n, count in coverage.few_orders.items() if is_once or count_orders(n) < coverage.permutations[-1]}
    if scheme is None or is_once != (scheme in ("distinct", "balanced")) or not pools or audit.view.serving_permutations > 1:
        return []
    small = " and ".join(f"{count} pools of {n} candidates have only {count_orders(n)} orders" for n, count in pools.items())
    return [f"{small}; {then}"]


SHOWN_AGAIN = "some were shown again and compared with themselves, which looks steady. --set scheme=distinct shows each once."


def _keeps_nearly_all(audit: MeasuredRun) -> list[str]:
    if (kept := audit.figures.get("retention")) is None or kept.value <= NEARLY_ALL:
        return []
    return [f"the cutoff keeps {kept.value:.0%} of the pool, so its overlap says little. Try --match-retention 0.25 or --cutoff."]


def _few_queries(audit: MeasuredRun) -> list[str]:
    drawn = [audit.figures[name] for name in audit.task.compared if name in audit.figures]
    if all(figure.low is None or figure.queries >= FEW_QUERIES for figure in drawn):
        return []
    return [
        f"intervals of fewer than {FEW_QUERIES} queries are too narrow: of 3 they hold the truth in 62 to 75 % of the cases "
        "instead of 95 %, of 5 in 80 to 92 %."
    ]


def _cut_texts(audit: MeasuredRun) -> list[str]:
    """Texts that people judged whole, and the scorer by their beginning."""
    cut, chars = (audit.record.coverage.cut or 0) if audit.record.coverage else 0, audit.record.fingerprint.chars
    part = f"{cut:,} of {sum(len(query.candidate_ids) for query in audit.queries):,} candidates"
    return [f"{audit.name} was shown the first {chars} characters only of {part}. --chars N shows more."] if cut else []


def _one_order(audit: MeasuredRun) -> list[str]:
    alone = "only one permutation was scored, and what changes between orders needs two."
    return [alone] if audit.measured.coverage.permutations == [1] else []


def _left_out(audit: MeasuredRun) -> list[str]:
    """Queries that some means are without."""
    sentences, coverage = [], audit.measured.coverage
    lists = {
        "no judgement and are not in the means that need one": coverage.unjudged,
        "judgements but no relevant candidate; their quality counts as 0": coverage.without_relevant,
        "no scores in first-stage order, so quality is that of the permutations for all": coverage.without_first_stage,
        "one candidate, which no order moves, and are in no measure of movement": coverage.left_out.get("moves", []),
    }
    for what, ids in lists.items():
        if ids:
            sentences.append(f"{len(ids)} of {coverage.queries} queries have {what}: {', '.join(ids[:NAMED])}.")
    if fewer := coverage.fewer_permutations:
        share = f"{len(fewer)} of {coverage.queries} queries have fewer than {coverage.permutations[-1]} permutations"
        alone = " A query with one is in no mean that compares them." if 1 in fewer.values() else ""
        named = ", ".join(f"{query} has {count}" for query, count in list(fewer.items())[:NAMED])
        sentences.append(f"{share}: {named}.{alone}")
    return sentences


def fitting_words(cutoff: Cutoff) -> str:
    """On which queries a fitted cutoff was fitted, and on which it is measured."""
    queries = f"{cutoff.fitted_on} {'query' if cutoff.fitted_on == 1 else 'queries'}"
    if cutoff.folds is None:
        return f"fitted on {queries} in {cutoff.fitted_in}, measured on the other {cutoff.measured_on}"
    others = f"the other {cutoff.folds - 1} of {cutoff.folds} folds"
    return f"fitted on {queries} in {cutoff.fitted_in}, each of them measured with one fitted on {others}"


def _no_cutoff(audit: MeasuredRun) -> list[str]:
    cutoff = audit.measured.cutoff
    is_without = cutoff.value is None and not cutoff.is_per_query
    return [f"no cutoff: {cutoff.how.removeprefix('none: ')}."] if is_without else []


def _cutoff(audit: MeasuredRun) -> list[str]:
    cutoff = audit.measured.cutoff
    if cutoff.is_per_query:
        return [f"no cutoff is fitted: {cutoff.how} is kept, measured on all queries."]
    if cutoff.value is None or cutoff.fitted_on is None:
        return []
    return [f"cutoff {cutoff.value:.3f}, {cutoff.how}, {fitting_words(cutoff)}."]


def _reading(audit: MeasuredRun) -> list[str]:
    """Stored scores that were read otherwise than usual, and what a command that reads them again must be told."""
    words, budget = audit.view.words(), audit.view.serving_permutations
    served = f"of the mean of {budget} permutations; `gate` and `compare` need --serving-permutations {budget} too."
    return ([f"read with {words.replace('--', '')}."] if words else []) + ([served] if budget > 1 else [])


def saved_line(stop: EarlyStop, windows: int, queries: str = "queries", asked: str = "windows") -> str:
    """What was known when an audit stopped, and what that saved."""
    until, count = Until.parse(stop.until), stop.of_queries
    if stop.answer == "undecided":
        return f"all {count} {queries} were scored, and do not settle {until} at an error of 5 %: nothing was saved."
    known = f"{until} {'does not hold' if stop.answer == 'fails' else 'holds'}"
    known = f"{until.measure} is known to ±{until.number:g}" if until.sign == "±" else known
    orders = f"{stop.permutations} of {stop.of_permutations} permutations"
    saved = max(0.0, 1 - windows / max(stop.of_windows, 1))
    cost = f"{windows:,} of {stop.of_windows:,} {asked}, {saved:.0%} saved"
    return f"{known} after {stop.queries} of {count} {queries}, {orders}: {cost}."


def stop_note(name: str, stop: EarlyStop) -> str:
    """How the figures of an audit that stopped early, or might have, are to be read."""
    until, is_bound = Until.parse(stop.until), "±" not in stop.until
    known = f"over queries like these {until.measure} lies between {stop.low:.3f} and {stop.high:.3f}, and "
    known += (
        "each limit is wrong with a probability of 5 % at most" if is_bound else "that is wrong with a probability of 5 % at most"
    )
    if stop.answer == "undecided":
        return f"{name} was to be scored until {until} is known: {known}, however often one looks."
    return (
        f"{name} was scored until {until} was known: {known}, however often one looks; the intervals in tables are those of a "
        "number of queries fixed beforehand. The same command without --until scores the rest."
    )


def saved_by(audit: MeasuredRun) -> str:
    """What `until` saved of an audit; nothing where nobody asked."""
    scoring = audit.record.coverage
    return saved_line(scoring.stop, scoring.windows or 0) if scoring and scoring.stop else ""


def _stopped(audit: MeasuredRun) -> list[str]:
    scoring = audit.record.coverage
    return [stop_note(audit.name, scoring.stop)] if scoring and scoring.stop else []


def _changes(audit: MeasuredRun) -> list[str]:
    """What the run itself, or the file of scores, says of its scores."""
    return audit.record.notes


RULES: tuple[tuple[Callable[[MeasuredRun], list[str]], ...], ...] = (
    (failed_remarks,),
    (_stopped, trained_otherwise, _answered, _one_order, _ties, _changes),
    (
        not_ahead, _below_chance, _chance_overlap, _off_target, _stopped_for_another, _empty_sets, _keeps_nearly_all,
        _balanced_orders,        partial(_small_pools, is_once=False, then=SHOWN_AGAIN), _cut_texts, _few_queries,
    ),
    (_no_cutoff, _left_out, unranked),
    (_cutoff, partial(_small_pools, is_once=True, then="each was shown once."), _shuffled_pools, _pool_remains, _reading),
)  # fmt: skip
"""What finds the notes of each weight, the most important first."""
