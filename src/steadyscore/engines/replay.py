"""Scores that were given before, replayed from a score file or a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..machine.disk import sha256
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Instance
from . import Capabilities, EngineOptions, Recording


class ScoreRecording(Recording):
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
    from ..runs.find import find_run
    from ..runs.score_file import read_scores

    source = Path(rest)
    if source.is_dir():
        run = find_run(source)
        return ScoreRecording(run.read_queries(), source, run.digest()[:16])
    return ScoreRecording(read_scores([source]), source, sha256(source)[:16])
