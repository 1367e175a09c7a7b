"""The paper's comparison systems, each one address: `system:<name>[@<folder or hub id>]` (§5, §H.3).

A name carries the checkpoint and its revision; `@<hub id>@<revision>` or a folder after the @ replaces both. Here are those whose
model has a head of its own: cross-encoders, monoT5, reward models, PairRM, jina-reranker, each in the input format it was trained
with. Batches are padded, which moves a score in its last digits; nothing else a candidate stands with can, but for
jina-reranker's. Those that are a prompt to a language model are in `prompted.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import InputError, ModelError
from ..terms import JsonObject
from . import PAID, WEIGHTS, Address, Capabilities, EngineOptions, Kind, Listing, Reranker, prompted
from .prompted import Load, Score, causal, load, strip_markup

if TYPE_CHECKING:
    import torch

SOURCE, FIRST, SECOND = "<|source|>", "<|candidate1|>", "<|candidate2|>"
SOURCE_TOKENS, CANDIDATE_TOKENS = 1224, 412
PAIRS = 8
"""Pairs per forward pass of PairRM."""


def cross_encoder(source: str, revision: str | None, options: EngineOptions) -> Score:
    """Any reranker that sentence-transformers' `CrossEncoder` opens, with the activation and the prompt its card names."""
    from sentence_transformers import CrossEncoder

    from .local.device import device_of

    model = CrossEncoder(
        source,
        revision=revision,
        device=options.device and device_of(options.device),
        trust_remote_code=options.trust_remote_code,
        model_kwargs={"dtype": options.dtype},
    )

    def score(query: str, texts: Sequence[str]) -> list[float]:
        scores: list[float] = model.predict([(query, text) for text in texts], show_progress_bar=False).astype(float).tolist()
        return scores

    return score


def mono_t5(source: str, revision: str | None, options: EngineOptions) -> Score:
    """monoT5 (Nogueira et al. 2020): P(true) against P(false) for the first token written."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    from .local.device import Passes
    from .local.windows import passes

    model, tokenizer = load(AutoModelForSeq2SeqLM, source, revision, options)
    sides = [tokenizer.encode(word, add_special_tokens=False)[0] for word in ("false", "true")]
    memory = Passes(options.batch_tokens)

    def score(query: str, texts: Sequence[str]) -> list[float]:
        rows = [f"Query: {query} Document: {text} Relevant:" for text in texts]
        ids = tokenizer(rows, truncation=True, max_length=512)["input_ids"]
        return memory.fit(partial(read, ids), list(map(len, ids)))

    @torch.inference_mode()
    def read(ids: list[list[int]], tokens: int) -> list[float]:
        scores = [0.0] * len(ids)
        for batch in passes(list(map(len, ids)), tokens, 0):
            inputs = tokenizer.pad({"input_ids": [ids[i] for i in batch]}, return_tensors="pt").to(model.device)
            begin = torch.full((len(batch), 1), model.config.decoder_start_token_id, device=model.device)
            logits = model(**inputs, decoder_input_ids=begin).logits[:, 0, sides].float()
            for i, share in zip(batch, logits.softmax(-1)[:, 1].tolist(), strict=True):
                scores[i] = share
        return scores

    return score


def reward_model(source: str, revision: str | None, options: EngineOptions) -> Score:
    """Skywork-Reward-V2 and its like: one logit for a user turn and an assistant turn, 4096 tokens."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model, tokenizer = load(AutoModelForSequenceClassification, source, revision, options, num_labels=1)

    @torch.inference_mode()
    def score(query: str, texts: Sequence[str]) -> list[float]:
        scores = []
        for text in texts:  # one by one, as the model card has it: padding would move the last token that is read
            turns = [{"role": "user", "content": query}, {"role": "assistant", "content": text}]
            inputs = tokenizer.apply_chat_template(
                turns, tokenize=True, return_dict=True, truncation=True, max_length=4096, return_tensors="pt"
            ).to(model.device)
            scores.append(float(model(**inputs).logits[0, 0]))
        return scores

    return score


def jina(source: str, revision: str | None, options: EngineOptions) -> Score:
    """jina-reranker-v3 and v3.5 through their own `rerank`: cosines of all candidates in one context."""
    from transformers import AutoModel

    if not options.trust_remote_code:
        raise InputError(
            f"{source} brings its own code (pinned to revision {revision or 'of the folder'}). "
            "Read it, then pass --set trust_remote_code=yes."
        )
    model, _ = load(AutoModel, source, revision, options)

    def score(query: str, texts: Sequence[str]) -> list[float]:
        scores = {result["index"]: float(result["relevance_score"]) for result in model.rerank(query, list(texts))}
        if scores.keys() != set(range(len(texts))):
            raise ModelError(f"{source} gave {len(scores)} scores for {len(texts)} candidates.")
        return [scores[i] for i in range(len(texts))]

    return score


# -- PairRM (Jiang et al. 2023): every ordered pair of candidates compared, made antisymmetric, counted by Copeland's rule


def pair_rm(source: str, revision: str | None, options: EngineOptions) -> Score:
    """A DeBERTa-v3 encoder and a head on the states of three markers, read from safetensors: no code of the repository runs."""
    import torch
    from transformers import AutoConfig, AutoTokenizer, DebertaV2Model

    from .local.device import device_of

    device = device_of(options.device)
    folder = _folder(source, revision)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    weights = _weights(folder)
    encoder: Any = DebertaV2Model(AutoConfig.from_pretrained(folder))
    encoder.load_state_dict({k.removeprefix("pretrained_model."): v for k, v in weights.items() if k.startswith("pretrained")})
    # Linear, tanh, linear; dropout stands at 0 and 3 in the checkpoint's numbering.
    inner, outer = ((weights[f"head_layer.{i}.weight"], weights[f"head_layer.{i}.bias"]) for i in (1, 4))
    encoder = encoder.to(device).eval()
    markers = [tokenizer.convert_tokens_to_ids(marker) for marker in (SOURCE, FIRST, SECOND)]

    def head(states: Any) -> Any:
        hidden = torch.tanh(torch.nn.functional.linear(states, *(w.to(device) for w in inner)))
        return torch.nn.functional.linear(hidden, *(w.to(device) for w in outer))

    @torch.inference_mode()
    def logits(rows: list[list[int]]) -> list[float]:
        inputs = tokenizer.pad({"input_ids": rows}, return_tensors="pt").to(device)
        states = encoder(**inputs).last_hidden_state
        at = [states[inputs["input_ids"] == marker] for marker in markers]  # one of each per row, (pairs, hidden)
        left, right = (head(torch.cat([at[0], candidate], dim=-1)) for candidate in at[1:])
        margins: list[float] = (left - right).mean(dim=-1).tolist()
        return margins

    def score(query: str, texts: Sequence[str]) -> list[float]:
        n = len(texts)
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        rows = [_encode_pair(tokenizer, query, texts[i], texts[j]) for i, j in pairs]
        margins = [value for k in range(0, len(rows), PAIRS) for value in logits(rows[k : k + PAIRS])]
        preferred = np.zeros((n, n))
        for (i, j), value in zip(pairs, margins, strict=True):
            preferred[i, j] = value
        scores: list[float] = copeland(preferred).tolist()
        return scores

    return score


def copeland(logits: np.ndarray) -> np.ndarray:
    """Duels won, (n,), with the mean margin as the tie-break: always less than half a win.

    `logits[i, j]` prefers i over j with i shown first; (L - Lᵀ) / 2 no longer depends on which was shown first.
    """
    margins = (logits - logits.T) / 2
    others = max(len(logits) - 1, 1)
    wins: np.ndarray = (margins > 0).sum(axis=1) + (margins == 0).sum(axis=1) / 2
    standing: np.ndarray = wins - 0.5 + np.tanh(margins.sum(axis=1) / others) / 4.01
    return standing


def _encode_pair(tokenizer: Any, query: str, first: str, second: str) -> list[int]:
    query, first, second = (_strip_markers(strip_markup(tokenizer, text)) for text in (query, first, second))
    source = tokenizer.encode(SOURCE + query, max_length=SOURCE_TOKENS, truncation=True)
    room = (SOURCE_TOKENS + 2 * CANDIDATE_TOKENS - len(source)) // 2  # what the query leaves goes to the candidates
    sides = [tokenizer.encode(m + text, max_length=room, truncation=True) for m, text in ((FIRST, first), (SECOND, second))]
    return [*source, *sides[0], *sides[1]]


def _strip_markers(text: str) -> str:
    for marker in (SOURCE, FIRST, SECOND):
        text = text.replace(marker, " ")
    return text


def _folder(source: str, revision: str | None) -> Path:
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source, revision=revision))


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    if not (files := sorted(folder.glob("*.safetensors"))):
        raise ModelError(f"{folder} holds no safetensors. Pickled weights can run code; convert them first.")
    return {name: weight.float() for file in files for name, weight in load_file(file).items()}


# -- all of them


@dataclass(frozen=True, slots=True)
class System:
    """A system as the paper names it, where its weights are, and how it is fed."""

    load: Load
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


JINA = (jina, "jinaai/jina-reranker-v3", "10fb694fc21f7a710a563ff1eb977a460f3868e4")

SYSTEMS: dict[str, System] = {
    "jina-reranker-v3": System(*JINA, paper="jina-reranker-v3"),
    "jina-reranker-v3-b20": System(*JINA, paper="jina-reranker-v3 (B=20)", width=20),
    "jina-reranker-v3.5": System(jina, "jinaai/jina-reranker-v3.5"),
    "lighton-rerank-lw-0.8b": System(causal(prompted.lighton), "lightonai/LightOn-rerank-LW-0.8B", gives="ranking"),
    "lighton-rerank-lw-2b": System(causal(prompted.lighton), "lightonai/LightOn-rerank-LW-2B", gives="ranking"),
    "lighton-rerank-lw-4b": System(
        causal(partial(prompted.lighton, thought="<think>\n\n</think>\n\n")), "lightonai/LightOn-rerank-LW-4B", gives="ranking"
    ),
    "rank-zephyr-7b": System(
        causal(prompted.rank_zephyr),
        "castorini/rank_zephyr_7b_v1_full",
        "aa11d9da444ec3490827656c3b961d5c5f3af0eb",
        paper="RankZephyr-7B",
        gives="ranking",
    ),
    "mxbai-rerank-base-v2": System(
        causal(partial(prompted.two_tokens, how=prompted.MXBAI)),
        "mixedbread-ai/mxbai-rerank-base-v2",
        "3ea9d4dffa7d12a4f366be8e275c349de9fc9865",
        paper="mxbai-base-v2",
        order_free=True,
    ),
    "mxbai-rerank-large-v2": System(
        causal(partial(prompted.two_tokens, how=prompted.MXBAI)),
        "mixedbread-ai/mxbai-rerank-large-v2",
        "ca7e1ee484c37c0ddd8d178a9a5c33cec575c5e6",
        paper="mxbai-large-v2",
        order_free=True,
    ),
    "qwen3-reranker-4b": System(
        causal(partial(prompted.two_tokens, how=prompted.QWEN3)), "Qwen/Qwen3-Reranker-4B", order_free=True
    ),
    "skywork-reward-v2-qwen3-4b": System(
        reward_model,
        "Skywork/Skywork-Reward-V2-Qwen3-4B",
        "fd958fef475f323f4e6b195930e3dd918485c668",
        paper="Skywork-Reward-V2-Qwen3-4B",
        order_free=True,
    ),
    # The paper's revision is f9000bd5...; the rest of the name is not known to us, and the hub takes whole names only.
    "pairrm": System(pair_rm, "llm-blender/PairRM-hf", paper="PairRM", order_free=True),
    "monot5": System(mono_t5, "castorini/monot5-base-msmarco-10k", order_free=True),
    "cross-encoder": System(cross_encoder, order_free=True, needs=("torch", "transformers", "sentence_transformers")),
    "first": System(causal(prompted.first_token), "castorini/first_mistral", gives="ranking"),
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
    return Listing(address, system.gives, system.paper, "--set trust_remote_code=yes" if system.load is jina else "")


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
