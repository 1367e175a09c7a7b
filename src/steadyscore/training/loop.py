"""Training: N views of a window in one forward pass, slot logits only, LoRA weights only, top to bottom.

One process, DDP and FSDP2 run the same code (`accelerate launch`, `torchrun`). A step is a function of (seed, step): its
windows, their views and the dropout masks do not depend on the number of processes or on interruptions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate import Accelerator
from peft import get_peft_model_state_dict

from ..engines.hf import TransformersEngine
from ..errors import InputError, ModelError, WindowTooLong
from ..machine.disk import lock_folder, write_json
from ..machine.progress import job
from ..models.card import Card, read_card
from ..runs.versions import versions
from ..scoring.scorer import Scorer
from . import checkpoints
from .check import config_mistakes
from .examples import Data, training_data
from .held_out import HeldOut, card_curve, evaluate, has_collapsed, window_count
from .plan import Schedule, make_schedule
from .recipe import TrainConfig, to_json
from .record import Log, fingerprint, new_card
from .step import Loop, Slots, TrainedEngine
from .student import add_lora, make_accelerator, open_base


def train_adapter(config: TrainConfig, *, command: Sequence[str] = (), quiet: bool = False) -> Card:
    """Train an adapter into `config.out`, resuming after the last checkpoint there. Returns its card."""
    accelerator = make_accelerator(config)
    if mistakes := config_mistakes(config, accelerator.num_processes):
        raise InputError(mistakes)
    hidden = quiet or not accelerator.is_main_process
    with job(f"loading {config.data}", unit="", hidden=hidden, at_once=True):
        data = training_data(config)
    schedule = _checked_schedule(data)
    with job(f"loading {config.base}", unit="", hidden=hidden, at_once=True):
        engine = open_base(config, accelerator)
    scorer = Scorer(engine, data.plan.task, data.plan.settings)
    _refuse_long_windows(data, scorer)
    card, out = new_card(data, scorer, schedule), Path(config.out)
    with lock_folder(out) if accelerator.is_main_process else nullcontext():
        record = checkpoints.begin(
            out,
            fingerprint(data.plan, card),
            config=to_json(config),
            weight=card["weight"],
            command=list(command),
            versions=versions(),
        )
        last = checkpoints.latest(out)
        _check_shared(out, record["status"], last, accelerator)
        if record["status"] == "complete":
            return read_card(out)
        if record["status"] == "collapsed":
            raise ModelError(record["reason"])
        run = _open_run(engine, scorer, data, schedule, card, record, last, accelerator, hidden)
        try:
            run.train()
        except WindowTooLong as excess:  # of a held-out pool, or of other markers than the first view's
            raise InputError(f"{excess.fact}. {excess.remedy}.") from excess
        accelerator.end_training()
        return run.card


def _checked_schedule(data: Data) -> Schedule:
    schedule = make_schedule(data.plan, len(data.examples))
    if schedule.ramp_steps > schedule.steps:
        too_long = f"ramp {data.plan.ramp:g} is longer than the run of {schedule.steps} steps"
        raise InputError(f"{too_long}. Shorten it, or give a fraction of the run.")
    return schedule


def _refuse_long_windows(data: Data, scorer: Scorer) -> None:
    """A window too long for the base stops the run before its first step, not when its turn comes."""
    found: list[WindowTooLong] = []
    for example in data.examples:
        if not scorer.surely_fits(example.instance, example.window):
            try:
                scorer.prompt(example.instance, example.window)
            except WindowTooLong as excess:
                found.append(excess)
    if found:
        raise InputError(f"{found[0].fact}; {len(found):,} of {len(data.examples):,} windows are too long. {found[0].remedy}.")


def _open_run(
    engine: TransformersEngine,
    scorer: Scorer,
    data: Data,
    schedule: Schedule,
    card: Card,
    record: dict[str, Any],
    last: Path | None,
    accelerator: Accelerator,
    hidden: bool,
) -> Run:
    """The run at its last checkpoint, or before its first step."""
    config = data.plan.config
    student = add_lora(engine, data.plan, last)
    trainable = (p for p in student.parameters() if p.requires_grad)
    optimizer = torch.optim.AdamW(trainable, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    module, optimizer = accelerator.prepare(Slots(engine), optimizer)
    named = {name.split("model.", 1)[1]: p for name, p in accelerator.unwrap_model(module).named_parameters() if p.requires_grad}
    ema = {name: p.detach().clone() for name, p in named.items()} if config.objective == "mean_teacher" else None
    step, history = 0, list[HeldOut]()
    if last is not None:
        state = json.loads((last / "state.json").read_text())
        step, history = state["step"], state["history"]
        checkpoints.restore_optimizer(last, optimizer.optimizer, named, ema)
    log = Log(Path(config.out), accelerator, data.plan, step)
    loop = Loop(data.plan, data, scorer, module, student, named, ema, accelerator)
    return Run(loop, engine, schedule, optimizer, card, record, log, step, history, hidden)


@dataclass(slots=True)
class Run:
    """A run at one of its steps."""

    loop: Loop
    engine: TransformersEngine
    schedule: Schedule
    optimizer: Any
    card: Card
    record: dict[str, Any]
    log: Log
    step: int
    history: list[HeldOut]
    hidden: bool

    @property
    def config(self) -> TrainConfig:
        return self.loop.plan.config

    @property
    def out(self) -> Path:
        return Path(self.config.out)

    def train(self) -> None:
        """Take the steps that are left, with evaluations and checkpoints between them, and write the adapter."""
        if has_collapsed(self.history):  # killed between the checkpoint and the word for it
            self._stop_collapsed()
        config, steps, held_out = self.config, self.schedule.steps, bool(self.loop.data.held_out)
        self.engine.model.train()
        if held_out and not self.history:
            self._evaluate()
        what = f"training {config.base} with {config.objective}"
        with job(what, steps, "step", initial=self.step, hidden=self.hidden, at_once=True) as work:
            while self.step < steps:
                began = time.monotonic()
                row = self.loop.step(self.step, self.schedule, self.optimizer)
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
        self.card["held_out"] = card_curve(self.history)
        if self.loop.accelerator.is_main_process:
            self._write_adapter()

    def _evaluate(self) -> None:
        config, data, scorer = self.config, self.loop.data, self.loop.scorer
        self.engine.model.eval()
        windows = window_count(scorer, data.held_out, config.held_out_permutations)
        what = f"evaluation at step {self.step} of {self.schedule.steps}"
        with job(what, windows, "window", hidden=self.hidden, at_once=True) as work:
            judge = Scorer(TrainedEngine(self.engine, self.loop.module, work.advance), scorer.task, scorer.settings)
            found = evaluate(judge, data.held_out, config.held_out_permutations, config.seed)
        self.history.append({"step": self.step, **found})
        self.engine.model.train()
        if self.loop.accelerator.is_main_process:
            write_json(self.out / "evaluations.json", self.history)

    def _keep_checkpoint(self) -> None:
        student, loop = self.loop.student, self.loop
        adapter = {name: checkpoints.gather(tensor) for name, tensor in get_peft_model_state_dict(student).items()}
        tensors = checkpoints.optimizer_tensors(self.optimizer.optimizer, loop.named, loop.ema)
        if loop.accelerator.is_main_process:
            keep = checkpoints.steps_to_keep(self.step, self.history, checkpoints.steps_on_disk(self.out), self.config.keep)
            now: Card = {**self.card, "steps": self.step, "held_out": card_curve(self.history)}
            self.log.sync()  # before the checkpoint: a run that resumes from it has the rows up to it
            state = {"history": self.history}
            checkpoints.save(self.out, now, adapter, student.peft_config["default"], tensors, state, keep)
            self.log.remember_rate(self.schedule.steps)
        loop.accelerator.wait_for_everyone()

    def _write_adapter(self) -> None:
        checkpoint = checkpoints.latest(self.out)
        assert checkpoint is not None  # the last step has just kept one
        checkpoints.copy_adapter(checkpoint, self.out)
        write_json(self.out / "train.json", self.record | {"status": "complete"})

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
            write_json(self.out / "train.json", self.record | {"status": "collapsed", "reason": reason})
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
