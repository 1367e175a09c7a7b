"""What produced a run: this package, Python, the machine, and the libraries that were installed."""

from __future__ import annotations

import contextlib
import os
import platform
from functools import cache


def versions() -> dict[str, str]:
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    """Looked up once: a worker notes them with every part."""
    import importlib.metadata

    known = {"python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    for name in ("steadyscore", "numpy", "torch", "transformers", "tokenizers", "peft", "vllm", "httpx2"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            known[name] = importlib.metadata.version(name)
    return known
