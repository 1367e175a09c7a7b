"""A scorer without a model and with a known order effect: what demonstrations and tests are measured against."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ..errors import InputError
from ..terms import JsonObject
from . import Address, Capabilities, EngineOptions, Kind, Listing, Reranker

EFFECTS = ("none", "slot", "companion", "ties")
ORDER_FREE = ("none", "ties")


class SyntheticReranker(Reranker):
    """Scores by word overlap with the query, plus a planted effect of `size`: `synthetic:<effect>[:<size>]`.

    none: a function of the candidate alone. slot: earlier slots gain. companion: a candidate gains from what stands
    beside it. ties: scores on a grid of four values, as a hosted model that writes integer grades would give.
    """

    def __init__(self, effect: str, size: float):
        self.effect, self.size = effect, size
        self.name = f"synthetic:{effect}:{size:g}"
        self.capabilities = Capabilities(gives="score", order_free=effect in ORDER_FREE, deterministic=True)

    def identity(self) -> JsonObject:
        return {"kind": "synthetic", "effect": self.effect, "size": self.size}

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        words, texts = set(query.lower().split()), [" ".join(text.split()) for text in texts]  # of words alone
        plain = [(len(words & set(t.lower().split())) / max(len(words), 1) + fixed_number(query, t)) / 2 for t in texts]
        if self.effect == "slot":
            span = max(len(texts) - 1, 1)
            return [p + self.size * (1 - slot / span) for slot, p in enumerate(plain)]
        if self.effect == "companion":
            beside = [texts[max(slot - 1, 0)] for slot in range(len(texts))]
            return [p + self.size * fixed_number(t, other) for p, t, other in zip(plain, texts, beside, strict=True)]
        if self.effect == "ties":
            return [round(3 * p) / 3 for p in plain]
        return plain


def open_synthetic(address: Address, options: EngineOptions) -> SyntheticReranker:
    rest = address.rest
    effect, _, size = rest.partition(":")
    if effect not in EFFECTS:
        raise InputError(f"unknown synthetic effect {effect!r}. Known: {', '.join(EFFECTS)}.")
    try:
        return SyntheticReranker(effect, float(size or 0.2))
    except ValueError:
        raise InputError(f"the size of synthetic:{rest} is not a number.") from None


def fixed_number(*key: str) -> float:
    """A number in [0, 1) that depends on the key alone."""
    return int.from_bytes(hashlib.blake2b("\x1f".join(key).encode(), digest_size=6).digest(), "big") / 2**48


KINDS = (
    Kind(
        "synthetic",
        open_synthetic,
        takes="pool",
        listed=(Listing("synthetic:<none|slot|companion|ties>[:size]", "score"),),
        is_order_free=lambda rest: rest.partition(":")[0] in ORDER_FREE,
    ),
)
