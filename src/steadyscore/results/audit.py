"""The result of an audit as a value: one scorer on one collection, measured once, with its intervals.

The terminal, `--json`, the page, a gate, a comparison and a notebook all show an `Audit`; none of them measures anything again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..machine.names import short_repr, without_common
from ..runs.records import to_json
from ..scoring.starts import start_remarks
from .causes import FLIPPING, Causes, Explainer, count_causes, make_explainer
from .measured_run import MeasuredRun
from .notes import FLATTERS, notes
from .table import Note


@dataclass(frozen=True, repr=False)
class Audit(MeasuredRun):
    """One scorer on one collection: what was scored, what it means, and how sure that is."""

    def __repr__(self) -> str:
        shown = [f"{name} {self.figures[name].value:.3f}" for name in self.task.screen[:3] if name in self.figures]
        return short_repr(self, f"{self.name} on {self.collection}, {self.measured.coverage.queries} queries: {', '.join(shown)}")

    def to_json(self) -> dict[str, object]:
        """As `--json` and `summary.json` have it."""
        return {
            "scorer": self.name,
            "data": self.collection,
            "run": None if self.folder is None else str(self.folder),
            "measures": {name: figure.to_json() for name, figure in self.figures.items()},
            "coverage": self.measured.coverage.to_json(),
            "cutoff": self.measured.cutoff.to_json(),
            "first_stage": None if self.first_stage is None else self.first_stage.to_json(),
            "warnings": self.warnings(),
            "remarks": self.remarks(),
            "slot_profile": self.measured.slot_profile,
            **({} if self.causes is None else {"causes": self.causes.to_json()}),
            **({} if (served := self.view.serving_permutations) == 1 else {"serving_permutations": served}),
            **({"reading": self.view.reading} if self.view.words() else {}),
            **({"failed": {k: [f.to_json() for f in failed] for k, failed in self.failed.items()}} if self.failed else {}),
            **({"readers": {k: r.to_json() for k, r in self.reader_reports.items()}} if self.reader_reports else {}),
            **({"curve": self.curve} if self.curve is not None else {}),
            "scoring": to_json(self.record.coverage or {}),
            "starts": {"remarks": start_remarks(self.record)},
        }

    def notes(self) -> list[Note]:
        """What must be known to read the figures, what matters most first."""
        return notes([self])

    def remarks(self, of: str | None = None) -> list[str]:
        """Every note behind the name of the collection, or behind `of`."""
        return list(map(str, notes([self], of)))

    def warnings(self) -> list[str]:
        """The notes without which a figure is read wrongly, or taken for better than it is."""
        return [note.text for note in self.notes() if note.weight <= FLATTERS]

    @cached_property
    def explainer(self) -> Explainer | None:
        """What tells why decisions about candidates flip; None where none is made."""
        names = (*self.task.decisions, *FLIPPING)
        measure = next((name for name in names if name in FLIPPING and name in self.measured.values), None)
        shrunk = self.record.coverage.shrunk if self.record.coverage else None
        return None if measure is None else make_explainer(self.queries, measure, self.noise, shrunk or [])

    @cached_property
    def causes(self) -> Causes | None:
        """How many decisions about candidates flip between orders, and why."""
        return None if self.explainer is None else count_causes(self.explainer, self.queries, self.measured)


# -- several audits: names that tell them apart, and what differs between them, in the words of a person

LONGEST = 40
"""Characters of the settings that a name may carry; runs that differ in more are told apart by their folders."""
BESIDE = ("scorer", "scores", "data", "queries", "query_ids", "prompt_hash", "label_mass", "permutations")
"""Parts of a fingerprint that do not say how a pool is shown: names tell the scorer, other sentences the queries and the file."""
UNSET = {"pool": "all", "chars": "all", "width": "the whole pool", "mitigations": "none"}
"""Default of a setting that was not given."""


def with_distinct_names(audits: Sequence[Audit]) -> list[Audit]:
    """The audits under names of their own: two of one scorer on one collection are told apart by the settings that differ, or
    by their folders, where these are many or nothing differs that a record knows."""
    keys = [(_own_name(audit, audits), audit.collection) for audit in audits]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise InputError([f"{name} on {collection} is given more than once. Name each run once." for name, collection in twice])
    return [replace(audit, name=name) for audit, (name, _) in zip(audits, keys, strict=True)]


def _own_name(audit: Audit, audits: Sequence[Audit]) -> str:
    twins = [a for a in audits if (a.name, a.collection) == (audit.name, audit.collection)]
    made, mine = [twin.record.fingerprint.keys for twin in twins], audit.record.fingerprint.keys
    differing = [key for key in mine if any(one.get(key) != mine[key] for one in made)]
    settings = ", ".join(f"{key.replace('_', ' ')} {in_words(mine[key])}" for key in differing)
    if settings and len(settings) <= LONGEST:
        return f"{audit.name} ({settings})"
    places = [(str(number),) if twin.folder is None else Path(str(twin.folder)).parts for number, twin in enumerate(twins, 1)]
    where = "/".join(without_common(places)[next(place for place, twin in enumerate(twins) if twin is audit)])
    is_one_scorer = all(each.name == audit.name and each.folder is not None for each in audits)
    return audit.name if not where else where if is_one_scorer else f"{audit.name} ({where})"


def presentation_remarks(audits: Sequence[Audit]) -> list[str]:
    """What differs between the runs of a collection, besides the scorer, behind the collection's name."""
    names = dict.fromkeys(audit.collection for audit in audits)
    return [f"{name}: {sentence}" for name in names for sentence in differences([a for a in audits if a.collection == name])]


def differences(audits: Sequence[Audit]) -> list[str]:
    """What differs between runs on one collection, besides the scorer: the file, the candidates, the queries, every setting."""
    made = [audit.record.fingerprint for audit in audits]
    sentences = []
    if len({one.data.sha256 for one in made if one.data is not None}) > 1:
        sentences.append("the runs share a name and were made of different files; queries are paired by id.")
    for other in audits[1:]:
        sentences += _other_pools(audits[0], other)
        sentences += shared_remark(audits[0].name, audits[0].measured.query_ids, other.name, other.measured.query_ids)
    stated = [one.keys for one in made if "scorer" in one.keys]  # of scores that were given nobody knows how a pool was shown
    keys = dict.fromkeys(key for one in stated for key in one if key not in BESIDE)
    settings = {key: [in_words(UNSET.get(key) if one.get(key) is None else one[key]) for one in stated] for key in keys}
    if not any(audit.measured.coverage.few_orders for audit in audits):  # then the two schemes draw the same orders
        settings["scheme"] = ["distinct" if scheme == "hashed" else scheme for scheme in settings.get("scheme", [])]
    settings["permutations"] = [str(audit.measured.coverage.permutations[-1]) for audit in audits]
    settings["serving permutations"] = [str(audit.view.serving_permutations) for audit in audits]
    different = {key: dict.fromkeys(values) for key, values in settings.items() if len({*values}) > 1}
    told = ", ".join(f"{key.replace('_', ' ')} ({', '.join(values)})" for key, values in different.items())
    return [*sentences, *([f"the runs differ in {told}, which moves measures by itself."] if told else [])]


def shared_remark(first: str, ids: Collection[str], other: str, other_ids: Collection[str], of: str = "queries") -> list[str]:
    """How many queries two audits share, where that is not all of them."""
    shared, either = len({*ids} & {*other_ids}), len({*ids} | {*other_ids})
    return [] if shared == either else [f"{shared} of {either} {of} are shared by {first} and {other}; differences are of these."]


def _other_pools(first: Audit, other: Audit) -> list[str]:
    """Whether two audits scored other candidates for the same queries, where their records do not rule it out."""
    stated = [(audit.record.fingerprint.data, audit.record.fingerprint.pool) for audit in (first, other)]
    if stated[0][0] is not None and stated[0] == stated[1]:
        return []
    pools = {query.query_id: query.candidate_ids for query in first.queries}
    others = [query.candidate_ids != pools[query.query_id] for query in other.queries if query.query_id in pools]
    said = f"{first.name} and {other.name} scored other candidates for {sum(others)} of {len(others)} shared queries."
    return [said] if any(others) else []


def in_words(value: Any) -> str:
    """A setting as a person reads it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {in_words(v)}" for key, v in value.items() if v is not None)
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "default"}[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
