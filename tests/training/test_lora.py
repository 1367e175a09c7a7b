from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from steadyscore.training.recipe import PROJECTIONS
from steadyscore.training.student import apply_dropout, save_memory
from tests.helpers import tiny

IDS = torch.arange(24).reshape(2, 12) % 7 + 3


def student(family: str = "llama", *, dropout: float = 0.0, layers: list[int] | None = None) -> PeftModel:
    """A tiny decoder with LoRA whose B is not zero, so that gradients of A are not either."""
    torch.manual_seed(0)
    config = LoraConfig(
        r=4,
        lora_alpha=8,
        lora_dropout=dropout,
        target_modules=list(PROJECTIONS),
        layers_to_transform=layers,
        layers_pattern="layers" if layers else None,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(tiny.decoder(family), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model.train()


def pair(**how) -> tuple[PeftModel, PeftModel]:
    """The same student computed by peft, and by us."""
    theirs = student(**how)
    ours = copy.deepcopy(theirs)
    save_memory(ours)
    return theirs, ours


def gradients(model: PeftModel, seed: int = 1) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    torch.manual_seed(seed)
    logits = model(input_ids=IDS).logits.float()
    logits.square().mean().backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def kept_bytes(model: PeftModel) -> int:
    """Bytes that a forward pass keeps for the backward pass, weights aside."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.base_model.model.model(input_ids=IDS)
    return sum(storage.nbytes() for storage in found.values())


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "granite"])
@pytest.mark.parametrize("layers", [None, [1]])
def test_logits_and_gradients_are_pefts(family, layers):
    theirs, ours = (gradients(model) for model in pair(family=family, layers=layers))
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-5)
    assert ours[1].keys() == theirs[1].keys()
    assert len(ours[1]) == 14 * len(layers or [0, 1])
    assert min(float(g.abs().max()) for g in theirs[1].values()) > 0
    for name, gradient in theirs[1].items():
        torch.testing.assert_close(ours[1][name], gradient, atol=1e-6, rtol=1e-4)


def test_dropout_is_a_function_of_the_seed_and_its_gradient_is_right():
    """Gradients against finite differences of the same function, in double precision."""
    _, model = pair(dropout=0.3)
    model.double()
    first, second, other = gradients(model)[0], gradients(model)[0], gradients(model, seed=2)[0]
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    layer = model.base_model.model.model.layers[1].mlp.down_proj
    x = torch.randn(3, layer.in_features, dtype=torch.double, requires_grad=True)
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight

    def seeded(*_) -> torch.Tensor:
        torch.manual_seed(5)
        return layer(x)

    assert torch.autograd.gradcheck(seeded, (x, a, b))
    model.eval()
    torch.testing.assert_close(gradients(model)[0], gradients(model, seed=2)[0])


def test_the_mask_keeps_its_share_and_the_mean():
    x = torch.ones(200, 200)
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(0.8)
    assert float(apply_dropout(x, mask, 0.2).mean()) == pytest.approx(1, abs=0.02)
    assert apply_dropout(x, None, 0.0) is x


@pytest.mark.parametrize(("dropout", "share"), [(0.0, 0.8), (0.1, 0.55)])
def test_less_is_kept(dropout, share):
    theirs, ours = (kept_bytes(model) for model in pair(dropout=dropout))
    assert 0 < ours < share * theirs


def test_frozen_layers_keep_nothing():
    whole, upper = (kept_bytes(pair(layers=layers)[1]) for layers in (None, [1]))
    assert upper < 0.6 * whole


def test_a_half_precision_base_with_a_float32_adapter():
    theirs, ours = pair()
    for model in (theirs, ours):
        model.to(torch.bfloat16)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.float()
    found = [gradients(model) for model in (theirs, ours)]
    torch.testing.assert_close(found[1][0], found[0][0], atol=2e-2, rtol=2e-2)
    for name, gradient in found[0][1].items():
        assert found[1][1][name].dtype == torch.float32
        torch.testing.assert_close(found[1][1][name], gradient, atol=2e-3, rtol=5e-2)


def test_switched_off_merged_and_autocast_are_left_to_peft():
    theirs, ours = pair()
    for model in (theirs, ours):
        model.eval()
    with torch.no_grad():
        with theirs.disable_adapter(), ours.disable_adapter():
            assert torch.equal(theirs(input_ids=IDS).logits, ours(input_ids=IDS).logits)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(theirs(input_ids=IDS).logits, ours(input_ids=IDS).logits)
        theirs.merge_adapter()
        ours.merge_adapter()
        assert torch.equal(theirs(input_ids=IDS).logits, ours(input_ids=IDS).logits)


def test_an_mlp_that_does_something_else_keeps_its_own_forward():
    model = student()
    odd = model.base_model.model.model.layers[0].mlp
    own = odd.forward
    odd.forward = lambda x: own(x) + 1
    told = odd.forward
    save_memory(model)
    assert odd.forward is told
    assert isinstance(model.base_model.model.model.layers[1].mlp.forward, partial)
