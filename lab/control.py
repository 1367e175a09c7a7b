"""What sorting cannot do: a scorer under another sorting of the pool, and after one candidate was dropped or replaced.

    python lab/control.py SET_SCORER COLLECTION [--queries 8] [--pool 20] [--width 10]

For set windows, and for causal and isolated windows served in a canonical order (a salted hash of each text, as the
mitigation of that name does): τ-PSI, overlap of the top 30 % and pair flip between two salts, and before and after one
candidate is dropped from the pool or replaced by the next one behind it, over the candidates that stay. Means over queries
with 95 % intervals. The candidate that goes is the same for every scorer.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator

import numpy as np

from steadyscore.collection import open_collection
from steadyscore.engines.kinds import open_engine
from steadyscore.measures.instability import tau_psi
from steadyscore.measures.intervals import mean_interval
from steadyscore.measures.preference import pair_flip
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import TASKS, Task
from steadyscore.terms import Instance
from steadyscore.window.prompt import prompt_text, shown
from steadyscore.window.readout import grade_distribution, score

CHARS = 300
CHANGES = ("another salt", "one dropped", "one replaced")


def sorted_by(instance: Instance, salt: str) -> np.ndarray:
    keys = [hashlib.blake2b((salt + shown(candidate, CHARS)).encode(), digest_size=16).digest() for candidate in instance.pool]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__))


def scores(scorer: Scorer, instance: Instance, salt: str = "a") -> np.ndarray:
    """In pool order. The blocks of a set stand as the salt sorts them too, not as the engine would sort them."""
    order = sorted_by(instance, salt)
    if scorer.settings.prompt != "set":
        return scorer.score(instance, order)
    texts = [shown(instance.pool[i], CHARS) for i in order]
    text = prompt_text(scorer.task, instance.query, texts, style="set")
    (reading,) = scorer.backend.grade_logits([scorer.backend.encoder.set_prompt(text, is_sorted=False)])
    return score(grade_distribution(reading.logits))[np.argsort(order)]


def compared(one: np.ndarray, other: np.ndarray) -> list[float]:
    both = np.stack([one, other])
    count = max(1, round(0.3 * len(one)))
    kept = [set(np.argsort(-row, kind="stable")[:count].tolist()) for row in both]
    moved = float(np.abs(one - other).mean())
    return [float(tau_psi(both)), len(kept[0] & kept[1]) / len(kept[0] | kept[1]), float(pair_flip(both)), moved]


def changes(scorer: Scorer, instance: Instance, size: int) -> Iterator[list[float]]:
    """What each of `CHANGES` does to the first `size` candidates of a pool."""
    gone = (size * 7919 + len(instance.query)) % size
    stay = [i for i in range(size) if i != gone]
    full, dropped = (Instance(instance.id, instance.query, tuple(instance.pool[i] for i in some)) for some in (range(size), stay))
    replaced = Instance(instance.id, instance.query, (*dropped.pool, instance.pool[size]))
    before = scores(scorer, full)
    yield compared(before, scores(scorer, full, "b"))
    yield compared(before[stay], scores(scorer, dropped))
    yield compared(before[stay], scores(scorer, replaced)[: len(stay)])


def scorers(address: str, task: Task, width: int) -> Iterator[tuple[str, Scorer]]:
    plain = {"chars": CHARS, "label_mass": False}
    yield "set", Scorer(open_engine(address), task, Settings(prompt="set", **plain))
    yield "canonical order, isolated, OC-SFT", Scorer(open_engine("smollm2-135m-oc"), task, Settings(width=width, **plain))
    start = open_engine("smollm2-135m+lab/warm-start")
    yield "canonical order, causal, the common start", Scorer(start, task, Settings(width=width, prompt="compact", **plain))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scorer")
    parser.add_argument("collection")
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--pool", type=int, default=20)
    parser.add_argument("--width", type=int, default=10, help="of the causal and isolated windows")
    args = parser.parse_args()
    source = open_collection(args.collection)
    pools = [i for i, _ in zip(source.instances(), range(args.queries), strict=False)]
    print("| | | τ-PSI | overlap | pair flip | mean change of a score |\n|---|---|" + "---:|" * 4)
    for name, scorer in scorers(args.scorer, TASKS[source.collection.task], args.width):
        table = np.array([list(changes(scorer, pool, args.pool)) for pool in pools])  # (queries, changes, measures)
        for change, columns in zip(CHANGES, table.transpose(1, 2, 0), strict=True):
            found = [mean_interval([values], scheme="queries") for values in columns]
            cells = [f"{x.value:.3f} [{x.low:.3f}, {x.high:.3f}]" for x in found]
            print(f"| {change} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
