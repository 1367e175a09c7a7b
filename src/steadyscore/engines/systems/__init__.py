"""The paper's comparison systems, each one address: `system:<name>[@<folder or hub id>]` (§5, §H.3).

A name carries the checkpoint and its revision; `@<hub id>@<revision>` or a folder after the @ replaces both. The loaders are in
`prompted.py` (a prompt to a language model) and `heads.py` (a model with a head of its own).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...errors import InputError, ModelError
from ...terms import JsonObject
from .. import PAID, WEIGHTS, Address, Capabilities, EngineOptions, Kind, Listing, Reranker
from . import heads, prompted
from .heads import Score


@dataclass(frozen=True, slots=True)
class System:
    """A system as the paper names it, where its weights are, and how it is fed."""

    load: Callable[[str, str | None, EngineOptions], Score]
    """(source, revision, options) -> what scores a pool."""
    hub: str = ""
    """Empty: any model of its kind, named after the @."""
    revision: str | None = None
    """The commit the paper used, where it is known."""
    paper: str | None = None
    """The row of the paper's tables."""
    gives: Literal["score", "ranking"] = "score"
    order_free: bool = False
    width: int | None = None
    """Candidates per call; None: the whole pool."""
    needs: tuple[str, ...] = ("torch", "transformers")


JINA = (heads.jina, "jinaai/jina-reranker-v3", "10fb694fc21f7a710a563ff1eb977a460f3868e4")

SYSTEMS: dict[str, System] = {
    "jina-reranker-v3": System(*JINA, paper="jina-reranker-v3"),
    "jina-reranker-v3-b20": System(*JINA, paper="jina-reranker-v3 (B=20)", width=20),
    "jina-reranker-v3.5": System(heads.jina, "jinaai/jina-reranker-v3.5"),
    "lighton-rerank-lw-0.8b": System(prompted.lighton, "lightonai/LightOn-rerank-LW-0.8B", gives="ranking"),
    "lighton-rerank-lw-2b": System(prompted.lighton, "lightonai/LightOn-rerank-LW-2B", gives="ranking"),
    "lighton-rerank-lw-4b": System(prompted.lighton_4b, "lightonai/LightOn-rerank-LW-4B", gives="ranking"),
    "rank-zephyr-7b": System(
        prompted.rank_zephyr,
        "castorini/rank_zephyr_7b_v1_full",
        "aa11d9da444ec3490827656c3b961d5c5f3af0eb",
        paper="RankZephyr-7B",
        gives="ranking",
    ),
    "mxbai-rerank-base-v2": System(
        prompted.mxbai,
        "mixedbread-ai/mxbai-rerank-base-v2",
        "3ea9d4dffa7d12a4f366be8e275c349de9fc9865",
        paper="mxbai-base-v2",
        order_free=True,
    ),
    "mxbai-rerank-large-v2": System(
        prompted.mxbai,
        "mixedbread-ai/mxbai-rerank-large-v2",
        "ca7e1ee484c37c0ddd8d178a9a5c33cec575c5e6",
        paper="mxbai-large-v2",
        order_free=True,
    ),
    "qwen3-reranker-4b": System(prompted.qwen3_reranker, "Qwen/Qwen3-Reranker-4B", order_free=True),
    "skywork-reward-v2-qwen3-4b": System(
        heads.reward_model,
        "Skywork/Skywork-Reward-V2-Qwen3-4B",
        "fd958fef475f323f4e6b195930e3dd918485c668",
        paper="Skywork-Reward-V2-Qwen3-4B",
        order_free=True,
    ),
    # The paper's revision is f9000bd5...; the rest of the name is not known to us, and the hub takes whole names only.
    "pairrm": System(heads.pair_rm, "llm-blender/PairRM-hf", paper="PairRM", order_free=True),
    "monot5": System(heads.mono_t5, "castorini/monot5-base-msmarco-10k", order_free=True),
    "cross-encoder": System(heads.cross_encoder, order_free=True, needs=("torch", "transformers", "sentence_transformers")),
    "first": System(prompted.first_token, "castorini/first_mistral", gives="ranking"),
    "rankgpt": System(prompted.rank_gpt, gives="ranking"),
}


class SystemReranker(Reranker):
    """One of `SYSTEMS` as a reranker, fed as its authors feed it: whole texts as they are, at its own width."""

    def __init__(self, name: str, system: System, source: str, revision: str | None, function: Score, dtype: str):
        self.name, self.width, self._function = name, system.width, function
        self.capabilities = Capabilities(gives=system.gives, order_free=system.order_free, deterministic=True)
        self._identity = {
            "kind": "system",
            "system": name,
            "model": source,
            "revision": revision,
            "dtype": dtype,
            "text": "as it is",
        }

    def identity(self) -> JsonObject:
        return dict(self._identity)

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return self._function(query, texts)


def system_of(rest: str) -> System | None:
    return SYSTEMS.get(rest.partition("@")[0])


def open_system(address: Address, options: EngineOptions) -> SystemReranker:
    rest = address.rest
    if options.dtype == "auto":  # as their papers and libraries compute them
        options = replace(options, dtype="float32")
    name, _, source = rest.partition("@")
    system = system_of(rest)
    if system is None:
        raise InputError(f"unknown system {name!r}. Known: {', '.join(SYSTEMS)}.")
    if not (source or system.hub):
        raise InputError(f"system:{name} needs a model: write system:{name}@<folder or hub id>.")
    if source.startswith((".", "/", "~")) and not Path(source).expanduser().is_dir():
        raise InputError(f"folder {source} does not exist.")
    revision = None if source else system.revision
    if "@" in source and not (source.startswith("openai:") or Path(source).is_dir()):
        source, _, revision = source.partition("@")
    try:
        score = system.load(source or system.hub, revision, options)
    except (OSError, ValueError, KeyError) as refusal:
        reason = " ".join(str(refusal).split())[:300]
        raise ModelError(f"system:{rest} could not be loaded ({reason}). Give a folder: system:{name}@<folder>.") from refusal
    return SystemReranker(f"system:{rest}", system, source or system.hub, revision, score, options.dtype)


def _listing(name: str, system: System) -> Listing:
    address = f"system:{name}" + ("" if system.hub else "@<id|folder>")
    return Listing(address, system.gives, system.paper, "--set trust_remote_code=yes" if system.load is heads.jina else "")


KIND = Kind(
    "system",
    open_system,
    takes="pool",
    listed=tuple(_listing(name, system) for name, system in SYSTEMS.items()),
    options=WEIGHTS,
    needs=lambda rest: system.needs if (system := system_of(rest)) else (),
    width=lambda rest: system.width if (system := system_of(rest)) else None,
    is_order_free=lambda rest: (system := system_of(rest)) is not None and system.order_free,
)
KINDS = (KIND, replace(KIND, listed=(), options=PAID, needs=lambda rest: ("httpx2",), is_server=True))
"""Those with weights here, and RankGPT with a chat model behind an endpoint."""
