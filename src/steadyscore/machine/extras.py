"""Optional parts: which extra brings which module, and one check that names it before anything begins."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec

from ..errors import MissingExtra

BRINGS: dict[str, tuple[str, ...]] = {
    "local": ("torch", "transformers", "peft", "accelerate", "safetensors", "gguf", "huggingface_hub"),
    "train": ("yaml", "tensorboard"),
    "vllm": ("vllm",),
    "llamacpp": ("llama_cpp",),
    "hosted": ("httpx",),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "reports": ("jinja2", "matplotlib"),
    "data": ("bm25s", "Stemmer", "ir_measures"),
    "hub-data": ("ir_datasets", "datasets"),
    "dense": ("sentence_transformers",),
    "ray": ("ray",),
    "stores": ("fsspec", "s3fs"),
}
"""Extra -> the modules that it adds, by the names they are imported under."""

WITH_LOCAL = ("train", "llamacpp", "serve", "dense", "vllm")
"""Extras that bring `local` as well; vLLM has torch and transformers among its own dependencies."""

EXTRA = {module: extra for extra, modules in BRINGS.items() for module in modules}

PAGE = ("jinja2", "matplotlib")
"""What the report page is drawn with."""
SERVER = ("fastapi", "uvicorn", "prometheus_client", "torch")
TRAINING = ("torch", "transformers", "peft", "accelerate", "safetensors", "yaml")


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    return sys.modules[module] is not None if module in sys.modules else find_spec(module) is not None


def absent_modules(modules: Iterable[str]) -> list[str]:
    return [module for module in modules if not is_installed(module)]


def check_installed(what: str, *modules: str) -> None:
    """Refuse what needs a module that is not there, with the line that installs it."""
    if missing := absent_modules(modules):
        raise missing_extra(what, missing)


def missing_extra(what: str, modules: list[str]) -> MissingExtra:
    verb = "is" if len(modules) == 1 else "are"
    named = " and ".join(filter(None, [", ".join(modules[:-1]), modules[-1]]))
    return MissingExtra(f"{what} needs {named}, which {verb} not installed. Install with: {install_line(modules)}")


def install_line(modules: Iterable[str]) -> str:
    """The command that brings some modules; an extra that another one contains is left out."""
    extras = {EXTRA[module] for module in modules}
    if extras & set(WITH_LOCAL):
        extras.discard("local")
    return f"pip install 'steadyscore[{','.join(sorted(extras))}]'"
