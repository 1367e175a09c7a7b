"""The array measures against straightforward loops over scipy, pytrec_eval and scikit-learn, in one run.

The arrays are measured whole. The loops run on the first `--sample` queries, whose values must agree with ours, and
their time is scaled to all queries; the table says so.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from steadyscore.measures.instability import rank_variance, score_variance, tau_b_psi, tau_psi, tied_pairs, top_k_instability
from steadyscore.measures.preference import gold_crossing, label_accuracy, pair_flip, selection_flip
from steadyscore.measures.ranking import average_precision, ndcg, recall, reciprocal_rank
from steadyscore.measures.retained_sets import overlap, retained, set_f1

CUTOFF = 0.8
SKLEARN = ("overlap", "set_f1")
"""scikit-learn checks its input on every call, which makes its loops far slower than the arithmetic: totals also without."""

Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]


def made_up(queries: int, permutations: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores with an order effect and some ties, and sparse graded relevance."""
    rng = np.random.default_rng(seed)
    content = rng.random((queries, 1, n))
    scores = np.round(content + 0.2 * rng.random((queries, permutations, n)), 3)
    return scores, rng.choice([np.nan, 0.0, 1.0, 2.0, 3.0], (queries, n), p=[0.5, 0.3, 0.1, 0.06, 0.04])


OURS: dict[str, Measure] = {
    "tau_psi": lambda s, r: tau_psi(s),
    "tau_b_psi": lambda s, r: tau_b_psi(s),
    "top10_instability": lambda s, r: top_k_instability(s),
    "ndcg@10, ap, rr, recall@10": lambda s, r: np.stack(
        [ndcg(s, r, 10), average_precision(s, r), reciprocal_rank(s, r), recall(s, r, 10)], axis=-1
    ),
    "overlap": lambda s, r: overlap(retained(s, CUTOFF)),
    "set_f1": lambda s, r: set_f1(retained(s, CUTOFF), r),
    "pair_flip, selection_flip": lambda s, r: np.stack([pair_flip(s), selection_flip(s)], axis=-1),
    "gold_crossing, label_accuracy": lambda s, r: np.stack([gold_crossing(s, r), label_accuracy(s, r)], axis=-1),
    "tied_pairs": lambda s, r: tied_pairs(s),
    "score_variance, rank_variance": lambda s, r: np.stack([score_variance(s), rank_variance(s)], axis=-1),
}


# ---- the loops: one query at a time, scores (M, n), as one would write them from the libraries' manuals ----


def loops() -> dict[str, Callable[[np.ndarray, np.ndarray], Any]]:
    import pytrec_eval
    from scipy.stats import kendalltau, rankdata
    from sklearn.metrics import f1_score, jaccard_score

    names = [f"d{column:03d}" for column in range(1000)]
    trec = {"ndcg_cut.10": "ndcg_cut_10", "map": "map", "recip_rank": "recip_rank", "recall.10": "recall_10"}

    def order(row):
        return sorted(range(len(row)), key=lambda column: (-row[column], column))

    def ranks(scores):
        return [rankdata(-row, method="ordinal") for row in scores]

    def mean_pairs(function, rows):
        return np.mean([function(a, b) for a, b in combinations(rows, 2)])

    def rbo(one, other, k=10, p=0.9):
        shared = [len(set(one[:d]) & set(other[:d])) / d for d in range(1, k + 1)]
        return (1 - p) * sum(a * p**d for d, a in enumerate(shared)) + shared[-1] * p**k

    def quality(scores, relevance):
        qrels = {names[c]: int(grade) for c, grade in enumerate(relevance) if not np.isnan(grade)}
        rows = []
        for row in scores:
            run = {names[column]: float(len(row) - place) for place, column in enumerate(order(row))}
            result = pytrec_eval.RelevanceEvaluator({"q": qrels}, set(trec)).evaluate({"q": run})["q"]
            rows.append([result[name] for name in trec.values()])
        return rows

    def crossing(scores, relevance):
        judged = [0 if np.isnan(grade) else grade for grade in relevance]
        agrees = [judged[order(row)[0]] == max(judged) for row in scores]
        return [float(any(agrees) and not all(agrees)), np.mean(agrees)]

    def flips(scores, relevance):
        pairs = [(ranked[0], ranked[-1]) for ranked in map(order, scores)]
        return [mean_pairs(lambda a, b: a != b, pairs), mean_pairs(lambda a, b: a[0] != b[0], pairs)]

    return {
        "tau_psi": lambda s, r: (1 - mean_pairs(lambda a, b: kendalltau(a, b).statistic, ranks(s))) / 2,
        "tau_b_psi": lambda s, r: (1 - mean_pairs(lambda a, b: kendalltau(a, b).statistic, s)) / 2,
        "top10_instability": lambda s, r: 1 - mean_pairs(rbo, [order(row) for row in s]),
        "ndcg@10, ap, rr, recall@10": quality,
        "overlap": lambda s, r: mean_pairs(lambda a, b: jaccard_score(a, b, zero_division=1), s >= CUTOFF),
        "set_f1": lambda s, r: [f1_score(r >= 1, kept, zero_division=0) for kept in s >= CUTOFF],
        "pair_flip, selection_flip": flips,
        "gold_crossing, label_accuracy": crossing,
        "tied_pairs": lambda s, r: np.mean([a == b for row in s for a, b in combinations(row, 2)]),
        "score_variance, rank_variance": lambda s, r: [np.var(s, axis=0).mean(), np.var(ranks(s), axis=0).mean()],
    }


def measured(queries: int, permutations: int, n: int, sample: int) -> dict[str, Any]:
    """Seconds, ratio and largest difference per measure, and the peak memory of ours before any loop is run."""
    scores, relevance = made_up(queries, permutations, n)
    ours, values = {}, {}
    for name, measure in OURS.items():
        started = time.perf_counter()
        values[name] = measure(scores, relevance)
        ours[name] = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = []
    for name, loop in loops().items():
        loop(scores[0], relevance[0])  # imports and caches
        started = time.perf_counter()
        theirs = np.array([loop(scores[q], relevance[q]) for q in range(sample)], float)
        seconds = (time.perf_counter() - started) * queries / sample
        difference = float(np.abs(theirs - values[name][:sample]).max())
        rows.append({"measure": name, "ours": ours[name], "loops": seconds, "ratio": seconds / ours[name], "differ": difference})
    total, total_loops = sum(ours.values()), sum(row["loops"] for row in rows)
    ours_sklearn = sum(ours[name] for name in SKLEARN)
    rest = sum(row["loops"] for row in rows if row["measure"] not in SKLEARN)
    return {
        "shape": [queries, permutations, n],
        "sample": sample,
        "machine": f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}",
        "rows": rows,
        "full_set": {"ours": total, "loops": total_loops, "ratio": total_loops / total},
        "without_sklearn": {"ours": total - ours_sklearn, "loops": rest, "ratio": rest / (total - ours_sklearn)},
        "peak_mb": peak,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--permutations", type=int, default=10)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--sample", type=int, default=25, help="queries the loops run on; their time is scaled up")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    result = measured(options.queries, options.permutations, options.candidates, options.sample)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    queries, permutations, n = result["shape"]
    print(f"{queries:,} queries x {permutations} permutations x {n} candidates; {result['machine']}")
    print(f"loops: timed on {result['sample']} queries, scaled to {queries:,}\n")
    print(f"{'measure':32}{'ours, s':>9}{'loops, s':>10}{'ratio':>8}{'largest difference':>20}")
    for row in result["rows"]:
        print(f"{row['measure']:32}{row['ours']:9.2f}{row['loops']:10.1f}{row['ratio']:7.0f}x{row['differ']:20.1e}")
    for label, key in (("full set", "full_set"), ("without the scikit-learn rows", "without_sklearn")):
        row = result[key]
        print(f"{label:32}{row['ours']:9.2f}{row['loops']:10.1f}{row['ratio']:7.0f}x")
    print(f"\npeak memory of ours: {result['peak_mb']:,.0f} MB")


if __name__ == "__main__":
    main()
