import numpy as np
import pytest

from steadyscore.engines import Capabilities, Reranker
from steadyscore.engines.python import PythonReranker
from steadyscore.engines.synthetic import SyntheticReranker
from steadyscore.errors import InputError, WindowTooLong
from steadyscore.measures.instability import tau_psi
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.scorer import Scorer, Settings, ideal_gains
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Collection, Instance
from steadyscore.window.presentation import permutations

POOL = Instance(
    "q1",
    "what is a thing",
    tuple(
        Candidate(id, f"text {id} " + "word " * 5, relevance=r) for id, r in (("c", 3), ("a", 0), ("d", None), ("b", 1), ("e", 2))
    ),
    judged={"z": 3},
)


def orders(count=4, n=5):
    return permutations(n, count, seed=0, query_id="q1")


def test_scores_are_aligned_back_to_candidates(tiny_engine):
    """Columns are sorted by id; a candidate keeps its own score wherever it stands."""
    scorer = Scorer(SyntheticReranker("none", 0), PASSAGE_RERANKING)
    found = scorer.score_orders(POOL, orders(), range(4))
    assert found.candidate_ids == ("a", "b", "c", "d", "e")
    assert np.array_equal(found.relevance, [0, 1, 3, np.nan, 2], equal_nan=True)
    assert (found.scores == found.scores[0]).all()
    by_pool = dict(zip((c.id for c in POOL.pool), scorer.score(POOL), strict=True))
    assert found.scores[0].tolist() == [by_pool[i] for i in found.candidate_ids]


@pytest.mark.parametrize("partition", ["contiguous", "round_robin"])
@pytest.mark.parametrize("width", [2, 3, 5])
def test_the_orders_that_were_shown_are_known_afterwards(partition, width):
    """Places tell the order only together with the partition that made them."""
    scorer = Scorer(SyntheticReranker("none", 0), PASSAGE_RERANKING, Settings(width=width, partition=partition))
    found = scorer.score_orders(POOL, orders(), range(4))
    shown = [[found.candidate_ids[column] for column in order] for order in found.orders()]
    assert shown == [[POOL.pool[i].id for i in order] for order in orders()]


def test_a_language_model_gives_distributions_and_label_mass(tiny_engine):
    found = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=3)).score_orders(POOL, orders(), range(4))
    assert found.grades.shape == (4, 5, 4)
    assert np.allclose(found.grades.sum(-1), 1)
    assert np.allclose(found.grades @ [0, 1, 2, 3] / 3, found.scores)
    assert ((found.label_mass > 0) & (found.label_mass <= 1)).all()
    assert found.windows.max() == 1
    assert tau_psi(found.scores) > 0


def test_width_one_is_free_of_order_exactly(tiny_engine):
    """§3: at B = 1 the residual is zero by construction."""
    found = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=1)).score_orders(POOL, orders(6), range(6))
    assert tau_psi(found.scores) == 0
    assert (found.scores == found.scores[0]).all()


def test_equal_windows_are_scored_once(tiny_engine, monkeypatch):
    asked = []
    real = tiny_engine.grade_logits
    monkeypatch.setattr(tiny_engine, "grade_logits", lambda prompts, **k: asked.append(len(prompts)) or real(prompts, **k))
    Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=1)).score_orders(POOL, orders(6), range(6))
    assert asked == [5]


def test_a_window_that_does_not_fit_is_refused_by_name(tiny_engine, monkeypatch):
    monkeypatch.setattr(tiny_engine, "context", 900)
    scorer = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=5))
    with pytest.raises(
        WindowTooLong, match=r"width 5 does not fit: window 1 of query q1 needs [\d,]+ tokens, the model takes 900"
    ):
        scorer.score(POOL)


def test_shrinking_keeps_the_query_and_is_counted(tiny_engine, monkeypatch):
    scorer = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=5, fit="shrink"))
    whole = len(scorer.prompt(POOL, _window()))
    monkeypatch.setattr(tiny_engine, "context", whole - 40)
    prompt = scorer.prompt(POOL, _window())
    assert len(prompt) <= whole - 40
    (cut,) = scorer.score_orders(POOL, np.arange(5)[None], [0]).cost.shrunk
    assert (cut.query_id, cut.window, cut.chars < scorer.settings.chars) == ("q1", 1, True)
    assert cut.candidates == tuple(candidate.id for candidate in POOL.pool[:5])
    text = tiny_engine.encoder.tokenizer.decode((*prompt.prefix, *prompt.body))
    assert POOL.query in text
    assert PASSAGE_RERANKING.rubric in text
    monkeypatch.setattr(tiny_engine, "context", 300)
    with pytest.raises(WindowTooLong):
        scorer.prompt(POOL, _window())


def _window():
    from steadyscore.window.presentation import windows

    return windows(range(5), 5)[0]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda q, texts: [float("nan")] * len(texts),
            r"gave nan as the score of candidate c of query q1. Return a finite number",
        ),
        (lambda q, texts: [1.0, float("inf"), 0, 0, 0], r"gave inf as the score of candidate a"),
        (lambda q, texts: [1.0], r"gave 1 scores for the 5 candidates of query q1. Return one number per candidate"),
        (lambda q, texts: None, r"gave nothing for the 5 candidates of query q1. Return one number per candidate"),
        (lambda q, texts: [[0.5]] * 5, r"gave an array of shape \(5, 1\) for the 5 candidates of query q1. Return one number"),
    ],
)
def test_scores_that_are_no_scores_are_refused(answer, message):
    with pytest.raises(InputError, match=message):
        Scorer(PythonReranker(answer, "python:mine:f"), PASSAGE_RERANKING).score(POOL)


def test_a_reranker_sees_the_whole_pool_unless_a_width_is_given():
    seen = []
    reranker = PythonReranker(lambda q, texts: seen.append(len(texts)) or [0.0] * len(texts), "f")
    Scorer(reranker, PASSAGE_RERANKING).score(POOL)
    Scorer(reranker, PASSAGE_RERANKING, Settings(width=2)).score(POOL)
    assert seen == [5, 2, 2, 1]


def test_identity_changes_with_everything_that_changes_a_score(tiny_engine):
    base = Scorer(tiny_engine, PASSAGE_RERANKING).identity()
    for change in (
        {"width": 3},
        {"chars": 9},
        {"markers": "roman"},
        {"placeholder": "?"},
        {"instruction": "x"},
        {"partition": "round_robin"},
    ):
        assert Scorer(tiny_engine, PASSAGE_RERANKING, Settings(**change)).identity() != base
    assert Scorer(tiny_engine, PASSAGE_RERANKING, Settings(markers="roman")).identity()["prompt_hash"] != base["prompt_hash"]


def test_the_ideal_counts_judged_documents_outside_the_pool():
    assert ideal_gains(POOL).tolist() == [3, 3, 2, 1, 0]


def test_a_presentation_is_one_value_of_all_four_channels(tiny_engine):
    from dataclasses import replace

    scorer = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=3))
    own = scorer.presentation([4, 2, 0, 1, 3])
    assert np.array_equal(scorer.score_presentation(POOL, own), scorer.score(POOL, [4, 2, 0, 1, 3]))
    for channel in ({"order": (0, 1, 2, 3, 4)}, {"partition": "round_robin"}, {"markers": "roman"}, {"placeholder": "3"}):
        assert not np.array_equal(scorer.score_presentation(POOL, replace(own, **channel)), scorer.score_presentation(POOL, own))


class Whole(Reranker):
    """A system that is not ours: keeps what it was given."""

    name, capabilities = "whole", Capabilities(gives="score")

    def identity(self):
        return {"kind": "whole"}

    def score(self, query, texts):
        self.given = list(texts)
        return [0.0] * len(texts)


def test_a_system_that_is_not_ours_gets_texts_as_they_are_unless_told_otherwise():
    code = "def f():\n    return  1\n" + "x" * 2000
    instance = Instance("q", "code", (Candidate("a", code), Candidate("b", "body\n\nend", title="Head")))
    system, collection = Whole(), Collection("c", "response_ranking", chars=500)
    scorer_for(system, collection, AuditConfig()).score(instance)
    assert system.given == [code, "Head\nbody\n\nend"]
    scorer_for(system, collection, AuditConfig(chars=12)).score(instance)
    assert system.given == ["def f(): ret", "Head body en"]
    assert scorer_for(system, collection, AuditConfig()).width is None
