"""Training: N views of a window in one forward pass, slot logits only, LoRA weights only, top to bottom.

One process, DDP and FSDP2 run the same code (`accelerate launch`, `torchrun`). A step is a function of (seed, step): its
windows, their views and the dropout masks do not depend on the number of processes or on interruptions.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import torch
from accelerate import Accelerator
from peft import get_peft_model_state_dict

from ..engines.local.model import TransformersEngine
from ..errors import InputError, ModelError, WindowTooLong
from ..machine.console import job
from ..machine.disk import lock_folder, write_json
from ..machine.extras import versions
from ..models.card import Card, read_card
from ..scoring.config import AuditConfig
from ..scoring.score import score_query
from ..scoring.scorer import Scorer
from ..window.presentation import windows
from . import checkpoints
from .checkpoints import TrainRecord
from .cost import TrainingEstimate, with_rates
from .examples import Data, step_indices
from .held_out import HeldOut, card_curve, evaluate, has_collapsed, window_counts
from .recipe import to_json
from .record import Log, fingerprint, new_card
from .step import Loop, Slots
from .student import add_lora, make_accelerator, open_base

MICROBATCHES = 6
SECONDS = 30.0
"""A rehearsal ends after this many of either; a microbatch that was begun is finished."""


def train_adapter(data: Data, *, command: Sequence[str] = (), quiet: bool = False) -> Card:
    """Train an adapter into the config's `out`, resuming after the last checkpoint there. Returns its card."""
    config = data.plan.config
    accelerator = make_accelerator(config)
    hidden = quiet or not accelerator.is_main_process
    scorer = _open_scorer(data, accelerator, hidden)
    card, out = new_card(data, scorer), Path(config.out)
    with lock_folder(out) if accelerator.is_main_process else nullcontext():
        known = fingerprint(data.plan, card)
        record = TrainRecord("training", known, to_json(config), card.weight, list(command), versions())
        record = checkpoints.begin(out, record)
        last = checkpoints.latest(out)
        _check_shared(out, record.status, last, accelerator)
        _refuse_collapsed(record)
        if record.status == "complete":
            return read_card(out)
        run = Run(_open_loop(data, accelerator, scorer, last), card, record, hidden, last)
        try:
            run.train()
        except WindowTooLong as excess:  # of a held-out pool, or of other markers than the first view's
            raise InputError(f"{excess.fact}. {excess.remedy}.") from excess
        accelerator.end_training()
        return run.card


def rehearse(data: Data, cost: TrainingEstimate) -> TrainingEstimate:
    """Open all that the run would open, refuse what it would refuse, and write nothing.

    Where no rate of training is remembered, a few microbatches of the run's first step are trained and a held-out query is
    evaluated, for the time in the estimate.
    """
    data = replace(data, plan=replace(data.plan, config=replace(data.plan.config, trackers=())))
    config = data.plan.config
    accelerator = make_accelerator(config)
    scorer = _open_scorer(data, accelerator, hidden=True)
    _refuse_collapsed(checkpoints.read_record(Path(config.out), fingerprint(data.plan, new_card(data, scorer))))
    loop = _open_loop(data, accelerator, scorer)
    if cost.seconds is not None:
        return cost
    chosen = step_indices(0, config.batch, len(data.examples), config.seed)
    timings: list[float] = []
    loop.engine.model.train()
    for number in range(min(MICROBATCHES, config.batch // config.microbatch)):
        if sum(timings) >= SECONDS:
            break
        began = time.monotonic()
        loop.learn(0, number, chosen[number * config.microbatch : (number + 1) * config.microbatch], data.plan.weight)
        timings.append(time.monotonic() - began)
    after_first = timings[1:] or timings  # the first one warms up
    trained = len(after_first) * config.microbatch
    rate = trained * cost.tokens / (cost.steps * config.batch) / sum(after_first)
    evaluated = math.nan
    if data.held_out:
        loop.engine.model.eval()
        began = time.monotonic()
        evaluate_once = AuditConfig(permutations=config.held_out_permutations, seed=config.seed)
        score_query(loop.judge(), data.held_out[0], evaluate_once)
        queries = cost.evaluations * len(data.held_out)
        evaluated = cost.evaluated_tokens / queries / (time.monotonic() - began)
    return with_rates(cost, rate, evaluated, "measured")


def _open_scorer(data: Data, accelerator: Accelerator, hidden: bool) -> Scorer:
    """The base that is about to be trained, as it shows and reads windows."""
    config = data.plan.config
    with job(f"loading {config.base}", unit="", hidden=hidden, at_once=True):
        engine = open_base(config, accelerator)
    scorer = Scorer(engine, data.plan.task, data.plan.settings)
    _refuse_long_windows(data, scorer)
    return scorer


def _refuse_collapsed(record: TrainRecord | None) -> None:
    if record is not None and record.reason is not None:
        raise ModelError(record.reason)


def _refuse_long_windows(data: Data, scorer: Scorer) -> None:
    """A window too long for the base stops the run before its first step, not when its turn comes."""
    shown = [(example.instance, example.window) for example in data.examples]
    for instance in data.held_out:
        shown += [(instance, window) for window in windows(range(len(instance.pool)), scorer.width or len(instance.pool))]
    too_long: list[WindowTooLong] = []
    for instance, window in shown:
        if not scorer.surely_fits(instance, window):
            try:
                scorer.prompt(instance, window)
            except WindowTooLong as excess:
                too_long.append(excess)
    if too_long:
        raise InputError(f"{too_long[0].fact}; {len(too_long):,} of {len(shown):,} windows are too long. {too_long[0].remedy}.")


def _open_loop(data: Data, accelerator: Accelerator, scorer: Scorer, last: Path | None = None) -> Loop:
    """What the steps share: with the weights of the last checkpoint, or before the first step."""
    engine = cast(TransformersEngine, scorer.backend)
    student = add_lora(engine, data.plan, last)
    trainable = (p for p in student.parameters() if p.requires_grad)
    optimizer = torch.optim.AdamW(trainable, lr=data.plan.config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    module, optimizer = accelerator.prepare(Slots(engine), optimizer)
    named = {name.split("model.", 1)[1]: p for name, p in accelerator.unwrap_model(module).named_parameters() if p.requires_grad}
    has_average = data.plan.objective.second == "average"
    ema = {name: p.detach().clone() for name, p in named.items()} if has_average else None
    return Loop(data, accelerator, scorer, student, module, optimizer, named, ema)


class Run:
    """A run at one of its steps: that of its last checkpoint, or before the first."""

    def __init__(self, loop: Loop, card: Card, record: TrainRecord, hidden: bool, last: Path | None):
        self.loop, self.card, self.record, self.hidden = loop, card, record, hidden
        self.config, self.out, self.steps = loop.plan.config, Path(loop.plan.config.out), loop.data.schedule.steps
        self.step, self.history = 0, list[HeldOut]()
        if last is not None:
            state = json.loads((last / "state.json").read_text())
            self.step, self.history = state["step"], state["history"]
            checkpoints.restore_optimizer(last, loop.optimizer.optimizer, loop.named, loop.ema)
        self.log = Log(self.out, loop.accelerator, loop.data, self.step)

    def train(self) -> None:
        """Take the steps that are left, with evaluations and checkpoints between them, and write the adapter."""
        if has_collapsed(self.history):  # killed before the status was written
            self._stop_collapsed()
        config, steps, held_out = self.config, self.steps, bool(self.loop.data.held_out)
        self.loop.engine.model.train()
        if held_out and not self.history:
            self._evaluate()
        what = f"training {config.base} with {config.objective}"
        with job(what, steps, "step", initial=self.step, hidden=self.hidden, at_once=True) as work:
            while self.step < steps:
                began = time.monotonic()
                row = self.loop.step(self.step)
                self.step += 1
                self.log.write(row, time.monotonic() - began)
                work.advance(remark=f"loss {row['loss']:.4f}")
                at_end = self.step == steps
                is_due = held_out and (at_end or bool(config.evaluate_every and self.step % config.evaluate_every == 0))
                if is_due:
                    self._evaluate()
                if is_due or at_end or self.step % config.checkpoint_every == 0:
                    self._keep_checkpoint()
                if is_due and has_collapsed(self.history):
                    self._stop_collapsed()
        self.card = replace(self.card, held_out=card_curve(self.history))
        if self.loop.accelerator.is_main_process:
            self._write_adapter()

    def _evaluate(self) -> None:
        config, data, began = self.config, self.loop.data, time.monotonic()
        self.loop.engine.model.eval()
        count = sum(window_counts(data.plan, data.held_out))
        what = f"evaluation at step {self.step} of {self.steps}"
        with job(what, count, "window", hidden=self.hidden, at_once=True) as work:
            judge = self.loop.judge(work.advance)
            self.history.append(evaluate(judge, data.held_out, config.held_out_permutations, config.seed, self.step))
        self.log.evaluated(time.monotonic() - began)
        self.loop.engine.model.train()
        if self.loop.accelerator.is_main_process:
            write_json(self.out / "evaluations.json", self.history)

    def _keep_checkpoint(self) -> None:
        student, loop = self.loop.student, self.loop
        adapter = {name: checkpoints.gather(tensor) for name, tensor in get_peft_model_state_dict(student).items()}
        tensors = checkpoints.optimizer_tensors(loop.optimizer.optimizer, loop.named, loop.ema)
        if loop.accelerator.is_main_process:
            keep = checkpoints.steps_to_keep(self.step, self.history, checkpoints.steps_on_disk(self.out), self.config.keep)
            now = replace(self.card, steps=self.step, held_out=card_curve(self.history))
            self.log.sync()  # before the checkpoint: a run that resumes from it has the rows up to it
            checkpoints.save(self.out, now, adapter, student.peft_config["default"], tensors, self.history, keep)
            self.log.remember_rates()
        loop.accelerator.wait_for_everyone()

    def _write_adapter(self) -> None:
        checkpoint = checkpoints.latest(self.out)
        assert checkpoint is not None  # the last step has just kept one
        checkpoints.copy_adapter(checkpoint, self.out)
        replace(self.record, status="complete").write(self.out)

    def _stop_collapsed(self) -> NoReturn:
        now, start = self.history[-1], self.history[0]
        reason = (
            f"training collapsed: at step {now['step']} the scores of a query differ by {now['dispersion']:.4f} (SD), "
            f"at the start by {start['dispersion']:.4f}; "
            f"quality is {now['quality']:.3f}. It became consistent and relevance-free. "
            "Lower --weight, lengthen --ramp, or check --labels."
        )
        accelerator = self.loop.accelerator
        if accelerator.is_main_process:
            replace(self.record, status="collapsed", reason=reason).write(self.out)
        accelerator.end_training()
        raise ModelError(reason)


def _check_shared(out: Path, status: str, last: Path | None, accelerator: Accelerator) -> None:
    """Refuse to go on where machines see different folders: each process would resume from a step of its own."""
    step = -1 if last is None else int(last.name.removeprefix("step-"))
    own = torch.tensor([[step, int(status == "training")]], device=accelerator.device)
    seen: torch.Tensor = accelerator.gather(own)  # (P, 2)
    if bool((seen != seen[0]).any()):
        steps = sorted({int(row[0]) for row in seen.tolist()})
        raise InputError(
            f"{out} is not the same folder for every process: their last checkpoints are of steps {', '.join(map(str, steps))} "
            "(-1: none). Put --out on storage that all machines share."
        )
