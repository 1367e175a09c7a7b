"""What adaptive presentation saves, and what a proxy with it does to decisions.

python bench/bench_adaptive.py replay FILE  from the scores of an audit with 10 permutations: the share of its windows that are
                                            looked at, and of its documents' roles that stay, by the error that is stated
python bench/bench_adaptive.py planted      the same of planted scores: noise of several sizes between presentations, without and
                                            with a first place that gains
python bench/bench_adaptive.py proxy        a rerank server on loopback with a planted slot effect, alone and behind `serve`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from steadyscore.measures.settling import DecisionRule, PairRule, ThresholdRule, TopKRule, change_chances, roles
from steadyscore.runs.score_file import read_scores
from steadyscore.runs.table import FIRST_STAGE
from steadyscore.scoring.mitigations import ShareRule, for_pool
from steadyscore.window.presentation import window_places

K = 10
ERRORS = (0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.05)
RULES = {"cutoff (30 % kept)": None, "share 0.3": ShareRule(0.3), "top 1": TopKRule(1), "pair": PairRule()}


class Pool(NamedTuple):
    """One pool in K orders."""

    scores: np.ndarray
    """(K, n)"""
    places: np.ndarray
    """(K, n, F)"""


def chances(pool: Pool, rule: DecisionRule) -> np.ndarray:
    """(K - 1,) share of the roles that are expected to change after two rows, three and so on; 0 after all."""
    each = [change_chances(pool.scores[:m], rule, K, pool.places).mean() for m in range(2, K + 1)]
    return np.array(each)


def curve(pools: list[Pool], repeats: int) -> None:
    """Every pool with its rows in several orders."""
    tables = [pool.scores for pool in pools]
    cutoff = ThresholdRule(float(np.quantile(np.concatenate([t.mean(axis=0) for t in tables]), 0.7)))
    half = K // 2
    for name, named in RULES.items():
        agreed, expected, same, whole = [], [], [], []
        rng = np.random.default_rng(0)
        for pool in pools:
            rule = for_pool(named or cutoff, pool.scores.shape[1])
            agreed.append((roles(pool.scores[:half].mean(axis=0), rule) == roles(pool.scores[half:].mean(axis=0), rule)).mean())
            for _ in range(repeats):
                drawn = rng.permutation(K)
                rows = pool.scores[drawn]
                expected.append(chances(Pool(rows, pool.places[drawn]), rule))
                every = roles(rows.mean(axis=0), rule)
                equal = [roles(rows[:m].mean(axis=0), rule) == every for m in range(2, K + 1)]
                same.append([each.mean() for each in equal])
                whole.append([each.all() for each in equal])
        print(f"{name}: two halves of K = {K} agree on {np.mean(agreed):.1%} of the roles")
        for error in ERRORS:
            stop = (np.array(expected) <= error).argmax(axis=1)
            roles_kept, whole_kept = (np.array(values)[np.arange(len(stop)), stop].mean() for values in (same, whole))
            print(
                f"  error {error:.1%}  windows {(stop + 2).mean() / K:6.1%}  roles {roles_kept:.2%}  whole {whole_kept:.1%}",
                flush=True,
            )


def stored(file: Path) -> Iterator[Pool]:
    """The first K orders of every query of a score file, with the places that their windows have."""
    for query in read_scores([file]):
        shown = query.permutations != FIRST_STAGE
        slots, windows = query.slots[shown][:K], query.windows[shown][:K]
        last = np.stack([np.bincount(row)[row] - 1 for row in windows])
        places = np.stack([slots == 0, slots == last, slots / np.maximum(last, 1) - 0.5], axis=-1)
        yield Pool(query.permuted[:K], places)


def planted(noise: float, first: float) -> Iterator[Pool]:
    """200 pools of 20 documents whose scores spread by 0.2, with noise between presentations and a first place that gains."""
    rng, orders = np.random.default_rng(0), np.random.default_rng(1)
    for _ in range(200):
        scores = rng.beta(1, 2, 20) + noise * rng.standard_normal((K, 20))
        places = window_places(20, 20, "contiguous")[np.argsort(orders.random((K, 20)), axis=-1)]
        yield Pool(scores + first * places[..., 0], places)


def proxy() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from starlette.testclient import TestClient
    from tests.helpers.serving import Double, app_of, listening, model

    from steadyscore.collection import open_collection
    from steadyscore.commands import serve
    from steadyscore.engines.synthetic import SyntheticReranker
    from steadyscore.window.presentation import permutations

    pools = [(i.query, [c.text for c in i.pool[:10]]) for i in open_collection("passages").instances()]

    def kept(client: TestClient, query: str, texts: list[str], seed: int | None) -> tuple[frozenset[str], int]:
        own = {} if seed is None else {"order": {"permutations": K, "adaptive": True, "seed": seed}}
        answer = client.post("/v1/rerank", json={"query": query, "documents": texts, "top_n": 3} | own)
        return frozenset(texts[row["index"]] for row in answer.json()["results"]), int(answer.headers["steadyscore-windows"])

    for size in (0.05, 0.1, 0.2):
        with listening(app_of(model(Double(SyntheticReranker("slot", size).score)))) as url:
            for how, flags, seeds in (
                ("alone", (), False),
                ("behind adaptive:10", ("--mitigation", "adaptive:10"), False),
                ("the same, another draw of orders each time", (), True),
            ):
                parser = argparse.ArgumentParser()
                serve.arguments(parser)
                args = parser.parse_args([f"m=rerank+cohere:{url}/v2/rerank", *flags])
                flips, requests = [], []
                with TestClient(app_of(*serve.open_models(args.scorers, args).values())) as client:
                    for query, texts in pools:
                        sets = []
                        for i, order in enumerate(permutations(len(texts), 6, seed=1, query_id=query)):
                            chosen, count = kept(client, query, [texts[j] for j in order], i if seeds else None)
                            sets.append(chosen)
                            requests.append(count)
                        flips += [first != second for first, second in combinations(sets, 2)]
                print(f"slot effect {size}: {how}: first three differ between {np.mean(flips):.1%} of the orders, "
                      f"{np.mean(requests):.2f} requests a request", flush=True)  # fmt: skip


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "replay":
        curve(list(stored(Path(sys.argv[2]))), 20)
    elif what == "planted":
        for noise, first in ((0.02, 0), (0.05, 0), (0.1, 0), (0.02, 0.2), (0.05, 0.2)):
            print(f"noise {noise}, first place {first}")
            curve(list(planted(noise, first)), 2)
    else:
        proxy()
