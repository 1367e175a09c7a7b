"""The four presentation channels (§3): candidate order, partition into windows, slot markers, answer skeleton.

Everything here is index arithmetic: it knows neither texts nor models. A permutation is a function of
(seed, query id, index) and of nothing else, so the plan of a run does not depend on who computes it, in which
order, or how often it was interrupted.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from ..terms import Array, Markers, Partition, Window


def generator(*key: object) -> np.random.Generator:
    """Random numbers that are a function of the key and of nothing else."""
    digest = hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def count_orders(n: int) -> float:
    """How many orders a pool of n has; without bound where nobody shows them all."""
    return math.factorial(n) if n < 13 else math.inf


def permutations(n: int, count: int, *, seed: int, query_id: str, scheme: str = "hashed") -> np.ndarray:
    """The first `count` permutations of a pool of n for one query, (count, n): position -> candidate.

    `hashed`: each from a hash of (seed, query id, index), without repeats while n! allows it; the first `count` rows do
    not change when more are asked for. `distinct`: the same rows, but never more than the n! orders that there are.
    `reference`: the released code's scheme, one Mersenne-Twister shuffle with seed `seed + index`, the same for every
    query of equal size, repeats included (docs/protocol.md#permutations).
    """
    if scheme == "reference":
        return np.array([_reference(n, seed + i) for i in range(count)], dtype=np.int64).reshape(count, n)
    if scheme not in ("hashed", "distinct"):
        raise ValueError(f"unknown permutation scheme {scheme!r}: use distinct, hashed or reference")
    distinct = count_orders(n)
    count = int(min(count, distinct)) if scheme == "distinct" else count
    rows: list[tuple[int, ...]] = []
    seen: set[tuple[int, ...]] = set()
    for index in range(count):
        if len(seen) == distinct:  # every order was drawn once: begin another round
            seen.clear()
        attempt = 0
        while (row := tuple(generator(seed, query_id, index, attempt).permutation(n).tolist())) in seen:
            attempt += 1
        seen.add(row)
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(count, n)


def permutation(n: int, *, seed: int, query_id: str, index: int) -> np.ndarray:
    """Permutation number `index` of a query, (n,): position -> candidate."""
    order: np.ndarray = permutations(n, index + 1, seed=seed, query_id=query_id)[index]
    return order


def _reference(n: int, seed: int) -> list[int]:
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return order


def balanced_orders(n: int, permutations: int, rng: np.random.Generator, *, width: int | None = None) -> Array:
    """Orders (M, n) in which every candidate visits the slots of contiguous windows equally often.

    Positions are laid out slot by slot and the candidates, in one random sequence, move through that layout by n / M places
    per permutation: a cyclic Latin square, thinned evenly when M < n; another one, of another sequence, after every n. Exact
    when M is a multiple of the width and the width divides n, otherwise as even as whole numbers allow. Which window a
    candidate gets is random in every permutation, so companions change (save for the few that hold the same slot, which never
    meet). In one window no order comes twice before all n! did.

    For order-marginals and slot profiles: their slot noise cancels (13-fold less variance at M = 10, width 20 under a pure
    linear slot effect, none left at M = 20). Not for measures over pairs: two such orders move candidates in step, so they
    agree more than two random orders do (τ-PSI 0.11 instead of 0.14 there). Measure τ-PSI, overlap and flips on
    independent orders.
    """
    width = n if width is None else width
    orders, squares = np.empty((permutations, n), int), set[tuple[int, ...]]()
    for m in range(permutations):
        if m % n == 0:  # another square, of a sequence that is not one before it turned round
            rows = min(n, permutations - m)
            sequence = rng.permutation(n)
            while (turned := tuple(np.roll(sequence, -int(sequence.argmin())))) in squares and len(squares) < count_orders(n - 1):
                sequence = rng.permutation(n)
            squares.add(turned)
        layout = np.lexsort((rng.random(n), np.arange(n) % width))  # positions by slot, windows in random sequence
        orders[m, layout] = np.roll(sequence, m % n * n // rows)
    return orders


def windows(order: Sequence[int] | np.ndarray, width: int, partition: Partition = "contiguous") -> list[Window]:
    """Cut an order into windows of at most `width` candidates.

    contiguous: slices; the last may be shorter. round_robin: ceil(n / width) windows, window w takes the positions
    w, w + windows, ...: consecutive first-stage ranks land in different windows, and sizes are balanced (§6.2).
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    order = [int(i) for i in order]
    count = math.ceil(len(order) / width)
    if partition == "contiguous":
        parts = [order[w * width : (w + 1) * width] for w in range(count)]
    elif partition == "round_robin":
        parts = [order[w::count] for w in range(count)]
    else:
        raise ValueError(f"unknown partition {partition!r}: use contiguous or round_robin")
    return [Window(index=w, candidates=tuple(part)) for w, part in enumerate(parts)]


def align(parts: Sequence[np.ndarray], cut: Sequence[Window], n: int) -> np.ndarray:
    """Window results, each (b, ...), back to candidate identity: (n, ...)."""
    first = np.asarray(parts[0])
    aligned = np.full((n, *first.shape[1:]), np.nan) if first.dtype.kind == "f" else np.zeros((n, *first.shape[1:]), first.dtype)
    for part, window in zip(parts, cut, strict=True):
        aligned[list(window.candidates)] = part
    return aligned


def places(cut: Sequence[Window], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Slot and window index of every candidate, each (n,), both 0-based."""
    slots = align([np.arange(len(w.candidates)) for w in cut], cut, n)
    index = align([np.full(len(w.candidates), w.index) for w in cut], cut, n)
    return slots, index


def window_places(n: int, width: int | None, partition: Partition) -> np.ndarray:
    """The place in its window of each position in an order of n, (n, 3): whether first, whether last, how far down (-½ to ½)."""
    slots, index = places(windows(range(n), width or n, partition), n)
    last = np.bincount(index)[index] - 1
    features: np.ndarray = np.stack([slots == 0, slots == last, slots / np.maximum(last, 1) - 0.5], axis=-1)
    return features


def markers(scheme: Markers, width: int, *, seed: int | None = None) -> list[str]:
    """The labels of `width` slots, in slot order; with a seed, another label in at least one slot than that order gives.

    `random3` draws three-character labels without repeats, by the seed too. One seed gives every window the same labels.
    """
    labels = _labels(scheme, width, seed or 0)
    if seed is None or width < 2:
        return labels
    attempt = 0
    while (order := generator("labels", seed, scheme, width, attempt).permutation(width)).tolist() == list(range(width)):
        attempt += 1
    return [labels[i] for i in order]


def _labels(scheme: Markers, width: int, seed: int) -> list[str]:
    if scheme == "random3":
        return _random3(width, seed)
    if scheme not in _LABELS:
        raise ValueError(f"unknown markers {scheme!r}: use numeric, letters, roman, doc or random3")
    return [_LABELS[scheme](number) for number in range(1, width + 1)]


def _letters(number: int) -> str:
    label = ""
    while number:
        number, letter = divmod(number - 1, 26)
        label = chr(ord("A") + letter) + label
    return label


def _roman(number: int) -> str:
    label = ""
    for size, numeral in zip((100, 90, 50, 40, 10, 9, 5, 4, 1), ["c", "xc", "l", "xl", "x", "ix", "v", "iv", "i"], strict=True):
        count, number = divmod(number, size)
        label += numeral * count
    return label


_LABELS: dict[str, Callable[[int], str]] = {"numeric": str, "letters": _letters, "roman": _roman, "doc": "Doc-{}".format}
"""The label of a slot by its number, counted from 1."""


def _random3(width: int, seed: int) -> list[str]:
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    drawn = generator("random3", seed).choice(len(alphabet) ** 3, size=width, replace=False)
    base = len(alphabet)
    return [alphabet[d // base**2] + alphabet[d // base % base] + alphabet[d % base] for d in drawn.tolist()]
