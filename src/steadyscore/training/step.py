"""One optimizer step: the views of some windows through the model, their losses, one update of the LoRA weights."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np
import torch
from accelerate import Accelerator
from peft import PeftModel

from ..engines import Engine
from ..engines.local.model import TransformersEngine
from ..errors import ModelError
from ..machine.console import job
from ..scoring.scorer import Scorer
from ..terms import JsonObject, Prompt
from ..window.presentation import generator
from ..window.readout import SlotLogits
from .examples import Data, Example, View, step_indices, views
from .objectives import Seen, grade_cross_entropy, order_variance, preference
from .recipe import Plan

PER_PASS = 8
"""Prompts that an evaluation reads at once."""


class Slots(torch.nn.Module):
    """The module Accelerate wraps: prompts in, grade logits at their slots out."""

    def __init__(self, engine: TransformersEngine):
        super().__init__()
        self.model, self._engine = engine.model, [engine]  # in a list: torch must not take it for a submodule
        present = {type(module).__name__ for module in self.model.modules()}
        self._no_split_modules = [name for name in self.model._no_split_modules or () if name in present]
        """Classes of the layers, each of which FSDP gathers by itself; without them it would gather the whole model at once."""

    def forward(self, prompts: Sequence[Prompt]) -> list[torch.Tensor]:
        return self._engine[0].slot_logits(prompts)


class TrainedEngine(Engine):
    """The student as an `Engine`, for held-out evaluation through whatever Accelerate wrapped around it."""

    def __init__(self, engine: TransformersEngine, module: torch.nn.Module, advance: Callable[[int], None]):
        self.name, self.capabilities, self.encoder, self.context = (
            engine.name,
            engine.capabilities,
            engine.encoder,
            engine.context,
        )
        self._engine, self._module, self._advance = engine, module, advance

    def identity(self) -> JsonObject:
        return self._engine.identity()

    @torch.no_grad()
    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[SlotLogits]:
        readings: list[SlotLogits] = []
        for batch in (prompts[i : i + PER_PASS] for i in range(0, len(prompts), PER_PASS)):
            readings += [SlotLogits(logits.cpu().numpy()) for logits in self._module(batch)]
            self._advance(len(batch))
        return readings


class StepRow(TypedDict):
    """One row of log.jsonl."""

    step: int
    loss: float
    anchor: float
    order_variance: float
    dispersion: float
    learning_rate: float
    weight: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float


@dataclass(slots=True)
class Loop:
    """What the steps of a run share."""

    data: Data
    accelerator: Accelerator
    scorer: Scorer
    """The base as it shows and reads windows."""
    student: PeftModel
    module: Any
    """The student as Accelerate wrapped it."""
    optimizer: Any
    named: dict[str, torch.Tensor]
    """What is trained."""
    ema: dict[str, torch.Tensor] | None
    """Its running average, where the objective reads it."""

    @property
    def plan(self) -> Plan:
        return self.data.plan

    @property
    def engine(self) -> TransformersEngine:
        return cast(TransformersEngine, self.scorer.backend)

    def step(self, step: int) -> StepRow:
        """Forward and backward over the step's windows, then one update. Returns the log row, the same on every process."""
        config, accelerator, began = self.plan.config, self.accelerator, time.monotonic()
        weight, rate = self.data.schedule.weight_at(step), self.data.schedule.rate_at(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        chosen = step_indices(step, config.batch, len(self.data.examples), config.seed)
        passes = [chosen[i : i + config.microbatch] for i in range(0, len(chosen), config.microbatch)]
        own = range(accelerator.process_index, len(passes), accelerator.num_processes)
        sums = torch.zeros(5, dtype=torch.float64, device=accelerator.device)
        with job("", len(own), "microbatch", is_part=True, hidden=not accelerator.is_main_process) as work:
            for number in own:
                is_last = number + accelerator.num_processes >= len(passes)
                # Gradients cross processes once per step; until then each adds up its own.
                with contextlib.nullcontext() if is_last else accelerator.no_sync(self.module):
                    sums += self.learn(step, number, passes[number], weight)
                work.advance()
        norm = accelerator.clip_grad_norm_(list(self.named.values()), config.clip)
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        if not math.isfinite(norm):
            raise ModelError(
                f"the gradient of step {step} is {norm}. The last checkpoint is kept; "
                "lower --learning-rate or look at the step's windows."
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        trim_memory()
        if self.ema is not None:
            for name, p in self.named.items():
                self.ema[name].mul_(config.ema_decay).add_(p.detach(), alpha=1 - config.ema_decay)
        loss, anchor, variance, dispersion, tokens = accelerator.reduce(sums, "sum").tolist()
        seconds = time.monotonic() - began
        return {
            "step": step,
            "loss": loss / config.batch,
            "anchor": anchor / config.batch,
            "order_variance": variance / config.batch,
            "dispersion": dispersion / config.batch,
            "learning_rate": rate,
            "weight": weight,
            "gradient_norm": norm,
            "tokens": int(tokens),
            "tokens_per_second": round(tokens / seconds, 1),
        }

    def judge(self, advance: Callable[[int], None] = lambda windows: None) -> Scorer:
        """The student as a scorer, for held-out evaluation."""
        return Scorer(TrainedEngine(self.engine, self.module, advance), self.scorer.task, self.scorer.settings)

    def learn(self, step: int, number: int, chosen: list[tuple[int, int]], weight: float) -> torch.Tensor:
        """Forward and backward over one microbatch; its gradients are added up, its sums for the log returned."""
        loss, sums = self._microbatch(step, number, chosen, weight)
        # Processes average their gradients, and the step's loss is the mean over its windows.
        self.accelerator.backward(loss * (self.accelerator.num_processes / self.plan.config.batch))
        return sums

    def _microbatch(
        self, step: int, number: int, chosen: list[tuple[int, int]], weight: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Summed loss of some windows, and (loss, anchor, order variance, dispersion, tokens) summed for the log."""
        plan, config = self.plan, self.plan.config
        how = {"shuffled": plan.shuffle == "window", "marked": plan.objective.views == "markers"}
        shown: list[tuple[Example, list[View]]] = []
        for epoch, index in chosen:
            example = self.data.examples[index]
            shown.append((example, views(example, plan.window_views, seed=config.seed, epoch=epoch, **how)))
        prompts = [[self._prompt(example, view) for view in presented] for example, presented in shown]
        tokens = [sum(map(len, row)) for row in prompts]
        seconds: list[torch.Tensor] | None = None
        if plan.objective.second:
            torch.manual_seed(seed_of(config.seed, step, number, "other"))
            with torch.no_grad(), self._use_averages() if self.ema is not None else self.student.disable_adapter():
                seconds = self.module([row[-1] for row in prompts])
            prompts = [row[:1] for row in prompts]
        torch.manual_seed(seed_of(config.seed, step, number))  # dropout: the same masks on any number of processes
        logits = iter(self.module([prompt for row in prompts for prompt in row]))
        total, sums = torch.zeros((), device=self.accelerator.device), np.zeros(5)
        for i, (example, presented) in enumerate(shown):
            rows = torch.stack(
                [next(logits)[torch.as_tensor(view.columns)] for view in presented[: len(prompts[i])]]
            )  # (N, b, 4)
            second = None if seconds is None else seconds[i][torch.as_tensor(presented[-1].columns)]
            terms = window_loss(plan, example, rows.log_softmax(-1), second, weight, self.data.slot_weights)
            loss = terms.loss
            if not bool(torch.isfinite(loss)):
                raise ModelError(
                    f"the loss of step {step} is {loss.item()} at window {example.window.index + 1} "
                    f"of query {example.instance.id}. "
                    "The last checkpoint is kept; look at this window's texts and labels, or lower --learning-rate."
                )
            total = total + loss
            dispersion = float(terms.scores[0].std(correction=0)) / 3
            sums += [loss.item(), terms.anchor.item(), terms.order_variance.item(), dispersion, tokens[i]]
        return total, torch.as_tensor(sums, device=self.accelerator.device)

    def _prompt(self, example: Example, view: View) -> Prompt:
        if view.markers is None:
            return self.scorer.prompt(example.instance, view.window)  # type: ignore[return-value]
        marked = Scorer(self.scorer.backend, self.scorer.task, replace(self.scorer.settings, markers=view.markers))
        return marked.prompt(example.instance, view.window)  # type: ignore[return-value]

    @contextlib.contextmanager
    def _use_averages(self) -> Iterator[None]:
        """The EMA's weights in the student's place."""
        live = {name: p.detach().clone() for name, p in self.named.items()}
        for name, p in self.named.items():
            p.data.copy_(self.ema[name])  # type: ignore[index]
        try:
            yield
        finally:
            for name, p in self.named.items():
                p.data.copy_(live[name])


class WindowLoss(NamedTuple):
    """What one window adds to a step: its loss, and for the log its anchor, order variance and scores (N, b)."""

    loss: torch.Tensor
    anchor: torch.Tensor
    order_variance: torch.Tensor
    scores: torch.Tensor


def window_loss(
    plan: Plan,
    example: Example,
    log_p: torch.Tensor,
    second: torch.Tensor | None,
    weight: float,
    slot_weights: np.ndarray | None = None,
) -> WindowLoss:
    """One window's loss from its log grade distributions (N, b, 4).

    `second` are the logits (b, 4) of the averaged student or of the base, `slot_weights` (B,) those of DebiasFirst.
    """
    config, objective = plan.config, plan.objective
    grades = torch.arange(4.0, device=log_p.device)
    scores = log_p.exp() @ grades
    tensor = partial(torch.as_tensor, dtype=scores.dtype, device=scores.device)
    seen = Seen(
        views=scores,
        target=tensor(example.target),
        log_p=log_p,
        second=None if second is None else second.softmax(-1) @ grades,
        second_log_p=None if second is None else second.log_softmax(-1),
        slot_weights=None if slot_weights is None else tensor(slot_weights[example.slots]),
        convention=config.weight_convention,
    )
    terms = objective.loss(seen)
    squared = 1 - config.grade_share - config.preference_share
    loss: torch.Tensor = config.anchor * squared * terms.anchor
    if terms.penalty is not None:
        loss = loss + weight * terms.penalty
    anchor = squared * terms.anchor
    anchored = slice(None) if objective.anchors_all_views else 0
    if config.grade_share:
        entropy = config.grade_share * grade_cross_entropy(log_p[anchored], tensor(example.grades))
        loss, anchor = loss + config.anchor * entropy, anchor + entropy
    if config.preference_share:
        compared = config.preference_share * preference(scores[anchored], seen.target)
        loss, anchor = loss + config.anchor * compared, anchor + compared
    return WindowLoss(loss, anchor.detach(), order_variance(scores).detach(), scores.detach())


def trim_memory() -> None:
    """Return freed memory to the system. Windows differ in length, and the blocks that glibc keeps of one seldom fit the next."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def seed_of(*key: object) -> int:
    return int(generator("train", *key).integers(2**63))
