"""LoRA's linear layers in training: what peft's compute, in about the same time, with half as much kept for the backward pass.

y = x Wᵀ + c + s · drop(x) Aᵀ Bᵀ, W and c frozen (rank r, s = alpha / r). peft keeps the dropped copy of x and its float mask,
and makes the low-rank term three times before it is added. Here the term is added in place, and what is kept is x itself
(which the projections beside it share), one byte of mask per number and the r numbers drop(x) Aᵀ. A gated MLP
keeps its two branches; their product is formed again in the backward pass. Modules stay peft's, and so do saved adapters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeGuard

import torch
from peft.tuners.lora import Linear
from torch.distributed.tensor import DTensor


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
