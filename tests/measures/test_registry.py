from steadyscore.measures.registry import FLOORED, MEASURES

CONTRACT = (
    "ndcg@10",
    "ndcg@1",
    "worst_ndcg@10",
    "order_spread@10",
    "tau_psi",
    "top10_instability",
    "overlap",
    "retained_f1",
    "f1_spread",
    "retention",
    "pair_flip",
    "selection_flip",
    "gold_crossing",
    "label_accuracy",
    "answer_flip",
    "verdict_flip",
    "pool_psi",
)


def test_the_names_others_rely_on_exist():
    assert set(CONTRACT) <= MEASURES.keys()


def test_every_measure_says_what_it_is_in_one_line():
    for name, measure in MEASURES.items():
        assert measure.name == name
        assert 10 < len(measure.summary) < 100
        assert not measure.summary.endswith(".")


def test_a_noise_floor_is_printed_beside_every_instability():
    assert {"tau_psi", "overlap", "pair_flip", "order_spread@10", "top10_instability"} <= set(FLOORED)
    assert "ndcg@10" not in FLOORED
