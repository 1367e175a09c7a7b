"""Response collections from miniatures of the public files, and the chance level of their quality metric."""

from __future__ import annotations

import math

import pytest

from steadyscore.collection.catalogue import chance_level
from steadyscore.collection.files import Dropped
from steadyscore.collection.layouts import LAYOUTS, nectar, ppe, ultrafeedback
from steadyscore.terms import Instance

rewardbench2, rm_bench = (LAYOUTS[name][1] for name in ("rewardbench2", "rm-bench"))


def golds(instance: Instance) -> list[int | None]:
    return [candidate.relevance for candidate in instance.pool]


def feedback(*scores, **more) -> dict:
    completions = [
        {"model": f"m{i}", "response": f"answer {i}", "overall_score": score, "fine-grained_score": 4.0, "critique": ""}
        for i, score in enumerate(scores)
    ]
    return {"source": "flan", "instruction": " Explain it. ", "models": [], "completions": completions, **more}


def test_ultrafeedback_grades_by_overall_score_in_source_order():
    instance = ultrafeedback(feedback(3.9, 4, 6.0, 8.5), 7)
    assert (instance.id, instance.query) == ("ultrafeedback-7", "Explain it.")
    assert golds(instance) == [0, 1, 2, 3]
    assert [candidate.text for candidate in instance.pool] == [f"answer {i}" for i in range(4)]
    for scores, filter in (
        ((1, 2, 3), "exactly 4"),
        ((1, 2, 3, None), "finite"),
        ((1, 2, 3, math.nan), "finite"),
        ((1, 2, 3, "N/A"), "finite"),
    ):
        with pytest.raises(Dropped, match=filter):
            ultrafeedback(feedback(*scores), 1)


def test_rewardbench2_has_one_chosen_of_four_and_no_ties():
    record = {"id": 12, "prompt": "Q", "chosen": ["good"], "rejected": ["x", "y", "z"], "subset": "Math", "num_correct": 1}
    instance = rewardbench2(record, 1)
    assert instance.id == "12"
    assert sorted(golds(instance)) == [0, 0, 0, 3]
    with pytest.raises(Dropped, match="not exactly 4 responses"):
        rewardbench2({**record, "chosen": ["a"] * 3, "rejected": ["b"] * 20, "subset": "Ties"}, 1)
    with pytest.raises(Dropped, match="an empty response"):
        rewardbench2({**record, "rejected": ["x", " ", "z"]}, 1)
    with pytest.raises(ValueError, match='"chosen" is missing'):
        rewardbench2({"id": "1", "prompt": "Q", "rejected": []}, 1)


def test_the_pools_order_says_nothing_of_the_gold_and_is_always_the_same():
    first = [
        golds(rewardbench2({"id": i, "prompt": "Q", "chosen": ["g"], "rejected": ["x", "y", "z"]}, i)).index(3)
        for i in range(400)
    ]
    again = [
        golds(rewardbench2({"id": i, "prompt": "Q", "chosen": ["g"], "rejected": ["x", "y", "z"]}, 0)).index(3)
        for i in range(400)
    ]
    assert first == again
    assert all(70 < first.count(place) < 130 for place in range(4))


def test_rm_bench_has_three_of_six_and_tells_domains_apart():
    record = {"id": 8, "prompt": "Q", "chosen": ["a", "b", "c"], "rejected": ["d", "e", "f"], "domain": "chat"}
    assert rm_bench(record, 1).id == "chat-8"
    assert rm_bench({**record, "domain": None}, 1).id == "8"
    assert sorted(golds(rm_bench(record, 1))) == [0, 0, 0, 3, 3, 3]


def test_rewardbench2_keeps_its_ids_where_a_record_also_names_a_domain():
    record = {"id": 8, "prompt": "Q", "chosen": ["a"], "rejected": ["b", "c", "d"], "domain": "chat"}
    assert rewardbench2(record, 1).id == "8"


def test_nectar_takes_the_last_human_turn_and_seven_ranks():
    answers = [{"answer": f"a{rank}", "model": "m", "rank": float(rank)} for rank in (3, 1, 2, 7, 6, 5, 4)]
    record = {"prompt": "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Human: why? \n\nAssistant: ", "answers": answers}
    instance = nectar(record, 3)
    assert (instance.id, instance.query) == ("nectar-3", "Human: why?")
    assert {candidate.text: candidate.relevance for candidate in instance.pool} == {
        "a1": 3, "a2": 2, "a3": 2, "a4": 1, "a5": 1, "a6": 0, "a7": 0,
    }  # fmt: skip
    with pytest.raises(Dropped, match="not exactly 7 ranked"):
        nectar({**record, "answers": answers[:6]}, 1)
    with pytest.raises(Dropped, match="no human turn"):
        nectar({**record, "prompt": "Hello"}, 1)


def best_of_k(scores) -> dict:
    responses = {f"response_{i}": f"text {i}" for i in range(1, len(scores) + 1)}
    return {"question_id": "m1", "prompt": "Solve", "ground_truth": "4", "scores": list(scores), **responses}


def test_ppe_keeps_up_to_four_of_each_kind():
    scores = [True] * 20 + [False] * 12
    instance = ppe(best_of_k(scores), 1)
    assert sorted(golds(instance)) == [0] * 4 + [3] * 4
    correct = {f"text {i}" for i in range(1, 21)}
    assert all((candidate.text in correct) == (candidate.relevance == 3) for candidate in instance.pool)
    assert sorted(golds(ppe(best_of_k([1.0] + [0.0] * 9), 1))) == [0] * 4 + [3]
    with pytest.raises(Dropped, match="no correct or no wrong"):
        ppe(best_of_k([True] * 32), 1)
    with pytest.raises(ValueError, match="3 responses but 2 scores"):
        ppe({**best_of_k([1, 0, 1]), "scores": [1, 0]}, 1)


def test_chance_is_the_mean_gain_over_the_best():
    assert chance_level([3, 0, 0, 0]) == 0.25
    assert chance_level([3, 2, 2, 1, 1, 0, 0]) == pytest.approx(9 / 21)
    assert chance_level([[3, 3, 3, 0, 0, 0], [0, 0, 0, 0, 0, 0]]).tolist() == pytest.approx([0.5, math.nan], nan_ok=True)
    assert math.isnan(chance_level([0, math.nan]))
