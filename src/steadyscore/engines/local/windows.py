"""Windows whose candidates are read by themselves: isolated candidates, and sets.

What a token of an isolated candidate sees (the query, and the candidate up to itself) is the same wherever the candidate
stands, and so is its position. So its keys and values are read once and serve every window and order of a query; only the
closing markers and the skeleton are read again for every window: about a sixth of its tokens.

A set window is read in two ways with the same grades. The whole way is one forward pass over all blocks, in which the texts
stand a second time among the keys, turned to where the segments see them: with gradients, for training. The fast way reads
every text once, keeps its keys and values, and then reads all segments behind them: for scoring.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...terms import Prompt
from ...window import isolation, set_windows

ATTENTION = "steadyscore_set"
SEGMENTS = 32
"""Segments that share a pass: few enough that what is masked out of their keys costs little."""
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
    head = _read_head(model, prompts[0].ids[: prompts[0].candidates[0][0]])
    texts = list(dict.fromkeys(text for prompt in prompts for text in _texts(prompt)))
    read = dict(zip(texts, read_texts(model, head, texts, batch_tokens), strict=True))
    for prompt in prompts:
        yield _window(model, prompt, torch.cat([head, *(read[text] for text in _texts(prompt))], dim=-2))


def _read_head(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Keys and values of what stands before the candidates."""
    cache = DynamicCache()
    read_behind(model, cache, [ids], np.arange(len(ids)))
    return states_of(cache, 0, 0, len(ids))


def _window(model: Any, prompt: Prompt, states: torch.Tensor) -> torch.Tensor:
    """The pass over markers and skeleton, behind the states of what stands before the candidates and of their texts."""
    ids, tokens, cache = prompt.ids, len(prompt), cache_of(states, 1)
    text = [i for first, closing, _ in prompt.candidates for i in range(first, closing)]
    known = [*range(prompt.candidates[0][0]), *text]
    new = np.setdiff1d(np.arange(tokens), known)
    seen = isolation.visible(prompt.candidates, tokens)[np.ix_(new, [*known, *new])]
    placed = isolation.positions(prompt.candidates, tokens)[new]
    hidden = read_behind(model, cache, [[ids[i] for i in new]], placed, seen)
    return hidden[0, np.searchsorted(new, prompt.slots)]


def read_texts(model: Any, head: torch.Tensor, texts: Sequence[Sequence[int]], batch_tokens: int) -> list[torch.Tensor]:
    """Keys and values of texts, each read alone behind the head; texts of similar length share a pass."""
    start, states = head.shape[-2], dict[int, torch.Tensor]()
    pass_tokens = PASS_TOKENS["cpu" if model.device.type == "cpu" else "accelerator"]
    for batch in passes([len(text) for text in texts], batch_tokens, pass_tokens):
        longest = len(texts[batch[0]])
        cache = cache_of(head, len(batch))
        if longest:
            # Padding stands on the right, where a causal model does not see it, and is cut off again.
            padded = [(*texts[i], *[0] * (longest - len(texts[i]))) for i in batch]
            read_behind(model, cache, padded, start + np.arange(longest))
        states |= {i: states_of(cache, row, start, start + len(texts[i])) for row, i in enumerate(batch)}
    return [states[i] for i in range(len(texts))]


def passes(lengths: Sequence[int], batch_tokens: int, pass_tokens: int) -> list[list[int]]:
    """Which texts share a pass, longest first, so that padding and passes together cost least.

    A pass takes the time of `pass_tokens` tokens beside those it reads, and reads at most `batch_tokens`, or one text.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    cheapest = [(0, 0)]  # of the first texts: what they cost, and where their last pass begins
    for end in range(1, len(order) + 1):
        options: list[tuple[int, int]] = []
        for first in range(end - 1, -1, -1):
            tokens = (end - first) * lengths[order[first]]
            if tokens > batch_tokens and options:
                break
            options.append((cheapest[first][0] + tokens + pass_tokens, first))
        cheapest.append(min(options))
    batches, end = list[list[int]](), len(order)
    while end:
        first = cheapest[end][1]
        batches, end = [order[first:end], *batches], first
    return batches


def read_behind(model: Any, cache: Any, rows: Sequence[Sequence[int]], placed: np.ndarray, seen: Any = None) -> torch.Tensor:
    """One forward pass behind what `cache` holds; it is added to the cache."""
    options = {} if seen is None else {"attention_mask": additive(seen[None], model)}
    ids, places = (torch.as_tensor(numbers, dtype=torch.long, device=model.device) for numbers in (rows, placed[None]))
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


def _texts(prompt: Prompt) -> list[tuple[int, ...]]:
    ids = prompt.ids
    return [ids[first:closing] for first, closing, _ in prompt.candidates]


# -- sets: turning keys


class Turn:
    """Keys of one model as if they stood `EARLIER` positions earlier, by the model's own rotation."""

    def __init__(self, model: Any):
        layer = next(module for name, module in model.named_modules() if name.endswith("self_attn"))
        rotary = next(module for name, module in model.named_modules() if name.endswith("rotary_emb"))
        self._rotate = vars(sys.modules[type(layer).__module__])["apply_rotary_pos_emb"]
        back = torch.full((1, 1), -set_windows.EARLIER, device=model.device)
        cos, sin = rotary(torch.zeros(1, dtype=torch.float32, device=model.device), back)
        # Some rotations scale as well; keys that are turned again must not be scaled again.
        self._cos, self._sin = cos / rotary.attention_scaling, sin / rotary.attention_scaling

    def __call__(self, keys: torch.Tensor) -> torch.Tensor:
        """(n, heads, tokens, width), turned in float32."""
        wide = keys.float()
        turned: torch.Tensor = self._rotate(wide, wide, self._cos, self._sin)[1]
        return turned.to(keys.dtype)


# -- sets: the whole way


@dataclass(frozen=True, slots=True)
class Sight:
    """What the attention of a whole pass needs to know."""

    turn: Turn
    texts: torch.Tensor
    """(n, texts) indices of the text tokens, which stand a second time among the keys; padded with 0."""
    mask: torch.Tensor
    """(n, 1, tokens, tokens + texts) additive."""


def whole_states(model: Any, prompts: Sequence[Prompt]) -> list[torch.Tensor]:
    """Last hidden states at the slots of each window, (B, hidden) each, from one forward pass, with gradients."""
    tokens = max(map(len, prompts))
    ids = np.zeros((len(prompts), tokens), int)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = prompt.ids
    placed = np.stack([set_windows.positions(prompt, tokens) for prompt in prompts])
    on = model.device
    with set_attention(model):
        output = model.base_model(
            input_ids=torch.from_numpy(ids).to(on),
            position_ids=torch.from_numpy(placed).to(on),
            use_cache=False,
            set_sight=_sight(model, prompts, tokens),
        )
    return [row[list(p.slots)] for row, p in zip(output.last_hidden_state, prompts, strict=True)]


def _sight(model: Any, prompts: Sequence[Prompt], tokens: int) -> Sight:
    own_texts = [set_windows.text_tokens(prompt) for prompt in prompts]
    longest = max(map(len, own_texts))
    texts = np.zeros((len(prompts), longest), int)
    seen = np.zeros((len(prompts), tokens, tokens + longest), bool)
    for i, (prompt, own) in enumerate(zip(prompts, own_texts, strict=True)):
        texts[i, : len(own)] = own
        seen[i, :, :tokens] = set_windows.visible_alone(prompt, tokens)
        seen[i, :, tokens : tokens + len(own)] = set_windows.visible_earlier(prompt, tokens)
    return Sight(Turn(model), torch.from_numpy(texts).to(model.device), additive(seen, model))


@contextmanager
def set_attention(model: Any, name: str = ATTENTION) -> Iterator[None]:
    """The model's attention is another one, registered under a name, while the block runs."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


def _attend(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, *, set_sight: Sight, **how: Any
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """An attention function of transformers: the texts' keys stand twice, as they were read and turned."""
    index = set_sight.texts[:, None, :, None].expand(-1, key.shape[1], -1, key.shape[-1])
    keys = torch.cat([key, set_sight.turn(key.gather(2, index))], dim=2)
    values = torch.cat([value, value.gather(2, index)], dim=2)
    attended: tuple[torch.Tensor, None] = ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, keys, values, set_sight.mask, **how)
    return attended


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attend)


# -- sets: the fast way


def member_states(model: Any, prompt: Prompt, batch_tokens: int) -> torch.Tensor:
    """Last hidden states at the end of each block, (members, hidden): texts read once, then the segments behind them."""
    head, blocks = read_blocks(model, prompt, batch_tokens)
    lengths = [closing - first for first, closing, _ in prompt.candidates]
    texts = torch.cat([block[..., :length, :] for block, length in zip(blocks, lengths, strict=True)], dim=-2)
    earlier = torch.stack([Turn(model)(texts[:, 0]), texts[:, 1]], dim=1)
    own = list(accumulate(lengths, initial=0))
    states = []
    for start in range(0, len(blocks), SEGMENTS):
        chunk = range(start, min(start + SEGMENTS, len(blocks)))
        known = torch.cat([head, *(blocks[i] for i in chunk), earlier], dim=-2)
        seen = _visible_behind(prompt, chunk, head.shape[-2], own)
        states.append(_read_segments(model, prompt, chunk, known, seen))
    return torch.cat(states)


def read_blocks(model: Any, prompt: Prompt, batch_tokens: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Keys and values of the prefix, and of every block up to its segment."""
    head, ids = _read_head(model, prompt.prefix), prompt.ids
    rows = [ids[first : end - prompt.segment] for first, _, end in prompt.candidates]
    return head, read_texts(model, head, rows, batch_tokens)


def _visible_behind(prompt: Prompt, chunk: range, prefix: int, texts: Sequence[int]) -> np.ndarray:
    """(segment tokens, known + segment tokens) who sees whom in a pass over some segments."""
    size, lengths = prompt.segment, [prompt.candidates[i][2] - prompt.candidates[i][0] - prompt.segment for i in chunk]
    blocks = list(accumulate(lengths, initial=prefix))
    earlier, new = blocks[-1], blocks[-1] + texts[-1]
    seen = np.zeros((size * len(chunk), new + size * len(chunk)), bool)
    seen[:, :prefix] = True
    seen[:, earlier:new] = True
    for number, i in enumerate(chunk):
        rows = slice(number * size, (number + 1) * size)
        seen[rows, blocks[number] : blocks[number + 1]] = True
        seen[rows, earlier + texts[i] : earlier + texts[i + 1]] = False
        seen[rows, new + number * size : new + (number + 1) * size] = np.tri(size, dtype=bool)
    return seen


def _read_segments(model: Any, prompt: Prompt, chunk: range, known: torch.Tensor, seen: np.ndarray) -> torch.Tensor:
    """Last hidden states of the last token of some segments, behind what is known."""
    ids, size = prompt.ids, prompt.segment
    ends = [prompt.candidates[i][2] for i in chunk]
    tokens = [token for end in ends for token in ids[end - size : end]]
    placed = set_windows.positions(prompt, len(prompt))
    places = np.concatenate([placed[end - size : end] for end in ends])
    return read_behind(model, cache_of(known, 1), [tokens], places, seen)[0, size - 1 :: size]
