"""Training pools and their parts: a sample anybody can draw again, nested subsets, parts that share nothing."""

from __future__ import annotations

import hashlib
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..errors import InputError
from ..terms import Instance
from . import Data, open_collection

EXAMPLES = 3


def sample_ids(ids: Iterable[str], size: int, seed: int = 42, spare: int = 0) -> list[str]:
    """The first `size` ids after sorting and a seeded Mersenne-Twister shuffle, and up to `spare` more.

    Samples of one seed are nested: a smaller one is a prefix of a larger one (1K in 30K in 100K).
    """
    order = sorted(ids)
    if size > len(order):
        raise InputError(f"a sample of {size:,} was asked for, but there are {len(order):,} queries. Lower --sample.")
    random.Random(seed).shuffle(order)
    return order[: size + spare]


def text_key(query: str) -> bytes:
    """What makes two queries, or two candidates, the same text: lower case, letters with their marks and digits only, or all of
    a text that has none of them.

    8 bytes, so that millions fit in memory.
    """
    text = unicodedata.normalize("NFC", query.casefold())
    words = "".join(c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in text).split()
    return hashlib.blake2b((" ".join(words) or text.strip()).encode(), digest_size=8).digest()


def split_parts(instances: Iterable[Instance], sizes: dict[str, int], dropped: Counter[str]) -> Iterator[tuple[str, Instance]]:
    """(part, instance): consecutive stretches of one stream, so disjoint by id; a query text of an earlier part is left out.

    What a part lacks because of a repeated text is filled from what follows; a stream that ends too early is an error.
    """
    stream = iter(instances)
    earlier: set[bytes] = set()
    for part, size in sizes.items():
        own: set[bytes] = set()
        count = 0
        while count < size:
            instance = next(stream, None)
            if instance is None:
                raise InputError(f"part {part} needs {size:,} queries, only {count:,} are left. Lower --parts.")
            key = text_key(instance.query)
            if key in earlier:
                dropped["queries whose text is in an earlier part"] += 1
                continue
            own.add(key)
            count += 1
            yield part, instance
        earlier |= own


def leave_out_shared(instances: Iterable[Instance], others: Iterable[Instance], dropped: Counter[str]) -> Iterator[Instance]:
    """Instances whose query text does not occur among the others (Nectar against UltraFeedback, training against test)."""
    texts = {text_key(other.query) for other in others}
    for instance in instances:
        if text_key(instance.query) in texts:
            dropped["queries that are also in the other collection"] += 1
        else:
            yield instance


def shared_queries(one: Iterable[Instance], other: Iterable[Instance]) -> list[str]:
    """Every query of `other` that `one` has too, by id or by text: empty for collections that are disjoint."""
    ids, texts = {}, {}
    for instance in one:
        ids[instance.id] = texts[text_key(instance.query)] = instance.id
    shared = []
    for instance in other:
        if instance.id in ids:
            shared.append(f"query id {instance.id!r} is in both")
        elif (same := texts.get(text_key(instance.query))) is not None:
            shared.append(f"query {instance.id!r} has the text of {same!r}")
    return shared


def shared_mistakes(name: str, instances: Callable[[], Iterable[Instance]], others: Sequence[Data]) -> list[str]:
    """One sentence for each collection that shares a query (by id or text) or a candidate (by text) with these instances.

    instances  called for each pass over them, so that large data need not fit in memory
    """
    mistakes = []
    for other in map(open_collection, others):
        queries = shared_queries(other.instances(), instances())
        texts = {text_key(candidate.text) for instance in other.instances() for candidate in instance.pool}
        candidates, passages = 0, list[str]()
        for candidates, (query, one) in enumerate(((each.id, one) for each in instances() for one in each.pool), 1):  # noqa: B007
            passages += [f"candidate {one.id!r} of query {query!r}"] if text_key(one.text) in texts else []
        if queries or passages:
            kept = EXAMPLES - bool(passages)  # one example of a candidate, where there is one
            examples = "; ".join([*queries[:kept], *passages][:EXAMPLES])
            shared = "1 query" if len(queries) == 1 else f"{len(queries):,} queries"
            mistakes.append(
                f"{name} is not apart from {other.name}: it shares {shared} and {len(passages):,} of {candidates:,} candidates "
                f"with it, such as: {examples}. Leave these out of one of the two, or name other data."
            )
    return mistakes
