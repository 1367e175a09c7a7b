"""The student: a base opened for training, on the device that Accelerate uses, and LoRA on it that keeps less in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, DistributedType
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from peft.tuners.lora import Linear
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

from ..engines import EngineOptions
from ..engines.kinds import open_local_model
from ..engines.local.device import device_of
from ..engines.local.model import TransformersEngine
from ..engines.local.windows import set_attention
from ..errors import InputError, ModelError
from ..models.adapter import WEIGHTS, refuse_pickles
from .check import layer_count_mistake
from .recipe import Plan, TrainConfig
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


# -- LoRA's linear layers: what peft's compute, in about the same time, with half as much kept for the backward pass
#
# y = x Wᵀ + c + s · drop(x) Aᵀ Bᵀ, W and c frozen (rank r, s = alpha / r). peft keeps the dropped copy of x and its float mask,
# and makes the low-rank term three times before it is added. Here the term is added in place, and what is kept is x itself
# (which the projections beside it share), one byte of mask per number and the r numbers drop(x) Aᵀ. A gated MLP
# keeps its two branches; their product is formed again in the backward pass. Modules stay peft's, and so do saved adapters.


def save_memory(model: torch.nn.Module) -> None:
    """Let the LoRA layers of a model, and the gated MLPs they close, compute by `LowRank`."""
    for module in list(model.modules()):
        if _is_lora(module):
            module.forward = partial(_linear, module)  # type: ignore[method-assign]
    for module in list(model.modules()):
        if _is_gated(module):
            module.forward = partial(_gated, module)


def _linear(layer: Linear, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if args or kwargs or not _is_plain(layer):
        return Linear.forward(layer, x, *args, **kwargs)
    return low_rank(layer, _itself, x)


def _gated(mlp: Any, x: torch.Tensor) -> torch.Tensor:
    gate, up = mlp.gate_proj(x), mlp.up_proj(x)
    product = partial(_product, mlp.act_fn)
    return low_rank(mlp.down_proj, product, gate, up) if _is_plain(mlp.down_proj) else mlp.down_proj(product(gate, up))


def _is_lora(module: Any) -> TypeGuard[Linear]:
    return isinstance(module, Linear) and type(module.base_layer) is torch.nn.Linear  # a quantised base is left to peft


def _itself(x: torch.Tensor) -> torch.Tensor:
    return x


def _product(activation: Callable[[torch.Tensor], torch.Tensor], gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    active = activation(gate)
    return active * up if torch.is_grad_enabled() or active is gate else active.mul_(up)


def _is_plain(layer: Linear) -> bool:
    """One active LoRA without variants; not switched off, merged, sharded at this moment or under autocast."""
    active = layer.active_adapters
    if len(active) != 1 or active[0] not in layer.lora_A or layer.lora_variant or layer.disable_adapters or layer.merged:
        return False
    weight: Any = layer.lora_A[active[0]].weight
    return (
        not isinstance(weight, DTensor) and not layer.lora_bias[active[0]] and not torch.is_autocast_enabled(weight.device.type)
    )


def _is_gated(module: Any) -> bool:
    """Is this module down(act(gate(x)) · up(x))? Names can deceive, so a random input is tried as well."""
    named = all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj", "act_fn"))
    if not named or not _is_lora(module.down_proj):
        return False
    weight: Any = module.down_proj.base_layer.weight
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, weight.shape[0], generator=generator).to(weight)
    training = module.training
    with torch.no_grad():
        module.eval()
        same = torch.equal(module(x), _gated(module, x))
        module.train(training)
    return same


def low_rank(layer: Linear, form: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
    """The layer on x = form(*inputs)."""
    (name,) = layer.active_adapters
    drop = layer.lora_dropout[name]
    share = drop.p if isinstance(drop, torch.nn.Dropout) and drop.training else 0.0
    base = layer.base_layer
    a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
    y: torch.Tensor = LowRank.apply(form, layer.scaling[name], share, base.weight, base.bias, a, b, *inputs)  # type: ignore[no-untyped-call]
    return y


class LowRank(torch.autograd.Function):
    """y = x Wᵀ + c + s · drop(x) Aᵀ Bᵀ of x = form(*inputs): the inputs are kept, and x is formed again when it is needed."""

    @staticmethod
    def forward(ctx: Any, form: Any, scale: float, share: float, weight: Any, bias: Any, a: Any, b: Any, *inputs: Any) -> Any:
        x = form(*inputs)
        y = torch.nn.functional.linear(x, weight, bias)
        rows = x.flatten(0, -2).to(a.dtype)  # (T, in)
        mask = torch.empty_like(rows, dtype=torch.bool).bernoulli_(1 - share) if share else None
        low = apply_dropout(rows, mask, share) @ a.T  # (T, r)
        ctx.save_for_backward(weight, a, b, low, mask, *inputs)
        ctx.form, ctx.scale, ctx.share = form, scale, share
        return y.to(a.dtype).flatten(0, -2).addmm_(low, b.T, alpha=scale).view_as(y).to(y.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        weight, a, b, low, mask, *inputs = ctx.saved_tensors
        needed = ctx.needs_input_grad[7:]
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(n) for t, n in zip(inputs, needed, strict=True)]
            x = ctx.form(*leaves)
        dy = grads[0].flatten(0, -2)
        wide = dy.to(a.dtype)
        rows = x.detach().flatten(0, -2).to(a.dtype)
        through = wide @ b  # (T, r)
        da = (through.T @ apply_dropout(rows, mask, ctx.share)).mul_(ctx.scale)
        db = (wide.T @ low).mul_(ctx.scale)
        if not any(needed):
            return (*[None] * 5, da, db, *[None] * len(inputs))
        dx = (dy @ weight).to(a.dtype)
        if mask is None:
            dx.addmm_(through, a, alpha=ctx.scale)
        else:
            dx.addcmul_(through @ a, mask, value=ctx.scale / (1 - ctx.share))
        dx = dx.view_as(x).to(x.dtype)
        back = [dx] if x is leaves[0] else torch.autograd.grad(x, [t for t in leaves if t.requires_grad], dx)
        gradients = iter(back)
        return (*[None] * 5, da, db, *[next(gradients) if n else None for n in needed])


def apply_dropout(x: torch.Tensor, mask: torch.Tensor | None, share: float) -> torch.Tensor:
    """x where the mask keeps it, scaled so that its mean stays."""
    return x if mask is None else (x * mask).div_(1 - share)
