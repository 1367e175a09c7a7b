"""Queries held as arrays are the queries that were put in."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.runs import table
from steadyscore.runs.table import CompactQueries, Scored


def query(seed: int, n: int, orders: int, optional: bool) -> Scored:
    rng = np.random.default_rng(seed)
    shape = (orders, n)
    return Scored(
        query_id=f"q{seed}",
        candidate_ids=tuple(f"d{i:02d}" for i in range(n)),
        permutations=np.arange(orders) - 1,
        scores=rng.random(shape),
        slots=rng.integers(0, 500, shape) if optional else None,
        windows=rng.integers(0, 3, shape) if optional else None,
        grades=rng.random((*shape, 4)).astype(np.float32).astype(float) if optional else None,
        label_mass=rng.random(shape) if optional else None,
        relevance=np.where(rng.random(n) < 0.5, np.nan, 1.0) if optional else None,
        ideal=np.array([3.0, 1.0, 0.0]) if optional else None,
        partition="round_robin" if seed % 2 else "contiguous",
        ties="input" if seed % 3 else "id",
    )


def assert_equal(first: Scored, second: Scored) -> None:
    for field in fields(Scored):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(b, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        else:
            assert a == b


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.booleans()), max_size=9))
def test_every_query_comes_back_exactly_in_order_by_iteration_and_by_place(shapes):
    queries = [query(seed, *shape) for seed, shape in enumerate(shapes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "BLOCK", 4)
        held = CompactQueries(queries)
    assert len(held) == len(queries)
    for found, expected in zip(held, queries, strict=True):
        assert_equal(found, expected)
    for place in range(-len(queries), len(queries)):
        assert_equal(held[place], queries[place])
    assert [q.query_id for q in held[1:3]] == [q.query_id for q in queries[1:3]]


def test_a_walk_over_queries_of_one_shape_gives_a_few_at_a_time_their_full_size():
    queries = [query(seed, 8, 40, True) for seed in range(500)]
    held = CompactQueries(queries)
    tracemalloc.start()
    try:
        for each, expected in zip(held, queries, strict=True):
            assert_equal(each, expected)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    arrays = ("slots", "windows", "grades", "relevance")  # what is held in a smaller type
    assert peak < sum(getattr(each, name).nbytes for each in queries for name in arrays) / 3


def test_a_place_beyond_the_end_is_an_index_error():
    with pytest.raises(IndexError):
        CompactQueries([query(0, 2, 2, True)])[1]


def test_integers_and_grades_take_the_smallest_type_that_holds_them_exactly():
    kinds = {values.dtype: kept.dtype for values in KEPT for kept in [table._smallest(values)]}
    assert kinds == {np.dtype(np.int64): np.dtype(np.int16), np.dtype(np.float64): np.dtype(np.float32)}
    assert table._smallest(np.array([0.1])).dtype == np.float64
    assert table._smallest(np.array([1e300])).dtype == np.float64


KEPT = (np.array([0, 300]), np.array([np.float32(0.1), np.nan], float))
