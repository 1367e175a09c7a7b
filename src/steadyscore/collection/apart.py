"""Whether data is apart from other collections: training data from what is tested on, test data from what was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..terms import Instance
from . import Data, open_collection
from .splits import find_shared_passages, shared_queries

EXAMPLES = 3


def shared_mistakes(name: str, instances: Callable[[], Iterable[Instance]], others: Sequence[Data]) -> list[str]:
    """One sentence for each collection that shares a query (by id or text) or a candidate (by text) with these instances.

    instances  called for each pass over them, so that large data need not fit in memory
    """
    mistakes = []
    for other in map(open_collection, others):
        queries = shared_queries(other.instances(), instances())
        passages = find_shared_passages(other.instances(), instances())
        if queries or passages.shared:
            kept = EXAMPLES - bool(passages.shared)  # one example of a candidate, where there is one
            examples = "; ".join([*queries[:kept], *passages.examples][:EXAMPLES])
            shared = "1 query" if len(queries) == 1 else f"{len(queries):,} queries"
            shares = f"{shared} and {passages.shared:,} of {passages.candidates:,} candidates"
            mistakes.append(
                f"{name} is not apart from {other.name}: it shares {shares} with it, such as: {examples}. "
                "Leave these out of one of the two, or name other data."
            )
    return mistakes
