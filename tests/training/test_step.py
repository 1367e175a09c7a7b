"""The loss a step minimises is the objective's own: what test_objectives.py says of it holds in training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from steadyscore.terms import Collection
from steadyscore.training.examples import Example
from steadyscore.training.objectives import OBJECTIVES, Terms
from steadyscore.training.recipe import TrainConfig, resolve_plan
from steadyscore.training.step import window_loss

RANDOM = np.random.default_rng(0)
LOG_P, OTHER = (torch.tensor(RANDOM.normal(size=(2, 5, 4)), dtype=torch.float32).log_softmax(-1) for _ in range(2))
SCORES = (LOG_P.exp() @ torch.arange(4.0)).numpy().astype(float)
TARGET, SLOTS, SLOT_WEIGHTS = RANDOM.uniform(0, 3, 5), np.array([2, 0, 1, 0, 2]), np.array([0.5, 1.0, 1.5])
WITHOUT_PENALTY = ("single_order", "order_averaged", "dropout")
TEACHER = RANDOM.dirichlet(np.ones(4), 5)


def plan(objective: str, **changes):
    return resolve_plan(TrainConfig(objective=objective, **changes), Collection("pools", "passage_reranking"))


def loss(planned) -> tuple[torch.Tensor, ...]:
    return window_loss(planned, Example(None, None, TARGET, TEACHER, SLOTS), LOG_P, OTHER[0], 3.0, SLOT_WEIGHTS)


def by_hand(objective: str) -> tuple[float, float]:
    """(anchor, weighted penalty)"""
    squares = (SCORES - TARGET) ** 2
    base = OTHER[0].exp().numpy()
    if objective == "permutation_augmentation":
        return squares.mean(), 0.0
    if objective == "debias_first":
        weights = SLOT_WEIGHTS[SLOTS]
        return (weights * squares).mean() / weights.mean(), 0.0
    if objective == "mean_teacher":
        return squares[0].mean(), 3 * ((SCORES[0] - base @ np.arange(4)) ** 2).mean()
    if objective == "kl_to_base":
        mine = LOG_P[0].exp().numpy()
        return squares[0].mean(), 3 * (mine * np.log(mine / base)).sum(-1).mean()
    return squares[0].mean(), 0.0 if objective in WITHOUT_PENALTY else 3 * SCORES.var(axis=0).mean()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_windows_loss_by_hand(objective):
    anchor, penalty = by_hand(objective)
    found, logged, variance, _ = loss(plan(objective, anchor=0.5))
    assert float(found) == pytest.approx(0.5 * anchor + penalty, rel=1e-5)
    assert float(logged) == pytest.approx(anchor, rel=1e-5)
    assert float(variance) == pytest.approx(SCORES.var(axis=0).mean(), rel=1e-5)
    anchors_all = objective in ("permutation_augmentation", "debias_first")
    anchored = LOG_P if anchors_all else LOG_P[0]
    shown = SCORES if anchors_all else SCORES[:1]
    pairs = [np.log1p(np.exp(view[j] - view[i])) for view in shown for i in range(5) for j in range(5) if TARGET[i] > TARGET[j]]
    anchor = 0.5 * anchor + 0.25 * -(TEACHER * anchored.numpy()).sum(-1).mean() + 0.25 * np.mean(pairs)
    found, logged, *_ = loss(plan(objective, anchor=0.5, grade_share=0.25, preference_share=0.25))
    assert float(found) == pytest.approx(0.5 * anchor + penalty, rel=1e-5)
    assert float(logged) == pytest.approx(anchor, rel=1e-5)


def test_a_window_is_trained_by_its_objectives_loss():
    seven = replace(OBJECTIVES["oc_sft"], loss=lambda seen: Terms(torch.tensor(1.0), torch.tensor(2.0)))
    assert loss(replace(plan("oc_sft"), objective=seven))[0] == 1 + 3 * 2
