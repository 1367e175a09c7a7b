"""Choices in another order at every epoch of inspect_ai (pip install inspect-ai): how often the answer flips, and to where.

    inspect eval task.py --solver steadyscore/permuted_choice --epochs 6 --epochs-reducer mean,steadyscore/flip

The task's scorer is inspect's own `choice()`; `pull_to_first` beside it says whether answers follow the first place. A log of
such a run is a score file: `steadyscore audit --scores LOG.eval`.
"""

from __future__ import annotations

from random import Random
from typing import Any

from inspect_ai.scorer import Score, Scorer, ScoreReducer, Target, mean, score_reducer, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, multiple_choice, solver

from ..measures.preference import change
from ..runs.score_file import ORDER
from ..window.presentation import permutation


class _Order(Random):
    """Shuffles by putting places into an order that was drawn before: what `Choices.shuffle` takes."""

    def __init__(self, order: list[int]):
        super().__init__()
        self.order = order

    def shuffle(self, x: Any) -> None:
        x[:] = self.order


@solver
def permuted_choice(seed: int = 0, **how: Any) -> Solver:
    """inspect's `multiple_choice`, which takes the other options, with a sample's choices in another order at every epoch."""
    answer = multiple_choice(**how)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if not state.choices:
            raise ValueError("The permuted_choice solver requires samples with choices")
        n = len(state.choices)
        order = permutation(n, seed=seed, query_id=str(state.sample_id), index=state.epoch - 1).tolist()
        state.choices.shuffle(_Order(order))
        state.metadata[ORDER] = order
        return await answer(state, generate)

    return solve


@score_reducer
def flip() -> ScoreReducer:
    """The share of pairs of epochs whose answers differ; answers are named by the choice, not by its place."""

    def reduce(scores: list[Score]) -> Score:
        answers = [score.answer or "" for score in scores]
        return Score(value=float(change(answers)), answer=max(answers, key=answers.count), explanation=", ".join(answers))

    return reduce


@scorer(metrics=[mean(), stderr()])
def pull_to_first() -> Scorer:
    """1 where the answer is the choice that was shown first, less what chance gives; 0 on average where place plays no part."""

    async def score(state: TaskState, target: Target) -> Score:
        chosen = [slot for slot, choice in enumerate(state.choices) if choice.correct]
        return Score(value=float(0 in chosen) - 1 / len(state.choices), answer=", ".join(map(str, chosen)))

    return score
