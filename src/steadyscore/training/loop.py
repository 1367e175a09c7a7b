"""Training: N views of a window in one forward pass, slot logits only, LoRA weights only, top to bottom.

One process, DDP and FSDP2 run the same code (`accelerate launch`, `torchrun`). A step is a function of (seed, step): its
windows, their views and the dropout masks do not depend on the number of processes or on interruptions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate import Accelerator
from peft import get_peft_model_state_dict
from safetensors.torch import load_file

from ..errors import InputError, ModelError
from ..machine.disk import explaining_os_errors, lock_folder, write_json
from ..machine.progress import job
from ..models.adapter import WEIGHTS
from ..models.card import Card, read_card, write_card
from ..runs.folder import versions
from ..scoring.scorer import Scorer
from . import checkpoints
from .check import config_mistakes
from .examples import training_data
from .held_out import HeldOut, card_curve, evaluate, has_collapsed, window_count
from .plan import make_schedule
from .recipe import TrainConfig, to_json
from .record import Log, fingerprint, new_card
from .step import Loop, Slots, TrainedEngine
from .student import add_lora, make_accelerator, open_base


def train_adapter(config: TrainConfig, *, command: Sequence[str] = (), quiet: bool = False) -> Card:
    """Train an adapter into `config.out`, resuming after the last checkpoint there. Returns its card."""
    with ExitStack() as held:
        return _train_adapter(config, command, held, quiet)


def _train_adapter(config: TrainConfig, command: Sequence[str], held: ExitStack, quiet: bool) -> Card:
    """`held` is closed by the caller, however this ends."""
    accelerator = make_accelerator(config)
    if mistakes := config_mistakes(config, accelerator.num_processes):
        raise InputError(mistakes)
    hidden = quiet or not accelerator.is_main_process
    with job(f"loading {config.data}", unit="", hidden=hidden, at_once=True):
        data = training_data(config)
    plan, schedule = data.plan, make_schedule(data.plan, len(data.examples))
    steps = schedule.steps
    if schedule.ramp_steps > steps:
        raise InputError(
            f"ramp {plan.ramp:g} is longer than the run of {steps} steps. Shorten it, or give a fraction of the run."
        )
    out = Path(config.out)
    with job(f"loading {config.base}", unit="", hidden=hidden, at_once=True):
        engine = open_base(config, accelerator)
    scorer = Scorer(engine, plan.task, plan.settings)
    card = new_card(data, scorer, schedule)
    if accelerator.is_main_process:
        held.enter_context(lock_folder(out))
    record = checkpoints.begin(
        out,
        fingerprint(plan, card),
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

    student = add_lora(engine, plan, last)
    named = {name: p for name, p in student.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(named.values(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    module, optimizer = accelerator.prepare(Slots(engine), optimizer)
    named = {name.split("model.", 1)[1]: p for name, p in accelerator.unwrap_model(module).named_parameters() if p.requires_grad}
    ema = {name: p.detach().clone() for name, p in named.items()} if config.objective == "mean_teacher" else None
    step = 0
    history: list[HeldOut] = []
    if last is not None:
        state = json.loads((last / "state.json").read_text())
        step, history = state["step"], state["history"]
        checkpoints.restore_optimizer(last, optimizer.optimizer, named, ema)
        if has_collapsed(history):  # killed between the checkpoint and the word for it
            _stop_collapsed(out, record, history, accelerator)
    log = Log(out, accelerator, plan, step)
    loop = Loop(plan, data, scorer, module, student, named, ema, accelerator)

    def keep_checkpoint() -> None:
        adapter = {name: checkpoints.gather(tensor) for name, tensor in get_peft_model_state_dict(student).items()}
        tensors = checkpoints.optimizer_tensors(optimizer.optimizer, named, ema)
        if accelerator.is_main_process:
            keep = checkpoints.steps_to_keep(step, history, checkpoints.steps_on_disk(out), config.keep)
            now: Card = {**card, "steps": step, "held_out": card_curve(history)}
            log.sync()  # before the checkpoint: a run that resumes from it has the rows up to it
            checkpoints.save(out, now, adapter, student.peft_config["default"], tensors, {"history": history}, keep)
            log.remember_rate(steps)
        accelerator.wait_for_everyone()

    def look() -> None:
        engine.model.eval()
        windows = window_count(scorer, data.held_out, config.held_out_permutations)
        with job(f"evaluation at step {step} of {steps}", windows, "window", hidden=hidden, at_once=True) as work:
            judge = Scorer(TrainedEngine(engine, module, work.advance), scorer.task, scorer.settings)
            history.append({"step": step, **evaluate(judge, data.held_out, config.held_out_permutations, config.seed)})
        engine.model.train()
        if accelerator.is_main_process:
            write_json(out / "evaluations.json", history)

    engine.model.train()
    if data.held_out and not history:
        look()
    what = f"training {config.base} with {config.objective}"
    with job(what, steps, "step", initial=step, hidden=hidden, at_once=True) as work:
        while step < steps:
            began = time.monotonic()
            row = loop.step(step, schedule, optimizer)
            step += 1
            log.write(row, time.monotonic() - began)
            work.advance(remark=f"loss {row['loss']:.4f}")
            at_end = step == steps
            evaluated = bool(data.held_out) and (at_end or (config.evaluate_every and step % config.evaluate_every == 0))
            if evaluated:
                look()
            if evaluated or at_end or step % config.checkpoint_every == 0:
                keep_checkpoint()
            if evaluated and has_collapsed(history):
                _stop_collapsed(out, record, history, accelerator)
    if accelerator.is_main_process:
        card["held_out"] = card_curve(history)
        with explaining_os_errors(out):
            checkpoint = checkpoints.latest(out)
            assert checkpoint is not None  # the last step has just kept one
            checkpoints.save_adapter(out, load_file(checkpoint / WEIGHTS), student.peft_config["default"])
        write_card(out, card)
        write_json(out / "train.json", record | {"status": "complete"})
    accelerator.end_training()
    return card


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


def _stop_collapsed(out: Path, record: dict[str, Any], history: list[HeldOut], accelerator: Accelerator) -> NoReturn:
    now, start = history[-1], history[0]
    reason = (
        f"training collapsed: at step {now['step']} the scores of a query differ by {now['dispersion']:.4f} (SD), "
        f"at the start by {start['dispersion']:.4f}; "
        f"quality is {now['quality']:.3f}. It became consistent and relevance-free. "
        "Lower --weight, lengthen --ramp, or check --labels."
    )
    if accelerator.is_main_process:
        write_json(out / "train.json", record | {"status": "collapsed", "reason": reason})
    accelerator.end_training()
    raise ModelError(reason)
