"""The student: a base opened for training, LoRA on it, on the device that Accelerate uses."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, DistributedType
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file

from ..engines import EngineOptions
from ..engines.kinds import open_local_model
from ..engines.local.device import device_of
from ..engines.local.model import TransformersEngine
from ..engines.local.windows import set_attention
from ..errors import InputError, ModelError
from ..models.adapter import WEIGHTS, refuse_pickles
from .check import layer_count_mistake
from .lora import save_memory
from .plan import Plan
from .recipe import TrainConfig
from .step import seed_of


def make_accelerator(config: TrainConfig) -> Accelerator:
    """Accelerate on the device of the config. It has a switch for the CPU, and otherwise takes the current device."""
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
    if os.environ.get("ACCELERATE_USE_FSDP") == "true" and accelerator.distributed_type != DistributedType.FSDP:
        raise InputError(
            f"Accelerate shards a model over accelerators only, and this run is on {accelerator.device.type}. "
            "Start it as `--print-launch ddp` says."
        )
    return accelerator


def open_base(config: TrainConfig, accelerator: Accelerator) -> TransformersEngine:
    engine = open_local_model(config.base, EngineOptions(device=str(accelerator.device), dtype=config.dtype, share_prefix=False))
    engine.trained_settings = {}  # a merged base is shown as the recipe says, like any other
    if config.prompt == "set" and engine.capabilities.isolation:
        engine.check_sets()
    return engine


def add_lora(engine: TransformersEngine, plan: Plan, resume: Path | None = None) -> PeftModel:
    """LoRA on the engine's model: new, or from a checkpoint or an adapter to start from."""
    config = plan.config
    start = resume or (Path(config.initial) if config.initial else None)
    if start is not None:
        refuse_pickles(start)
        of_start = LoraConfig.from_pretrained(str(start))
        of_start.base_model_name_or_path = engine.model.name_or_path  # where peft looks for its configuration
        of_start.lora_dropout = plan.dropout  # the run's own; rank, layers and projections are the start's, and checked
        student = PeftModel.from_pretrained(engine.model, str(start), is_trainable=True, config=of_start)
        set_peft_model_state_dict(student, load_file(start / WEIGHTS))
    else:
        _check_projections(engine.model, config)
        torch.manual_seed(seed_of(config.seed, "lora"))
        student = get_peft_model(engine.model, lora_config(plan, engine.model))
    save_memory(student)
    if config.gradient_checkpointing:
        base: Any = student.get_base_model()
        how: dict[str, object] = {"use_reentrant": False}
        if config.prompt == "set":  # the backward pass reads the layers once more, and must read them in the same way
            how["context_fn"] = lambda: (nullcontext(), set_attention(base))
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
    return student


def lora_config(plan: Plan, model: Any) -> LoraConfig:
    """LoRA on the projections of the language model; a model that also sees or hears keeps its other towers as they are."""
    config, language_model = plan.config, _language_model(model)
    outside = [name for name in _modules_called(model, config.projections) if not name.startswith(f"{language_model}.")]
    return LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=plan.dropout,
        target_modules=list(config.projections),
        exclude_modules=rf"(?!{re.escape(language_model)}\.).*" if outside else None,
        layers_to_transform=None if plan.layers is None else list(plan.layers),
        layers_pattern="layers" if plan.layers else None,
        task_type="CAUSAL_LM",
    )


def stacked_experts(model: Any) -> list[str]:
    """Names of the expert weights of a mixture: one parameter for all experts, (E, out, in), which LoRA layers do not reach."""
    layers = model.get_submodule(_language_model(model)).named_parameters()
    return sorted({".".join(name.split(".")[-2:]) for name, p in layers if p.ndim == 3 and ".experts." in f".{name}"})


def _language_model(model: Any) -> str:
    """Name of the module that reads text."""
    decoder = model.get_decoder()
    return next(str(name) for name, module in model.named_modules() if module is decoder)


def _modules_called(model: Any, projections: Sequence[str]) -> list[str]:
    """Whole names of the modules that some projections name."""
    return [name for name, _ in model.named_modules() if name.rsplit(".", 1)[-1] in projections]


def _check_projections(model: Any, config: TrainConfig) -> None:
    decoder = model.get_submodule(_language_model(model))
    present = {name.rsplit(".", 1)[-1] for name in _modules_called(decoder, config.projections)}
    if missing := [name for name in config.projections if name not in present]:
        linear = sorted({n.rsplit(".", 1)[-1] for n, m in decoder.named_modules() if isinstance(m, torch.nn.Linear)})
        experts = stacked_experts(model)
        why = f" It is a mixture of experts, and LoRA does not reach its {', '.join(experts)}." if experts else ""
        raise ModelError(
            f"{config.base} has no {', '.join(missing)}.{why} "
            f"Its linear layers are {', '.join(linear)}; name some with --projections."
        )
    if mistake := layer_count_mistake(config, model.config.get_text_config().num_hidden_layers):
        raise ModelError(f"{mistake}.")
