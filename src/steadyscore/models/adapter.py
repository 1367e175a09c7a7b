"""Adapters: a PEFT folder (LoRA weights) with `card.json`, which says what it was trained for, and a model card.

An adapter only means something on its base, behind its prompt and at its grade tokens; loading refuses the rest.
torch and peft are imported by the functions that need them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import DamagedFile, InputError, ModelError, StorageError
from ..machine.disk import explaining_os_errors, is_there, read_json, sha256, write_json
from .embedded import EMBEDDED, shipped_adapters

WEIGHTS = "adapter_model.safetensors"
TIED = frozenset({"embed_tokens", "lm_head"})
"""Modules that share one matrix in many models."""

# -- the card


def read_card(folder: Path) -> dict[str, Any]:
    file = folder / "card.json"
    restore = "Copy it back from a backup, or train the adapter again."
    try:
        card = read_json(file)
    except FileNotFoundError:
        if not folder.exists():
            raise InputError(f"adapter folder {folder} does not exist. Shipped: {', '.join(shipped_adapters())}.") from None
        raise InputError(
            f"{folder} has no card.json, so what it was trained for is unknown. Train it with steadyscore train."
        ) from None
    except DamagedFile as damage:
        raise DamagedFile(file, damage.what, restore) from damage
    from ..machine.schemas import Card, check_record

    check_record(Card, card, f"{file} cannot be used", restore)
    return card


def write_card(folder: Path, card: dict[str, Any]) -> None:
    with explaining_os_errors(folder):
        write_json(folder / "card.json", card)
        (folder / "README.md").write_text(model_card(card))


def describe(model: str, weights: str | None) -> str:
    """`Qwen3-4B @ 1cfa9a7`: a base as messages name it."""
    return f"{Path(model).name or model} @ {(weights or 'unknown')[:7]}"


def base_mistake(card: dict[str, Any], identity: dict[str, Any]) -> str | None:
    """Why an adapter does not belong on this base; None where it does."""
    trained = card["base"]
    if trained["weights"] == identity["weights"]:
        return None
    was, now = describe(trained["model"], trained["weights"]), describe(identity["model"], identity["weights"])
    return f"adapter was trained for {was}, this is {now}."


def prompt_mistakes(adapter: dict[str, Any], prompt_hash: str, grade_tokens: tuple[int, ...]) -> list[str]:
    """Where a scorer's prompt and grade tokens differ from those an adapter (its part of `Engine.identity`) was trained with."""
    found = []
    if adapter["prompt_hash"] != prompt_hash:
        found.append(
            f"adapter was trained with prompt {adapter['prompt_hash']}, this is prompt {prompt_hash}: "
            "its task, markers, placeholder or style differ."
        )
    if list(adapter["grade_tokens"]) != list(grade_tokens):
        found.append(
            f"adapter was trained with grade tokens {list(adapter['grade_tokens'])}, this tokenizer has {list(grade_tokens)}."
        )
    return found


def refuse(mistakes: list[str], allowed: bool) -> None:
    if mistakes and not allowed:
        raise ModelError("\n".join([*mistakes[:-1], f"{mistakes[-1]} Pass --allow-base-mismatch to score anyway."]))


# -- loading


def split(address: str) -> tuple[str, Path | None]:
    """Base and adapter folder of `<base>[+<folder>]`, an address without its kind; a shipped adapter's name stands for both."""
    if folder := shipped_adapters().get(address):
        return read_card(folder)["base"]["model"], folder
    if is_there(address):  # a folder whose own name holds the sign
        return address, None
    base, _, adapter = address.partition("+")
    return base, Path(adapter) if adapter else None


def attach(model: Any, folder: Path, identity: dict[str, Any], allow_base_mismatch: bool = False) -> tuple[Any, dict[str, Any]]:
    """Put an adapter on its base. Returns the base with LoRA in it, and what a run's fingerprint keeps of the adapter.

    In float32 the product of its matrices is added to the weights, which saves LoRA's own products in every layer; in half
    precision that would round it away, so LoRA stays beside them.
    """
    import torch
    from peft import PeftModel

    if not (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} is not an adapter folder: it has no adapter_config.json.")
    refuse_pickles(folder)
    card = read_card(folder)
    mistake = base_mistake(card, identity)
    refuse([mistake] if mistake else [], allow_base_mismatch)
    try:
        wrapped = PeftModel.from_pretrained(model, str(folder))
        # Folded into tied embeddings, an adapter of the input would change the output as well.
        lora: Any = wrapped.peft_config["default"]
        foldable = model.dtype == torch.float32 and TIED.isdisjoint(lora.target_modules)
        adapted = wrapped.merge_and_unload() if foldable else wrapped.get_base_model()
    except (ValueError, RuntimeError, OSError) as refusal:
        raise ModelError(f"adapter {folder} does not fit this base: {' '.join(str(refusal).split())[:300]}") from refusal
    return adapted, adapter_identity(folder, card)


def adapter_identity(folder: Path, card: dict[str, Any]) -> dict[str, Any]:
    return {
        "sha256": sha256(folder / WEIGHTS)[:16],
        "task": card["task"],
        "prompt_hash": card["prompt_hash"],
        "grade_tokens": card["grade_tokens"],
    }


def refuse_pickles(folder: Path) -> None:
    if (folder / "adapter_model.bin").exists() and not (folder / WEIGHTS).exists():
        raise ModelError(f"{folder} holds pickled weights, which can run code. Convert them to safetensors first.")


def weights(folder: Path) -> dict[str, Any]:
    """The adapter's tensors, finite or refused."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as damage:
        raise StorageError(f"{folder / WEIGHTS} cannot be read: {damage}.") from damage
    bad = [name for name, tensor in found.items() if not bool(tensor.isfinite().all())]
    if bad:
        raise ModelError(f"{folder} has NaN or infinite weights in {len(bad)} tensors, the first is {bad[0]}. Train it again.")
    return found


# -- sharing


def push(folder: Path, repository: str) -> str:
    """Upload an adapter folder to the hub, where one can be reached."""
    from huggingface_hub import HfApi

    read_card(folder)
    files = ["adapter_config.json", WEIGHTS, "card.json", "README.md"]
    try:
        api = HfApi()
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, allow_patterns=files)
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
    from safetensors.torch import save_file

    card = read_card(folder)
    with explaining_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        halved = {name: tensor.to(torch.bfloat16) for name, tensor in weights(folder).items()}
        save_file(halved, out / WEIGHTS, {"format": "pt"})
        shutil.copy(folder / "adapter_config.json", out)
    write_card(out, card | {"dtype": "bfloat16"})


def scorer_address(address: str) -> str:
    """A base as a scorer address."""
    return address if address in EMBEDDED or address.startswith("hf:") else f"hf:{address}"


# -- the model card


def model_card(card: dict[str, Any]) -> str:
    """README.md of an adapter folder: front matter and tables from the card, nothing else."""
    base, shown = card["base"], card["settings"]
    front = ["---", f"base_model: {base['model']}", "library_name: peft", "tags: [steadyscore, reranking, order-consistency]"]
    front += [f"license: {card['licence']}"] if card.get("licence") else []
    rows = {
        "base": describe(base["model"], base["weights"]),
        "task": card.get("task", ""),
        "objective": card["objective"],
        "weight": f"{card['weight']:g} ({card['weight_convention']} convention)",
        "views": card["views"],
        "width": ", ".join(map(str, card["widths"])),
        "prompt": f"{shown.get('prompt') or 'paper'}, {shown.get('chars') or 'all'} characters of each candidate",
        "data": f"{card['data']['name']}, {card['data']['queries']} queries",
        "labels": ", ".join(f"{key} {value}" for key, value in card["labels"].items() if isinstance(value, str | int)),
        "steps": f"{card['steps']} of {card.get('batch', 'unknown')} windows, seed {card['seed']}",
        "learning rate": f"{card['learning_rate']:g}",
        "LoRA": ", ".join(
            f"{key} {value}" for key, value in card["lora"].items() if key in ("rank", "alpha", "dropout", "layers")
        ),
        "start": (card.get("initial") or {}).get("adapter", "new"),
        "prompt hash": card["prompt_hash"],
        "grade tokens": ", ".join(map(str, card["grade_tokens"])),
    }
    if fitted := card.get("cutoff"):
        rows["cutoff"] = ", ".join(f"{key} {value}" for key, value in fitted.items())
    address = card.get("name") or f"{scorer_address(base['model'])}+DIR"
    lines = [*front, "---", "", f"# {card['objective']} adapter for {Path(base['model']).name or base['model']}", ""]
    lines += [
        "Grades the candidates of a prompt from 0 to 3. Use it with:",
        "",
        "```",
        f"steadyscore audit --scorer {address} --data passages --out runs/audit",
        "```",
        "",
        *([card["about"], ""] if card.get("about") else []),
    ]
    lines += ["| setting | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    if card["held_out"]:
        lines += ["", "## Held-out evaluation", "", "| step | quality | tau-PSI | dispersion |", "|---:|---:|---:|---:|"]
        lines += [f"| {e['step']} | {e['quality']:.4f} | {e['tau_psi']:.4f} | {e['dispersion']:.4f} |" for e in card["held_out"]]
    if measured := card.get("measured"):
        lines += [
            "",
            "## Measured",
            "",
            "| measure | value |",
            "|---|---:|",
            *(f"| {name} | {value:.4f} |" for name, value in measured.items()),
        ]
    return "\n".join(lines) + "\n"
