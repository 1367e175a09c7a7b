"""The reader consumer, its arithmetic: what an answer or a verdict is worth, and how often it changes (§5, §F.3).

The reader itself, a frozen model over the first five candidates, is not here: these functions take its outputs as text.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..terms import Array, Verdict
from .preference import Estimator, change
from .ranking import ranking

EVIDENCE = 5
"""Candidates a reader is shown (§5)."""

CLOSED_ANSWERS = {"yes", "no", "noanswer"}
"""Answers that share no credit with any other: one word more makes them another answer."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def evidence(scores: ArrayLike, k: int = EVIDENCE) -> Array:
    """Columns a reader is shown under every permutation, best first, (..., M, k)."""
    return ranking(scores)[..., :k]


# ---- answers ----


def normalize_answer(text: str) -> str:
    """SQuAD's normalisation: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _exact(answer: str, gold: str) -> float:
    return float(answer == gold)


def _overlap(answer: str, gold: str) -> float:
    words, gold_words = answer.split(), gold.split()
    if answer in CLOSED_ANSWERS or gold in CLOSED_ANSWERS or not words or not gold_words:
        return _exact(answer, gold)
    common = (Counter(words) & Counter(gold_words)).total()
    return 2 * common / (len(words) + len(gold_words))


def _best(score: Callable[[str, str], float], answer: str, golds: Sequence[str]) -> float:
    """The best score against any alias; NaN without a gold answer."""
    answer = normalize_answer(answer)
    return max((score(answer, normalize_answer(gold)) for gold in golds), default=float("nan"))


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1 if the normalised answer equals any normalised gold answer, else 0."""
    return _best(_exact, answer, golds)


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """Token F1 against the best gold answer. Yes, no and empty answers earn all or nothing."""
    return _best(_overlap, answer, golds)


def answer_flip(answers: Sequence[str], estimator: Estimator = "pairwise") -> Array:
    """How often the normalised answer changes between M permutations."""
    return change([normalize_answer(answer) for answer in answers], estimator)


# ---- verdicts ----

_VERDICTS: dict[Verdict, re.Pattern[str]] = {
    "SUPPORTED": re.compile(r"\b(SUPPORT|ENTAIL)"),
    "REFUTED": re.compile(r"\b(REFUT|CONTRADICT)"),
    "NOT ENOUGH INFO": re.compile(r"\bNOT ENOUGH (INFO|EVIDENCE)|\bINSUFFICIENT|\bNEI\b"),
}
_NEGATED = re.compile(r"\b(NOT|NEITHER|NOR|DOESNT|DONT|ISNT) (SUPPORT|ENTAIL|REFUT|CONTRADICT)")


def normalize_verdict(text: str) -> Verdict | None:
    """The one label the text names; None, an invalid verdict, if it names none or several, or negates one."""
    words = " ".join(re.sub(r"[^A-Z ]", "", re.sub(r"[-_\s]", " ", text.upper())).split())
    named = [verdict for verdict, pattern in _VERDICTS.items() if pattern.search(words)]
    return named[0] if len(named) == 1 and not _NEGATED.search(words) else None


def verdict_accuracy(verdicts: Sequence[str], gold: Verdict) -> float:
    """Share of the M permutations whose verdict is the gold label; an invalid verdict is wrong."""
    return float(np.mean([normalize_verdict(verdict) == gold for verdict in verdicts])) if verdicts else float("nan")


def verdict_flip(verdicts: Sequence[str], estimator: Estimator = "pairwise") -> Array:
    """How often the verdict changes between M permutations; invalid verdicts are a label of their own."""
    return change([normalize_verdict(verdict) for verdict in verdicts], estimator)


# ---- the same-evidence control ----


def same_evidence(first: ArrayLike, second: ArrayLike, k: int = EVIDENCE) -> Array:
    """Whether two scorers show a reader the same set of candidates in the same presentation, from scores (..., n)."""
    one, other = (np.sort(evidence(scores, k), axis=-1) for scores in (first, second))
    is_same: Array = (one == other).all(axis=-1)
    return is_same


def same_evidence_reduction(before: ArrayLike, after: ArrayLike, same: ArrayLike) -> tuple[float, float]:
    """(share of queries with the same evidence, mean flip before minus after on those) (§F.3, block c).

    `before` and `after` hold one flip per query, `same` whether its evidence is the same; a positive mean says that
    `after` flips less. The mean is NaN if no query matches.
    """
    same = np.asarray(same, bool)
    reduction = (np.asarray(before, float) - np.asarray(after, float))[same]
    return float(same.mean()), float(reduction.mean()) if reduction.size else float("nan")
