"""Isolated candidates are read once: their keys and values serve every window and order of a query.

What a token of an isolated candidate sees (the query, and the candidate up to itself) is the same wherever the candidate
stands, and so is its position. Only the closing markers and the skeleton are read again for every window: about a sixth
of its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from ..terms import Prompt
from ..window import isolation

MOST_TOKENS = 8192
"""Keys and values of at most so many tokens are kept for a query; windows of larger pools are read whole."""
PASS_TOKENS = {"cpu": 48, "accelerator": 1024}
"""What a pass costs beside the tokens it reads, in tokens, roughly: weights that come from memory, kernels that are started."""
FIXED_ROPES = ("default", "linear", "llama3", "yarn")
"""Rotations whose frequencies do not depend on the length of the text."""


def is_possible(config: Any) -> bool:
    """Can a mask and positions isolate candidates in this model? Not where a layer slides a window or carries a state."""
    layers = getattr(config, "layer_types", None)
    slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    is_full = all(kind == "full_attention" for kind in layers) if layers else not slides
    return is_full and rope_type(config) in FIXED_ROPES


def rope_type(config: Any) -> str:
    return str((getattr(config, "rope_parameters", None) or {}).get("rope_type", "default"))


def recur(prompts: Sequence[Prompt]) -> bool:
    """Do candidates stand in several of these windows, few enough to be kept?"""
    windows = [set(_texts(prompt)) for prompt in prompts]
    distinct = set().union(*windows)
    return all(windows) and len(distinct) < sum(map(len, windows)) and sum(map(len, distinct)) <= MOST_TOKENS


def slot_states(model: Any, prompts: Sequence[Prompt], batch_tokens: int) -> Iterator[torch.Tensor]:
    """Last hidden states at the slots of each prompt, (B, hidden) each. The prompts belong to one query."""
    start = prompts[0].candidates[0][0]
    cache = DynamicCache()
    read_behind(model, cache, [_ids(prompts[0])[:start]], np.arange(start))
    head = states_of(cache, 0, 0, start)
    texts = list(dict.fromkeys(text for prompt in prompts for text in _texts(prompt)))
    read = dict(zip(texts, read_texts(model, head, texts, batch_tokens), strict=True))
    for prompt in prompts:
        yield _window(model, prompt, torch.cat([head, *(read[text] for text in _texts(prompt))], dim=-2))


def _window(model: Any, prompt: Prompt, states: torch.Tensor) -> torch.Tensor:
    """The pass over markers and skeleton, behind the states of what stands before the candidates and of their texts."""
    ids, tokens, cache = _ids(prompt), len(prompt), cache_of(states, 1)
    text = [i for first, closing, _ in prompt.candidates for i in range(first, closing)]
    known = [*range(prompt.candidates[0][0]), *text]
    new = np.setdiff1d(np.arange(tokens), known)
    seen = isolation.visible(prompt.candidates, tokens)[np.ix_(new, [*known, *new])]
    placed = isolation.positions(prompt.candidates, tokens)[new]
    hidden = read_behind(model, cache, [[ids[i] for i in new]], placed, seen)
    return hidden[0, np.searchsorted(new, prompt.slots)]


def read_texts(model: Any, head: torch.Tensor, texts: Sequence[Sequence[int]], batch_tokens: int) -> list[torch.Tensor]:
    """Keys and values of texts, each read alone behind the head; texts of similar length share a pass."""
    start, found = head.shape[-2], dict[int, torch.Tensor]()
    pass_tokens = PASS_TOKENS["cpu" if model.device.type == "cpu" else "accelerator"]
    for batch in passes([len(text) for text in texts], batch_tokens, pass_tokens):
        longest = len(texts[batch[0]])
        cache = cache_of(head, len(batch))
        if longest:
            # Padding stands on the right, where a causal model does not see it, and is cut off again.
            padded = [(*texts[i], *[0] * (longest - len(texts[i]))) for i in batch]
            read_behind(model, cache, padded, start + np.arange(longest))
        found |= {i: states_of(cache, row, start, start + len(texts[i])) for row, i in enumerate(batch)}
    return [found[i] for i in range(len(texts))]


def passes(lengths: Sequence[int], batch_tokens: int, pass_tokens: int) -> list[list[int]]:
    """Which texts share a pass, longest first, so that padding and passes together cost least.

    A pass takes the time of `pass_tokens` tokens beside those it reads, and reads at most `batch_tokens`, or one text.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    cheapest = [(0, 0)]  # of the first texts: what they cost, and where their last pass begins
    for end in range(1, len(order) + 1):
        options = []
        for first in range(end - 1, -1, -1):
            tokens = (end - first) * lengths[order[first]]
            if tokens > batch_tokens and options:
                break
            options.append((cheapest[first][0] + tokens + pass_tokens, first))
        cheapest.append(min(options))
    found, end = list[list[int]](), len(order)
    while end:
        first = cheapest[end][1]
        found, end = [order[first:end], *found], first
    return found


def read_behind(model: Any, cache: Any, rows: Sequence[Sequence[int]], placed: np.ndarray, seen: Any = None) -> torch.Tensor:
    """One forward pass behind what `cache` holds; it is added to the cache."""
    options = {} if seen is None else {"attention_mask": additive(seen[None], model)}
    ids, places = (torch.as_tensor(found, dtype=torch.long, device=model.device) for found in (rows, placed[None]))
    output = model.base_model(input_ids=ids, position_ids=places, past_key_values=cache, use_cache=True, **options)
    states: torch.Tensor = output.last_hidden_state
    return states


def whole(prompts: Sequence[Prompt], tokens: int, model: Any, shared: int = 0) -> dict[str, torch.Tensor]:
    """Mask and positions of whole windows, padded to `tokens`, behind `shared` ones that a cache holds."""
    placed = np.stack([isolation.positions(p.candidates, tokens)[shared:] for p in prompts])
    seen = np.stack([isolation.visible(p.candidates, tokens)[shared:] for p in prompts])
    return {"position_ids": torch.from_numpy(placed).to(model.device), "attention_mask": additive(seen, model)}


def additive(seen: np.ndarray, model: Any) -> torch.Tensor:
    """(n, rows, columns) of who sees whom as the mask that attention adds, (n, 1, rows, columns)."""
    mask = torch.zeros(seen[:, None].shape, dtype=model.dtype, device=model.device)
    return mask.masked_fill_(torch.from_numpy(~seen[:, None]).to(model.device), torch.finfo(model.dtype).min)


def states_of(cache: Any, row: int, first: int, end: int) -> torch.Tensor:
    """(layers, 2, heads, tokens, width): keys and values of some tokens of a row."""
    return torch.stack([torch.stack([layer.keys[row], layer.values[row]])[..., first:end, :] for layer in cache.layers])


def cache_of(states: torch.Tensor, rows: int) -> DynamicCache:
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(states):
        cache.update(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1), layer)
    return cache


def _ids(prompt: Prompt) -> tuple[int, ...]:
    return (*prompt.prefix, *prompt.body)


def _texts(prompt: Prompt) -> list[tuple[int, ...]]:
    ids = _ids(prompt)
    return [ids[first:closing] for first, closing, _ in prompt.candidates]
