"""Table 1 and the table of readers, every cell once more: from the stored tables by plain numpy, without the package's measures.

The package says which run a cell takes; what is made of its rows is written here again, in another way.
"""

import hashlib
import re
import string
from itertools import combinations, pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from steadyscore.cli import main
from steadyscore.paper.artifacts import ARTIFACTS
from steadyscore.paper.layout import fill
from steadyscore.paper.library import At, Library
from steadyscore.paper.names import collections_in
from steadyscore.paper.scale import choices_from
from steadyscore.paper.work import Store

pytestmark = pytest.mark.slow  # minutes: tables that share runs of ten and of forty permutations

OTHERS = ("amort", "amortconsumers", "pool-controls", "qa-transfer-reader")
"""Tables whose runs are larger, or have more readers, than the two need."""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    assert main(["reproduce", "run", "levels", "downstream", *OTHERS, "--store", str(folder), "--json"]) == 0
    return Library(Store(folder), choices_from("tiny"))


# -- the rows of a run


class Query:
    """A query of a run: scores under every order, its judgements, and what a reader wrote."""

    def __init__(self, name, rows, about, outputs):
        self.id = name
        ids = sorted({row["candidate_id"] for row in rows})
        at = {(row["permutation"], row["candidate_id"]): row for row in rows}
        self.orders = sorted({row["permutation"] for row in rows} - {-1})
        self.first = [at[-1, i]["score"] for i in ids]
        self.scores = {p: [at[p, i]["score"] for i in ids] for p in self.orders}
        self.places = {p: [(at[p, i]["window"], at[p, i]["slot"]) for i in ids] for p in (-1, *self.orders)}
        self.gold = [at[-1, i]["relevance"] or 0 for i in ids]
        self.ideal = sorted((grade or 0 for grade in about["judged"]), reverse=True) or sorted(self.gold, reverse=True)
        self.answers, self.verdict = about["answers"] or (), about["verdict"]
        self.outputs = [row["output"] for row in sorted(outputs, key=lambda row: row["permutation"])]


def read(library, side, base, seed, collection, reader=""):
    """The queries of the run that the package names for a side; of its readers' outputs those of one label."""
    folder = library.run(At(side, base, seed, collection)).folder
    tables = {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("scores", "queries")}
    written = pq.read_table(folder / "outputs.parquet").to_pylist() if (folder / "outputs.parquet").exists() else []
    groups = {about["query_id"]: [] for about in tables["queries"]}
    for row in tables["scores"]:
        groups[row["query_id"]].append(row)
    own = [row for row in written if row["reader"] == reader]
    return [
        Query(about["query_id"], groups[about["query_id"]], about, [row for row in own if row["query_id"] == about["query_id"]])
        for about in tables["queries"]
    ]


def ranked(scores, places=None):
    """Columns from best to worst; of equal scores the smaller id first, or the one that was shown first."""
    keys = range(len(scores)) if places is None else places
    return sorted(range(len(scores)), key=lambda i: (-scores[i], keys[i]))


def orders_of(query, side):
    """The scores of the M orders, or of the ensembles of K that are served; with the places where ties go by them."""
    count, K = side.permutations, side.serving
    rows = [query.scores[p] for p in query.orders[:count]]
    if K > 1:
        rows = [np.mean(rows[start : start + K], axis=0).tolist() for start in range(0, count, K)]
    shown = [query.places[p] if side.ties == "input" else None for p in query.orders[:count]]
    return rows, shown


def gains(ranking, gold, k):
    return sum(gold[i] / np.log2(place + 2) for place, i in enumerate(ranking[:k]))


def ndcg(query, side, k):
    """In first-stage order; of ensembles, which have none, the mean."""
    rows, _ = orders_of(query, side)
    best = gains(range(len(query.ideal)), query.ideal, k)
    served = rows if side.serving > 1 else [query.first]
    shown = query.places[-1] if side.ties == "input" else None
    return np.mean([gains(ranked(row, shown), query.gold, k) / best if best else 0.0 for row in served])


def pairs(values, differ):
    return float(np.mean([differ(a, b) for a, b in combinations(values, 2)]))


def tau_psi(query, side, k):
    rows, shown = orders_of(query, side)
    n = len(rows[0])
    turned = []
    for row, places in zip(rows, shown, strict=False):
        place = np.argsort(ranked(row, places))
        turned.append([place[i] < place[j] for i, j in combinations(range(n), 2)])
    return pairs(turned, lambda a, b: np.mean(np.array(a) != np.array(b)))


def pair_flip(query, side, k):
    rows, shown = orders_of(query, side)
    ends = [(order[0], order[-1]) for order in map(ranked, rows, shown)]
    return pairs(ends, lambda a, b: a != b)


def overlaps(queries, side):
    """Jaccard of the sets above a cutoff that is tuned to F1 on half of the queries, over the other half."""
    shuffled = sorted(queries, key=lambda q: hashlib.sha256(f"0:{q.id}".encode()).digest())
    half = max(1, round(len(queries) / 2))
    tuned_on = [(orders_of(q, side)[0][0] if side.serving > 1 else q.first, q.gold) for q in shuffled[:half]]

    def f1(cutoff):
        found = []
        for scores, gold in tuned_on:
            kept = {i for i, score in enumerate(scores) if score >= cutoff}
            right = {i for i, grade in enumerate(gold) if grade > 0}
            found.append(2 * len(kept & right) / (len(kept) + len(right)) if kept or right else 0.0)
        return np.mean(found)

    levels = sorted({score for scores, _ in tuned_on for score in scores})
    grid = [levels[0], *((a + b) / 2 for a, b in pairwise(levels))]
    best = max(f1(cutoff) for cutoff in grid)
    cutoff = max(cutoff for cutoff in grid if f1(cutoff) > best - 1e-9)
    sets = {
        q.id: [frozenset(i for i, s in enumerate(row) if s >= cutoff) for row in orders_of(q, side)[0]] for q in shuffled[half:]
    }
    return [
        pairs(sets[q.id], lambda a, b: len(a & b) / len(a | b) if a | b else 1.0) if q.id in sets else np.nan for q in queries
    ]


# -- what a reader wrote


def plain(text):
    words = re.sub(r"\b(a|an|the)\b", " ", "".join(c for c in text.lower() if c not in string.punctuation))
    return " ".join(words.split())


def answer_flip(query, side, k):
    written = [plain(text) for text in query.outputs[: side.permutations // side.serving]]
    return pairs(written, lambda a, b: a != b) if written else np.nan


def verdict_flip(query, side, k):
    written = query.outputs[: side.permutations]
    return pairs(written, lambda a, b: a != b) if written else np.nan


def verdict_accuracy(query, side, k):
    return np.mean([text == query.verdict for text in query.outputs[: side.permutations]]) if query.verdict else np.nan


def best_over_answers(score):
    def mean(query, side, k):
        golds = [plain(gold) for gold in query.answers]
        return np.mean([max(score(plain(text), gold) for gold in golds) for text in query.outputs[: side.permutations]])

    return mean


def token_f1(written, gold):
    words, other = written.split(), gold.split()
    if {written, gold} & {"yes", "no", "noanswer"} or not words or not other:
        return float(written == gold)
    return 2 * sum(min(words.count(w), other.count(w)) for w in set(words)) / (len(words) + len(other))


MEASURES = {
    "ndcg@10": ndcg, "ndcg@1": ndcg, "tau_psi": tau_psi, "pair_flip": pair_flip, "answer_flip": answer_flip,
    "verdict_flip": verdict_flip, "verdict_accuracy": verdict_accuracy,
    "answer_em": best_over_answers(lambda a, b: float(a == b)), "answer_f1": best_over_answers(token_f1),
    "tied_pairs": lambda query, side, k: np.mean([
        np.mean([a == b for a, b in combinations(row, 2)]) for row in orders_of(query, side)[0]
    ]),
}  # fmt: skip


def values_of(library, side, seed, collection, measure):
    label = f"planted:{side.reader} k=5" + (f" K={side.serving}" if side.serving > 1 else "")
    label += " [--ties input]" if side.reader and side.ties == "input" else ""
    queries = read(library, side, side.base, seed, collection, label)
    if measure == "overlap":
        return overlaps(queries, side)
    return [MEASURES[measure](query, side, int(measure.rpartition("@")[2] or 0) if "@" in measure else 0) for query in queries]


def collection_values(library, cell):
    """collection -> (S, Q) of the cell's signed sum of sides, seed by seed."""
    sides = [(sign, library.side(side)) for sign, side in cell.sides()]
    count = max(len(side.seeds) for _, side in sides)
    return {
        name: np.array([
            sum(sign * np.array(values_of(library, side, side.seeds[min(s, len(side.seeds) - 1)], name, cell.measure))
                for sign, side in sides)
            for s in range(count)
        ])
        for name in collections_in(cell.collections)
    }  # fmt: skip


def bootstrap(values, scheme, draws=20_000):
    """Ends of the plain percentile interval, from draws of its own."""
    random = np.random.default_rng(7)

    def resampled(v):
        return v[random.integers(0, len(v), (draws, len(v)))].mean(axis=1)

    keep = scheme == "queries" or len(values) == 1
    drawn = np.arange(len(values))[None] if keep else random.integers(0, len(values), (draws, len(values)))
    slots = [np.choose(column, [resampled(v) for v in values]) for column in drawn.T]
    return np.quantile(np.mean(slots, axis=0), [0.025, 0.975])


def same_evidence(library, cell):
    """Share of queries whose first five are one set under every order for both systems, and how much less the second flips."""
    shares, reductions = [], []
    for name in collections_in(cell.collections):
        found = []
        for system in (cell.rivals[0], cell.system):
            side = library.side(next(side for sign, side in cell.sides()))
            side = type(side)(**{f: getattr(side, f) for f in side.__dataclass_fields__} | {"system": system})
            found.append((read(library, side, side.base, side.seeds[0], name, "planted:first k=5"), side))
        flip = verdict_flip if name == "climate-fever" else answer_flip
        rows = []
        for one, other in zip(found[0][0], found[1][0], strict=True):
            if one.outputs and other.outputs:
                tops = [[set(ranked(row)[:5]) for row in orders_of(q, found[0][1])[0]] for q in (one, other)]
                rows.append((tops[0] == tops[1], flip(one, found[0][1], 0) - flip(other, found[1][1], 0)))
        shares.append(np.mean([same for same, _ in rows]))
        reductions.append(np.mean([less for same, less in rows if same]) if any(same for same, _ in rows) else np.nan)
    return float(np.nanmean(shares if cell.second == "share" else reductions))


def check(library, name):
    """Every cell of an artifact against its recomputation; how many were compared."""
    compared = 0
    for grid in fill(ARTIFACTS[name], library).grids:
        for r, row in enumerate(grid.values):
            for c, value in enumerate(row):
                cell, place = grid.block.cell(r, c), (grid.block.title, grid.block.rows[r].label, grid.block.columns[c].label)
                if cell.text:
                    continue
                compared += 1
                if cell.statistic == "same_evidence":
                    assert value.value == pytest.approx(same_evidence(library, cell), abs=1e-12), place
                    continue
                tables = [rows[:, ~np.isnan(rows).any(axis=0)] for rows in collection_values(library, cell).values()]
                defined = [rows.mean(axis=0) for rows in tables]
                if cell.statistic == "count":
                    assert value.value == sum(map(len, defined)), place
                    continue
                assert value.value == pytest.approx(np.mean([unit.mean() for unit in defined]), abs=1e-12), place
                by_seed = [np.mean([rows[s].mean() for rows in tables]) for s in range(len(value.by_seed))]
                assert value.by_seed == pytest.approx(by_seed, abs=1e-12), place
                if value.sd is not None:
                    assert value.sd == pytest.approx(np.std(by_seed, ddof=1), abs=1e-12), place
                if cell.form == "interval":
                    width = value.high - value.low
                    ends = bootstrap(defined, cell.scheme)
                    assert (value.low, value.high) == pytest.approx(ends, abs=0.06 * width + 1e-12), place
    return compared


@pytest.mark.parametrize(("name", "cells"), [("levels", 105), ("downstream", 42)])
def test_every_cell_is_what_plain_numpy_makes_of_the_stored_scores(library, name, cells):
    assert check(library, name) == cells
