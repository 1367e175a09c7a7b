"""Response ranking from public files: UltraFeedback, RewardBench-2, Nectar, PPE Best-of-K, RM-Bench (§5).

One function per layout turns a source record into an instance; a record outside the paper's protocol is Dropped by name.
Golds are on the rubric's 0-3 scale. Where the source lists good responses first, the pool stands in an order that a hash of id
and place gives: a first-stage order that says nothing of the gold.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from ..terms import Array, Candidate, Instance, JsonObject
from .files import Dropped, field_value

NECTAR_GOLDS = (3, 2, 2, 1, 1, 0, 0)
"""Gold of Nectar's ranks 1 to 7."""
ULTRAFEEDBACK_BOUNDS = (4, 6, 8)
"""An overall score of at least 4, 6, 8 is gold 1, 2, 3."""
PPE_EACH = 4
"""At most this many correct and as many wrong responses are kept of PPE's 32."""


def ultrafeedback(record: JsonObject, number: int) -> Instance:
    """openbmb/UltraFeedback: four completions with an overall score, in source order."""
    completions = field_value(record, "completions", list)
    if len(completions) != 4:
        raise Dropped("not exactly 4 completions")
    scores = [each.get("overall_score") for each in completions]
    if not all(isinstance(score, int | float) and math.isfinite(score) for score in scores):
        raise Dropped("a completion without a finite overall score")
    golds = [sum(score >= bound for bound in ULTRAFEEDBACK_BOUNDS) for score in scores]
    texts = [field_value(each, "response", str) for each in completions]
    return _instance(f"ultrafeedback-{number}", field_value(record, "instruction", str), zip(texts, golds, strict=True))


def rewardbench2(record: JsonObject, number: int) -> Instance:
    """allenai/reward-bench-2: chosen 3, rejected 0; the Ties subset, whose pools are not of four, falls out."""
    return _chosen_rejected(record, field_value(record, "id", (str, int)), 4)


def rm_bench(record: JsonObject, number: int) -> Instance:
    """THU-KEG/RM-Bench: three chosen and three rejected responses in three styles. Ids differ by domain."""
    id = field_value(record, "id", (str, int))
    return _chosen_rejected(record, f"{record['domain']}-{id}" if record.get("domain") else id, 6)


def nectar(record: JsonObject, number: int) -> Instance:
    """berkeley-nest/Nectar: seven ranked answers to the last human turn."""
    turns = re.split(r"\n\n(Human|Assistant):", field_value(record, "prompt", str))
    human = [text.strip() for speaker, text in zip(turns[1::2], turns[2::2], strict=True) if speaker == "Human"]
    if not human or not human[-1]:
        raise Dropped("no human turn")
    answers = field_value(record, "answers", list)
    ranks = [field_value(answer, "rank", (int, float)) for answer in answers]
    if sorted(ranks) != list(range(1, len(NECTAR_GOLDS) + 1)):
        raise Dropped("not exactly 7 ranked answers")
    texts = [field_value(answer, "answer", str) for answer in answers]
    golds = [NECTAR_GOLDS[int(rank) - 1] for rank in ranks]
    return _instance(f"nectar-{number}", human[-1], zip(texts, golds, strict=True), hashed=True)


def ppe(record: JsonObject, number: int) -> Instance:
    """lmarena-ai/PPE-*-Best-of-K: up to four correct and four wrong of `response_1` ..., chosen by hash; needs one of each."""
    id = str(field_value(record, "question_id", (str, int)))
    keys = sorted((key for key in record if re.fullmatch(r"response_\d+", key)), key=lambda key: int(key[9:]))
    scores = field_value(record, "scores", list)
    if len(keys) != len(scores):
        raise ValueError(f"{len(keys)} responses but {len(scores)} scores")
    texts = ["" if record[key] is None else str(field_value(record, key, str)) for key in keys]
    both = [(text, 3 if score else 0) for text, score in zip(texts, scores, strict=True) if text.strip()]
    order = [both[place] for place in hash_order(id, len(both))]
    kept = [[pair for pair in order if pair[1] == gold][:PPE_EACH] for gold in (3, 0)]
    if not all(kept):
        raise Dropped("no correct or no wrong response")
    return _instance(id, field_value(record, "prompt", str), kept[0] + kept[1], hashed=True)


def chance_level(relevance: ArrayLike) -> Array:
    """nDCG@1 of a response drawn at random, (...): mean judgement / highest judgement of the pool; NaN without a positive one.

    0.25 on RewardBench-2, 0.5 on RM-Bench and PPE with four golds of eight: what the quality measure is to be read against.
    """
    judgement = np.maximum(np.nan_to_num(np.asarray(relevance, float)), 0)
    mean, best = judgement.mean(axis=-1), judgement.max(axis=-1)
    level: Array = np.divide(mean, best, out=np.full(best.shape, np.nan), where=best > 0)[()]
    return level


def _chosen_rejected(record: JsonObject, id: str | int, size: int) -> Instance:
    sides = [field_value(record, side, (list, str)) for side in ("chosen", "rejected")]
    chosen, rejected = ([side] if isinstance(side, str) else side for side in sides)
    if len(chosen) + len(rejected) != size:
        raise Dropped(f"not exactly {size} responses")
    pairs = [(text, 3) for text in chosen] + [(text, 0) for text in rejected]
    return _instance(str(id), field_value(record, "prompt", str), pairs, hashed=True)


def _instance(id: str, prompt: str, pairs: Iterable[tuple[str, int]], *, hashed: bool = False) -> Instance:
    """Candidate ids follow the final order, so that they do not tell the gold either."""
    responses = list(pairs)
    if not all(isinstance(text, str) and text.strip() for text, _ in responses):
        raise Dropped("an empty response")
    if hashed:
        responses = [responses[place] for place in hash_order(id, len(responses))]
    pool = tuple(Candidate(f"{id}-r{place}", text, relevance=gold) for place, (text, gold) in enumerate(responses, 1))
    return Instance(id, prompt.strip(), pool)


def hash_order(id: str, size: int) -> list[int]:
    return sorted(range(size), key=lambda place: hashlib.sha256(f"{id}\t{place}".encode()).digest())
