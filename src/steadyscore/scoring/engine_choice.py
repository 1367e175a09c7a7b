"""Which engine scores an embedded model on a CPU: `hf`, or llama.cpp where it is installed and measured to be faster.

A timing must not decide between two numbers in silence: the engines differ by a quantisation error. So the choice is made
once per pair of versions and kept with the speeds of this machine, it is printed and stands in the run's fingerprint, and
a run that has begun keeps the engine it began with. `hf:smollm2-135m` and `llamacpp:<file.gguf>` leave nothing to choose.
Adapters stay with `hf`, which trained them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..engines import EngineOptions
from ..engines.address import open_engine
from ..engines.llamacpp import embedded_gguf
from ..engines.parity import probe_prompts
from ..errors import SteadyscoreError
from ..models.embedded import EMBEDDED
from .estimate import keep_speed, speeds

HEADROOM = 1.25
"""How many times faster than `hf` llama.cpp must be: less is noise, and not worth leaving the reference for."""


class EngineChoice(NamedTuple):
    address: str
    why: str
    """One sentence; empty where there was nothing to choose."""


def scoring_address(address: str, options: EngineOptions, begun: Iterable[Path] = ()) -> EngineChoice:
    """The address that scores what `address` names. `begun`: run folders that this command may go on in."""
    file = _gguf_alternative(address, options)
    if file is None:
        return EngineChoice(address, "")
    ours = {"hf": address, "llamacpp": f"llamacpp:{file}"}
    if kind := next((kind for folder in begun if (kind := _kind_of_run(folder)) in ours), None):
        return EngineChoice(ours[kind], f"{address} is scored through {kind}, as the run in --out began.")
    try:
        rates = {kind: _rate(kind, ours[kind], options) for kind in ours}
    except SteadyscoreError as refusal:
        return EngineChoice(address, f"{address} is scored through hf: {refusal}")
    return EngineChoice(ours[faster(rates)], _reason(address, rates))


def faster(rates: dict[str, float]) -> str:
    """llama.cpp from `HEADROOM` times the speed of `hf` on."""
    return "llamacpp" if rates["llamacpp"] >= HEADROOM * rates["hf"] else "hf"


def _reason(address: str, rates: dict[str, float]) -> str:
    return (
        f"{address} is scored through {faster(rates)}: {rates['hf']:,.0f} tokens a second through hf and "
        f"{rates['llamacpp']:,.0f} through llama.cpp, measured once on this machine. Write hf:{address} to fix the engine."
    )


def _gguf_alternative(address: str, options: EngineOptions) -> Path | None:
    """The file that llama.cpp would score: of a plain embedded model, on a CPU, in the precision of the file."""
    if address not in EMBEDDED or options.dtype != "float32" or find_spec("llama_cpp") is None:
        return None
    file = embedded_gguf(address)
    return file if file and (options.device == "cpu" or (options.device is None and not _has_cuda())) else None


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _kind_of_run(folder: Path) -> str | None:
    """The engine of the run in a folder, if there is one."""
    try:
        kind: str = json.loads((folder / "run.json").read_text())["fingerprint"]["scorer"]["kind"]
        return kind
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _rate(kind: str, address: str, options: EngineOptions) -> float:
    """Tokens a second, measured once per version and kept."""
    key = f"choice: {address} with {_version({'hf': 'transformers', 'llamacpp': 'llama_cpp_python'}[kind])}"
    if key not in (known := speeds()):
        known = {key: keep_speed(key, _measure_rate(open_engine(address, options)))}
    return known[key]


def _version(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return distribution


def _measure_rate(engine: Any) -> float:
    prompts = probe_prompts(engine)
    seconds = []
    for _ in range(2):  # the first warms up
        began = time.perf_counter()
        engine.grade_logits(prompts)
        seconds.append(time.perf_counter() - began)
    return sum(map(len, prompts)) / min(seconds)
