"""What sorting cannot do: scores under another sorting of the pool, and of the pool without one candidate.

    python lab/control.py SET_ADAPTER COLLECTION [--queries 8] [--pool 20]

For set windows, and for causal and isolated windows served in a canonical order (a salted hash of each text, as the
mitigation of that name does): Kendall's discordance, top-30 % overlap and pair flip between two salts, and before and
after one candidate is dropped from the pool, over the candidates that stay. Means over queries with 95 % intervals.
"""

from __future__ import annotations

import argparse
import hashlib

import numpy as np

from steadyscore.collection import open_collection
from steadyscore.engines.address import open_engine
from steadyscore.measures.instability import tau_psi
from steadyscore.measures.preference import pair_flip
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import TASKS
from steadyscore.terms import Instance
from steadyscore.window.prompt import prompt_text, shown
from steadyscore.window.readout import grade_distribution, score


def sorted_by(instance: Instance, salt: str) -> np.ndarray:
    return np.array(
        sorted(
            range(len(instance.pool)),
            key=lambda i: hashlib.blake2b((salt + shown(instance.pool[i], 300)).encode(), digest_size=16).digest(),
        )
    )


def scores(scorer: Scorer, instance: Instance, salt: str) -> np.ndarray:
    """In pool order. The blocks of a set stand as the salt sorts them too, not as the engine would sort them."""
    order = sorted_by(instance, salt)
    if scorer.settings.prompt != "set":
        return scorer.score(instance, order)
    texts = [shown(instance.pool[i], 300) for i in order]
    text = prompt_text(scorer.task, instance.query, texts, style="set")
    (reading,) = scorer.backend.grade_logits([scorer.backend.encoder.set_prompt(text, is_sorted=False)])
    return score(grade_distribution(reading.logits))[np.argsort(order)]


def compared(one: np.ndarray, other: np.ndarray) -> list[float]:
    both = np.stack([one, other])
    count = max(1, round(0.3 * len(one)))
    kept = [set(np.argsort(-row, kind="stable")[:count].tolist()) for row in both]
    return [float(tau_psi(both)), len(kept[0] & kept[1]) / len(kept[0] | kept[1]), float(pair_flip(both))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter")
    parser.add_argument("collection")
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--pool", type=int, default=20)
    args = parser.parse_args()
    source = open_collection(args.collection)
    task = TASKS[source.collection.task]
    found = [i for i, _ in zip(source.instances(), range(args.queries), strict=False)]
    pools = [Instance(i.id, i.query, i.pool[: args.pool]) for i in found]
    plain = {"chars": 300, "label_mass": False}
    scorers = {
        "set": Scorer(open_engine(f"smollm2-135m+{args.adapter}"), task, Settings(prompt="set", **plain)),
        "canonical order, isolated (smollm2-135m-oc)": Scorer(open_engine("smollm2-135m-oc"), task, Settings(width=10, **plain)),
        "canonical order, causal (the common start)": Scorer(
            open_engine("smollm2-135m+lab/warm-start"), task, Settings(width=10, prompt="compact", **plain)
        ),
    }
    draw = np.random.default_rng(0)
    measures = "τ-PSI | overlap | pair flip"
    print(f"| | another salt: {measures} | one dropped: {measures} |\n|---|{'---:|' * 6}")
    for name, scorer in scorers.items():
        rows = []
        for pool in pools:
            gone = (len(pool.pool) * 7919 + len(pool.query)) % len(pool.pool)
            kept = [i for i in range(len(pool.pool)) if i != gone]
            fewer = Instance(pool.id, pool.query, tuple(pool.pool[i] for i in kept))
            a, b, c = scores(scorer, pool, "a"), scores(scorer, pool, "b"), scores(scorer, fewer, "a")
            rows.append([*compared(a, b), *compared(a[kept], c)])
        table = np.array(rows)
        means = table[draw.integers(0, len(rows), (2000, len(rows)))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975], axis=0)
        cells = [f"{m:.3f} [{lo:.3f}, {hi:.3f}]" for m, lo, hi in zip(table.mean(axis=0), low, high, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
