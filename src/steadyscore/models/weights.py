"""Weights and tokenizers on this disk: where they are, and which they are. Torch is loaded only where they are read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..errors import InputError, ModelError
from .adapter import split_address
from .embedded import EMBEDDED, gguf_path, is_present, model_path


def locate(base: str) -> tuple[str, bool]:
    """Where transformers finds the weights, and whether that is on this disk."""
    if base in EMBEDDED:
        return str(model_path(base)), True
    path = Path(base)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"file {base} does not exist.")
        return str(gguf_path(path)), True
    if path.is_dir():
        if any(path.glob("*.bin")) and not any(path.glob("*.safetensors")):
            raise ModelError(f"{base} holds pickled weights, which can run code. Convert them to safetensors first.")
        return base, True
    if base.startswith((".", "/", "~")):
        raise InputError(f"folder {base} does not exist.")
    return base, False


def weights_digest(folder: Path) -> str:
    """Identity of weights on disk: sizes and both ends of every file, so that it takes no time to tell two apart.

    Weights that were read from a GGUF file are that file's: how they were written down again does not matter.
    """
    if (source := folder / "source.json").exists():
        return str(json.loads(source.read_text())["gguf_sha256"])[:16]
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(folder.glob("*.safetensors")):
        size = file.stat().st_size
        digest.update(f"{file.name}:{size}".encode())
        with open(file, "rb") as stream:
            digest.update(stream.read(1 << 20))
            stream.seek(max(0, size - (1 << 20)))
            digest.update(stream.read())
    return digest.hexdigest()


def weight_files(reference: str) -> list[Path]:
    """Weights of an hf address that are on this disk, the adapter's with them."""
    base, adapter = split_address(reference.removeprefix("hf:"))
    if base in EMBEDDED:
        base = str(model_path(base)) if is_present(EMBEDDED[base]) else ""
    elif not Path(base).exists():
        base = _snapshot(base)
    if not base or base.endswith(".gguf"):
        return [Path(base)] if base else []
    return sorted(f for part in (base, adapter) if part for f in Path(part).glob("*.safetensors"))


def _snapshot(hub_id: str) -> str:
    """Where the hub's own cache keeps a model; empty where it does not."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(hub_id, "config.json")
    except HFValidationError:  # a path that does not exist
        return ""
    return str(Path(config).parent) if isinstance(config, str) else ""


def load_tokenizer(source: str, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a model that may be served elsewhere."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as refusal:
        raise ModelError(
            f"the tokenizer of {source!r} could not be loaded. Give its folder: --set tokenizer=FOLDER."
        ) from refusal


def gguf_tokenizer(file: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except (OSError, ValueError, KeyError) as refusal:
        raise ModelError(f"the tokenizer inside {file} could not be read: {refusal}") from refusal
