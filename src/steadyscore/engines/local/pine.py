"""PINE-style attention: documents of a window attend to each other without an order (Wang et al., 2025; §D.2).

A window is cut into prefix, documents and suffix. A document's tokens see the prefix, the documents beside it in full
and themselves causally; the suffix sees everything before it. Where a token sees other documents, they stand in the
order of the attention it would pay them without positions, the most attended nearest: a virtual order that each token
and each head makes for itself, whatever order the documents came in.

What follows exactly: if the documents' tokens are the same in every order, so are their hidden states and the suffix's.
What does not: here markers and the answer skeleton follow the slots, so scores still depend on order
(tests/engines/test_pine.py proves the first and measures the second). Eager and one window at a time, as the paper's port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...errors import InputError, ModelError
from ...terms import Prompt
from ...window.encoding import Encoder
from ...window.prompt import Piece, PromptText
from ...window.readout import SlotLogits
from .. import Capabilities, Grader
from .device import arithmetic
from .model import TransformersEngine
from .windows import FIXED_ROPES, rope_type, set_attention

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the segments of a window stand among its tokens."""

    prefix: int
    """Tokens before the documents."""
    documents: tuple[int, ...]
    """Length of each document, in slot order."""

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First and past-the-last token of each document."""
        ends = list(accumulate(self.documents, initial=self.prefix))
        return list(pairwise(ends))

    @property
    def suffix(self) -> int:
        """First token after the documents."""
        return self.prefix + sum(self.documents)


class PineEngine(Grader):
    """Grades of an `hf` engine's model under order-free attention: a grader, `Scorer(PineEngine(engine), ...)`."""

    def __init__(self, engine: TransformersEngine):
        config = engine.model.config.get_text_config()
        rope = rope_type(config)
        if config.model_type not in FAMILIES or rope not in FIXED_ROPES or getattr(config, "use_sliding_window", False):
            raise ModelError(
                f"order-free attention is written for {', '.join(FAMILIES)} models with plain rotary positions; "
                f"{engine.name} is {config.model_type} with {rope} positions. Choose another --mitigation."
            )
        self.engine, self.name, self.context = engine, f"{engine.name} pine", engine.context
        self.called = engine.called and f"{engine.called} pine"
        self.capabilities = Capabilities(gives="distribution", distribution="exact", label_mass=False, deterministic=True)
        self.trained_settings, self.options = engine.trained_settings, engine.options

    def identity(self) -> dict[str, object]:
        return self.engine.identity() | {"attention": "pine"}

    @torch.inference_mode()
    def grade_logits(self, prompts: Sequence[PromptText], *, label_mass: bool = False) -> list[SlotLogits]:
        return [self._read(prompt) for prompt in prompts]

    def _read(self, prompt: PromptText) -> SlotLogits:
        read, layout = encode(self.engine.encoder, prompt)
        if len(read) > self.context:
            raise InputError(
                f"a window of {len(prompt.markers)} candidates needs {len(read):,} tokens, the model takes {self.context:,}. "
                "Lower --width or --chars."
            )
        with arithmetic(self.engine.model):
            states = order_free_states(self.engine.model, read.ids, layout)[list(read.slots)]
        logits = self.engine.project(states, torch.tensor(read.grade_tokens, device=states.device))
        return SlotLogits(logits.cpu().numpy())


# -- text to segments


def with_documents(prompt: PromptText) -> PromptText:
    """The same text; its body is a header, two pieces for each document, which carries its own marker, and a suffix."""
    lead, *rest = prompt.body
    if not lead.text.endswith(f"[{prompt.markers[prompt.first]}]"):
        return prompt
    cut = lead.text.rindex("\n[")  # printed layout: the header stands before the first marker
    return replace(prompt, body=(Piece(lead.text[:cut], True), Piece(lead.text[cut:], True), *rest))


def encode(encoder: Encoder, prompt: PromptText) -> tuple[Prompt, Layout]:
    """Token ids of a window, and its layout."""
    text = with_documents(prompt)
    read = encoder.prompt(text)
    header, *lengths = (len(encoder.pieces((piece,))) for piece in text.body)
    documents = tuple(map(sum, zip(lengths[::2], lengths[1::2], strict=False)))  # less the suffix
    return read, Layout(len(read.prefix) + header, documents)


# -- attention


def order_free_states(model: Any, ids: Sequence[int], layout: Layout) -> torch.Tensor:
    """Last hidden states (T, hidden) of one window."""
    tokens = torch.tensor([ids], device=model.device)
    # At position 0 a rotation is the identity: queries and keys reach `_attend` unrotated.
    nowhere = torch.zeros_like(tokens)
    rotary = next(module for name, module in model.named_modules() if name.endswith("rotary_emb"))
    with set_attention(model, "pine"):
        output = model.base_model(
            input_ids=tokens, position_ids=nowhere, use_cache=False, pine_layout=layout, pine_frequencies=rotary.inv_freq
        )
    states: torch.Tensor = output.last_hidden_state[0]
    return states


def _attend(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, *, scaling: float,
    pine_layout: Layout, pine_frequencies: torch.Tensor, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """An attention function of transformers: (1, H, T, d) in, (1, T, H, d) out."""
    groups = query.shape[1] // key.shape[1]
    q, k, v = query[0], key[0].repeat_interleave(groups, 0), value[0].repeat_interleave(groups, 0)
    weights = torch.softmax(attention_scores(q, k, pine_layout, pine_frequencies, scaling), dim=-1, dtype=torch.float32)
    return (weights.to(v.dtype) @ v).transpose(0, 1)[None], None


ALL_ATTENTION_FUNCTIONS.register("pine", _attend)


def attention_scores(q: torch.Tensor, k: torch.Tensor, layout: Layout, frequencies: torch.Tensor, scaling: float) -> torch.Tensor:
    """Attention scores (H, T, T) of unrotated queries and keys (H, T, d), -inf where a token does not see another.

    A rotary score depends on the distance alone, so a document is rotated once, by the offsets within it, and each query
    by how far the document's start lies before it in that query's own virtual order.
    """
    T = q.shape[1]
    visible = _visible(layout, T, q.device)
    starts, at = virtual_places(q, k, layout, scaling)  # (H, T, D), (T,)
    scores = torch.empty(q.shape[0], T, T, dtype=q.dtype, device=q.device)
    plain = torch.arange(T, device=q.device)
    outside = torch.cat([plain[: layout.prefix], plain[layout.suffix :]])
    scores[..., outside] = _rotate(q, at, frequencies) @ _rotate(k[:, outside], outside, frequencies).mT
    for d, (first, past) in enumerate(layout.bounds):
        offsets = torch.arange(past - first, device=q.device)
        scores[..., first:past] = (
            _rotate(q, at - starts[..., d], frequencies) @ _rotate(k[:, first:past], offsets, frequencies).mT
        )
    return (scores * scaling).masked_fill(~visible, -torch.inf)


def virtual_places(q: torch.Tensor, k: torch.Tensor, layout: Layout, scaling: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Start of each document for each query, (H, T, D), and each query's own position, (T,).

    Documents are placed behind the prefix in ascending position-free attention mass; a document's own tokens place it
    last, so that they continue it. Suffix tokens keep their positions.
    """
    T, lengths = q.shape[1], torch.tensor(layout.documents, device=q.device)
    owner = torch.full((T,), -1, device=q.device)
    for d, (first, past) in enumerate(layout.bounds):
        owner[first:past] = d
    raw = (q @ k.mT * scaling)[..., layout.prefix : layout.suffix].float()
    # One softmax over all documents' tokens, in full: a document does not wait for another to be finished.
    mass = torch.stack([part.sum(-1) for part in raw.softmax(-1).split(layout.documents, -1)], -1)  # (H, T, D)
    own = torch.nn.functional.one_hot(owner.clamp(min=0), len(lengths)).bool() & (owner >= 0)[:, None]
    mass = mass.masked_fill(own, torch.inf)
    order = mass.argsort(dim=-1, stable=True)
    ends = lengths[order].cumsum(-1)
    starts = torch.empty_like(ends).scatter_(-1, order, ends - lengths[order]) + layout.prefix
    at = torch.arange(T, device=q.device)
    for d, (first, past) in enumerate(layout.bounds):
        at[first:past] += layout.suffix - layout.documents[d] - first
    return starts, at


def _visible(layout: Layout, T: int, device: Any) -> torch.Tensor:
    """(T, T) causal, and every document in full from every other."""
    seen = torch.ones(T, T, dtype=torch.bool, device=device).tril()
    for first, past in layout.bounds:
        seen[layout.prefix : first, first:past] = True
    return seen


def _rotate(x: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of x (H, T, d) at positions (T,) or (H, T)."""
    angles = positions[..., None] * frequencies.double()
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    one, other = x.chunk(2, -1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)
