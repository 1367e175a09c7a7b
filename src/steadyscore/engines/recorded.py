"""Scorers without a model: a recording of scores given before, and a synthetic scorer with a known order effect."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..machine.disk import sha256
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Instance
from . import Capabilities, EngineOptions

EFFECTS = ("none", "slot", "companion", "ties")


class SyntheticReranker:
    """Scores by word overlap with the query, plus a planted effect of `size`: `synthetic:<effect>[:<size>]`.

    none: a function of the candidate alone. slot: earlier slots gain. companion: a candidate gains from what stands
    beside it. ties: scores on a grid of four values, as a hosted model that writes integer grades would give.
    """

    def __init__(self, effect: str, size: float):
        self.effect, self.size = effect, size
        self.name = f"synthetic:{effect}:{size:g}"
        self.capabilities = Capabilities(gives="score", order_free=effect in ("none", "ties"), deterministic=True)

    def identity(self) -> dict[str, Any]:
        return {"kind": "synthetic", "effect": self.effect, "size": self.size}

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        words = set(query.lower().split())
        plain = [(len(words & set(t.lower().split())) / max(len(words), 1) + _noise(query, t)) / 2 for t in texts]
        if self.effect == "slot":
            span = max(len(texts) - 1, 1)
            return [p + self.size * (1 - slot / span) for slot, p in enumerate(plain)]
        if self.effect == "companion":
            beside = [texts[max(slot - 1, 0)] for slot in range(len(texts))]
            return [p + self.size * _noise(t, other) for p, t, other in zip(plain, texts, beside, strict=True)]
        if self.effect == "ties":
            return [round(3 * p) / 3 for p in plain]
        return plain


def open_synthetic(rest: str, options: EngineOptions) -> SyntheticReranker:
    effect, _, size = rest.partition(":")
    if effect not in EFFECTS:
        raise InputError(f"unknown synthetic effect {effect!r}. Known: {', '.join(EFFECTS)}.")
    try:
        return SyntheticReranker(effect, float(size or 0.2))
    except ValueError:
        raise InputError(f"the size of synthetic:{rest} is not a number.") from None


class ScoreRecording:
    """Replays a score file or a finished run against a collection: `scores:<file or run folder>`.

    A score belongs to a query, a permutation and a candidate, so nothing is looked up by text, and a presentation that
    the file does not hold is refused. The first-stage row (permutation -1) may be absent.
    """

    def __init__(self, queries: Sequence[Scored], source: Path, digest: str):
        self.name = f"scores:{source}"
        self._digest = digest
        self._queries = {query.query_id: query for query in queries}
        distribution = all(query.grades is not None for query in queries)
        self.capabilities = Capabilities(
            gives="distribution" if distribution else "score",
            distribution="exact" if distribution else "none",
            deterministic=True,
        )

    def identity(self) -> dict[str, Any]:
        return {"kind": "scores", "sha256": self._digest}

    def recall(self, instance: Instance, permutations: Sequence[int]) -> Scored:
        """The recorded rows of a query, columns sorted by candidate id; places as the file has them."""
        query = self._queries.get(instance.id)
        if query is None:
            raise InputError(f"{self.name} holds no query {instance.id}. Cut the collection with --queries, or record the rest.")
        shown = {candidate.id for candidate in instance.pool}
        if odd := sorted(shown.symmetric_difference(query.candidate_ids)):
            raise InputError(f"{self.name} and the collection differ in candidate {odd[0]} of query {instance.id}.")
        have = query.permutations.tolist()
        wanted = [p for p in permutations if p in have or p != FIRST_STAGE]
        if absent := [p for p in wanted if p not in have]:
            raise InputError(
                f"{self.name} holds no permutation {absent[0]} of query {instance.id}. Ask for the {max(have) + 1} it holds "
                "with --permutations."
            )
        rows = [have.index(p) for p in wanted]
        return replace(
            query,
            permutations=np.array(wanted, dtype=np.int64),
            scores=query.scores[rows],
            slots=_picked(query.slots, rows),
            windows=_picked(query.windows, rows),
            grades=_picked(query.grades, rows),
            label_mass=_picked(query.label_mass, rows),
        )


def _picked(values: np.ndarray | None, rows: list[int]) -> np.ndarray | None:
    return None if values is None else values[rows]


def open_scores(rest: str, options: EngineOptions) -> ScoreRecording:
    from ..runs.folder import Run
    from ..runs.score_file import read_scores

    source = Path(rest)
    if source.is_dir():
        return ScoreRecording(Run.open(source).read_queries(), source, sha256(source / "scores.parquet")[:16])
    return ScoreRecording(read_scores([source]), source, sha256(source)[:16])


def _noise(*key: str) -> float:
    """A fixed number in [0, 1) for a pair of texts."""
    return int.from_bytes(hashlib.blake2b("\x1f".join(key).encode(), digest_size=6).digest(), "big") / 2**48
