"""Self-consistency that stops: its presentations are the first of plain self-consistency's, and it costs fewer of them."""

import numpy as np
import pytest

from steadyscore.engines.synthetic import SyntheticReranker
from steadyscore.errors import InputError
from steadyscore.integrations import Ranker
from steadyscore.measures.settling import PairRule, ThresholdRule, TopKRule, is_decided, roles
from steadyscore.scoring.config import AuditConfig
from steadyscore.scoring.mitigations import Mitigated, count_windows, derived_orders, for_pool, parse_mitigation, parse_rule
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance
from steadyscore.window.presentation import permutations

POOL = Instance("q", "what is a thing", tuple(Candidate(f"d{i:02d}", f"thing {i}" + " what is" * (i % 3)) for i in range(12)))
ORDERS = permutations(12, 5, seed=1, query_id="q")
RULES = {"cutoff=0.7": ThresholdRule(0.7), "top=3": TopKRule(3), "share=0.3": TopKRule(4), "pair": PairRule()}


def scorer(size=0.1, effect="slot", width=6):
    return Scorer(SyntheticReranker(effect, size), PASSAGE_RERANKING, Settings(width=width))


@pytest.mark.parametrize("words", RULES)
def test_each_decision_is_named_in_words(words):
    assert for_pool(parse_rule(words), 12) == RULES[words]
    assert parse_mitigation(f"adaptive:8:{words}").label == f"adaptive:8:{words}"


@pytest.mark.parametrize(
    "words", ["", "top", "top=0", "top=1.5", "share=1", "share=0", "cutoff=nan", "cutoff=x", "pair=1", "kept"]
)
def test_what_is_no_decision_is_refused_in_a_sentence(words):
    with pytest.raises(InputError, match=r"is not a decision\. Write cutoff=0\.5"):
        parse_mitigation(f"adaptive:8:{words}")


@pytest.mark.parametrize(("name", "words"), [("adaptive:", "positive number"), ("adaptive:top=3", "positive number")])
def test_a_decision_follows_a_number(name, words):
    with pytest.raises(InputError, match=words):
        parse_mitigation(name)


def test_the_usual_number_and_decision_are_in_the_name_of_the_run():
    assert Mitigated(scorer(), "adaptive").label == "adaptive:10:share=0.3"
    assert parse_mitigation("self-consistency").label == "self-consistency:10"


@pytest.mark.parametrize("words", RULES)
@pytest.mark.parametrize("size", [0.02, 0.1, 0.5])
def test_it_averages_the_first_presentations_of_self_consistency_until_they_decide(words, size):
    inner, rule = scorer(size), RULES[words]
    served = Mitigated(inner, f"adaptive:10:{words}").score_orders(POOL, ORDERS, range(5))
    made = 0
    for row, order in enumerate(ORDERS):
        all_ten = inner.score_orders(POOL, derived_orders(POOL, order, 10), range(10))
        every, slots = all_ten.scores, all_ten.slots
        places = np.stack([slots == 0, slots == 5, slots / 5 - 0.5], axis=-1)
        taken = next((m for m in range(2, 10) if is_decided(every[:m], rule, 10, places)), 10)
        assert np.allclose(served.scores[row], every[:taken].mean(axis=0), rtol=0, atol=1e-12)
        made += taken
    assert served.cost.skipped == (50 - made) * 2  # two windows of six


def test_a_scorer_that_no_order_moves_is_asked_once():
    served = Mitigated(scorer(effect="none"), "adaptive:10").score_orders(POOL, ORDERS[:1], [0])
    assert served.cost.skipped == 9 * 2
    assert np.array_equal(served.scores, scorer(effect="none").score_orders(POOL, ORDERS[:1], [0]).scores)


@pytest.mark.parametrize("words", RULES)
def test_a_pool_of_one_has_one_order_and_is_asked_once(words):
    pool, order = Instance("q", POOL.query, POOL.pool[:1]), np.zeros((1, 1), int)
    served = Mitigated(scorer(), f"adaptive:10:{words}").score_orders(pool, order, [0])
    assert served.scores.tolist() == scorer().score_orders(pool, order, [0]).scores.tolist()
    assert served.cost.skipped == 9


def test_grades_are_averaged_too(tiny_engine):
    inner = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=6, chars=20))
    served = Mitigated(inner, "adaptive:3:top=2").score_orders(POOL, ORDERS[:1], [0])
    assert served.grades.shape == (1, 12, 4)
    assert np.allclose(served.grades.sum(axis=-1), 1)
    assert served.slots is None


def test_a_run_counts_the_windows_that_were_shown(tmp_path):
    asked = []

    class Counted(SyntheticReranker):
        def score(self, query, texts):
            asked.append(len(texts))
            return super().score(query, texts)

    wrapped = Mitigated(Scorer(Counted("slot", 0.02), PASSAGE_RERANKING, Settings(width=20)), "adaptive:10:top=1")
    run = score_collection(wrapped, "passages", tmp_path / "run", AuditConfig(permutations=3))
    assert run.record.fingerprint.mitigations == ["adaptive:10:top=1"]
    windows = sum(session.windows for session in run.record.sessions)
    assert windows == len(asked)
    queries = run.read_queries()
    assert windows < sum(count_windows(len(q.candidate_ids), 20, ["adaptive:10"], len(q.scores)) for q in queries)


def test_most_decisions_are_those_of_all_presentations_at_less_than_half_of_the_price():
    """A planted slot effect whose spread is a fifth of the scores' own: 200 pools, every decision."""
    inner, rng, same, made = scorer(0.05, width=12), np.random.default_rng(0), [], 0
    for i in range(50):
        pool = tuple(Candidate(f"{j:02d}", " ".join(rng.choice(POOL.query.split(), 4)) + f" {i} {j}") for j in range(12))
        instance = Instance(f"q{i}", POOL.query, pool)
        orders = np.arange(12)[None]
        for words, rule in RULES.items():
            served = Mitigated(inner, f"adaptive:10:{words}").score_orders(instance, orders, [0])
            all_ten = Mitigated(inner, "self-consistency:10").score_orders(instance, orders, [0])
            same.append((roles(served.scores[0], rule) == roles(all_ten.scores[0], rule)).mean())
            made += 10 - served.cost.skipped
    assert np.mean(same) >= 0.98
    assert made <= 0.5 * 10 * len(same)


# -- in Python


TEXTS = [f"thing {i}" + " what is" * (i % 3) for i in range(12)]


@pytest.mark.parametrize("words", RULES)
def test_a_ranker_decides_with_as_many_windows_as_that_takes(words):
    plain, all_ten, adaptive = (
        Ranker("synthetic:slot:0.02", mitigations=names) for names in ([], ["self-consistency:10"], ["adaptive:10:top=1"])
    )
    once, ten, few = (ranker.decide(POOL.query, TEXTS, words) for ranker in (plain, all_ten, adaptive))
    assert (once.windows, ten.windows) == (1, 10)
    assert 2 <= few.windows < 10
    assert few.outcome.kind == ten.outcome.kind
    kept = few.outcome.kept if few.outcome.kept is not None else [few.outcome.chosen]
    assert max(few.scores) == few.scores[kept[0]]


def test_equal_scores_are_decided_by_text_in_whatever_order_they_are_given():
    ranker = Ranker(lambda query, texts: [0.5] * len(texts))
    for texts in (["b", "a", "c"], ["c", "b", "a"]):
        assert texts[ranker.decide("q", texts, "top=1").outcome.kept[0]] == "a"


def test_a_decision_needs_documents():
    ranker = Ranker("synthetic:none")
    with pytest.raises(InputError, match="no documents"):
        ranker.decide("q", [], "top=1")
    with pytest.raises(InputError, match="at least two"):
        ranker.decide("q", ["a"], "pair")
