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
from .token_server import Ask, Continues, Route, ServedEngine, four, listed, slot_log_probabilities, slot_probabilities
from .wire import Malformed

TOP = 20
"""Tokens told per position on route `top-k`: what a server allows unless it is started with a larger `--max-logprobs`."""
FLOOR = -9999.0
"""What vLLM's server writes for -inf."""
ADVICE = "; use route classifier or token-ids (docs/engines.md)"

CAPABILITIES = {
    "classifier": Capabilities(gives="distribution", distribution="exact", lora=True),
    "token-ids": Capabilities(gives="distribution", distribution="exact", label_mass=True, lora=True),
    "top-k": Capabilities(gives="distribution", distribution="top_k", label_mass=True, lora=True),
}
"""What each route tells, the best first: by its cost, and the last one because it may lack a grade."""


def served_vllm(rest: str, options: EngineOptions, route: str = "") -> ServedEngine:
    """`<model or adapter name>@<base url>`, by the named route or by the best that the server offers."""
    kind, model, endpoint, encoder, context = listed("vllm", rest, options)
    route = route or offered(model, endpoint, encoder)
    if route != "classifier":
        context -= 1  # a server that generates wants room for one token
    way = Route(lambda prompt: [ASKS[route](model, prompt)], READS[route], CAPABILITIES[route], route)
    continues = Continues(lambda ids, most: ("/v1/completions", _completion(model, ids, most)), ("choices", 0, "text"))
    return ServedEngine(kind, model, endpoint, encoder, context, way, continues, _labels)


def offered(model: str, endpoint: Endpoint, encoder: Encoder) -> str:
    """The first route that the server does not refuse; the last resort is taken unasked, and says itself what it lacks."""
    prompt = encoder.prompt(prompt_text(PASSAGE_RERANKING, "probe", ["probe"]))
    *better, last = CAPABILITIES
    for route in better:
        try:
            endpoint.post(*ASKS[route](model, prompt), lambda answer: answer)
        except Unreachable:
            raise
        except (InputError, Unusable):  # HTTP 403, 404: no such route here; 400: not with this runner
            continue
        return route
    return last


# -- what is asked


def _pooling(model: str, prompt: Prompt) -> Ask:
    ids = [*prompt.prefix, *prompt.body]
    return "/pooling", {"model": model, "input": [ids], "task": "token_classify", "encoding_format": "float"}


def _scoring(model: str, prompt: Prompt) -> Ask:
    sampling = {"max_tokens": 1, "temperature": 0, **token_id_rows(prompt)}
    return "/inference/v1/generate", {"model": model, "token_ids": [*prompt.prefix, *prompt.body], "sampling_params": sampling}


def token_id_rows(prompt: Prompt) -> dict[str, Any]:
    """vLLM's question for the grade tokens at every position from the first slot to the last but one."""
    start = prompt.slots[0]
    return {"prompt_logprob_start": start, "prompt_logprob_token_ids": [list(prompt.grade_tokens)] * (len(prompt) - 1 - start)}


def _ranking(model: str, prompt: Prompt) -> Ask:
    return "/v1/completions", _completion(model, [*prompt.prefix, *prompt.body], 1) | {"prompt_logprobs": TOP}


def _completion(model: str, ids: list[int], most_tokens: int) -> dict[str, Any]:
    return {"model": model, "prompt": ids, "max_tokens": most_tokens, "temperature": 0}


ASKS: dict[str, Callable[[str, Prompt], Ask]] = {"classifier": _pooling, "token-ids": _scoring, "top-k": _ranking}


# -- what is read


def pooled(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
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


def scored(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
    """An array in base64: rows from the first slot on, columns in the order the grade tokens were asked for."""
    told = field(answer, "prompt_token_id_logprobs")
    if not isinstance(told, str):  # null where a cached prefix passed the first slot
        raise Malformed("the server gives no log-probabilities of the grade tokens")
    return slot_rows(prompt, np.load(io.BytesIO(base64.b64decode(told)), allow_pickle=False))


def slot_rows(prompt: Prompt, rows: np.ndarray) -> SlotLogits:
    """The rows of the slots among those that `token_id_rows` asked for."""
    start, wanted = prompt.slots[0], len(prompt.grade_tokens)
    if rows.shape != (len(prompt) - 1 - start, wanted):
        raise Malformed(f"{rows.shape} values came back for {len(prompt) - 1 - start} positions and {wanted} tokens")
    return slot_log_probabilities(rows[[slot - start for slot in prompt.slots]])


def ranked(prompt: Prompt, _: int, answer: Any) -> SlotLogits:
    """The likeliest tokens of every position, and the one that stands there."""
    rows = field(answer, "choices", 0, "prompt_logprobs")
    if not isinstance(rows, list) or len(rows) != len(prompt):
        raise Malformed(f"{len(rows) if isinstance(rows, list) else 'no'} rows came back for {len(prompt)} tokens")
    # Row i speaks of token i as its predecessor predicts it. A floor is no log-probability: the token counts as not told.
    entries = [rows[slot + 1] or {} for slot in prompt.slots]
    told = [{int(token): field(entry, "logprob") for token, entry in row.items()} for row in entries]
    return top_k([{token: p for token, p in row.items() if p != FLOOR} for row in told], prompt)


def top_k(told: Sequence[dict[int, Any]], prompt: Prompt) -> SlotLogits:
    """One dictionary per slot, token to log-probability."""
    return slot_log_probabilities([four(row, prompt, slot, ADVICE) for slot, row in enumerate(told)])


READS: dict[str, Callable[[Prompt, int, Any], SlotLogits]] = {"classifier": pooled, "token-ids": scored, "top-k": ranked}


# -- readers


def _labels(engine: ServedEngine, prompts: Sequence[Ids], labels: Sequence[Ids]) -> np.ndarray:
    """(P, L) from the log-probabilities that vLLM gives of a prompt's own tokens; the server is one that generates."""

    def ask(pair: tuple[Ids, Ids]) -> float:
        ids, label = pair
        body = _completion(engine.model, [*ids, *label], 1) | {"prompt_logprobs": 0}
        return engine.endpoint.post("/v1/completions", body, lambda answer: prompt_tail(label, answer))

    found = engine.endpoint.map(ask, [(ids, label) for ids in prompts for label in labels])
    return np.array(found).reshape(len(prompts), len(labels))


def prompt_tail(label: Ids, answer: Any) -> float:
    """log P of the tokens that a prompt ends with."""
    rows = field(answer, "choices", 0, "prompt_logprobs")
    if not isinstance(rows, list) or len(rows) <= len(label):
        raise Malformed("the server gives no log-probabilities of the prompt")
    ends = zip(rows[-len(label) :], label, strict=True)
    return sum(number(field(row, str(token), "logprob"), "a log-probability") for row, token in ends)
