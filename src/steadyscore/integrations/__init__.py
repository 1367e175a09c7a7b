"""Where people already rerank: any scorer address behind the interface of their library, each a thin module of its own.

`rerankers`, `sentence_transformers` (no dependency), `langchain`, `llama_index`, `haystack`, `pyterrier`. They share the
`Ranker` below: texts in, one score per text out, under the mitigations that were asked for.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..engines import EngineOptions
from ..mitigations import mitigated
from ..scorer import Settings
from ..scoring import AuditConfig, open_scorer
from ..terms import Candidate, Collection, Instance, PromptStyle, TaskName


class Ranker:
    """A scorer address as a function of a query and texts."""

    def __init__(
        self,
        address: str,
        *,
        task: TaskName = "passage_reranking",
        width: int | None = None,
        chars: int | None = None,
        prompt: PromptStyle | None = None,
        mitigations: Sequence[str] = (),
        options: EngineOptions | None = None,
    ):
        config = AuditConfig(settings=Settings(width=width, prompt=prompt, label_mass=False), chars=chars)
        self.scorer: Any = mitigated(open_scorer(address, Collection("texts", task), config, options), mitigations)
        self.name = self.scorer.name

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, as presented in the order given."""
        if not texts:
            return []
        pool = tuple(Candidate(id, text) for id, text in zip(_ids(texts), texts, strict=True))
        return [float(score) for score in self.scorer.score(Instance(query, query, pool))]

    def ranked(self, query: str, texts: Sequence[str], top_k: int | None = None) -> list[tuple[int, float]]:
        """(index, score) best first; equal scores by text, never by the place they came in."""
        found = list(enumerate(self.scores(query, texts)))
        return sorted(found, key=lambda each: (-each[1], texts[each[0]], each[0]))[:top_k]


def _ids(texts: Sequence[str]) -> list[str]:
    """A name that a text has in every order; repeated texts are numbered."""
    seen: Counter[str] = Counter()
    names = []
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        names.append(f"{digest}-{seen[digest]}")
        seen[digest] += 1
    return names
