"""The first stage itself as a scorer: the order in which the pool came, so that retrieval is a row like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..runs.table import Scored
from ..terms import Instance
from . import Capabilities, EngineOptions, Recording

ADDRESS = "first-stage:"


class FirstStage(Recording):
    """Ranks every pool as the first stage did, under whatever order it is shown: `first-stage:`.

    Its numbers are n - rank. The scores of a first stage mean nothing across queries, and not every collection has them.
    """

    name = ADDRESS
    capabilities = Capabilities(gives="ranking", order_free=True, deterministic=True)

    def identity(self) -> dict[str, Any]:
        return {"kind": "first-stage"}

    def recall(self, instance: Instance, permutations: Sequence[int]) -> Scored:
        """The same row for every permutation; the candidates are shown nowhere, so they have no places."""
        n = len(instance.pool)
        value = {candidate.id: float(n - place) for place, candidate in enumerate(instance.pool)}
        ids = tuple(sorted(value))
        row = np.array([value[candidate_id] for candidate_id in ids])
        return Scored(instance.id, ids, np.array(permutations, dtype=np.int64), np.tile(row, (len(permutations), 1)))


def open_first_stage(rest: str, options: EngineOptions) -> FirstStage:
    if rest:
        raise InputError(f"{ADDRESS} takes nothing after its colon, and {rest!r} stands there. Write {ADDRESS}")
    return FirstStage()
