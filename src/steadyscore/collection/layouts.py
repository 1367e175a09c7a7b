"""Records of public files, one function per layout: multi-document QA, response ranking, and verdicts on claims (§5).

A function turns a source record into an instance; a record outside the paper's protocol is Dropped by name. Of a question ten
passages are shown, of which two support the answer (relevance 1). Golds of responses are on the rubric's 0-3 scale; where the
source lists good responses first, the pool stands in an order that a hash of id and place gives, which says nothing of the gold.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..terms import Candidate, Instance, JsonObject, TaskName, Verdict
from .files import Dropped, Report, field_list, field_value, records

PASSAGES, SUPPORTING = 10, 2
NECTAR_GOLDS = (3, 2, 2, 1, 1, 0, 0)
"""Gold of Nectar's ranks 1 to 7."""
ULTRAFEEDBACK_BOUNDS = (4, 6, 8)
"""An overall score of at least 4, 6, 8 is gold 1, 2, 3."""
PPE_EACH = 4
"""At most this many correct and as many wrong responses are kept of PPE's 32."""
CLIMATE_FEVER: dict[str, Verdict | None] = {
    "SUPPORTS": "SUPPORTED", "REFUTES": "REFUTED", "NOT_ENOUGH_INFO": "NOT ENOUGH INFO", "DISPUTED": None,
}  # fmt: skip
SCIFACT: dict[str, Verdict] = {"SUPPORT": "SUPPORTED", "CONTRADICT": "REFUTED"}


# -- multi-document QA


def hotpotqa(record: JsonObject, number: int, aliases: Mapping[str, Sequence[str]] | None = None) -> Instance:
    """HotpotQA and 2WikiMultiHopQA, which share a layout, as published and as on the hub.

    `context` is [[title, [sentence, ...]], ...] or {"title": [...], "sentences": [...]}; `supporting_facts` likewise. 2Wiki adds
    `answer_id`, which its id_aliases.json turns into further answers.
    """
    id = field_value(record, "_id" if "_id" in record else "id", str)
    supporting = {title for title, _ in _pairs(record, "supporting_facts", "sent_id")}
    passages = [
        (title, " ".join(sentence.strip() for sentence in sentences), title in supporting)
        for title, sentences in _pairs(record, "context", "sentences", "content")
    ]
    if len(passages) != PASSAGES:
        raise Dropped(f"not exactly {PASSAGES} passages")
    answers = [field_value(record, "answer", str), *((aliases or {}).get(str(record.get("answer_id")), ()))]
    return _question(id, field_value(record, "question", str), passages, answers)


def musique(record: JsonObject, number: int) -> Instance:
    """MuSiQue: questions with two supports, cut to ten passages: the supports and the first distractors, in the file's order."""
    if record.get("answerable") is False:
        raise Dropped("not answerable")
    kinds = {"title": str, "paragraph_text": str, "is_supporting": bool}
    paragraphs = field_value(record, "paragraphs", list)
    passages = [tuple(field_value(each, key, kind) for key, kind in kinds.items()) for each in paragraphs]
    distractors = [place for place, (_, _, supporting) in enumerate(passages) if not supporting]
    left_out = set(distractors[PASSAGES - SUPPORTING :])
    cut = [passage for place, passage in enumerate(passages) if place not in left_out]
    answers = [field_value(record, "answer", str), *field_list(record, "answer_aliases")]
    return _question(field_value(record, "id", str), field_value(record, "question", str), cut, answers)


def aliases_of(record: JsonObject) -> tuple[str, list[str]]:
    """A line of 2Wiki's id_aliases.json: entity id and its other names."""
    return field_value(record, "Q_id", str), field_list(record, "aliases") + field_list(record, "demonyms")


def _question(id: str, question: str, passages: Sequence[tuple[Any, ...]], answers: list[str]) -> Instance:
    """A question over passages, each (title, text, whether it supports the answer)."""
    if sum(supporting for _, _, supporting in passages) != SUPPORTING:
        raise Dropped(f"not exactly {SUPPORTING} supporting passages")
    if len(passages) != PASSAGES:
        raise Dropped(f"fewer than {PASSAGES} passages")
    if not all(text.strip() for _, text, _ in passages):
        raise Dropped("an empty passage")
    pool = tuple(
        Candidate(f"{id}-p{place:02d}", text.strip(), title.strip() or None, int(supporting))
        for place, (title, text, supporting) in enumerate(passages, 1)
    )
    distinct = dict.fromkeys(answer.strip() for answer in answers if answer and answer.strip())
    return Instance(id, " ".join(question.split()), pool, answers=tuple(distinct))


def _pairs(record: JsonObject, key: str, *columns: str) -> list[tuple[str, Any]]:
    """(title, second) pairs of a field that is a list of pairs, the hub's columns, or either as a JSON string."""
    pairs = field_value(record, key, (list, dict, str))
    if isinstance(pairs, str):
        try:
            pairs = json.loads(pairs)
        except json.JSONDecodeError:
            raise ValueError(f'"{key}" is a string that is not JSON') from None
    if isinstance(pairs, dict):
        second = next((pairs[column] for column in columns if column in pairs), None)
        if second is None or len(pairs.get("title", ())) != len(second):
            raise ValueError(f'"{key}" needs the columns title and {columns[0]}, of one length')
        return list(zip(pairs["title"], second, strict=True))
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError(f'"{key}" is not a list of [title, {columns[0]}] pairs')
    return [(title, second) for title, second in pairs]


# -- response ranking


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
    return _prompt(f"ultrafeedback-{number}", field_value(record, "instruction", str), zip(texts, golds, strict=True))


def chosen_rejected(record: JsonObject, number: int, size: int, by_domain: bool = False) -> Instance:
    """Chosen responses 3, rejected ones 0: allenai/reward-bench-2, whose Ties subset falls out as its pools are not of four, and
    THU-KEG/RM-Bench, with three of each in three styles, which counts the records of each domain anew.
    """
    id = str(field_value(record, "id", (str, int)))
    if by_domain and record.get("domain"):
        id = f"{record['domain']}-{id}"
    sides = [field_value(record, side, (list, str)) for side in ("chosen", "rejected")]
    chosen, rejected = ([side] if isinstance(side, str) else side for side in sides)
    if len(chosen) + len(rejected) != size:
        raise Dropped(f"not exactly {size} responses")
    pairs = [(text, 3) for text in chosen] + [(text, 0) for text in rejected]
    return _prompt(id, field_value(record, "prompt", str), pairs, hashed=True)


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
    return _prompt(f"nectar-{number}", human[-1], zip(texts, golds, strict=True), hashed=True)


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
    return _prompt(id, field_value(record, "prompt", str), kept[0] + kept[1], hashed=True)


def _prompt(id: str, prompt: str, pairs: Iterable[tuple[str, int]], *, hashed: bool = False) -> Instance:
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


LAYOUTS: dict[str, tuple[TaskName, Callable[..., Instance]]] = {
    "hotpotqa": ("multidoc_qa", hotpotqa),
    "2wiki": ("multidoc_qa", hotpotqa),
    "musique": ("multidoc_qa", musique),
    "rewardbench2": ("response_ranking", partial(chosen_rejected, size=4)),
    "rm-bench": ("response_ranking", partial(chosen_rejected, size=6, by_domain=True)),
    "ultrafeedback": ("response_ranking", ultrafeedback),
    "nectar": ("response_ranking", nectar),
    "ppe": ("response_ranking", ppe),
}
"""Formats whose records each hold a whole instance: its task, and what turns a record and its number into it."""


# -- verdicts on claims


def read_verdicts(path: Path | None, report: Report) -> dict[str, Verdict]:
    """Claim id -> verdict, from SciFact's claims_*.jsonl or climate-fever.jsonl; without a file there are none.

    SciFact: a claim without evidence is NOT ENOUGH INFO, evidence of both kinds is a mistake. Climate-FEVER: DISPUTED claims
    carry no verdict (1,535 -> 1,381) and stay in the retrieval collection.
    """
    verdicts: dict[str, Verdict] = {}
    for where, record in records([path] if path else [], report):
        try:
            id = str(field_value(record, "claim_id" if "claim_id" in record else "id", (str, int)))
            verdict = _climate_fever(record) if "claim_label" in record else _scifact(record)
        except (ValueError, AttributeError, TypeError) as mistake:
            report.mistakes.append(f"{where}: {mistake}")
            continue
        if verdict is None:
            report.notes["DISPUTED claims, which carry no verdict"] += 1
        elif verdicts.setdefault(id, verdict) != verdict:
            report.mistakes.append(f"{where}: claim {id} occurs twice with different verdicts")
    return verdicts


def _climate_fever(record: JsonObject) -> Verdict | None:
    label = field_value(record, "claim_label", (str, int))
    if isinstance(label, int) and 0 <= label < len(CLIMATE_FEVER):  # the hub keeps the label's place in this list
        label = list(CLIMATE_FEVER)[label]
    if label not in CLIMATE_FEVER:
        raise ValueError(f'"claim_label" is {label}, not one of {", ".join(CLIMATE_FEVER)}')
    return CLIMATE_FEVER[label]


def _scifact(record: JsonObject) -> Verdict:
    evidence = field_value(record, "evidence", dict)
    labels = {field_value(rationale, "label", str) for document in evidence.values() for rationale in document}
    if unknown := labels - set(SCIFACT):
        raise ValueError(f"evidence is labelled {', '.join(sorted(unknown))}, not {' or '.join(SCIFACT)}")
    if len(labels) > 1:
        raise ValueError("evidence both supports and contradicts the claim")
    return SCIFACT[labels.pop()] if labels else "NOT ENOUGH INFO"
