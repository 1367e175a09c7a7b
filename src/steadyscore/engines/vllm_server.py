"""vLLM behind HTTP: three routes to the grades at the slots, the best that the server offers first.

`classifier`: `/pooling` of a server started as docs/engines.md says, whose pooler is our readout. `token-ids`: the
log-probabilities of the grade tokens from the first slot on, of a server with `--enable-scale-out` and the V2 runner.
`top-k`: any server that generates tells the likeliest tokens at every position, and a grade may be missing among them.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..tasks import PASSAGE_RERANKING
from ..terms import GRADES, Prompt
from ..window.encoding import Encoder
from ..window.prompt import prompt_text
from ..window.readout import SlotLogits
from . import Capabilities, EngineOptions
from .endpoint import Endpoint, Unreachable, Unusable, field, number
from .generator import Ids
from .token_server import (
    Completion,
    Request,
    Route,
    ServedEngine,
    grade_logprobs,
    open_listed_model,
    slot_log_probabilities,
    slot_probabilities,
)
from .wire import Malformed

TOP = 20
"""Tokens given per position on route `top-k`: what a server allows unless it is started with a larger `--max-logprobs`."""
FLOOR = -9999.0
"""What vLLM's server writes for -inf."""
ADVICE = "; use route classifier or token-ids"

CAPABILITIES = {
    "classifier": Capabilities(gives="distribution", distribution="exact", lora=True),
    "token-ids": Capabilities(gives="distribution", distribution="exact", label_mass=True, lora=True),
    "top-k": Capabilities(gives="distribution", distribution="top_k", label_mass=True, lora=True),
}
"""What each route can tell, the best first; the last one may lack a grade."""


def open_vllm_server(rest: str, options: EngineOptions, route: str = "") -> ServedEngine:
    """`<model or adapter name>@<base url>`, by the named route or by the best that the server offers."""
    kind, model, endpoint, encoder, context = open_listed_model("vllm", rest, options)
    route = route or detect_route(model, endpoint, encoder)
    if route != "classifier":
        context -= 1  # a server that generates wants room for one token
    way = Route(lambda prompt: [REQUESTS[route](model, prompt)], PARSERS[route], CAPABILITIES[route], route)
    completion = Completion(lambda ids, most: ("/v1/completions", _completion_body(model, ids, most)), ("choices", 0, "text"))
    return ServedEngine(kind, model, endpoint, encoder, context, way, completion, _label_log_probabilities)


def detect_route(model: str, endpoint: Endpoint, encoder: Encoder) -> str:
    """The first route that the server does not refuse; `top-k` without asking, since it raises where a grade is missing."""
    prompt = encoder.prompt(prompt_text(PASSAGE_RERANKING, "probe", ["probe"]))
    *better, last = CAPABILITIES
    for route in better:
        try:
            endpoint.post(*REQUESTS[route](model, prompt), lambda answer: answer)
        except Unreachable:
            raise
        except (InputError, Unusable):  # HTTP 403, 404: no such route here; 400: not with this runner
            continue
        return route
    return last


# -- requests


def _pooling_request(model: str, prompt: Prompt) -> Request:
    ids = [*prompt.prefix, *prompt.body]
    return "/pooling", {"model": model, "input": [ids], "task": "token_classify", "encoding_format": "float"}


def _token_ids_request(model: str, prompt: Prompt) -> Request:
    sampling = {"max_tokens": 1, "temperature": 0, **token_id_rows(prompt)}
    return "/inference/v1/generate", {"model": model, "token_ids": [*prompt.prefix, *prompt.body], "sampling_params": sampling}


def token_id_rows(prompt: Prompt) -> dict[str, Any]:
    """vLLM's question for the grade tokens at every position from the first slot to the last but one."""
    start = prompt.slots[0]
    return {"prompt_logprob_start": start, "prompt_logprob_token_ids": [list(prompt.grade_tokens)] * (len(prompt) - 1 - start)}


def _top_k_request(model: str, prompt: Prompt) -> Request:
    return "/v1/completions", _completion_body(model, [*prompt.prefix, *prompt.body], 1) | {"prompt_logprobs": TOP}


def _completion_body(model: str, ids: list[int], most_tokens: int) -> dict[str, Any]:
    return {"model": model, "prompt": ids, "max_tokens": most_tokens, "temperature": 0}


REQUESTS: dict[str, Callable[[str, Prompt], Request]] = {
    "classifier": _pooling_request,
    "token-ids": _token_ids_request,
    "top-k": _top_k_request,
}


# -- answers


def parse_pooled(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
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


def parse_token_ids(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
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


def parse_top_k(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
    """The likeliest tokens of every position, and the one that stands there."""
    rows = field(answer, "choices", 0, "prompt_logprobs")
    if not isinstance(rows, list) or len(rows) != len(prompt):
        raise Malformed(f"{len(rows) if isinstance(rows, list) else 'no'} rows came back for {len(prompt)} tokens")
    # Row i speaks of token i as its predecessor predicts it. A floor is not a log-probability: the token counts as missing.
    entries = [rows[slot + 1] or {} for slot in prompt.slots]
    logprobs = [{int(token): field(entry, "logprob") for token, entry in row.items()} for row in entries]
    return slots_from_top_k([{token: p for token, p in row.items() if p != FLOOR} for row in logprobs], prompt)


def slots_from_top_k(rows: Sequence[dict[int, Any]], prompt: Prompt) -> SlotLogits:
    """One dictionary per slot, token to log-probability."""
    return slot_log_probabilities([grade_logprobs(row, prompt, slot, ADVICE) for slot, row in enumerate(rows)])


PARSERS: dict[str, Callable[[Prompt, int, Any], SlotLogits]] = {
    "classifier": parse_pooled,
    "token-ids": parse_token_ids,
    "top-k": parse_top_k,
}


# -- readers


def _label_log_probabilities(engine: ServedEngine, prompts: Sequence[Ids], labels: Sequence[Ids]) -> np.ndarray:
    """(P, L) from the log-probabilities that vLLM gives of a prompt's own tokens; the server is one that generates."""

    def ask(pair: tuple[Ids, Ids]) -> float:
        ids, label = pair
        body = _completion_body(engine.model, [*ids, *label], 1) | {"prompt_logprobs": 0}
        return engine.endpoint.post("/v1/completions", body, lambda answer: tail_log_probability(label, answer))

    found = engine.endpoint.map(ask, [(ids, label) for ids in prompts for label in labels])
    return np.array(found).reshape(len(prompts), len(labels))


def tail_log_probability(label: Ids, answer: Any) -> float:
    """log P of the tokens that a prompt ends with."""
    rows = field(answer, "choices", 0, "prompt_logprobs")
    if not isinstance(rows, list) or len(rows) <= len(label):
        raise Malformed("the server gives no log-probabilities of the prompt")
    ends = zip(rows[-len(label) :], label, strict=True)
    return sum(number(field(row, str(token), "logprob"), "a log-probability") for row, token in ends)
