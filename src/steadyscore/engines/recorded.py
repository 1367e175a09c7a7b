"""Scores that were given before: those of a score file or a finished run, and the order of the first stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..machine.disk import sha256
from ..runs.table import FIRST_STAGE, Scored, take_rows
from ..terms import Instance, JsonObject
from . import Address, Capabilities, EngineOptions, Kind, Listing, Recording

ADDRESS = "first-stage:"


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

    def identity(self) -> JsonObject:
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
        return take_rows(query, np.array([have.index(p) for p in wanted], dtype=np.int64))


def open_scores(address: Address, options: EngineOptions) -> ScoreRecording:
    from ..runs.folder import find_run
    from ..runs.score_file import read_scores

    source = Path(address.rest)
    if source.is_dir():
        run = find_run(source)
        return ScoreRecording(run.read_queries(), source, run.digest()[:16])
    return ScoreRecording(read_scores([source]), source, sha256(source)[:16])


class FirstStage(Recording):
    """Ranks every pool as the first stage did, under whatever order it is shown: `first-stage:`.

    Its numbers are n - rank. The scores of a first stage mean nothing across queries, and not every collection has them.
    """

    name = ADDRESS
    capabilities = Capabilities(gives="ranking", order_free=True, deterministic=True)

    def identity(self) -> JsonObject:
        return {"kind": "first-stage"}

    def recall(self, instance: Instance, permutations: Sequence[int]) -> Scored:
        """The same row for every permutation; the candidates are shown nowhere, so they have no places."""
        n = len(instance.pool)
        value = {candidate.id: float(n - place) for place, candidate in enumerate(instance.pool)}
        ids = tuple(sorted(value))
        row = np.array([value[candidate_id] for candidate_id in ids])
        return Scored(instance.id, ids, np.array(permutations, dtype=np.int64), np.tile(row, (len(permutations), 1)))


def open_first_stage(address: Address, options: EngineOptions) -> FirstStage:
    if address.rest:
        raise InputError(f"{ADDRESS} takes nothing after its colon, and {address.rest!r} is more. Write {ADDRESS}")
    return FirstStage()


KINDS = (
    Kind("scores", open_scores, takes="key", listed=(Listing("scores:<file|run folder>", "score"),)),
    Kind(
        "first-stage",
        open_first_stage,
        takes="key",
        listed=(Listing(ADDRESS, "ranking", "BM25, or whatever retrieved the pool"),),
    ),
)
