"""Served models that take token ids: SGLang's `/generate` and llama.cpp's `/completion`; vLLM's routes are in `vllm_server.py`.

All read the slots of the same prompts as engine `hf`, so the parity check compares them number by number. Nothing but
HTTP and a tokenizer is needed on this side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, ModelError
from ..terms import Prompt
from ..window.encoding import Encoder
from ..window.readout import SlotLogits
from . import Capabilities, Engine, EngineOptions
from .endpoint import Endpoint, field, number, split_model_and_base
from .generator import Generator, Ids, label_log_probabilities
from .wire import Malformed

Request = tuple[str, dict[str, Any]]
"""A path and a body."""


class Route(NamedTuple):
    """One way to the grades of a window."""

    build_requests: Callable[[Prompt], list[Request]]
    parse_response: Callable[[Prompt, int, Any], SlotLogits]
    """(prompt, i, answer) -> the slots that the answer to request i tells."""
    capabilities: Capabilities
    name: str = ""
    """What follows the kind in an address, where a server has several."""


class Completion(NamedTuple):
    """How a server continues token ids: the request for (ids, most tokens), and where the text stands in its answer."""

    build_request: Callable[[list[int], int], Request]
    text: tuple[str | int, ...]


class ServedEngine(Engine, Generator):
    """A model behind a server."""

    needs_parity = True
    endpoint: Endpoint

    def __init__(
        self,
        kind: str,
        model: str,
        endpoint: Endpoint,
        encoder: Encoder,
        context: int,
        route: Route,
        completion: Completion,
        labels: Callable[[Any, Sequence[Ids], Sequence[Ids]], np.ndarray] = label_log_probabilities,
    ):
        self.kind, self.model, self.endpoint, self.encoder, self.context = kind, model, endpoint, encoder, context
        self.name = f"{kind}{'+' + route.name if route.name else ''}:{model}@{endpoint.base}"
        self.capabilities, self._route, self._completion, self._labels = route.capabilities, route, completion, labels

    def identity(self) -> dict[str, Any]:
        # Where it is served is not part of what it is; a run records it beside, at every start.
        route = {"route": self._route.name} if self._route.name else {}
        return {"kind": self.kind, "model": self.model, "tokenizer": self.encoder.name, **route}

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[SlotLogits]:
        requests = [self._route.build_requests(prompt) for prompt in prompts]
        questions = [(prompt, i, one) for prompt, row in zip(prompts, requests, strict=True) for i, one in enumerate(row)]
        parts = iter(self.endpoint.map(self._read, questions))
        return [_join([next(parts) for _ in row]) for row in requests]

    def _read(self, question: tuple[Prompt, int, Request]) -> SlotLogits:
        prompt, i, (path, body) = question
        return self.endpoint.post(path, body, lambda answer: self._route.parse_response(prompt, i, answer))

    def generate(self, prompts: Sequence[Ids], most_tokens: int) -> list[str]:
        """Greedy continuations, until the model ends its turn."""
        requests = [self._completion.build_request(list(ids), most_tokens) for ids in prompts]
        return self.endpoint.map(lambda request: self.endpoint.post(*request, self._text), requests)

    def _text(self, answer: Any) -> str:
        if not isinstance(text := field(answer, *self._completion.text), str):
            raise Malformed("the answer holds no text")
        return text

    def label_log_probabilities(self, prompts: Sequence[Ids], labels: Sequence[Ids]) -> np.ndarray:
        return self._labels(self, prompts, labels)


def _join(parts: list[SlotLogits]) -> SlotLogits:
    masses = [part.label_mass for part in parts if part.label_mass is not None]
    return SlotLogits(np.concatenate([part.logits for part in parts]), np.concatenate(masses) if masses else None)


# -- from a server's answer about a slot to logits


def slot_probabilities(rows: np.ndarray) -> SlotLogits:
    """(B, 4) probabilities as logits; anything that is not a distribution is refused."""
    if not ((rows >= 0).all() and (np.abs(rows.sum(axis=1) - 1) <= SLACK).all()):
        raise Malformed("rows are not distributions over the four grades: start the server as the documentation of engines says")
    with np.errstate(divide="ignore"):
        return SlotLogits(np.log(rows))


def slot_log_probabilities(rows: Any) -> SlotLogits:
    """(B, 4) log-probabilities over the vocabulary as logits with their label mass."""
    logits = np.asarray(rows, dtype=np.float64)
    mass = np.exp(logits).sum(axis=1)
    if not (np.isfinite(logits.max(axis=1)).all() and (mass <= 1 + SLACK).all()):
        raise Malformed(f"rows are not log-probabilities: the grade tokens of a slot have probability {mass.max():.3g} together")
    return SlotLogits(logits, mass)


SLACK = 1e-2
"""How far probabilities may be from their sum: servers round them to the precision they compute in."""


def grade_logprobs(logprobs: Mapping[int, Any], prompt: Prompt, slot: int, advice: str = "") -> list[float]:
    """Log-probabilities of the grade tokens among those given for a slot. A missing one is an error, never a small constant."""
    if absent := [token for token in prompt.grade_tokens if token not in logprobs]:
        raise Malformed(
            f"slot {slot + 1} of {len(prompt.slots)}: grade token {', '.join(map(str, absent))} is not among the "
            f"{len(logprobs)} that came back{advice}"
        )
    return [number(logprobs[token], "a log-probability") for token in prompt.grade_tokens]


# -- SGLang


def open_sglang(rest: str, options: EngineOptions) -> ServedEngine:
    """`<model>@<base url>`: log-probabilities of the four grade tokens at every prompt position from the first slot on."""
    return ServedEngine(*open_listed_model("sglang", rest, options), SGLANG, Completion(_sglang_completion, ("text",)))


def _sglang_completion(ids: list[int], most_tokens: int) -> Request:
    return "/generate", {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": most_tokens}}


def _sglang_requests(prompt: Prompt) -> list[Request]:
    body = {
        "input_ids": [*prompt.prefix, *prompt.body],
        "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": prompt.slots[0],
        "token_ids_logprob": list(prompt.grade_tokens),
    }
    return [("/generate", body)]


def _parse_sglang(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
    # Row i speaks of token S + i as its predecessor predicts it; row 0 has no predecessor in the answer and is empty.
    rows = field(answer, "meta_info", "input_token_ids_logprobs")
    start = prompt.slots[0]
    if not isinstance(rows, list) or len(rows) != len(prompt) - start:
        raise Malformed(f"{len(rows) if isinstance(rows, list) else 'no'} rows came back for {len(prompt) - start} positions")
    # An entry is [log-probability, token id, text], in any order.
    slots = [{field(entry, 1): field(entry, 0) for entry in rows[slot + 1 - start] or []} for slot in prompt.slots]
    return slot_log_probabilities([grade_logprobs(row, prompt, i) for i, row in enumerate(slots)])


SGLANG = Route(
    _sglang_requests, _parse_sglang, Capabilities(gives="distribution", distribution="exact", label_mass=True, lora=True)
)


# -- llama.cpp

TOP = 1000
"""Alternatives that llama.cpp's server is asked for: it gives no log-probability of a token by its id."""


def open_llamacpp_server(rest: str, options: EngineOptions) -> ServedEngine:
    """`<model>@<base url>`: llama.cpp's own server, one request per slot, whose prompt the server's cache has but for its end."""
    from .llamacpp import gguf_tokenizer

    model, base = _split_address(rest, "llamacpp")
    endpoint = Endpoint(base, options)
    context = int(endpoint.get("/props", lambda answer: field(answer, "default_generation_settings", "n_ctx")))
    file = Path(options.tokenizer or model)
    encoder = Encoder(gguf_tokenizer(file), model) if file.suffix == ".gguf" else load_encoder(str(file), options)
    completion = Completion(_llamacpp_completion, ("content",))
    engine = ServedEngine("llamacpp", model, endpoint, encoder, context, LLAMACPP, completion)
    engine.reference = f"hf:{file}" if file.is_file() else None
    return engine


def _llamacpp_requests(prompt: Prompt) -> list[Request]:
    ids = [*prompt.prefix, *prompt.body]
    options = {"n_predict": 1, "n_probs": TOP, "temperature": 0, "cache_prompt": True}
    return [("/completion", {"prompt": ids[: slot + 1], **options}) for slot in prompt.slots]


def _llamacpp_completion(ids: list[int], most_tokens: int) -> Request:
    return "/completion", {"prompt": ids, "n_predict": most_tokens, "temperature": 0, "cache_prompt": True}


def _parse_llamacpp(prompt: Prompt, i: int, answer: Any) -> SlotLogits:
    given = field(answer, "completion_probabilities", 0, "top_logprobs")
    return slot_log_probabilities([grade_logprobs({field(entry, "id"): field(entry, "logprob") for entry in given}, prompt, i)])


LLAMACPP = Route(_llamacpp_requests, _parse_llamacpp, Capabilities(gives="distribution", distribution="top_k", label_mass=True))


# -- what a server says about itself


def open_listed_model(kind: str, rest: str, options: EngineOptions) -> tuple[str, str, Endpoint, Encoder, int]:
    """`<model or adapter name>@<base url>` as (kind, model, endpoint, encoder, context), by the server's `/v1/models`."""
    model, base = _split_address(rest, kind)
    endpoint = Endpoint(base, options)
    tokenizer, context = find_served_model(endpoint, model)
    return kind, model, endpoint, load_encoder(options.tokenizer or tokenizer, options), context


def find_served_model(endpoint: Endpoint, model: str) -> tuple[str, int]:
    """The tokenizer and the context of a served model, from `/v1/models`. An adapter's are those of its parent."""
    return endpoint.get("/v1/models", lambda answer: _read_card(answer, model, endpoint.base))


def _read_card(answer: Any, model: str, base_url: str) -> tuple[str, int]:
    cards = {field(card, "id"): card for card in field(answer, "data")}
    if model not in cards:
        raise InputError(f"{base_url} does not serve {model!r}. It serves {', '.join(map(str, cards)) or 'nothing'}.")
    card = cards[model]
    base = cards.get(card.get("parent"), card)
    context = card.get("max_model_len") or base.get("max_model_len")
    if not context:
        raise ModelError(f"{base_url} does not say how many tokens {model!r} takes (max_model_len in /v1/models).")
    return base.get("root") or base["id"], int(context)


def load_encoder(source: str, options: EngineOptions) -> Encoder:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=options.trust_remote_code)
    except (OSError, ValueError) as refusal:
        raise ModelError(f"the tokenizer of {source!r} could not be loaded here. Pass its folder with --tokenizer.") from refusal
    return Encoder(tokenizer, source)


def _split_address(rest: str, kind: str) -> tuple[str, str]:
    model, base = split_model_and_base(rest)
    if not model or not base:
        raise InputError(f"{kind}:{rest} is not complete. Write {kind}:<model>@<base url>.")
    return model, base
