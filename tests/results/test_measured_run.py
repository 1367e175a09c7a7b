"""The rows that a scorer is read against, and the sentences that say where its figures flatter."""

from __future__ import annotations

import numpy as np
import pytest

import steadyscore
from steadyscore.collection import from_records
from steadyscore.errors import InputError
from steadyscore.measures.ranking import chance_ndcg, ndcg
from steadyscore.measures.retained_sets import expected_jaccard
from steadyscore.measures.threshold import Threshold, deal_queries
from steadyscore.results.measured_run import FIRST_STAGE_ORDER
from steadyscore.scoring.config import AuditConfig
from tests.helpers.pools import some_instances, write_collection


def records(queries: int = 8, candidates: int = 6) -> list[dict]:
    """Pools whose first stage is right except that the best candidate stands second; ids do not tell."""
    relevance = [1, 3, 1, 0, 0, 0][:candidates]
    return [
        {
            "id": f"q{q}",
            "query": f"query {q}",
            "candidates": [
                {"id": f"{(7 * i + q) % 10}{i}", "text": f"text {i} of {q}", "relevance": r} for i, r in enumerate(relevance)
            ],
        }
        for q in range(queries)
    ]


def backwards(query: str, texts: list[str]) -> list[float]:
    return [float(text.split()[1]) for text in texts]


def as_it_came(query: str, texts: list[str]) -> list[float]:
    return [-value for value in backwards(query, texts)]


def perfect(query: str, texts: list[str]) -> list[float]:
    return [float(text.split()[1] == "1") - 0.1 * float(text.split()[1]) for text in texts]


def audit(scorer, queries=8, **settings):
    return steadyscore.audit({"mine": scorer}, records(queries), permutations=4, quiet=True, **settings)


def test_the_input_and_chance_stand_at_the_head_of_a_table_without_being_scored():
    asked = []

    def counting(query, texts):
        asked.append(query)
        return backwards(query, texts)

    found = audit(counting, keep_first=2)
    assert len(asked) == 8 * 5
    first = found[0].first_stage
    expected = float(np.mean(ndcg([[6, 5, 4, 3, 2, 1]], [1, 3, 1, 0, 0, 0])))
    assert first.figures["ndcg@10"].value == pytest.approx(expected)
    assert first.figures["overlap"].value == 1
    assert first.figures["retained_f1"].value == pytest.approx(4 / 5)
    rows = found.table.splitlines()[1:]
    assert [row.split("  ")[0] for row in rows] == [FIRST_STAGE_ORDER, "chance", "mine"]
    assert f"{float(chance_ndcg([1, 3, 1, 0, 0, 0])):.3f}" in rows[1]
    assert max(map(len, found.table.splitlines())) <= 100


def test_a_scorer_that_is_not_ahead_of_its_input_is_warned_of_and_one_that_is_ahead_is_not():
    below, same, above = (audit(scorer, 10)[0].warnings() for scorer in (backwards, as_it_came, perfect))
    assert below[0].startswith("mine ranks below its first stage: ndcg@10 0.471 against 0.821, difference -0.350 [")
    assert same[0].startswith("mine ranks as well as its first stage: ndcg@10 0.821 against 0.821, ")
    assert same[0].endswith("difference +0.000 [+0.000, +0.000].")
    assert not above


def test_json_says_what_the_table_says():
    found = audit(backwards, keep_share=0.3)
    row = found.to_json()["runs"][0]
    assert row["first_stage"]["quality_gain"]["high"] < 0
    assert row["first_stage"]["measures"]["retained_f1"]["value"] > row["measures"]["retained_f1"]["value"]
    assert row["warnings"] == found[0].warnings()
    assert row["cutoff"]["keep_share"] == 0.3
    assert row["measures"]["empty_sets"]["value"] == 0
    assert row["measures"]["chance_overlap"]["value"] == pytest.approx(expected_jaccard(6, 2, 2))


def test_pools_whose_order_is_no_ranking_have_no_first_stage_unless_the_collection_names_one(tmp_path):
    file = write_collection(tmp_path / "responses.jsonl", some_instances(), task="response_ranking")
    found = steadyscore.audit(lambda query, texts: [len(text) for text in texts], str(file), permutations=3, quiet=True)
    assert found[0].first_stage is None
    assert FIRST_STAGE_ORDER not in found.table
    assert any("The order of the pools is not a ranking" in remark for remark in found[0].remarks())
    named = from_records(records(), task="multidoc_qa", details={"first_stage": "BM25"})
    found = steadyscore.audit(backwards, named, permutations=3, quiet=True)
    assert found[0].first_stage.ranked_by == "BM25"


@pytest.mark.parametrize(("lowered", "sentence"), [
    (4, "keeps nothing in 50% of the cases, and two empty sets count as equal: overlap 1.000 with such pairs, 1.000 without."),
    (8, "keeps nothing in 100% of the cases, and two empty sets count as equal: overlap 1.000 with such pairs, and no other"),
])  # fmt: skip
def test_empty_sets_and_a_share_that_is_missed_are_said(lowered, sentence):
    measured = deal_queries([f"q{q}" for q in range(16)])[8:]
    low = {f"query {query_id[1:]}" for query_id in measured[:lowered]}

    def shifted(query, texts):
        """Far below every other score on some of the queries that the cutoff is measured on."""
        return [value - 10 * (query in low) for value in perfect(query, texts)]

    on_half = AuditConfig(permutations=3, threshold=Threshold(retention=1 / 3, half=True))
    found = steadyscore.audit(shifted, records(16), config=on_half, quiet=True)[0]
    off_target, empty, few = found.warnings()
    kept = (1 - lowered / 8) / 3
    assert found.figures["retention"].value == pytest.approx(kept)
    assert f"keeps {kept:.0%} of the pools it is measured on, while its cutoff was fitted to keep 33.3%" in off_target
    assert sentence in empty
    assert "fewer than 10 queries" in few


def test_a_fixed_cutoff_that_keeps_nothing_at_all_is_told_with_what_to_do():
    warnings = steadyscore.audit(perfect, records(8), permutations=3, cutoff=1000.0, quiet=True)[0].warnings()
    advice = "and no other pair is left. Try --match-retention 0.3 or a lower --cutoff."
    assert any(warning.endswith(advice) for warning in warnings)


@pytest.mark.parametrize(("named", "threshold", "advice"), [
    ("adaptive:4", {"cutoff": 2.5}, "until share=0.3 was decided, and what is measured is cutoff=2.5: adaptive:4:cutoff=2.5"),
    ("adaptive:4", {"keep_first": 3}, "until share=0.3 was decided, and what is measured is top=3: adaptive:4:top=3 asks"),
    ("adaptive:4:pair", {"keep_share": 0.5}, "until pair was decided, and what is measured is share=0.5: adaptive:4:share=0.5"),
    ("adaptive:4:cutoff=2.50", {"cutoff": 2.5}, None),
    ("adaptive:4", {"keep_share": 0.3}, None),
    ("adaptive:4", {"match_retention": 0.5}, None),
    ("self-consistency:2", {"cutoff": 2.5}, None),
])  # fmt: skip
def test_adaptive_that_stops_for_another_decision_than_is_measured_is_told(named, threshold, advice):
    found = steadyscore.audit(perfect, records(), permutations=3, mitigations=[named], quiet=True, **threshold)[0]
    told = [warning for warning in found.warnings() if "asked again until" in warning]
    assert len(told) == (advice is not None)
    assert all(advice in warning for warning in told)


def test_a_fixed_cutoff_decides_nothing_about_a_ranking():
    first = audit(backwards, cutoff=2.0)[0].first_stage
    assert "ndcg@10" in first.figures
    assert "retained_f1" not in first.figures


def test_a_scorer_below_a_random_order_is_said_to_be():
    (below,) = [w for w in audit(backwards, keep_first=2)[0].warnings() if "random" in w]
    assert below.startswith("mine ranks below a random order: ndcg@10 0.")
    assert not [w for w in audit(perfect, keep_first=2)[0].warnings() if "random" in w]


def test_one_permutation_is_said_to_show_no_change_and_prints_below_the_table():
    found = steadyscore.audit({"mine": perfect}, records(), permutations=1, keep_first=2, quiet=True)
    sentence = "only one permutation was scored, and what changes between orders needs two."
    assert str(found).count(sentence) == 1
    assert sentence in found._repr_html_()
    assert sentence not in found.table
    assert sentence not in str(audit(perfect, keep_first=2))


def test_scores_are_measured_alone():
    with pytest.raises(InputError, match="without a scorer and data"):
        steadyscore.audit(perfect, records(), scores=np.zeros((2, 3)))
