"""Packages: which extra brings which module, one check that names it before anything begins, and the versions that are here."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import sys
from collections.abc import Collection
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ..errors import MissingExtra

BRINGS: dict[str, tuple[str, ...]] = {
    "local": ("torch", "transformers", "peft", "accelerate", "safetensors", "gguf", "huggingface_hub"),
    "train": ("yaml", "tensorboard"),
    "vllm": ("vllm",),
    "hosted": ("httpx2",),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "reports": ("jinja2", "matplotlib"),
    "data": ("bm25s", "Stemmer", "ir_measures"),
    "hub-data": ("ir_datasets", "datasets"),
    "dense": ("sentence_transformers",),
    "ray": ("ray",),
    "stores": ("fsspec", "s3fs"),
}
"""Extra -> the modules that it adds, by the names they are imported under."""

WITH_LOCAL = ("train", "serve", "dense", "vllm")
"""Extras that bring `local` as well; vLLM has torch and transformers among its own dependencies."""

EXTRA = {module: extra for extra, modules in BRINGS.items() for module in modules}

PAGE = ("jinja2", "matplotlib")
"""What the report page is drawn with."""
SERVER = ("fastapi", "uvicorn", "prometheus_client", "torch")
TRAINING = ("torch", "transformers", "peft", "accelerate", "safetensors", "yaml")


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    return sys.modules[module] is not None if module in sys.modules else find_spec(module) is not None


def absent_modules(modules: Collection[str]) -> list[str]:
    return [module for module in modules if not is_installed(module)]


def check_installed(what: str, *modules: str) -> None:
    """Refuse what needs a module that is not there, with the line that installs it."""
    if missing := absent_modules(modules):
        raise missing_extra(what, missing)


def missing_extra(what: str, modules: list[str]) -> MissingExtra:
    verb = "is" if len(modules) == 1 else "are"
    named = " and ".join(filter(None, [", ".join(modules[:-1]), modules[-1]]))
    return MissingExtra(f"{what} needs {named}, which {verb} not installed. Install with: {install_line(modules)}")


def install_line(modules: Collection[str]) -> str:
    """The command that brings some modules; an extra that another one contains is left out."""
    extras = {EXTRA[module] for module in modules if module in EXTRA}
    if extras & set(WITH_LOCAL):
        extras.discard("local")
    own = [_with_extras(f"[{','.join(sorted(extras))}]")] if extras else []
    return " ".join(["pip install", *own, *(module for module in modules if module not in EXTRA)])


def _with_extras(extras: str) -> str:
    """This package with some extras, from where pip took it (PEP 610): a checkout, a wheel, an address; else the index."""
    try:
        said = json.loads(distribution("steadyscore").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        said = {}
    url = said.get("url", "")
    path = Path(url2pathname(urlsplit(url).path))
    if url.startswith("file:") and path.exists():
        return "-e " * bool(said.get("dir_info", {}).get("editable")) + shlex.quote(f"{path}{extras}")
    vcs = said.get("vcs_info", {})
    address = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    return shlex.quote(f"steadyscore{extras}" + f" @ {address}" * (bool(url) and not url.startswith("file:")))


def versions() -> dict[str, str]:
    """What produces a run: this package, Python, the machine, and the libraries that are installed."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    """Looked up once: a worker notes them with every part."""
    known = {"python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    for name in ("steadyscore", "numpy", "torch", "transformers", "tokenizers", "peft", "vllm", "llama-cpp-python", "httpx2"):
        with contextlib.suppress(PackageNotFoundError):
            known[name] = version(name)
    return known
