"""Teacher labels: a scorer over T orders of every training pool (§4), kept whole so that a lower T costs no new pass.

    scores.parquet, run.json   the teacher's run, as any audit writes it (its permutations are the teacher orders)
    labels.parquet             one row per (query, candidate): the T scores on the 0-3 scale and the mean grade distribution

A label folder made from another (fewer orders, fewer queries, recalibrated, a negative control) has no run of its own.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ..collection import Data, open_collection
from ..errors import InputError
from ..machine.disk import explaining_os_errors, is_there, read_json, sha256, write_parquet, write_record
from ..machine.places import Place, parse_place
from ..measures.decomposition import silver_beta
from ..measures.ranking import ndcg, unless_nan
from ..runs.folder import Run
from ..runs.layout import DERIVED_FILE, LABELS_FILE, RECORD_FILE, label_schema
from ..runs.records import DataIdentity
from ..runs.table import Scored, read_table, row_groups
from ..scoring.scorer import ideal_gains
from ..terms import GRADES, Instance, JsonObject
from ..window.presentation import generator

TOP = float(GRADES[-1])
Scale = Literal["unit", "sigmoid", "rank"]
Control = Literal["random", "shuffled"]


@dataclass(frozen=True, slots=True)
class Label:
    """What the teacher says about one query."""

    query_id: str
    candidate_ids: tuple[str, ...]
    vectors: np.ndarray
    """(T, n) expected grades from 0 to 3, one row per teacher order."""
    grades: np.ndarray | None = None
    """(n, 4) grade distribution averaged over the T orders; None where the teacher gives none or T was lowered."""
    first: np.ndarray | None = None
    """(n,) which candidate the teacher ranks first in its window of the first-stage order: DebiasFirst's own rankings."""


def first_orders(label: Label, teacher_orders: int | None) -> Label:
    """The first T stored orders, None for all. The averaged distribution belongs to all of them, and goes with the others."""
    stored = len(label.vectors)
    if teacher_orders is None or teacher_orders == stored:
        return label
    if teacher_orders > stored:
        raise InputError(
            f"query {label.query_id} has labels of {stored} teacher orders, {teacher_orders} were asked for. "
            "Label again with a higher --teacher-orders."
        )
    return replace(label, vectors=label.vectors[:teacher_orders], grades=None)


def target(label: Label, teacher_orders: int | None = None) -> np.ndarray:
    """(n,) mean over the first T teacher orders: T = 1 is the single-order label, all of them the order-averaged (§4)."""
    mean: np.ndarray = first_orders(label, teacher_orders).vectors.mean(axis=0)
    return mean


# -- making labels


def label_by_run(run: Run, scale: Scale = "unit") -> list[Label]:
    """The labels that a teacher's finished run under T permutations gives, which are kept beside it."""
    labels = [from_scored(scored, scale, run.record.name) for scored in run.iter_queries()]
    write_labels(run.folder, labels)
    return labels


def from_scored(scored: Scored, scale: Scale = "unit", name: str = "the teacher") -> Label:
    """A query's label from its rows of the score table, on the grade scale."""
    vectors = TOP * _unit(scored.permuted, scale, name, scored.query_id)
    grades = None
    if scored.grades is not None:
        grades = scored.grades[scored.permutations >= 0].mean(axis=0)
    return Label(scored.query_id, scored.candidate_ids, vectors, grades, _firsts(scored))


def _unit(scores: np.ndarray, scale: Scale, name: str, query_id: str) -> np.ndarray:
    """Scores of a teacher on [0, 1]. A cross-encoder's logits need `sigmoid`; `rank` is the place within the query."""
    if scale == "sigmoid":
        return np.asarray(1 / (1 + np.exp(-scores)))
    if scale == "rank":
        lower = (scores[..., None, :] < scores[..., None]).sum(axis=-1)
        equal = (scores[..., None, :] == scores[..., None]).sum(axis=-1)
        places = lower + (equal - 1) / 2  # equal scores share the mean of their places
        return np.asarray(places / max(scores.shape[-1] - 1, 1))
    if scores.min() < -1e-6 or scores.max() > 1 + 1e-6:
        raise InputError(
            f"the scores of {name} are on another scale: {scores.min():.3g} to {scores.max():.3g} for query {query_id}, "
            "labels need 0 to 1. Pass --scale sigmoid for logits, or --scale rank for the place within the query."
        )
    return np.asarray(np.clip(scores, 0, 1))


def _firsts(scored: Scored) -> np.ndarray | None:
    if scored.first_stage is None or scored.windows is None:
        return None
    windows = scored.windows[scored.permutations < 0][0]
    first = np.zeros(len(windows), bool)
    for window in np.unique(windows):
        members = np.flatnonzero(windows == window)
        first[members[np.argmax(scored.first_stage[members])]] = True
    return first


def from_judgements(instance: Instance, top: int = 3) -> Label | None:
    """Human judgements as a label: relevance · 3 / top; unjudged candidates are 0. None where nothing is judged."""
    relevance = instance.relevance()
    if relevance is None:
        return None
    grades = np.maximum(np.nan_to_num(relevance), 0)
    if grades.max() > top:
        raise InputError(
            f"query {instance.id} has relevance {grades.max():g}, above the top judgement {top}. "
            "Name the collection's highest judgement with --judged-top."
        )
    order = sorted(range(len(grades)), key=lambda i: instance.pool[i].id)
    return Label(instance.id, tuple(instance.pool[i].id for i in order), (grades[order] * TOP / top)[None])


# -- changing labels


def recalibrate(label: Label, reference: Label) -> Label:
    """Rank-quantile matching (§D.3): the reference's sorted single-order values in the rank order of this label's mean.

    Of equal ones the smaller id ranks higher, as everywhere.
    """
    if label.candidate_ids != reference.candidate_ids:
        raise InputError(f"query {label.query_id} has other candidates in the two label sets; recalibration needs the same pool.")
    values = np.empty(len(label.candidate_ids))
    values[np.argsort(-label.vectors.mean(axis=0), kind="stable")] = np.sort(reference.vectors[0])[::-1]
    return replace(label, vectors=values[None], grades=None)


def replace_by_control(label: Label, kind: Control, seed: int) -> Label:
    """Negative controls: uniform random labels, or the query's own labels given to other candidates."""
    random = generator("control", kind, seed, label.query_id)
    if kind == "random":
        return replace(label, vectors=random.uniform(0, TOP, label.vectors.shape), grades=None)
    order = random.permutation(len(label.candidate_ids))
    return replace(label, vectors=label.vectors[:, order], grades=None if label.grades is None else label.grades[order])


def only_candidates(label: Label, ids: Container[str]) -> Label:
    """The label of a part of its pool."""
    kept = [i for i, id in enumerate(label.candidate_ids) if id in ids]
    return Label(
        label.query_id,
        tuple(label.candidate_ids[i] for i in kept),
        label.vectors[:, kept],
        None if label.grades is None else label.grades[kept],
        None if label.first is None else label.first[kept],
    )


def nested_subset(labels: Sequence[Label], queries: int, seed: int = 0) -> list[Label]:
    """A subset that every larger subset of the same seed contains, in the labels' own order."""
    if queries > len(labels):
        raise InputError(f"there are {len(labels)} labelled queries, {queries} were asked for.")
    drawn = sorted(labels, key=lambda label: generator("subset", seed, label.query_id).random())[:queries]
    kept = {label.query_id for label in drawn}
    return [label for label in labels if label.query_id in kept]


# -- on disk


def write_labels(folder: Place, labels: Sequence[Label], record: JsonObject | None = None) -> None:
    """`labels.parquet`, and for a derived set the record of what it was made from."""
    import pyarrow as pa

    rows = [
        {
            "query_id": label.query_id,
            "candidate_id": id,
            "vector": label.vectors[:, i].tolist(),
            "grades": None if label.grades is None else label.grades[i].tolist(),
            "first": None if label.first is None else bool(label.first[i]),
        }
        for label in labels
        for i, id in enumerate(label.candidate_ids)
    ]
    with explaining_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if record is not None:
            write_record(folder / DERIVED_FILE, record)
        else:
            (folder / DERIVED_FILE).unlink(missing_ok=True)  # of an earlier set in this folder
        write_parquet(folder / LABELS_FILE, pa.Table.from_pylist(rows, schema=label_schema()))


def has_labels(place: str | Place) -> bool:
    return is_there(parse_place(place) / LABELS_FILE)


def read_labels(place: str | Place) -> list[Label]:
    folder = parse_place(place)
    if not is_there(folder / LABELS_FILE):
        raise InputError(f"{place} holds no labels.parquet. Make it with: steadyscore label ... --out {place}")
    remedy = "Make it again with the `steadyscore label` command that made it."
    table = read_table(folder / LABELS_FILE, remedy=remedy).to_pydict()
    rows_of: dict[str, list[int]] = {}
    for row, query_id in enumerate(table["query_id"]):
        rows_of.setdefault(query_id, []).append(row)
    labels = []
    for query_id, rows in rows_of.items():
        vectors = np.array([table["vector"][r] for r in rows], float).T
        grades = None if table["grades"][rows[0]] is None else np.array([table["grades"][r] for r in rows])
        first = None if table["first"][rows[0]] is None else np.array([table["first"][r] for r in rows])
        if vectors.min() < -1e-6 or vectors.max() > TOP + 1e-6 or not np.isfinite(vectors).all():
            raise InputError(
                f"labels of query {query_id} in {place} are on another scale: {vectors.min():.3g} to {vectors.max():.3g}, "
                "training needs grades from 0 to 3. Label again with --scale."
            )
        labels.append(Label(query_id, tuple(table["candidate_id"][r] for r in rows), vectors, grades, first))
    return labels


def is_subset(place: str | Place) -> bool:
    """Whether a label folder was made with --subset: queries without a label are then left out, not missing."""
    file = parse_place(place) / DERIVED_FILE
    return is_there(file) and read_json(file).get("subset") is not None


def refuse_unlabelled(missing: Sequence[str]) -> None:
    """Stop where labels do not cover what is trained on; each of `missing` says what has no label."""
    if missing:
        more = [f"... and {len(missing) - 20} more"] if len(missing) > 20 else []
        advice = "The labels do not cover the pool. Label the same collection with the same --pool and --queries."
        raise InputError([*missing[:20], *more, advice])


def labels_identity(source: str) -> dict[str, object]:
    """What a training card says about its labels."""
    if source == "judgements":
        return {"source": "judgements"}
    folder = parse_place(source)
    record: dict[str, object] = {"source": Path(source).name, "sha256": sha256(folder / LABELS_FILE)[:16]}
    has_run = is_there(folder / RECORD_FILE)
    if is_there(folder / DERIVED_FILE):
        derived = read_json(folder / DERIVED_FILE)
        made = {key: derived.get(key) for key in ("from", "control", "recalibrated_to", "subset")}
        places = ("recalibrated_to",) if has_run else ("from", "recalibrated_to")  # what a run was made with is a scorer
        made |= {key: Path(origin).name for key in places if (origin := made[key])}
        record |= {key: value for key, value in made.items() if value is not None} | {"teacher_orders": _stored_orders(folder)}
    elif has_run:
        asked = Run.open(folder).record.fingerprint
        record |= {"teacher": asked.scorer, "teacher_orders": _stored_orders(folder), "width": asked.width}
    return record


def labelled_data(place: str | Place) -> DataIdentity | None:
    """Name and digest of the collection that a teacher scored for these labels; None where no run is beside them."""
    folder = parse_place(place)
    return Run.open(folder).record.fingerprint.data if is_there(folder / RECORD_FILE) else None


def label_contents(identity: JsonObject) -> dict[str, object]:
    """Of what a card says about its labels that which is learned: the labels themselves, not the folder they stand in."""
    return {key: identity[key] for key in ("sha256", "teacher_orders_used") if key in identity}


def _stored_orders(folder: Place) -> int:
    """Teacher orders, T, of the labels that are there."""
    first = next(row_groups(folder / LABELS_FILE, ["vector"]))
    return len(first.column("vector")[0])


# -- how good the labels are


def label_quality(labels: Sequence[Label], source: Data, k: int = 10) -> dict[str, float | None]:
    """Silver quality, nDCG@k of the order-averaged and the single-order label against judgements, and silver-beta (§F)."""
    by_id = {label.query_id: label for label in labels}
    qualities: list[np.ndarray] = []
    """(2,) for every judged query."""
    for instance in open_collection(source).instances():
        label, ideal = by_id.get(instance.id), ideal_gains(instance)
        if label is None or ideal is None:
            continue
        relevance = instance.relevance(label.candidate_ids)
        relevance = np.full(len(label.candidate_ids), np.nan) if relevance is None else relevance
        both = np.stack([target(label), target(label, 1)])
        qualities.append(ndcg(both, np.array(relevance, float), k, judged_gains=ideal))
    averaged, single = (float(np.mean(column)) for column in zip(*qualities, strict=True)) if qualities else (None, None)
    beta = silver_beta([label.vectors for label in labels])
    values = np.concatenate([target(label) for label in labels])
    return {
        "queries": len(labels),
        "candidates": len(values),
        "teacher_orders": min(len(label.vectors) for label in labels),
        "mean": float(values.mean()),
        "sd": float(values.std()),
        f"ndcg@{k}": averaged,
        f"ndcg@{k} of one order": single,
        "silver_beta": unless_nan(beta.beta),
        "silver_beta_scale_free": unless_nan(beta.scale_free),
    }
