"""What adaptive presentation saves, and what a proxy with it does to decisions.

python bench/bench_adaptive.py replay FILE  from the scores of an audit with 10 permutations: the share of its windows that are
                                            looked at, and of its documents' roles that stay, by the error that is stated
python bench/bench_adaptive.py planted      the same of planted scores: noise of several sizes between presentations
python bench/bench_adaptive.py proxy        a rerank server on loopback with a planted slot effect, alone and behind `serve`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np

from steadyscore.measures import settling
from steadyscore.measures.settling import DecisionRule, PairRule, ThresholdRule, TopKRule, is_decided, roles
from steadyscore.runs.score_file import read_scores
from steadyscore.scoring.mitigations import ShareRule, for_pool

K, REPEATS = 10, 20
ERRORS = (0.005, 0.01, 0.02, 0.03, 0.05)
RULES = {"cutoff (30 % kept)": None, "share 0.3": ShareRule(0.3), "top 1": TopKRule(1), "pair": PairRule()}


def presentations(scores: np.ndarray, rule: DecisionRule) -> int:
    """How many of K rows (K, n) are looked at."""
    return next((m for m in range(2, K) if is_decided(scores[:m], rule, K)), K)


def curve(tables: list[np.ndarray]) -> None:
    """Every table (K, n) with its rows in REPEATS orders."""
    cutoff = ThresholdRule(float(np.quantile(np.concatenate([t.mean(axis=0) for t in tables]), 0.7)))
    half = K // 2
    for name, named in RULES.items():
        chance = []
        for t in tables:
            rule = for_pool(named or cutoff, t.shape[1])
            chance.append((roles(t[:half].mean(axis=0), rule) == roles(t[half:].mean(axis=0), rule)).mean())
        print(f"{name}: two halves of K = {K} agree on {np.mean(chance):.1%} of the roles")
        for error in ERRORS:
            settling.CHANGED_SHARE = error
            rng, taken, same, whole = np.random.default_rng(0), [], [], []
            for t in tables:
                rule = for_pool(named or cutoff, t.shape[1])
                for _ in range(REPEATS):
                    rows = t[rng.permutation(K)]
                    taken.append(presentations(rows, rule))
                    equal = roles(rows[: taken[-1]].mean(axis=0), rule) == roles(rows.mean(axis=0), rule)
                    same.append(equal.mean())
                    whole.append(equal.all())
            print(
                f"  error {error:.1%}  windows {np.mean(taken) / K:6.1%}  roles {np.mean(same):.2%}  whole {np.mean(whole):.1%}"
            )


def planted(noise: float) -> Iterator[np.ndarray]:
    """200 pools of 20 documents whose scores spread by 0.2, with noise between presentations."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        yield rng.beta(1, 2, 20) + noise * rng.standard_normal((K, 20))


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
        curve([query.permuted[:K] for query in read_scores([Path(sys.argv[2])])])
    elif what == "planted":
        for noise in (0.02, 0.05, 0.1):
            print(f"noise {noise}")
            curve(list(planted(noise)))
    else:
        proxy()
