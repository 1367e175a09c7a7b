"""Set windows through transformers, two ways to the same grades.

The whole way is one forward pass over all blocks, in which the texts stand a second time among the keys, turned to where
the segments see them: with gradients, for training. The fast way reads every text once, keeps its keys and values, and
then reads all segments behind them: for scoring.
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

from ..terms import Prompt
from ..window import set_windows
from .hf_isolated import additive, cache_of, read_behind, read_texts, states_of

ATTENTION = "steadyscore_set"
SEGMENTS = 32
"""Segments that share a pass: few enough that what is masked out of their keys costs little."""


# -- turning keys


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


# -- the whole way


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
        row[: len(prompt)] = (*prompt.prefix, *prompt.body)
    placed = np.stack([set_windows.positions(prompt, tokens) for prompt in prompts])
    on = model.device
    with set_attention(model):
        found = model.base_model(
            input_ids=torch.from_numpy(ids).to(on),
            position_ids=torch.from_numpy(placed).to(on),
            use_cache=False,
            set_sight=_sight(model, prompts, tokens),
        )
    return [row[list(p.slots)] for row, p in zip(found.last_hidden_state, prompts, strict=True)]


def _sight(model: Any, prompts: Sequence[Prompt], tokens: int) -> Sight:
    found = [set_windows.text_tokens(prompt) for prompt in prompts]
    longest = max(map(len, found))
    texts = np.zeros((len(prompts), longest), int)
    seen = np.zeros((len(prompts), tokens, tokens + longest), bool)
    for i, (prompt, own) in enumerate(zip(prompts, found, strict=True)):
        texts[i, : len(own)] = own
        seen[i, :, :tokens] = set_windows.visible_alone(prompt, tokens)
        seen[i, :, tokens : tokens + len(own)] = set_windows.visible_earlier(prompt, tokens)
    return Sight(Turn(model), torch.from_numpy(texts).to(model.device), additive(seen, model))


@contextmanager
def set_attention(model: Any) -> Iterator[None]:
    """The model's attention is ours while the block runs."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
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


# -- the fast way


def member_states(model: Any, prompt: Prompt, batch_tokens: int) -> torch.Tensor:
    """Last hidden states at the end of each block, (members, hidden): texts read once, then the segments behind them."""
    head, blocks = read_blocks(model, prompt, batch_tokens)
    lengths = [closing - first for first, closing, _ in prompt.candidates]
    texts = torch.cat([block[..., :length, :] for block, length in zip(blocks, lengths, strict=True)], dim=-2)
    earlier = torch.stack([Turn(model)(texts[:, 0]), texts[:, 1]], dim=1)
    own = list(accumulate(lengths, initial=0))
    found = []
    for start in range(0, len(blocks), SEGMENTS):
        chunk = range(start, min(start + SEGMENTS, len(blocks)))
        known = torch.cat([head, *(blocks[i] for i in chunk), earlier], dim=-2)
        seen = _visible_behind(prompt, chunk, head.shape[-2], own)
        found.append(_read_segments(model, prompt, chunk, known, seen))
    return torch.cat(found)


def read_blocks(model: Any, prompt: Prompt, batch_tokens: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Keys and values of the prefix, and of every block up to its segment."""
    start, ids = len(prompt.prefix), (*prompt.prefix, *prompt.body)
    cache = DynamicCache()
    read_behind(model, cache, [prompt.prefix], np.arange(start))
    head = states_of(cache, 0, 0, start)
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
    ids, size = (*prompt.prefix, *prompt.body), prompt.segment
    ends = [prompt.candidates[i][2] for i in chunk]
    tokens = [token for end in ends for token in ids[end - size : end]]
    placed = set_windows.positions(prompt, len(prompt))
    places = np.concatenate([placed[end - size : end] for end in ends])
    return read_behind(model, cache_of(known, 1), [tokens], places, seen)[0, size - 1 :: size]
