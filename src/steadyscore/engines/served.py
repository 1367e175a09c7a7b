"""Served models that take token ids: vLLM, SGLang and llama.cpp's own server, each a `Dialect` of the same questions.

All read the slots of the same prompts as engine `hf`, so the parity check compares them number by number. Nothing but
HTTP and a tokenizer is needed on this side. A route is one way to the grades; vLLM has three, the best first:

classifier   `/pooling` of a server started as docs/engines.md says, whose pooler is our readout
token-ids    log-probabilities of the grade tokens from the first slot on, of a server with `--enable-scale-out` and the V2 runner
top-k        any server that generates tells the likeliest tokens at every position, and a grade may be missing among them
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, ModelError
from ..models.embedded import gguf_tokenizer, load_tokenizer
from ..tasks import PASSAGE_RERANKING
from ..terms import GRADES, JsonObject, Prompt
from ..window.encoding import Encoder
from ..window.prompt import prompt_text
from ..window.readout import SlotLogits
from . import SERVED, Address, Capabilities, EngineOptions, Ids, Kind, Listing, ReadingEngine
from .answers import Malformed, field, grade_logprobs, number, rows_of, slot_log_probabilities, slot_probabilities, text_of
from .http import Endpoint, Unreachable, Unusable
from .servers import model_and_base

TOP = 20
"""Tokens that vLLM gives per position on route `top-k`: what a server allows without a larger `--max-logprobs`."""
FLOOR = -9999.0
"""What vLLM's server writes for -inf."""
LIKELIEST = 1000
"""Alternatives that llama.cpp's server is asked for: it gives no log-probability of a token by its id."""

Request = tuple[str, JsonObject]
"""A path and a body."""


class Route(NamedTuple):
    """One way to the grades of a window."""

    questions: Callable[[str, Prompt], list[Request]]
    """(model, prompt) -> what is asked."""
    read: Callable[[Prompt, int, Any], SlotLogits]
    """(prompt, i, answer) -> the slots that the answer to request i tells."""
    capabilities: Capabilities
    name: str = ""
    """What follows the kind in an address, where a server has several."""
    written: int = 0
    """Tokens that the server wants room for behind a prompt."""


class ModelFacts(NamedTuple):
    """What a server, or this machine, says of a served model."""

    encoder: Encoder
    context: int
    reference: str | None = None
    """The `hf` address of its weights, where it is known."""


class Dialect(NamedTuple):
    """How servers of one kind are asked."""

    routes: tuple[Route, ...]
    """The best first."""
    find: Callable[[str, Endpoint, EngineOptions], ModelFacts]
    complete: Callable[[str, list[int], int], Request]
    """(model, ids, most tokens) -> the request for a continuation."""
    text: tuple[str | int, ...]
    """Where the text stands in its answer."""
    labels: Callable[[ServedEngine, Sequence[Ids], Sequence[Ids]], np.ndarray] | None = None
    """How it is asked for the probability of labels, where that takes fewer requests than reading them token by token."""
    needs: tuple[str, ...] = ("httpx2", "transformers")


class ServedEngine(ReadingEngine):
    """A model behind a server."""

    needs_parity = True
    endpoint: Endpoint

    def __init__(self, kind: str, model: str, endpoint: Endpoint, dialect: Dialect, route: Route, facts: ModelFacts):
        self.kind, self.model, self.endpoint, self._dialect, self._route = kind, model, endpoint, dialect, route
        self.name = f"{kind}{'+' + route.name if route.name else ''}:{model}@{endpoint.base}"
        self.encoder, self.context, self.reference = facts.encoder, facts.context - route.written, facts.reference
        self.capabilities = route.capabilities

    def identity(self) -> JsonObject:
        # Where it is served is not part of what it is; a run records it beside, at every start.
        route = {"route": self._route.name} if self._route.name else {}
        return {"kind": self.kind, "model": self.model, "tokenizer": self.encoder.name, **route}

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[SlotLogits]:
        requests = [self._route.questions(self.model, prompt) for prompt in prompts]
        questions = [(prompt, i, one) for prompt, row in zip(prompts, requests, strict=True) for i, one in enumerate(row)]
        parts = iter(self.endpoint.map(self._read, questions))
        return [_join([next(parts) for _ in row]) for row in requests]

    async def _read(self, question: tuple[Prompt, int, Request]) -> SlotLogits:
        prompt, i, (path, body) = question
        return await self.endpoint.post(path, body, lambda answer: self._route.read(prompt, i, answer))

    def generate(self, prompts: Sequence[Ids], most_tokens: int) -> list[str]:
        """Greedy continuations, until the model ends its turn."""
        requests = [self._dialect.complete(self.model, list(ids), most_tokens) for ids in prompts]
        return self.endpoint.map(lambda request: self.endpoint.post(*request, self._text), requests)

    def _text(self, answer: Any) -> str:
        return text_of(answer, *self._dialect.text)

    def label_log_probabilities(self, prompts: Sequence[Ids], labels: Sequence[Ids]) -> np.ndarray:
        ask = self._dialect.labels
        return ask(self, prompts, labels) if ask else super().label_log_probabilities(prompts, labels)


def _join(parts: list[SlotLogits]) -> SlotLogits:
    masses = [part.label_mass for part in parts if part.label_mass is not None]
    return SlotLogits(np.concatenate([part.logits for part in parts]), np.concatenate(masses) if masses else None)


def open_served(address: Address, options: EngineOptions) -> ServedEngine:
    """`<model or adapter name>@<base url>`, by the named route or by the best that the server offers."""
    if address.kind == "llamacpp" and "@" not in address.rest:
        raise InputError(
            f"llamacpp:{address.rest} names no server. Write llamacpp:<model>@<base url> of llama-server, or have the file read "
            f"through transformers: hf:{address.rest}."
        )
    model, base = model_and_base(address)
    dialect, endpoint = DIALECTS[address.kind], Endpoint(base, options)
    facts = dialect.find(model, endpoint, options)
    named = next((route for route in dialect.routes if route.name == address.variant), None)
    route = named or _best_route(dialect.routes, model, endpoint, facts.encoder)
    return ServedEngine(address.kind, model, endpoint, dialect, route, facts)


def _best_route(routes: Sequence[Route], model: str, endpoint: Endpoint, encoder: Encoder) -> Route:
    """The first route that the server does not refuse; the last without asking, since it raises where a grade is missing."""
    prompt = encoder.prompt(prompt_text(PASSAGE_RERANKING, "probe", ["probe"]))
    *better, last = routes
    for route in better:
        try:
            endpoint.ask(*route.questions(model, prompt)[0], lambda answer: answer)
        except Unreachable:
            raise
        except (InputError, Unusable):  # HTTP 403, 404: no such route here; 400: not with this runner
            continue
        return route
    return last


def _find_listed(model: str, endpoint: Endpoint, options: EngineOptions) -> ModelFacts:
    """By the server's own list of models. An adapter's tokenizer and context are those of its parent."""
    tokenizer, context = endpoint.get("/v1/models", lambda answer: _read_card(answer, model, endpoint.base))
    return ModelFacts(load_encoder(options.tokenizer or tokenizer, options), context)


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
    return Encoder(load_tokenizer(source, trust_remote_code=options.trust_remote_code), source)


# -- SGLang: log-probabilities of the four grade tokens at every prompt position from the first slot on


def _ask_sglang(model: str, prompt: Prompt) -> list[Request]:
    body = {
        "input_ids": list(prompt.ids),
        "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": prompt.slots[0],
        "token_ids_logprob": list(prompt.grade_tokens),
    }
    return [("/generate", body)]


def _read_sglang(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
    # Row i speaks of token S + i as its predecessor predicts it; row 0 has no predecessor in the answer and is empty.
    start = prompt.slots[0]
    rows = rows_of(field(answer, "meta_info", "input_token_ids_logprobs"), len(prompt) - start, "positions")
    # An entry is [log-probability, token id, text], in any order.
    slots = [{field(entry, 1): field(entry, 0) for entry in rows[slot + 1 - start] or []} for slot in prompt.slots]
    return slot_log_probabilities([grade_logprobs(row, prompt, i) for i, row in enumerate(slots)])


def _complete_sglang(model: str, ids: list[int], most_tokens: int) -> Request:
    return "/generate", {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": most_tokens}}


SGLANG = Route(_ask_sglang, _read_sglang, Capabilities(gives="distribution", distribution="exact", label_mass=True, lora=True))


# -- llama.cpp: one request per slot, whose prompt the server's cache has but for its end


def _find_llamacpp(model: str, endpoint: Endpoint, options: EngineOptions) -> ModelFacts:
    context = int(endpoint.get("/props", lambda answer: field(answer, "default_generation_settings", "n_ctx")))
    file = Path(options.tokenizer or model)
    encoder = Encoder(gguf_tokenizer(file), model) if file.suffix == ".gguf" else load_encoder(str(file), options)
    return ModelFacts(encoder, context, f"hf:{file}" if file.is_file() else None)


def _ask_llamacpp(model: str, prompt: Prompt) -> list[Request]:
    ids = list(prompt.ids)
    options = {"n_predict": 1, "n_probs": LIKELIEST, "temperature": 0, "cache_prompt": True}
    return [("/completion", {"prompt": ids[: slot + 1], **options}) for slot in prompt.slots]


def _read_llamacpp(prompt: Prompt, i: int, answer: Any) -> SlotLogits:
    given = field(answer, "completion_probabilities", 0, "top_logprobs")
    return slot_log_probabilities([grade_logprobs({field(entry, "id"): field(entry, "logprob") for entry in given}, prompt, i)])


def _complete_llamacpp(model: str, ids: list[int], most_tokens: int) -> Request:
    return "/completion", {"prompt": ids, "n_predict": most_tokens, "temperature": 0, "cache_prompt": True}


LLAMACPP = Route(_ask_llamacpp, _read_llamacpp, Capabilities(gives="distribution", distribution="top_k", label_mass=True))


# -- vLLM: its pooler


def _ask_pooling(model: str, prompt: Prompt) -> list[Request]:
    return [("/pooling", {"model": model, "input": [list(prompt.ids)], "task": "token_classify", "encoding_format": "float"})]


def read_pooled(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
    """Rows of the four-way softmax at the slots: exactly the renormalised grade distribution."""
    rows = rows_of(field(answer, "data", 0, "data"), len(prompt), "tokens")
    return slot_probabilities(np.array([_four(rows[slot]) for slot in prompt.slots]))


def _four(row: Any) -> list[float]:
    if not isinstance(row, list) or len(row) != len(GRADES):
        raise Malformed("a row does not hold four values: the server is not a classifier over the four grade tokens")
    return [number(value, "a grade's probability") for value in row]


# -- vLLM: log-probabilities of tokens by their ids


def _ask_token_ids(model: str, prompt: Prompt) -> list[Request]:
    sampling = {"max_tokens": 1, "temperature": 0, **token_id_rows(prompt)}
    return [("/inference/v1/generate", {"model": model, "token_ids": list(prompt.ids), "sampling_params": sampling})]


def token_id_rows(prompt: Prompt) -> dict[str, object]:
    """vLLM's question for the grade tokens at every position from the first slot to the last but one."""
    start = prompt.slots[0]
    return {"prompt_logprob_start": start, "prompt_logprob_token_ids": [list(prompt.grade_tokens)] * (len(prompt) - 1 - start)}


def read_token_ids(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
    """An array in base64: rows from the first slot on, columns in the order the grade tokens were asked for."""
    encoded = field(answer, "prompt_token_id_logprobs")
    if not isinstance(encoded, str):  # null where a cached prefix passed the first slot
        raise Malformed("the server gives no log-probabilities of the grade tokens")
    return slot_rows(prompt, np.load(io.BytesIO(base64.b64decode(encoded)), allow_pickle=False))


def slot_rows(prompt: Prompt, rows: np.ndarray) -> SlotLogits:
    """The rows of the slots among those that `token_id_rows` asked for."""
    start, wanted = prompt.slots[0], len(prompt.grade_tokens)
    if rows.shape != (len(prompt) - 1 - start, wanted):
        raise Malformed(f"{rows.shape} values came back for {len(prompt) - 1 - start} positions and {wanted} tokens")
    return slot_log_probabilities(rows[[slot - start for slot in prompt.slots]])


# -- vLLM: the likeliest tokens of every position, and the one that is there


def _ask_top_k(model: str, prompt: Prompt) -> list[Request]:
    path, body = _complete_vllm(model, list(prompt.ids), 1)
    return [(path, {**body, "prompt_logprobs": TOP})]


def read_top_k(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
    rows = rows_of(field(answer, "choices", 0, "prompt_logprobs"), len(prompt), "tokens")
    # Row i speaks of token i as its predecessor predicts it. A floor is not a log-probability: the token counts as missing.
    entries = [rows[slot + 1] or {} for slot in prompt.slots]
    logprobs = [{int(token): field(entry, "logprob") for token, entry in row.items()} for row in entries]
    return slots_from_top_k([{token: p for token, p in row.items() if p != FLOOR} for row in logprobs], prompt)


def slots_from_top_k(rows: Sequence[dict[int, Any]], prompt: Prompt) -> SlotLogits:
    """One dictionary per slot, token to log-probability."""
    advice = "; use route classifier or token-ids"
    return slot_log_probabilities([grade_logprobs(row, prompt, slot, advice) for slot, row in enumerate(rows)])


def _complete_vllm(model: str, ids: list[int], most_tokens: int) -> Request:
    return "/v1/completions", {"model": model, "prompt": ids, "max_tokens": most_tokens, "temperature": 0}


def _label_vllm(engine: ServedEngine, prompts: Sequence[Ids], labels: Sequence[Ids]) -> np.ndarray:
    """(P, L) from the log-probabilities that vLLM gives of a prompt's own tokens; the server is one that generates."""

    async def ask(pair: tuple[Ids, Ids]) -> float:
        ids, label = pair
        path, body = _complete_vllm(engine.model, [*ids, *label], 1)
        return await engine.endpoint.post(
            path, {**body, "prompt_logprobs": 0}, lambda answer: tail_log_probability(label, answer)
        )

    sums = engine.endpoint.map(ask, [(ids, label) for ids in prompts for label in labels])
    return np.array(sums).reshape(len(prompts), len(labels))


def tail_log_probability(label: Ids, answer: Any) -> float:
    """log P of the tokens that a prompt ends with."""
    rows = field(answer, "choices", 0, "prompt_logprobs")
    if not isinstance(rows, list) or len(rows) <= len(label):
        raise Malformed("the server gives no log-probabilities of the prompt")
    ends = zip(rows[-len(label) :], label, strict=True)
    return sum(number(field(row, str(token), "logprob"), "a log-probability") for row, token in ends)


_EXACT = Capabilities(gives="distribution", distribution="exact", lora=True)
VLLM = (
    Route(_ask_pooling, read_pooled, _EXACT, "classifier"),
    Route(_ask_token_ids, read_token_ids, replace(_EXACT, label_mass=True), "token-ids", written=1),
    Route(_ask_top_k, read_top_k, replace(_EXACT, label_mass=True, distribution="top_k"), "top-k", written=1),
)

# -- all of them

DIALECTS = {
    "vllm": Dialect(VLLM, _find_listed, _complete_vllm, ("choices", 0, "text"), _label_vllm),
    "sglang": Dialect((SGLANG,), _find_listed, _complete_sglang, ("text",)),
    "llamacpp": Dialect((LLAMACPP,), _find_llamacpp, _complete_llamacpp, ("content",), needs=("httpx2", "transformers", "gguf")),
}


def _kind(prefix: str, dialect: Dialect) -> Kind:
    return Kind(
        prefix,
        open_served,
        takes="ids",
        listed=(Listing(f"{prefix}:<model>@<base url>", "distribution"),),
        options=SERVED,
        needs=lambda rest: dialect.needs,
        variants=tuple(route.name for route in dialect.routes if route.name),
        is_server=True,
        reads=True,
    )


KINDS = tuple(_kind(prefix, dialect) for prefix, dialect in DIALECTS.items())
