"""Training: N views of a window in one forward pass, slot logits only, LoRA weights only, top to bottom.

One process, DDP and FSDP2 run the same code (`accelerate launch`, `torchrun`). A step is a function of (seed, step): its
windows, their views and the dropout masks do not depend on the number of processes or on interruptions.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file

from . import checkpoints, recipe
from .adapter import WEIGHTS, base_mistake, read_card, refuse, refuse_pickles, write_card
from .collection import path_of
from .disk import sha256, storage, write_json
from .engines import EngineOptions, open_engine
from .engines.device import device_of
from .engines.transformers import TransformersEngine
from .errors import InputError, ModelError
from .estimate import remember_speed
from .held_out import evaluate, has_collapsed, window_count
from .lora import slim
from .progress import job
from .recipe import TrainConfig
from .runs import versions
from .scorer import Scorer
from .steps import Loop, Slots, TrainedEngine, seed_of
from .tasks import TASKS
from .teacher import labels_identity
from .training_cost import TrainingEstimate, estimate, rate_name
from .views import Data, training_data

DROPOUT_CONTROL = 0.20
"""LoRA dropout of the `dropout` control (§D.2)."""
WHERE_ONLY = ("out", "device", "keep", "trackers", "checkpoint_every", "data", "held_out_data", "labels", "initial")
"""Fields that name places or habits: they do not change what is learned; contents are in the fingerprint by hash."""


def train(config: TrainConfig, *, command: list[str] | None = None) -> dict[str, Any]:
    """Train an adapter into `config.out`, going on after the last checkpoint there. Returns its card."""
    accelerator = accelerator_for(config)
    if found := recipe.mistakes(config, accelerator.num_processes):
        raise InputError(found)
    hidden = not accelerator.is_main_process
    with job(f"loading {config.data}", unit="", hidden=hidden, at_once=True):
        data = training_data(config)
    steps = recipe.training_steps(config, len(data.examples))
    if recipe.ramp_steps(config, steps) > steps:
        raise InputError(
            f"ramp {config.ramp:g} is longer than the run of {steps} steps. Shorten it, or give a fraction of the run."
        )
    out = Path(config.out)
    with job(f"loading {config.base}", unit="", hidden=hidden, at_once=True):
        engine = open_base(config, accelerator)
    scorer = Scorer(engine, TASKS[data.collection.task], recipe.settings(config, data.collection))
    card = new_card(config, data, scorer, steps)
    record = checkpoints.begin(
        out,
        fingerprint(config, card),
        config=recipe.to_json(config),
        weight=card["weight"],
        command=command or [],
        versions=versions(),
    )
    if record["status"] == "complete":
        return read_card(out)
    if record["status"] == "collapsed":
        raise ModelError(record["reason"])

    last = checkpoints.latest(out)
    student = adapted(engine, config, last)
    named = {name: p for name, p in student.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(named.values(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    module, optimizer = accelerator.prepare(Slots(engine), optimizer)
    named = {name.split("model.", 1)[1]: p for name, p in accelerator.unwrap_model(module).named_parameters() if p.requires_grad}
    ema = {name: p.detach().clone() for name, p in named.items()} if config.objective == "mean_teacher" else None
    step, history = 0, []
    if last is not None:
        state = json.loads((last / "state.json").read_text())
        step, history = state["step"], state["history"]
        checkpoints.restore_optimizer(last, optimizer.optimizer, named, ema)
    log = Log(out, accelerator, config, step)
    loop = Loop(config, data, scorer, module, student, named, ema, accelerator)

    def keep_checkpoint() -> None:
        adapter = {name: checkpoints.gathered(tensor) for name, tensor in get_peft_model_state_dict(student).items()}
        tensors = checkpoints.optimizer_tensors(optimizer.optimizer, named, ema)
        if accelerator.is_main_process:
            keep = checkpoints.kept(step, history, checkpoints.steps_on_disk(out), config.keep)
            folder = checkpoints.save(out, step, adapter, student.peft_config["default"], tensors, {"history": history}, keep)
            write_card(folder, card | {"steps": step, "held_out": curve(history)})
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
            row = loop.step(step, steps, optimizer)
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
                _collapsed(out, record, history, accelerator)
    if accelerator.is_main_process:
        card = card | {"held_out": curve(history)}
        with storage(out):
            final = load_file(checkpoints.latest(out) / WEIGHTS)  # type: ignore[operator]
            checkpoints.save_adapter(out, final, student.peft_config["default"])
        write_card(out, card)
        write_json(out / "train.json", record | {"status": "complete"})
    accelerator.end_training()
    return card


def accelerator_for(config: TrainConfig) -> Accelerator:
    """Accelerate on the device that was asked for. It has a switch for the CPU and else takes the current device."""
    asked = torch.device(device_of(config.device)) if config.device is not None else None
    is_numbered = asked is not None and asked.type != "cpu" and asked.index is not None
    if is_numbered:
        getattr(torch, asked.type).set_device(asked)  # type: ignore[union-attr]
    accelerator = Accelerator(
        cpu=asked is not None and asked.type == "cpu",
        log_with=list(config.trackers) or None,
        project_dir=config.out or None,
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
    )
    if is_numbered and accelerator.num_processes > 1:
        raise InputError(
            f"device {config.device} is one, and the {accelerator.num_processes} processes take one each. Leave out its number."
        )
    if asked is not None and accelerator.device.type != asked.type:
        raise InputError(
            f"Accelerate is set up for {accelerator.device.type} here, not for {config.device}. "
            "Leave out --device, or change what `accelerate env` prints."
        )
    return accelerator


# -- the student


def open_base(config: TrainConfig, accelerator: Accelerator) -> TransformersEngine:
    engine = open_engine(config.base, EngineOptions(device=str(accelerator.device), dtype=config.dtype, share_prefix=False))
    if not isinstance(engine, TransformersEngine):
        raise InputError(f"{config.base} cannot be trained; a base is an embedded model, a folder or a hub id.")
    if config.prompt == "set" and engine.capabilities.isolation:
        engine.check_sets()
    return engine


def adapted(engine: TransformersEngine, config: TrainConfig, resume: Path | None) -> PeftModel:
    """LoRA on the engine's model: new, or from a checkpoint or an adapter to go on from."""
    start = resume or (Path(config.initial) if config.initial else None)
    if start is not None:
        refuse_pickles(start)
        student = PeftModel.from_pretrained(engine.model, str(start), is_trainable=True)
        set_peft_model_state_dict(student, load_file(start / WEIGHTS))
    else:
        _check_projections(engine.model, config)
        torch.manual_seed(seed_of(config.seed, "lora"))
        student = get_peft_model(engine.model, lora(config))
    slim(student)
    if config.gradient_checkpointing:
        student.get_base_model().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]
    return student


def lora(config: TrainConfig) -> LoraConfig:
    layers = recipe.layer_indices(config.layers)
    dropout = max(config.dropout, DROPOUT_CONTROL) if config.objective == "dropout" else config.dropout
    return LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=dropout,
        target_modules=list(config.projections),
        layers_to_transform=layers,
        layers_pattern="layers" if layers else None,
        task_type="CAUSAL_LM",
    )


def _check_projections(model: Any, config: TrainConfig) -> None:
    present = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    missing = [name for name in config.projections if name not in present]
    if missing:
        linear = sorted({n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
        raise ModelError(
            f"{config.base} has no {', '.join(missing)}. Its linear layers are {', '.join(linear)}; name some with --projections."
        )
    if mistake := recipe.layers_mistake(config, model.config.get_text_config().num_hidden_layers):
        raise ModelError(f"{mistake}.")


# -- what is written


class Log:
    """log.jsonl, one row per step, and Accelerate's trackers. Rows after the checkpoint that is gone on from are dropped."""

    def __init__(self, out: Path, accelerator: Accelerator, config: TrainConfig, step: int):
        self.file, self.accelerator, self.tracked = out / "log.jsonl", accelerator, bool(config.trackers)
        self.config, self.steps, self.seconds = config, 0, 0.0
        if self.tracked:
            accelerator.init_trackers(
                "steadyscore", config={k: v for k, v in recipe.to_json(config).items() if isinstance(v, int | float | str)}
            )
        if accelerator.is_main_process and self.file.exists():
            rows = [
                line
                for line in self.file.read_text().splitlines(keepends=True)
                if line.endswith("\n") and json.loads(line)["step"] < step
            ]
            self.file.write_text("".join(rows))

    def write(self, row: dict[str, Any], seconds: float) -> None:
        self.steps, self.seconds = self.steps + 1, self.seconds + seconds
        if self.accelerator.is_main_process:
            with storage(self.file), open(self.file, "a") as stream:
                stream.write(json.dumps(row) + "\n")
        if self.tracked:
            self.accelerator.log({k: v for k, v in row.items() if k != "step"}, step=row["step"])

    def remember_rate(self, steps: int) -> None:
        """Keep how fast this machine takes steps, in the tokens that an estimate counts; evaluation is not in it."""
        tokens = self.cost.tokens * self.steps / steps
        remember_speed(rate_name(self.config, self.accelerator.num_processes), round(tokens), self.seconds)

    @cached_property
    def cost(self) -> TrainingEstimate:
        return estimate(self.config)


def _collapsed(out: Path, record: dict[str, Any], history: list[dict[str, Any]], accelerator: Accelerator) -> None:
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


def curve(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The held-out curve as a card keeps it: without the per-query values."""
    return [{key: value for key, value in entry.items() if key != "per_query"} for entry in history]


def new_card(config: TrainConfig, data: Data, scorer: Scorer, steps: int) -> dict[str, Any]:
    base = scorer.backend.identity()
    first = data.examples[0]
    if config.initial:
        mistake = base_mistake(read_card(Path(config.initial)), base)
        refuse([mistake] if mistake else [], False)
    return {
        "base": {"model": base["model"], "weights": base["weights"]},
        "task": data.collection.task,
        "objective": config.objective,
        "weight": recipe.weight(config, data.collection.task),
        "weight_convention": config.weight_convention,
        "ramp": recipe.ramp_steps(config, steps),
        "anchor": config.anchor,
        "views": config.views if config.objective in recipe.SEVERAL_VIEWS else 1,
        "widths": list(recipe.widths(config, data.collection.task)),
        "settings": {key: value for key, value in asdict(scorer.settings).items() if key not in ("fit", "label_mass")},
        "prompt_hash": scorer.identity()["prompt_hash"],
        "grade_tokens": list(scorer.prompt(first.instance, first.window).grade_tokens),  # type: ignore[union-attr]
        "data": {
            "name": data.collection.name,
            "sha256": sha256(path_of(config.data))[:16],
            "queries": data.queries,
            "windows": len(data.examples),
        },
        "labels": labels_identity(config.labels)
        | {"teacher_orders_used": config.teacher_orders or ("all" if config.objective == "order_averaged" else 1)},
        "seed": config.seed,
        "steps": steps,
        "batch": config.batch,
        "learning_rate": config.learning_rate,
        "lora": {
            "rank": config.rank,
            "alpha": config.alpha,
            "dropout": lora(config).lora_dropout,
            "projections": list(config.projections),
            "layers": config.layers or "all",
        },
        "initial": None if not config.initial else {"adapter": Path(config.initial).name},
        "slot_weights": None if data.slot_weights is None else [round(float(w), 6) for w in data.slot_weights],
        "held_out": [],
        "versions": versions(),
    }


def fingerprint(config: TrainConfig, card: dict[str, Any]) -> dict[str, Any]:
    """What must be equal for training in a folder to be resumed."""
    asked = {key: value for key, value in recipe.to_json(config).items() if key not in WHERE_ONLY}
    sources = {
        "base weights": card["base"]["weights"],
        "data": card["data"],
        "labels": card["labels"],
        "prompt_hash": card["prompt_hash"],
    }
    held_out = {"held_out_data": sha256(path_of(config.held_out_data))[:16]} if config.held_out_data else {}
    initial = {"initial": sha256(Path(config.initial) / WEIGHTS)[:16]} if config.initial else {}
    return asked | sources | held_out | initial
