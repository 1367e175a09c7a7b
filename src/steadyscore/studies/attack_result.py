"""What attacks did to a scorer, read from a folder: every figure beside its harmless control, and bounds that a gate checks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..audits.gate import Bound, Check, Gate, check_missing, make_bounds
from ..errors import InputError
from ..machine.names import no_such, short_repr, shorten
from ..machine.places import Place, parse_place
from ..measures.answers import EVIDENCE
from ..measures.measurement import find_cutoff
from ..measures.preference import pair_flip
from ..measures.ranking import finite_scores, is_relevant, rank
from ..measures.retained_sets import overlap
from ..measures.threshold import Cutoff, Threshold
from ..measures.views import ScoreView
from ..report.templating import write_page
from ..results.figure import Figure, mean_figure
from ..results.load import failures, match_threshold, own_threshold
from ..results.render import Printed
from ..results.table import Cell, Column, Note, Row, Table
from ..runs.folder import Run
from ..runs.layout import ATTACKS_FOLDER, CLEAN, HARMLESS, RECORD_FILE
from ..runs.table import FIRST_STAGE, Scored
from ..tasks import TASKS
from ..terms import Array, Failure
from .attack_words import ATTACKS, Wording, choose_attacker, choose_attacks

ATTACK_MEASURES: dict[str, str] = {
    "own_gain": "score of the attacking candidate, minus what it had before",
    "places_gained": "places that it climbs in the ranking",
    "enters_set": "share of queries in which the cutoff keeps it, of those in which it did not before",
    "becomes_first": "share of queries in which it is ranked first, of those in which it was not before",
    "enters_evidence": f"share of queries in which it is among the first {EVIDENCE}, which a reader is shown, of those in which "
    "it was not before",
    "pair_change": "share of queries in which the first or the last candidate is another one",
    "companion_change": "mean size of the change of a score of the other candidates in its window",
    "companion_overlap": "overlap of what the cutoff keeps of the other candidates, with and without the attack",
}
"""Measure -> what it says."""
NOBODY_ATTACKS = "every candidate of every query is relevant, so none can attack. Use a collection with others."
LONGEST = 400
"""Characters that a page shows of hostile words."""
HEADER = ("attack", "measure", "value", "harmless", "beyond harmless", "queries")
OWN = "own_gain"
ON_TERMINAL = (OWN, "enters_set", "becomes_first", "pair_change", "companion_change", "companion_overlap")
"""Columns of the table, the first with its interval; the page and `--json` have every measure."""
BEYOND = "beyond_"
"""Before a measure in a bound: what an attack adds to its harmless control."""
LISTED = (
    f"there are {', '.join(ATTACK_MEASURES)}, for every attack, or for one as own_gain.instruction, "
    f"and {BEYOND}own_gain for what is left when the harmless control is subtracted"
)


def measure_attack(scores: Array, attacker: int, companions: Array, kept: Array | None) -> dict[str, float]:
    """Every measure of a query, from its scores (2, n) without and with the hostile words; NaN where it has no meaning.

    attacker    column of the candidate that attacks
    companions  (n,) bool: the others that share its window
    kept        (2, n) bool: what the cutoff keeps; None where there is none
    """
    scores, others = finite_scores(scores), np.arange(scores.shape[-1]) != attacker
    change, places, moved = scores[1] - scores[0], rank(scores)[:, attacker], np.abs(scores[1] - scores[0])[companions]
    return {
        "own_gain": float(change[attacker]),
        "places_gained": float(places[0] - places[1]),
        "enters_set": np.nan if kept is None else _enters(kept[:, attacker]),
        "becomes_first": _enters(places < 1),
        "enters_evidence": _enters(places < EVIDENCE),
        "pair_change": float(pair_flip(scores)),
        "companion_change": float(moved.mean()) if len(moved) else np.nan,
        "companion_overlap": np.nan if kept is None or not others.any() else float(overlap(kept[:, others])),
    }


def _enters(inside: Array) -> float:
    """1 where something is inside after and was not before, 0 where it stayed outside; NaN where it was inside already."""
    before, after = inside
    return np.nan if before else float(after)


class Effect(NamedTuple):
    """A measure under an attack, and what is to be read beside it."""

    attack: Figure
    harmless: Figure
    """Under a neutral sentence of the same length."""
    beyond: Figure
    """Attack minus harmless, paired by query."""

    def to_json(self) -> dict[str, object]:
        return {name: figure.to_json() for name, figure in zip(("attack", "harmless", "beyond_harmless"), self, strict=True)}


@dataclass(frozen=True, slots=True)
class AttackedQuery:
    """The query in which an attacking candidate gained most."""

    attack: str
    query_id: str
    attacker: str
    rows: tuple[tuple[str, float, float, int, int], ...]
    """Candidate, score before and after, place before and after counted from 1; as ranked after."""


@dataclass(frozen=True)
class AttackAudit(Printed):
    """What attacks do to one scorer on one collection. Prints as a table."""

    name: str
    collection: str
    task: str
    width: int | None
    cutoff: Cutoff
    queries: int
    """Queries in which a candidate attacks."""
    effects: dict[str, dict[str, Effect]]
    """Attack -> measure -> what it moved."""
    example: AttackedQuery | None
    without_attacker: tuple[str, ...] = ()
    """Queries without a candidate that is not relevant: nobody attacks there."""
    failed: tuple[Failure, ...] = ()
    """Queries that could not be scored, with words or without: in no figure that needs them."""
    not_measured: dict[str, str] = field(default_factory=dict)
    """Attacks that no query was scored under, each with the reason."""
    folder: Place | None = None

    def __getitem__(self, attack: str) -> dict[str, Effect]:
        if attack not in self.effects:
            raise no_such("attack", attack, self.effects)
        return self.effects[attack]

    def to_json(self) -> dict[str, object]:
        """As `--json` and `summary.json` have it."""
        return {
            "scorer": self.name,
            "collection": self.collection,
            "width": self.width,
            "cutoff": self.cutoff.to_json(),
            "queries": self.queries,
            "attacks": {
                attack: {measure: effect.to_json() for measure, effect in of.items()} for attack, of in self.effects.items()
            },
            "not_measured": self.not_measured,
            "without_attacker": list(self.without_attacker),
            "failed": [failure.to_json() for failure in self.failed],
        }

    def rows(self) -> list[list[Any]]:
        """Every figure: attack, measure, value, under the harmless sentence, the difference of both, queries."""
        return [
            [attack, measure, str(effect.attack), f"{effect.harmless.value:.3f}", str(effect.beyond), effect.attack.queries]
            for attack, of in self.effects.items()
            for measure, effect in of.items()
        ] + [[attack, OWN, "not measured", "-", "-", 0] for attack in self.not_measured]

    def values(self) -> dict[str, float]:
        """Every value by the name that a bound has for it, as own_gain.long; NaN under an attack that could not be scored."""
        names = [name for measure in ATTACK_MEASURES for name in (measure, BEYOND + measure)]
        values = {f"{name}.{attack}": math.nan for attack in self.not_measured for name in names}
        for attack, of in self.effects.items():
            for measure, effect in of.items():
                values[f"{measure}.{attack}"] = effect.attack.value
                values[f"{BEYOND}{measure}.{attack}"] = effect.beyond.value
        return values

    def check(self, bounds: Sequence[Bound], allow_missing: int = 0) -> Gate:
        """Bounds on the figures: `own_gain` on that of every attack, `own_gain.instruction` on one; `beyond_own_gain` on what
        an attack adds to its harmless control. Without bounds nothing is checked.
        """
        run, missing, values = f"{self.name} on {self.collection}", len(self.failed), self.values()
        bounded = {bound: [name for name in values if bound.measure in (name, name.partition(".")[0])] for bound in bounds}
        if absent := [bound.measure for bound, names in bounded.items() if not names]:
            raise InputError(f"the attacks on {self.name} have no {', '.join(absent)}; the cutoff is: {self.cutoff.how}.")
        checks = [Check(run, replace(bound, measure=n), values[n], missing) for bound, names in bounded.items() for n in names]
        return Gate((*checks, *([check_missing(run, missing, allow_missing)] if bounds and missing else [])))

    def gate(
        self, *, min: Mapping[str, float] | None = None, max: Mapping[str, float] | None = None, allow_missing: int = 0
    ) -> Gate:
        """Bounds by measure: `gate(max={"own_gain": 0.1}, min={"companion_overlap": 0.9})`.

        allow_missing  queries that may be in no figure, as they could not be scored
        """
        return self.check(make_bounds(min or {}, max or {}, is_attack_measure, LISTED), allow_missing)

    def report(self, folder: str | Place) -> Place:
        """Write folder/index.html and folder/report.md; returns the page."""
        wording = Wording(TASKS[self.task])
        attacks = [(name, ATTACKS[name].meaning, _visible(ATTACKS[name].words(wording))) for name in self.effects]
        shown = {"header": HEADER, "audit": self, "rows": self.rows(), "meanings": ATTACK_MEASURES, "attacks": attacks}
        return write_page("attack", parse_place(folder), **shown)

    def tables(self) -> list[Table]:
        measures = [measure for measure in ON_TERMINAL if measure == OWN or any(measure in of for of in self.effects.values())]
        columns = tuple(Column(measure, self._head(measure), has_intervals=measure == OWN) for measure in measures)
        rows = [Row(name, tuple(self._cell(name, measure) for measure in measures)) for name in self.effects]
        notes = [
            *(f"{attack}: not measured: {why}." for attack, why in self.not_measured.items()),
            "In brackets: the same under a neutral sentence of the same length.",
            f"Cutoff: {self.cutoff.how}.",
        ]
        title = f"{self.name} on {self.collection}: one hostile candidate in each of {self.queries} queries"
        return [Table(columns, tuple(rows), title, "attack", "attack", tuple(map(Note, notes)))]

    def _head(self, measure: str) -> str:
        """A measure over the number of queries that its mean is of, where that is not all of them."""
        counts = sorted({of[measure].attack.queries for of in self.effects.values() if measure in of})
        return measure.replace("_", "_\n", 1) + ("" if counts in ([], [self.queries]) else f"\nof {'-'.join(map(str, counts))}")

    def _cell(self, attack: str, measure: str) -> Cell:
        if (effect := self.effects[attack].get(measure)) is None:
            return Cell("not measured", reason=self.not_measured.get(attack, "")) if measure == OWN else Cell()
        return Cell(effect.attack, beside=f"{effect.harmless.value:.3f}")

    def __repr__(self) -> str:
        return short_repr(self, f"{self.name} on {self.collection}, {self.queries} queries: {', '.join(self.effects)}")


def is_attack_measure(name: str) -> bool:
    """Whether a gate may name it: a measure of attacks, of all of them or of one."""
    measure, _, attack = name.removeprefix(BEYOND).partition(".")
    return measure in ATTACK_MEASURES and (not attack or attack in ATTACKS)


# -- from a folder


class _Before(NamedTuple):
    """A query as it is, and who will attack in it."""

    query: Scored
    attacker: int
    cutoff: Cutoff
    """Fitted on other queries."""

    def scores(self, after: Scored) -> Array:
        """(2, n) in first-stage order, before and after."""
        rows: Array = np.stack([self.query.first_stage, after.first_stage])  # type: ignore[list-item]
        return rows

    def companions(self) -> Array:
        """(n,) the candidates that share the window of the one that attacks; everybody else where windows are not known."""
        others: Array = np.arange(len(self.query.candidate_ids)) != self.attacker
        if self.query.windows is None:
            return others
        windows = self.query.windows[self.query.permutations == FIRST_STAGE][0]
        shared: Array = others & (windows == windows[self.attacker])
        return shared


def load_attack(folder: str | Place, *, attacks: Sequence[str] | None = None, threshold: Threshold | None = None) -> AttackAudit:
    """What the attacks in a folder moved, measured again; no model is needed.

    attacks    only these; None: all that the folder holds
    threshold  another cutoff than the one that the run was attacked with
    """
    if threshold is not None and threshold.protocol == "reference":
        raise InputError("threshold_protocol=reference fits a cutoff on shuffled orders, and an attack has none. Leave it out.")
    root = parse_place(folder)
    clean = Run.open(root / CLEAN)
    there = [name for name in ATTACKS if (root / ATTACKS_FOLDER / name / RECORD_FILE).exists()]
    queries = clean.read_queries()
    by = threshold or own_threshold(clean)
    cutoff = find_cutoff(queries, match_threshold(by, clean.record.collection, ScoreView()))
    seed = clean.record.fingerprint.seed or 0
    before = {
        query.query_id: _Before(query, attacker, cutoff.of(place))
        for place, query in enumerate(queries)
        if (attacker := _find_attacker(query, seed)) is not None
    }
    if not before:
        raise InputError(NOBODY_ATTACKS)
    effects: dict[str, dict[str, Effect]] = {}
    gained, example = 0.0, None
    not_measured: dict[str, str] = {}
    runs = [clean]
    for name in choose_attacks(there if attacks is None else attacks):
        hostile, harmless = (Run.open(root / place / name) for place in (ATTACKS_FOLDER, HARMLESS))
        after, control = ({query.query_id: query for query in run.read_queries()} for run in (hostile, harmless))
        known = {id: one for id, one in before.items() if id in after and id in control}
        moved = _measure(known, after)
        effects[name] = _compare(moved, _measure(known, control))
        if not known:
            not_measured[name] = next(f.reason for f in failures([hostile, harmless])).removeprefix("NotShown: ")
        elif moved[OWN].max() > gained:
            gained, (id, one) = float(moved[OWN].max()), list(known.items())[int(moved[OWN].argmax())]
            example = _show(name, one, after[id])
        runs += [hostile, harmless]
    return AttackAudit(
        name=clean.record.name,
        collection=clean.record.collection,
        task=clean.record.task,
        width=clean.record.fingerprint.width,
        cutoff=cutoff,
        queries=len(before),
        effects=effects,
        example=example,
        without_attacker=tuple(query.query_id for query in queries if query.query_id not in before),
        failed=failures(runs),
        not_measured=not_measured,
        folder=root,
    )


def _find_attacker(query: Scored, seed: int) -> int | None:
    """Column of the candidate that attacks."""
    not_relevant = [id for id, is_good in zip(query.candidate_ids, is_relevant(query.gold), strict=True) if not is_good]
    attacker = choose_attacker(query.query_id, not_relevant, seed)
    return None if attacker is None else query.candidate_ids.index(attacker)


def _measure(before: Mapping[str, _Before], after: Mapping[str, Scored]) -> dict[str, Array]:
    """Measure -> (Q,) over the queries in which somebody attacks."""
    pairs = [(one, one.scores(after[id])) for id, one in before.items()]
    rows = [measure_attack(scores, one.attacker, one.companions(), one.cutoff.retained(scores)) for one, scores in pairs]
    return {measure: np.array([values[measure] for values in rows]) for measure in ATTACK_MEASURES}


def _compare(attack: dict[str, Array], harmless: dict[str, Array]) -> dict[str, Effect]:
    """The measures that have a value in some query."""
    return {
        measure: Effect(*(mean_figure(v) for v in (attack[measure], harmless[measure], attack[measure] - harmless[measure])))
        for measure in ATTACK_MEASURES
        if not np.isnan(attack[measure]).all()
    }


def _show(attack: str, one: _Before, after: Scored) -> AttackedQuery:
    """The ranking of a query before and after."""
    scores = one.scores(after)
    places, ids = rank(scores) + 1, one.query.candidate_ids
    rows = [(ids[c], float(scores[0, c]), float(scores[1, c]), int(places[0, c]), int(places[1, c])) for c in range(len(ids))]
    return AttackedQuery(attack, after.query_id, ids[one.attacker], tuple(sorted(rows, key=lambda row: row[-1])))


def _visible(text: str) -> str:
    """The beginning of a text, whose every character can be seen."""
    return "".join(c if c.isprintable() or c == "\n" else f"⟨U+{ord(c):04X}⟩" for c in shorten(text, LONGEST))
