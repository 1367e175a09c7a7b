"""Served models that take token ids: vLLM as a four-way token classifier, SGLang's `/generate`, llama.cpp's `/completion`.

All read the slots of the same prompts as engine `hf`, so the parity gate compares them number by number. Nothing but
HTTP and a tokenizer is needed on this side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..encoding import Encoder
from ..errors import InputError, ModelError
from ..readout import Reading
from ..terms import GRADES, Prompt
from . import Capabilities, EngineOptions
from .http import Endpoint, Malformed, field, model_at, number

Ask = tuple[str, dict[str, Any]]
"""A path and a body."""


class ServedEngine:
    """A model behind a server. `asks(prompt)` are the requests of a window; `reads(prompt, i, answer)` the slots of the i-th."""

    def __init__(
        self,
        kind: str,
        model: str,
        endpoint: Endpoint,
        encoder: Encoder,
        context: int,
        capabilities: Capabilities,
        asks: Callable[[Prompt], list[Ask]],
        reads: Callable[[Prompt, int, Any], Reading],
    ):
        self.kind, self.model, self.endpoint, self.encoder, self.context = kind, model, endpoint, encoder, context
        self.name, self.capabilities = f"{kind}:{model}@{endpoint.base}", capabilities
        self._asks, self._reads = asks, reads
        self.reference: str | None = None
        """Address of the same weights for the parity gate, where they are on this disk."""

    def identity(self) -> dict[str, Any]:
        # Where it is served is left out: moving a server does not change what it says.
        return {"kind": self.kind, "model": self.model, "tokenizer": self.encoder.name}

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[Reading]:
        asked = [(prompt, i, ask) for prompt in prompts for i, ask in enumerate(self._asks(prompt))]
        parts = iter(self.endpoint.map(self._read, asked))
        return [_joined([next(parts) for _ in self._asks(prompt)]) for prompt in prompts]

    def _read(self, asked: tuple[Prompt, int, Ask]) -> Reading:
        prompt, i, (path, body) = asked
        return self.endpoint.post(path, body, lambda answer: self._reads(prompt, i, answer))


def _joined(parts: list[Reading]) -> Reading:
    told = [part.label_mass for part in parts if part.label_mass is not None]
    return Reading(np.concatenate([part.logits for part in parts]), np.concatenate(told) if told else None)


def served_vllm(rest: str, options: EngineOptions) -> ServedEngine:
    """`<model or adapter name>@<base url>`: a server started as docs/engines.md says, so that its pooler is our readout."""
    model, base = _named(rest, "vllm")
    endpoint = Endpoint(base, options)
    tokenizer, context = served_model(endpoint, model)
    return ServedEngine(
        "vllm",
        model,
        endpoint,
        load_encoder(options.tokenizer or tokenizer, options),
        context,
        Capabilities(gives="distribution", distribution="exact", lora=True),
        lambda prompt: [("/pooling", POOLING | {"model": model, "input": [[*prompt.prefix, *prompt.body]]})],
        pooled,
    )


POOLING = {"task": "token_classify", "encoding_format": "float"}


def pooled(prompt: Prompt, _: int, answer: Any) -> Reading:
    """Rows of the four-way softmax at the slots: exactly the renormalised grade distribution."""
    rows = field(answer, "data", 0, "data")
    if not isinstance(rows, list) or len(rows) != len(prompt):
        count = len(rows) if isinstance(rows, list) else "no"
        raise Malformed(f"{count} rows came back for {len(prompt)} tokens")
    return slot_probabilities(np.array([_row(rows[slot]) for slot in prompt.slots]))


def _row(row: Any) -> list[float]:
    if not isinstance(row, list) or len(row) != len(GRADES):
        raise Malformed("a row does not hold four values: the server is not a classifier over the four grade tokens")
    return [number(value, "a grade's probability") for value in row]


def slot_probabilities(rows: np.ndarray) -> Reading:
    """(B, 4) probabilities as a reading; anything that is not a distribution is refused."""
    if (rows < 0).any() or np.abs(rows.sum(axis=1) - 1).max() > 1e-2:
        raise Malformed("rows are not distributions over the four grades: start the server as docs/engines.md says")
    with np.errstate(divide="ignore"):
        return Reading(np.log(rows))


def open_sglang(rest: str, options: EngineOptions) -> ServedEngine:
    """`<model>@<base url>`: log-probabilities of the four grade tokens at every prompt position from the first slot on."""
    model, base = _named(rest, "sglang")
    endpoint = Endpoint(base, options)
    tokenizer, context = served_model(endpoint, model)
    return ServedEngine(
        "sglang",
        model,
        endpoint,
        load_encoder(options.tokenizer or tokenizer, options),
        context,
        Capabilities(gives="distribution", distribution="exact", label_mass=True, lora=True),
        _sglang_asks,
        _sglang_reads,
    )


def _sglang_asks(prompt: Prompt) -> list[Ask]:
    body = {
        "input_ids": [*prompt.prefix, *prompt.body],
        "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": prompt.slots[0],
        "token_ids_logprob": list(prompt.grade_tokens),
    }
    return [("/generate", body)]


def _sglang_reads(prompt: Prompt, _: int, answer: Any) -> Reading:
    # Row i speaks of token S + i as its predecessor predicts it; row 0 has no predecessor in the answer and is empty.
    rows = field(answer, "meta_info", "input_token_ids_logprobs")
    start = prompt.slots[0]
    if not isinstance(rows, list) or len(rows) != len(prompt) - start:
        raise Malformed(f"{len(rows) if isinstance(rows, list) else 'no'} rows came back for {len(prompt) - start} positions")
    logits = np.array([_grades(rows[slot + 1 - start], prompt.grade_tokens) for slot in prompt.slots])
    return Reading(logits, np.exp(logits).sum(axis=1))


def _grades(row: Any, tokens: Sequence[int]) -> list[float]:
    """Entries are [log-probability, token id, text], in any order."""
    return _four({field(entry, 1): field(entry, 0) for entry in row or []}, tokens)


def _four(found: dict[int, Any], tokens: Sequence[int]) -> list[float]:
    if absent := [token for token in tokens if token not in found]:
        raise Malformed(f"a slot lacks grade tokens {absent}")
    return [number(found[token], "a log-probability") for token in tokens]


TOP = 1000
"""Alternatives that llama.cpp's server is asked for: it gives no log-probability of a token by its id."""


def served_llamacpp(rest: str, options: EngineOptions) -> ServedEngine:
    """`<model>@<base url>`: llama.cpp's own server, one request per slot, whose prompt the server's cache has but for its end."""
    from .llamacpp import gguf_tokenizer

    model, base = _named(rest, "llamacpp")
    endpoint = Endpoint(base, options)
    context = int(endpoint.get("/props", lambda answer: field(answer, "default_generation_settings", "n_ctx")))
    file = Path(options.tokenizer or model)
    encoder = Encoder(gguf_tokenizer(file), model) if file.suffix == ".gguf" else load_encoder(str(file), options)
    capabilities = Capabilities(gives="distribution", distribution="top_k", label_mass=True)
    engine = ServedEngine("llamacpp", model, endpoint, encoder, context, capabilities, _llamacpp_asks, _llamacpp_reads)
    engine.reference = f"hf:{file}" if file.is_file() else None
    return engine


def _llamacpp_asks(prompt: Prompt) -> list[Ask]:
    ids = [*prompt.prefix, *prompt.body]
    options = {"n_predict": 1, "n_probs": TOP, "temperature": 0, "cache_prompt": True}
    return [("/completion", {"prompt": ids[: slot + 1], **options}) for slot in prompt.slots]


def _llamacpp_reads(prompt: Prompt, _: int, answer: Any) -> Reading:
    given = field(answer, "completion_probabilities", 0, "top_logprobs")
    logits = np.array([_four({field(entry, "id"): field(entry, "logprob") for entry in given}, prompt.grade_tokens)])
    return Reading(logits, np.exp(logits).sum(axis=1))


def served_model(endpoint: Endpoint, model: str) -> tuple[str, int]:
    """The tokenizer and the context of a served model, from `/v1/models`. An adapter's are those of its parent."""
    cards = {card.get("id"): card for card in endpoint.get("/v1/models", lambda answer: field(answer, "data"))}
    if model not in cards:
        raise InputError(f"{endpoint.base} does not serve {model!r}. It serves {', '.join(map(str, cards)) or 'nothing'}.")
    card = cards[model]
    base = cards.get(card.get("parent"), card)
    context = card.get("max_model_len") or base.get("max_model_len")
    if not context:
        raise ModelError(f"{endpoint.base} does not say how many tokens {model!r} takes (max_model_len in /v1/models).")
    return base.get("root") or base["id"], int(context)


def load_encoder(source: str, options: EngineOptions) -> Encoder:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=options.trust_remote_code)
    except (OSError, ValueError) as refusal:
        raise ModelError(f"the tokenizer of {source!r} could not be loaded here. Pass its folder with --tokenizer.") from refusal
    return Encoder(tokenizer, source)


def _named(rest: str, kind: str) -> tuple[str, str]:
    model, base = model_at(rest)
    if not model or not base:
        raise InputError(f"{kind}:{rest} is not complete. Write {kind}:<model>@<base url>.")
    return model, base
