"""Adapters: a PEFT folder (LoRA weights) with `card.json`, which says what it was trained for, and a model card.

An adapter only means something on its base, behind its prompt and at its grade tokens; loading refuses the rest.
torch and peft are imported by the functions that need them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ..errors import InputError, ModelError, StorageError
from ..machine.disk import atomic, explaining_os_errors, is_there, sha256
from ..tasks import TASKS
from ..terms import JsonObject
from .card import MERGED, Card, Finding, base_of, describe_base, read_card, write_card
from .embedded import shipped_adapters

if TYPE_CHECKING:
    import torch

WEIGHTS = "adapter_model.safetensors"
FILES = ("adapter_config.json", WEIGHTS, "card.json", "README.md")
"""What an adapter folder holds for those who use it."""
TIED = frozenset({"embed_tokens", "lm_head"})
"""Modules that share one matrix in many models."""
PEFT_ROOT = "base_model.model."
"""What peft writes before the name of a module."""
PLAIN = {
    *("auto_mapping", "base_model_name_or_path", "bias", "inference_mode", "init_lora_weights", "layers_to_transform"),
    *("lora_alpha", "lora_dropout", "megatron_core", "peft_type", "peft_version", "qalora_group_size", "r", "revision"),
    *("target_modules", "task_type"),
}
"""Settings of a LoRA configuration that say nothing beyond `lora_alpha / r * B @ A`."""


class AdapterIdentity(TypedDict):
    """What a run's fingerprint keeps of an adapter."""

    sha256: str
    task: str
    prompt_hash: str
    grade_tokens: list[int]


# -- does it belong here?


def adapter_of(identity: JsonObject) -> AdapterIdentity | None:
    """The adapter that an engine's identity names."""
    return cast("AdapterIdentity | None", identity.get("adapter"))


def base_mismatches(card: Card, identity: JsonObject) -> list[str]:
    """Why an adapter does not belong on the base of this identity; nothing where it does."""
    now = base_of(identity)
    if card.base.weights == now.weights:
        return []
    return [f"adapter was trained for {describe_base(card.base)}, this is {describe_base(now)}."]


def prompt_mistakes(adapter: AdapterIdentity, prompt_hash: str, grade_tokens: tuple[int, ...]) -> list[str]:
    """Where a scorer's prompt and grade tokens differ from those an adapter (its part of `Engine.identity`) was trained with."""
    mistakes = []
    if adapter["prompt_hash"] != prompt_hash:
        mistakes.append(
            f"adapter was trained with prompt {adapter['prompt_hash']}, this is prompt {prompt_hash}: "
            "its task, markers, placeholder or style differ."
        )
    if list(adapter["grade_tokens"]) != list(grade_tokens):
        mistakes.append(
            f"adapter was trained with grade tokens {list(adapter['grade_tokens'])}, this tokenizer has {list(grade_tokens)}."
        )
    return mistakes


def other_task(fingerprint: JsonObject) -> str | None:
    """What a run's adapter was trained for and what it scores, where these are two tasks; None where they are one."""
    scorer = fingerprint.get("scorer")  # a record may have been edited by hand
    adapter = scorer.get("adapter") if isinstance(scorer, Mapping) else None
    trained = TASKS.get(str(adapter.get("task"))) if isinstance(adapter, Mapping) else None
    task = TASKS.get(str(fingerprint.get("task")))
    if trained is None or task is None or trained.prompt_task == task.prompt_task:
        return None
    return f"an adapter that was trained for {trained.label}, and this is {task.label}"


def refuse_mismatches(mistakes: list[str], allowed: bool) -> None:
    if mistakes and not allowed:
        raise ModelError("\n".join([*mistakes[:-1], f"{mistakes[-1]} Pass --set allow_base_mismatch=yes to score anyway."]))


def card_for_base(folder: Path, identity: JsonObject, allow_base_mismatch: bool = False) -> Card:
    """The card of an adapter that may be put on the base of this identity; any other folder is refused before it is loaded."""
    if not is_there(folder / "adapter_config.json"):
        raise InputError(f"{folder} is not an adapter folder: it has no adapter_config.json.")
    refuse_pickles(folder)
    card = read_card(folder)
    refuse_mismatches(base_mismatches(card, identity), allow_base_mismatch)
    return card


# -- loading


def split_address(address: str) -> tuple[str, Path | None]:
    """Base and adapter folder of `[hf:]<base>[+<folder>]`; the name of a shipped adapter stands for both."""
    if folder := shipped_adapters().get(address):
        return read_card(folder).base.model, folder
    if is_there(address.removeprefix("hf:")):  # a folder whose own name holds the sign
        return address, None
    base, _, adapter = address.partition("+")
    return base, Path(adapter) if adapter else None


def card_of(address: str) -> Card | None:
    """What the local model of an address was trained for: the card of its adapter, or of the adapter that was merged into it."""
    base, folder = split_address(address.removeprefix("vllm:"))
    place = folder or Path(base.removeprefix("hf:"))
    return read_card(place) if folder or is_there(place / MERGED) else None


def shipped_findings(digest: object) -> list[Finding]:
    """What the card of the shipped adapter with this digest says of where it helps; nothing for other adapters."""
    folders = shipped_adapters().values()
    folder = next((folder for folder in folders if sha256(folder / WEIGHTS)[:16] == digest), None)
    return (read_card(folder).findings or []) if folder else []


def attach(model: Any, folder: Path, identity: JsonObject, allow_base_mismatch: bool = False) -> tuple[Any, AdapterIdentity]:
    """Put an adapter on its base. Returns the base, and what a run's fingerprint keeps of the adapter.

    The product of its matrices is added to the weights in float32, which saves LoRA's own products in every layer. What is
    not plain LoRA is peft's to read, and an adapter of tied matrices stays LoRA: folded into the embeddings, an adapter of the
    input would change the output as well.
    """
    card = card_for_base(folder, identity, allow_base_mismatch)
    with refuse_misfit(folder):
        config = json.loads((folder / "adapter_config.json").read_text())
        tensors = load_tensors(folder / WEIGHTS)
        if is_foldable(config, tensors):
            fold(model, config, tensors)
        else:
            model = _attach_by_peft(model, folder)
    return model, adapter_identity(folder, card)


def is_foldable(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> bool:
    """Whether an adapter is LoRA of linear layers and nothing else, and none of tied matrices."""
    switched_on = {name for name, value in config.items() if value} - PLAIN
    is_plain = config.get("peft_type") == "LORA" and config.get("bias", "none") == "none" and not switched_on
    is_usual = config.get("init_lora_weights", True) in (True, False)  # other ways to begin change the base too
    is_paired = all(name.endswith((".lora_A.weight", ".lora_B.weight")) for name in tensors)
    return is_plain and is_usual and is_paired and TIED.isdisjoint(name.split(".")[-3] for name in tensors)


def fold(model: Any, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Add the product of every pair of matrices to the weights, in float32."""
    scale = config["lora_alpha"] / config["r"]
    for name, up in tensors.items():
        if name.endswith(".lora_B.weight"):
            path = name.removesuffix(".lora_B.weight")
            down = tensors[f"{path}.lora_A.weight"]
            weight = model.get_submodule(path.removeprefix(PEFT_ROOT)).weight
            weight.data = (weight.float() + (up.float() @ down.float()) * scale).to(weight.dtype)


def _attach_by_peft(model: Any, folder: Path) -> Any:
    from peft import PeftModel

    wrapped = PeftModel.from_pretrained(model, str(folder))
    lora: Any = wrapped.peft_config["default"]
    foldable = str(model.dtype) == "torch.float32" and TIED.isdisjoint(lora.target_modules)
    return wrapped.merge_and_unload() if foldable else wrapped.get_base_model()


@contextlib.contextmanager
def refuse_misfit(folder: Path) -> Iterator[None]:
    """Say in one sentence why peft cannot put an adapter on a base."""
    try:
        yield
    except (ValueError, RuntimeError, OSError, AttributeError, KeyError) as refusal:
        raise ModelError(f"adapter {folder} does not fit this base: {' '.join(str(refusal).split())[:300]}") from refusal


def adapter_identity(folder: Path, card: Card) -> AdapterIdentity:
    """Of an adapter folder, or of a merged model, which keeps no weights of the adapter apart."""
    return {
        "sha256": sha256(folder / (MERGED if is_there(folder / MERGED) else WEIGHTS))[:16],
        "task": card.task,
        "prompt_hash": card.prompt_hash,
        "grade_tokens": card.grade_tokens,
    }


def refuse_pickles(folder: Path) -> None:
    if (folder / "adapter_model.bin").exists() and not (folder / WEIGHTS).exists():
        raise ModelError(f"{folder} holds pickled weights, which can run code. Convert them to safetensors first.")


def load_tensors(file: Path, remedy: str = "") -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, or one sentence about it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except (OSError, SafetensorError) as damage:
        raise StorageError(f"{file} cannot be read: {damage}.{remedy}") from damage


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The adapter's tensors, finite or refused."""
    tensors = load_tensors(folder / WEIGHTS)
    bad = [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    if bad:
        raise ModelError(f"{folder} has NaN or infinite weights in {len(bad)} tensors, the first is {bad[0]}. Train it again.")
    return tensors


# -- sharing


def push(folder: Path, repository: str) -> str:
    """Upload an adapter folder to the hub, where one can be reached."""
    from huggingface_hub import HfApi

    read_card(folder)
    try:
        api = HfApi()
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, allow_patterns=list(FILES))
    except Exception as refusal:  # network, login and permission errors have no common class
        raise StorageError(
            f"{folder} could not be pushed to {repository}: {' '.join(str(refusal).split())[:200]}. "
            "Log in with `hf auth login` and check the network."
        ) from refusal
    return f"https://huggingface.co/{repository}"


def halve(folder: Path, out: Path) -> None:
    """A copy with weights in bfloat16: half the size, for shipping."""
    import shutil

    import torch
    from safetensors.torch import save

    card = read_card(folder)
    if out.resolve() == folder.resolve():
        raise InputError(f"{out} is the folder to halve, and would lose its weights. Give another --out.")
    halved = {name: tensor.to(torch.bfloat16) for name, tensor in read_weights(folder).items()}
    with explaining_os_errors(out), atomic(out / WEIGHTS) as stream:
        stream.write(save(halved, {"format": "pt"}))
        shutil.copyfile(folder / "adapter_config.json", out / "adapter_config.json")
    write_card(out, replace(card, dtype="bfloat16"))
