import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from steadyscore.cli import main
from steadyscore.engines.synthetic import ScoreRecording, SyntheticReranker
from steadyscore.errors import InputError
from steadyscore.measures.instability import tau_psi
from steadyscore.scoring.config import AuditConfig
from steadyscore.scoring.mitigations import (
    MITIGATIONS,
    Mitigated,
    between_0_and_1,
    count_windows,
    derived_orders,
    hash_order,
    logit_capcal,
    mitigate,
    rescale,
)
from steadyscore.scoring.perturbation import score_perturbed
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.scoring.tournaments import central_ranking, tournament_standing
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance
from steadyscore.window import readout
from steadyscore.window.presentation import permutations
from tests.helpers.pools import some_instances, write_collection

POOL = Instance(
    "q1",
    "what is a thing",
    tuple(Candidate(f"d{(7 * i) % 11:02d}", f"thing {i} " + "word " * i, relevance=i % 4) for i in range(11)),
)
ORDERS = permutations(11, 6, seed=0, query_id="q1")


def scorer(effect="slot", size=0.2, width=4):
    return Scorer(SyntheticReranker(effect, size), PASSAGE_RERANKING, Settings(width=width))


def served(name, effect="slot", **how):
    return Mitigated(scorer(effect, **how), name).score_orders(POOL, ORDERS, range(6))


@pytest.mark.parametrize("name", [n for n in MITIGATIONS if not n.startswith("capcal")])
def test_every_mitigation_is_a_function_of_the_order(name):
    """Asked again, alone or among others, an order gets the same scores; candidates keep their identity."""
    wrapped = Mitigated(scorer(), name)
    together = wrapped.score_orders(POOL, ORDERS, range(6))
    alone = np.vstack([wrapped.score_orders(POOL, order[None], [0]).scores for order in ORDERS])
    assert np.array_equal(together.scores, alone)
    assert together.candidate_ids == tuple(sorted(c.id for c in POOL.pool))
    assert together.permutations.tolist() == list(range(6))
    in_pool_order = wrapped.score(POOL, ORDERS[2])
    assert dict(zip((c.id for c in POOL.pool), in_pool_order, strict=True)) == dict(
        zip(together.candidate_ids, together.scores[2], strict=True)
    )


def test_self_consistency_of_a_scorer_without_order_effect_changes_nothing():
    plain = scorer("none").score_orders(POOL, ORDERS, range(6))
    assert np.allclose(served("self-consistency:7", "none").scores, plain.scores, rtol=0, atol=1e-15)
    for name in ("borda:7", "central-ranking:7"):  # the ranking stays; its scores are ranks
        ranks = served(name, "none")
        assert np.array_equal(np.argsort(-ranks.scores), np.argsort(-plain.scores))


def test_self_consistency_averages_order_away():
    instability = [tau_psi(served(f"self-consistency:{K}").scores) for K in (1, 4, 32)]
    assert instability[0] > instability[1] > instability[2]


def test_derived_orders_are_permutations_of_the_pool_and_differ_between_orders():
    first, second = (derived_orders(POOL, order, 5) for order in ORDERS[:2])
    assert (np.sort(first, axis=1) == np.arange(11)).all()
    assert not {tuple(r) for r in first.tolist()} & {tuple(r) for r in second.tolist()}


def test_canonical_order_cannot_move_under_reordering():
    found = served("canonical-order", "companion", size=2.0)
    assert tau_psi(found.scores) == 0
    assert (found.scores == found.scores[0]).all()
    shuffled = Instance("q1", POOL.query, tuple(POOL.pool[i] for i in ORDERS[3]))
    ids = [shuffled.pool[i].id for i in hash_order(shuffled)]
    assert ids == [POOL.pool[i].id for i in hash_order(POOL)]


def test_canonical_order_still_moves_when_the_pool_does(tmp_path):
    """tau-PSI 0 by construction; Pool-PSI through the audit's own perturbation, and above 0."""
    config = AuditConfig(permutations=3)
    wrapped = Mitigated(scorer("companion", 1.0, width=5), "canonical-order")
    run = score_collection(wrapped, "passages", tmp_path / "run", config)
    assert all(tau_psi(query.permuted) == 0 for query in run.read_queries())
    score_perturbed(wrapped, run, "passages", config, ["drop"])
    values = run.read_perturbed([query.query_id for query in run.read_queries()])
    assert np.nanmean(values["pool_psi_drop"]) > 0.01
    assert run.record.fingerprint.mitigations == ["canonical-order"]


def test_capcal_golden_value():
    """p' = p - H(p) (q - 1/4), clipped and renormalised, worked out by hand."""
    moved = readout.capcal(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.7, 0.1, 0.1, 0.1]))
    assert np.allclose(moved, [0, 0.26558, 0.33333, 0.40109], atol=1e-5)
    assert np.isclose(readout.score(moved), 0.71184, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), st.lists(st.floats(0.01, 1), min_size=4, max_size=4))
def test_logit_capcal_makes_the_probe_uniform_and_keeps_a_uniform_prior(p, q):
    p, q = (np.array(x) / np.sum(x) for x in (p, q))
    assert np.allclose(logit_capcal(q, q), 0.25)
    assert np.allclose(logit_capcal(p, np.full(4, 0.25)), p)


@pytest.mark.parametrize("name", ["capcal", "capcal-logit"])
def test_capcal_probes_once_per_query_and_window_length(tiny_engine, monkeypatch, name):
    asked = []
    real = tiny_engine.grade_logits
    monkeypatch.setattr(tiny_engine, "grade_logits", lambda prompts, **k: asked.append(len(prompts)) or real(prompts, **k))
    base = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=4, chars=20))
    wrapped = Mitigated(base, name)
    found = wrapped.score_orders(POOL, ORDERS[:2], range(2))
    wrapped.score_orders(POOL, ORDERS[2:3], [0])
    assert asked == [6, 1, 1, 3, 1, 1]  # 3 windows of 4, 4 and 3: two probes a call
    plain = base.score_orders(POOL, ORDERS[:2], range(2))
    empty = {length: replace(POOL, pool=tuple(Candidate(f"{i:06d}", "") for i in range(length))) for length in (4, 3)}
    probes = {length: base.score_orders(pool, np.arange(length)[None], [0]) for length, pool in empty.items()}
    prior = {length: probe.grades[0] for length, probe in probes.items()}
    assert found.cost.tokens == plain.cost.tokens + sum(probe.cost.tokens for probe in probes.values())
    calibrate = readout.capcal if name == "capcal" else logit_capcal
    row, column = 1, 5
    length = 3 if plain.windows[row, column] == 2 else 4
    by_hand = calibrate(plain.grades[row, column], prior[length][plain.slots[row, column]])
    assert np.allclose(found.grades[row, column], by_hand)
    assert np.allclose(found.scores, readout.score(found.grades))


def test_mitigations_compose(tiny_engine):
    base = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=4, chars=20))
    both = mitigate(base, ["capcal", "self-consistency:2"])
    found = both.score_orders(POOL, ORDERS[:1], [0])
    inner = Mitigated(base, "capcal").score_orders(POOL, derived_orders(POOL, ORDERS[0], 2), range(2))
    assert np.allclose(found.scores[0], inner.scores.mean(axis=0))
    assert np.allclose(readout.score(found.grades), found.scores)
    assert both.mitigations == ("capcal", "self-consistency:2")
    assert both.identity()["mitigations"] == list(both.mitigations)
    assert mitigate(base, []) is base
    with pytest.raises(InputError, match="Name it before any mitigation that averages"):
        mitigate(base, ["self-consistency:2", "capcal"]).score_orders(POOL, ORDERS[:1], [0])


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 7), st.integers(2, 9), st.integers(0, 10**6))
def test_the_central_ranking_is_no_farther_from_the_rankings_than_borda(n, K, seed):
    rows = np.random.default_rng(seed).permuted(np.tile(np.arange(float(n)), (K, 1)), axis=1)

    def distance(ranking):
        return sum(1 - kendalltau(ranking, row).statistic for row in rows)

    from steadyscore.measures.views import borda

    mean = borda(rows).mean(axis=0)
    untied = np.argsort(np.argsort(-mean, kind="stable"))
    assert distance(central_ranking(rows[None])[0]) <= distance(-untied) + 1e-9


def test_a_tournament_ranks_as_the_scorer_where_order_has_no_effect():
    """The best of the pool wins, and points are stages won plus the share of the last window left behind."""
    plain = scorer("none")
    scores = plain.score(POOL)
    reached, _ = tournament_standing(plain, POOL, ORDERS[0], scores)
    assert reached.argmax() == scores.argmax()
    assert (reached >= 0).all()
    # 11 candidates in windows of 4: 2 + 2 + 2 go on, then 2 + 1, then one window of 3.
    assert np.bincount(reached.astype(int)).tolist() == [5, 3, 3]
    with pytest.raises(InputError, match="at least 2"):
        served("tournament", "none", width=1)


def test_cost_counts_windows_and_probes_per_query():
    assert count_windows(100, 20) == 5
    assert count_windows(100, 20, ["self-consistency:10"]) == 50
    assert count_windows(100, 20, ["capcal"]) == 6
    assert count_windows(11, 4, ["capcal"]) == 5
    assert count_windows(11, 4, ["tournament:1"]) == 3 + 2 + 1
    assert count_windows(100, None, ["canonical-order"]) == 1
    assert count_windows(100, 20, ["capcal", "self-consistency:2"]) == 11  # the probe is kept


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("self-consistency:3",),
        ("canonical-order",),
        ("tournament:2",),
        ("canonical-order", "borda:2"),
        ("self-consistency:2", "canonical-order"),
        ("borda:2", "tournament:2"),
    ],
    ids=" ".join,
)
def test_a_run_counts_the_windows_it_scored(names, tmp_path, monkeypatch):
    """Against the windows that the scorer was shown."""
    counted = []
    real = Scorer.read_windows
    monkeypatch.setattr(Scorer, "read_windows", lambda self, shown: counted.append(len(shown)) or real(self, shown))
    source = str(write_collection(tmp_path / "pools.jsonl", some_instances(queries=2, candidates=11)))
    wrapped = mitigate(Scorer(SyntheticReranker("slot", 0.2), PASSAGE_RERANKING, Settings(width=4)), names)
    run = score_collection(wrapped, source, tmp_path / "run", AuditConfig(permutations=3))
    assert run.record.coverage.windows == sum(counted)


def test_a_run_under_capcal_counts_its_probes_once_a_query(tmp_path, tiny_engine):
    source = str(write_collection(tmp_path / "pools.jsonl", some_instances(queries=2, candidates=5)))
    wrapped = mitigate(Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=3)), ["capcal"])
    run = score_collection(wrapped, source, tmp_path / "run", AuditConfig(permutations=2))
    assert run.record.coverage.windows == 2 * (3 * 2 + 2)  # windows of three and of two have a probe each


def test_a_tournament_costs_what_it_says(monkeypatch):
    counted = []
    backend = SyntheticReranker("slot", 0.2)
    real = backend.score
    monkeypatch.setattr(backend, "score", lambda query, texts: counted.append(len(texts)) or real(query, texts))
    wrapped = Mitigated(Scorer(backend, PASSAGE_RERANKING, Settings(width=4)), "tournament:3")
    wrapped.score_orders(POOL, ORDERS[:1], [0])
    assert len(counted) == count_windows(11, 4, ["tournament:3"])


def test_what_cannot_be_mitigated_is_refused(tmp_path):
    with pytest.raises(InputError, match="unknown mitigation 'magic'"):
        Mitigated(scorer(), "magic")
    with pytest.raises(InputError, match="positive number"):
        Mitigated(scorer(), "borda:0")
    with pytest.raises(InputError, match="takes no number"):
        Mitigated(scorer(), "canonical-order:3")
    with pytest.raises(InputError, match="gives none"):
        served("capcal")
    recorded = Scorer(ScoreRecording([], tmp_path, ""), PASSAGE_RERANKING)
    with pytest.raises(InputError, match="--serving-permutations"):
        Mitigated(recorded, "self-consistency")


def test_an_audit_under_a_mitigation(tmp_path, capsys):
    """Canonical order through the command: tau-PSI exactly 0, Pool-PSI reported and not 0."""
    words = ["audit", "--scorer", "synthetic:companion:1", "--data", "responses", "--permutations", "3", "--no-report", "--json"]
    assert main([*words, "--mitigation", "canonical-order", "--perturb", "drop", "--out", str(tmp_path / "out")]) == 0
    told = json.loads(capsys.readouterr().out)["runs"][0]
    assert told["scorer"] == "synthetic:companion:1 canonical-order"
    assert told["measures"]["tau_psi"]["value"] == 0
    assert told["measures"]["pool_psi_drop"]["value"] > 0
    assert main([*words, "--mitigation", "pine", "--out", str(tmp_path / "other")]) == 1
    assert "pine changes the attention of a local model" in capsys.readouterr().err
    assert main([*words, "--mitigation", "borda:2", "--perturb", "markers", "--out", str(tmp_path / "other")]) == 2


def test_pine_is_a_mitigation_of_a_local_model(tiny_engine):
    base = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=4, chars=20))
    both = mitigate(base, ["pine", "self-consistency:2"])
    assert both.identity()["scorer"]["attention"] == "pine"
    assert both.score_orders(POOL, ORDERS[:1], [0]).scores.shape == (1, 11)
    with pytest.raises(InputError, match="Name pine first"):
        mitigate(base, ["self-consistency:2", "pine"])


def test_rescaling_removes_an_offset_of_windows_and_nothing_else():
    scores, window = np.array([0.1, 0.3, 0.5, 5.1, 5.3, 5.5]), np.array([0, 0, 0, 1, 1, 1])
    rescaled = rescale(scores, window)
    assert rescaled[:3] == pytest.approx(rescaled[3:])
    assert rescaled[:3] == pytest.approx([-(1.5**0.5), 0, 1.5**0.5])
    assert rescale(np.ones(4), np.array([0, 0, 1, 1])).tolist() == [0.0] * 4


def test_a_share_of_the_first_stages_rank_moves_with_no_order_and_lifts_who_stood_first():
    plain, mixed = scorer("none").score_orders(POOL, ORDERS, range(6)), served("first-stage:40", "none")
    assert np.ptp(mixed.scores, axis=0).max() == pytest.approx(0, abs=1e-12)
    place = np.array([[c.id for c in POOL.pool].index(one) for one in plain.candidate_ids])
    low, high = plain.scores.min(), plain.scores.max()
    np.testing.assert_allclose(mixed.scores[0], 0.6 * (plain.scores[0] - low) / (high - low) + 0.4 * (1 - place / 11))
    np.testing.assert_array_equal(served("first-stage", "none").scores, served("first-stage:30", "none").scores)
    with pytest.raises(InputError, match="the number is at most 99"):
        served("first-stage:100")


def test_grades_keep_their_scale_beside_the_first_stage(tiny_engine):
    plain = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=4))
    before = plain.score_orders(POOL, ORDERS[:1], [0])
    after = Mitigated(plain, "first-stage:50").score_orders(POOL, ORDERS[:1], [0])
    place = np.array([[c.id for c in POOL.pool].index(one) for one in before.candidate_ids])
    np.testing.assert_allclose(after.scores, 0.5 * before.scores + 0.5 * (1 - place / 11))
    assert after.slots is not None


def test_equal_scores_of_any_scale_are_all_zero():
    np.testing.assert_array_equal(between_0_and_1(np.array([[5.0, 5.0], [1.0, 3.0]])), [[0, 0], [0, 1]])
