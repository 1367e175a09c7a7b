"""Every headline sentence says what its number is: the number in it, counted again by hand from planted scores."""

from __future__ import annotations

from itertools import combinations
from statistics import mean

import numpy as np
import pytest

import steadyscore
from steadyscore.measures.measurement import Threshold, measure
from steadyscore.report import sentences
from steadyscore.results.audit import Audit
from steadyscore.results.figure import mean_figures
from steadyscore.runs.records import Fingerprint, RunRecord
from steadyscore.runs.table import Scored
from steadyscore.tasks import TASKS
from tests.helpers.endpoint import Server

ORDERS = [
    [[9, 8, 1, 2, 3], [9, 1, 8, 2, 3], [1, 9, 2, 8, 3]],
    [[9, 8, 7, 1, 2], [9, 8, 1, 7, 2], [1, 2, 9, 3, 0]],
    [[1, 2, 0, 3, 4], [9, 2, 1, 0, 3], [4, 1, 2, 3, 0]],  # two orders keep nothing
]
"""Scores of three queries under three orders each, five candidates; the cutoff is 5."""
RELEVANCE = [1, 0, 1, 0, 0]


def rankings(scores: list[list[float]]) -> list[list[int]]:
    return [sorted(range(len(row)), key=lambda i: (-row[i], i)) for row in scores]


def kept(scores: list[list[float]]) -> list[set[int]]:
    return [{i for i, value in enumerate(row) if value >= 5} for row in scores]


def over_pairs(value, outputs) -> float:
    """The mean over queries of the mean over two orders."""
    return mean(mean(value(a, b) for a, b in combinations(one, 2)) for one in outputs)


def only_in_one(a: set[int], b: set[int]) -> float:
    """Of what either set holds, the share that only one holds."""
    return len(a ^ b) / len(a | b) if a | b else 0.0


def audit_of(orders=ORDERS, relevance=RELEVANCE, task: str = "passage_reranking") -> Audit:
    ids = tuple(f"{i:02d}" for i in range(len(orders[0][0])))
    queries = [
        Scored(f"q{q}", ids, np.arange(len(rows)), np.array(rows, float), relevance=np.array(relevance, float))
        for q, rows in enumerate(orders)
    ]
    by = Threshold(cutoff=5)
    measured = measure(queries, by)
    record = RunRecord(format=2, status="complete", name="planted", collection="small", task=task, fingerprint=Fingerprint())
    return Audit("planted", "small", TASKS[task], record, queries, measured, mean_figures(measured), threshold=by)


def test_overlap_is_told_as_a_share_of_what_either_order_keeps():
    share = over_pairs(only_in_one, map(kept, ORDERS))
    text = sentences.sentence(audit_of(), "overlap")
    assert f"changes {100 * share:.0f} % of what the threshold keeps in either order (overlap {1 - share:.2f})" in text
    assert (
        "Of what the threshold keeps in either of two orders, the share that is kept in only one" in sentences.MEANINGS["overlap"]
    )
    dropped = mean(len(a - b) / len(a) for one in map(kept, ORDERS) for a in one for b in one if a is not b and a)
    assert round(dropped, 2) != round(share, 2)  # of what one order keeps, another share changes: no sentence may say it


def test_the_first_ten_are_told_in_the_same_way():
    orders = [[list(np.roll(range(12), shift)) for shift in (0, 1, 5)]]
    firsts = [[set(order[:10]) for order in rankings(one)] for one in orders]
    share = over_pairs(only_in_one, firsts)
    text = sentences.sentence(audit_of(orders, [1] * 12), "overlap@10")
    assert f"changes {100 * share:.0f} % of what is among the first 10 in either order" in text


def test_a_pair_flip_is_told_as_how_often_two_orders_choose_another_pair():
    share = over_pairs(lambda a, b: (a[0], a[-1]) != (b[0], b[-1]), map(rankings, ORDERS))
    text = sentences.sentence(audit_of(task="response_ranking"), "pair_flip")
    assert f"changes the chosen/rejected pair {100 * share:.0f} % of the time (pair flip {share:.2f})" in text


@pytest.mark.parametrize(("flip", "what"), [("answer_flip", "answer"), ("verdict_flip", "verdict")])
def test_a_readers_flip_is_told_as_how_often_two_orders_lead_to_another_output(flip, what):
    found = audit_of()
    share = over_pairs(lambda a, b: a != b, ["SRSR", "SSSR", "SSSS"])
    found.measured.values[flip] = np.array([4 / 6, 3 / 6, 0])
    shown = Audit(**(vars(found) | {"figures": mean_figures(found.measured)}))
    text = sentences.sentence(shown, flip)
    assert f"changes the reader's {what} {100 * share:.0f} % of the time ({what} flip {share:.2f})" in text


def ndcg(ranking: list[int]) -> float:
    gain = sum(RELEVANCE[i] / np.log2(place + 2) for place, i in enumerate(ranking))
    return gain / (1 + 1 / np.log2(3))


def test_the_movement_of_ndcg_is_that_of_the_mean_over_queries():
    quality = np.array([[ndcg(ranking) for ranking in rankings(one)] for one in ORDERS])
    moved = mean(abs(a - b) for a, b in combinations(quality.mean(axis=0), 2))
    assert f"nDCG@10 moves by {moved:.2f}." in sentences.sentence(audit_of(), "overlap")


FIRST_STAGE = [1, 3, 1, 0, 0, 0]


def against_first_stage(leads: list[int]) -> tuple[str, ...]:
    """The warnings of a scorer that puts the best candidate first on some queries and last on others; ids do not tell."""
    rows = [
        {
            "id": f"q{q}", "query": str(lead),
            "candidates": [
                {"id": f"{(7 * i + q) % 10}{i}", "text": str(i), "relevance": r} for i, r in enumerate(FIRST_STAGE)
            ],
        }
        for q, lead in enumerate(leads)
    ]  # fmt: skip

    def score(query: str, texts: list[str]) -> list[float]:
        return [-float(text) + 10 * float(query) * (text == "1") for text in texts]

    return steadyscore.audit({"mine": score}, rows, permutations=2, keep_first=2, quiet=True)[0].warnings()


def gain_of(lead: int) -> float:
    """nDCG with the best candidate first, where it was or last, minus that of the input."""
    moved = {1: [3, 1, 1, 0, 0, 0], 0: FIRST_STAGE, -1: [1, 1, 0, 0, 0, 3]}[lead]

    def gains(grades: list[int]) -> float:
        return sum(grade / np.log2(place + 2) for place, grade in enumerate(grades))

    return (gains(moved) - gains(FIRST_STAGE)) / gains(sorted(FIRST_STAGE, reverse=True))


@pytest.mark.parametrize(
    ("leads", "said"),
    [
        ([1] * 5 + [-1] * 3, "is ahead of its first stage by {:.3f}, which 8 queries do not settle"),
        ([1] * 3 + [-1] * 5, "is behind its first stage by {:.3f}, which 8 queries do not settle"),
        ([-1] * 8, "ranks below its first stage"),
        ([0] * 8, "ranks as well as its first stage"),
    ],
    ids=["ahead", "behind", "below", "equal"],
)
def test_the_difference_against_the_first_stage_is_told_as_its_interval_says(leads, said):
    value = mean(map(gain_of, leads))
    (sentence,) = [warning for warning in against_first_stage(leads) if "first stage" in warning]
    assert sentence.startswith(f"mine {said.format(abs(value))}: ndcg@10 ")
    assert f"difference {value:+.3f} [" in sentence


def test_a_settled_lead_is_not_warned_of():
    assert not [warning for warning in against_first_stage([1] * 8) if "first stage" in warning]


def test_two_scorers_that_decide_alike_are_level():
    twins = [audit_of(ORDERS * 2) for _ in range(2)]
    told = sentences.verdict(twins, "overlap")
    assert told.startswith("planted and planted are level on every query that both have: another order changes ")


# -- planted scorers, from the audit to the sentence


def some_pools(queries: int, candidates: int) -> list[dict]:
    return [
        {
            "id": f"q{q}", "query": f"query {q}",
            "candidates": [
                {"id": f"{(7 * c + q) % 10}{c}", "text": f"{(5 * c + q) % 11} of {c}", "relevance": int(c == 0)}
                for c in range(candidates)
            ],
        }
        for q in range(queries)
    ]  # fmt: skip


def stored(audit: Audit) -> list[list[list[float]]]:
    return [query.permuted.tolist() for query in audit.queries]


def test_a_swap_effect_in_pairs_is_told_as_what_the_stored_scores_count():
    def swapped(query: str, texts: list[str]) -> list[float]:
        """Chooses what stands first on two queries of five, and by the text on the others."""
        is_biased = int(query.split()[1]) % 5 < 2
        return [float(place == 0) if is_biased else float(text.split()[0]) for place, text in enumerate(texts)]

    (audit,) = steadyscore.audit({"judge": swapped}, some_pools(20, 2), permutations=6, keep_first=1, quiet=True)
    share = over_pairs(lambda a, b: a != b, [rankings(one) for one in stored(audit)])
    assert share > 0.1
    text = sentences.sentence(audit, "pair_flip")
    assert f"changes the chosen/rejected pair {100 * share:.0f} % of the time (pair flip {share:.2f})" in text


def test_a_slot_effect_behind_a_rerank_server_is_told_as_what_the_stored_scores_count():
    def answer(path: str, body: dict) -> dict:
        scores = [float(text.split()[0]) - 2.0 * place for place, text in enumerate(body["documents"])]
        return {"results": [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]}

    with Server(answer) as server:
        address = f"rerank+cohere:m@{server.url}/rerank"
        (audit,) = steadyscore.audit({"served": address}, some_pools(8, 6), permutations=4, keep_first=2, quiet=True)
    share = over_pairs(only_in_one, [[set(order[:2]) for order in rankings(one)] for one in stored(audit)])
    assert share > 0.1
    text = sentences.sentence(audit, "overlap")
    assert f"served: another order changes {100 * share:.0f} % of what the threshold keeps in either order" in text


def test_a_constant_scorer_changes_nothing_and_is_measured_against_its_input():
    scorer = {"flat": lambda query, texts: [1.0] * len(texts)}
    (audit,) = steadyscore.audit(scorer, some_pools(8, 6), permutations=3, keep_first=2, quiet=True)
    assert "0 % of what the threshold keeps in either order" in sentences.sentence(audit, "overlap")
    assert any(warning.startswith("flat ranks below its first stage: ndcg@10 ") for warning in audit.warnings())
