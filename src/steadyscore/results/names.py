"""Names that tell audits apart, and what differs between them, in the words of a person."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..machine.names import without_common
from .audit import Audit

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
