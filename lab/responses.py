"""A teacher of responses: what can be counted on their surface, weighed as people choose.

    python lab/responses.py FILE TUNE       fit on one collection, print how often the chosen response wins in both
    python lab/responses.py FILE TUNE OUT   and write the training collection OUT, the prompts with the fewest characters

    (cd lab && RESPONSES=FILE steadyscore label --scorer python:responses:graded --data OUT --teacher-orders 1 ...)

The weights are those of a Bradley-Terry model of pairs of which people chose one. A label is the probability that people prefer
the response to another of its prompt: half by that model, half by the choice itself.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
from members import pools
from scipy.optimize import minimize
from scipy.special import expit

from steadyscore.collection import read_instances, write
from steadyscore.terms import Collection

CHARS = 1600
"""Of a response, as the student is shown it."""

LONGEST = 3000
"""Characters of a prompt and its responses together, as shown: the prompts to train on are no longer."""

HUMAN_SHARE = 0.5
L2 = 0.002
COUNTS = (
    "length",
    "items",
    "bold",
    "words of the prompt",
    "distinct words",
    "refusal",
    "exclamation",
    "closed",
    "headings",
    "digits",
)


def counts(prompt: str, response: str) -> list[float]:
    """One number for each of COUNTS."""
    asked, said = set(_words(prompt)), _words(response)
    return [
        np.log1p(len(response)),
        np.log1p(len(re.findall(r"(?:^|\s)(?:[-*•]|\d+[.)])\s", response))),
        np.log1p(response.count("**")),
        len(asked & set(said)) / (len(asked) + 1),
        len(set(said)) / (len(said) + 1),
        float(bool(re.search(r"\b(sorry|cannot|can't|unable|as an ai)\b", response[:300].lower()))),
        response.count("!") / (len(said) + 1),
        float(response.rstrip()[-1:] in tuple(".!?)\"'`|}")),
        np.log1p(response.count("#")),
        len(re.findall(r"\d", response)) / (len(response) + 1),
    ]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def differences(found: list[dict], chars: int) -> list[np.ndarray]:
    """For each prompt, counts of the chosen response minus those of each other (others, counts)."""
    rows = []
    for pool in found:
        values = np.array([counts(pool["query"], c["text"][:chars]) for c in pool["candidates"]])
        grades = np.array([c["relevance"] for c in pool["candidates"]])
        rows.append(values[grades.argmax()] - values[grades < grades.max()])
    return rows


def fit(rows: list[np.ndarray]) -> np.ndarray:
    """(counts,) weights under which the chosen response scores higher; prompts count alike."""
    x = np.concatenate(rows)
    share = np.concatenate([np.full(len(one), 1 / len(one) / len(rows)) for one in rows])
    scale = np.sqrt((x**2).mean(axis=0))

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        margin = x / scale @ v
        return float(share @ np.logaddexp(0, -margin) + L2 * v @ v), -(share * expit(-margin)) @ (x / scale) + 2 * L2 * v

    return minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x / scale


def wins(rows: list[np.ndarray], weights: np.ndarray) -> float:
    """How often the chosen response scores above another, a tie half a win; prompts count alike."""
    return float(np.mean([((one @ weights > 0) + (one @ weights == 0) / 2).mean() for one in rows]))


# -- the teacher, for `steadyscore label`


@lru_cache(maxsize=1)
def _fitted() -> tuple[np.ndarray, dict[tuple[str, str], float]]:
    found = pools(Path(os.environ["RESPONSES"]))
    chosen = {(p["query"], c["text"][:CHARS]): float(c["relevance"] > 0) for p in found for c in p["candidates"]}
    return fit(differences(found, CHARS)), chosen


def graded(query: str, candidates: list[str]) -> list[float]:
    weights, chosen = _fitted()
    values = np.array([counts(query, text) for text in candidates]) @ weights
    beats = expit(values[:, None] - values[None, :])
    people = np.array([chosen[query, text] for text in candidates])
    differ = people[:, None] != people[None, :]
    beats = np.where(differ, (1 - HUMAN_SHARE) * beats + HUMAN_SHARE * people[:, None], beats)
    np.fill_diagonal(beats, 0)
    return (beats.sum(axis=1) / (len(candidates) - 1)).tolist()


# -- the study, and the prompts to train on


def main() -> None:
    train, tune = (pools(Path(name)) for name in sys.argv[1:3])
    for chars in (600, 800, CHARS, 10**6):
        rows, held = differences(train, chars), differences(tune, chars)
        folds = [[row for j, row in enumerate(rows) if j % 5 != i] for i in range(5)]
        cross = np.mean([wins(rows[i::5], fit(folds[i])) for i in range(5)])
        length = np.eye(len(COUNTS))[0]
        print(f"{chars} characters: length alone {wins(rows, length):.3f}, tuning {wins(held, length):.3f}; "
              f"fitted, five folds {cross:.3f}, tuning {wins(held, fit(rows)):.3f}")  # fmt: skip
    print({name: round(float(w), 2) for name, w in zip(COUNTS, fit(differences(train, CHARS)), strict=True)})
    if len(sys.argv) > 3:
        shown = [len(p["query"]) + sum(len(c["text"][:CHARS]) for c in p["candidates"]) for p in train]
        short = [one for one, length in zip(read_instances(Path(sys.argv[1])), shown, strict=True) if length <= LONGEST]
        write(Path(sys.argv[3]), Collection("short-responses", "response_ranking", chars=CHARS), short)
        print(len(short), "prompts to train on,", sum(n for n in shown if n <= LONGEST), "characters")


if __name__ == "__main__":
    main()
