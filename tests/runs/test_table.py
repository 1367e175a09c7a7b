import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.errors import StorageError
from steadyscore.runs.layout import score_schema
from steadyscore.runs.table import FIRST_STAGE, Scored, from_table, read_table, to_table


def scored(query_id="q", n=3, rows=2, grades=True, judged=True, seed=0, partition="contiguous"):
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(n) for _ in range(rows)])
    return Scored(
        query_id=query_id,
        candidate_ids=tuple(f"d{i:02}" for i in range(n)),
        permutations=np.arange(FIRST_STAGE, rows - 1),
        scores=rng.random((rows, n)),
        slots=np.argsort(orders, axis=1),
        windows=np.zeros((rows, n), int),
        grades=rng.dirichlet(np.ones(4), (rows, n)).astype(np.float32) if grades else None,
        label_mass=rng.random((rows, n)).astype(np.float32) if grades else None,
        relevance=rng.integers(0, 4, n).astype(float) if judged else None,
        partition=partition,
    )


def same(a: Scored, b: Scored) -> bool:
    def equal(x, y):
        return (x is None and y is None) or (
            x is not None and y is not None and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
        )

    names = ("permutations", "scores", "slots", "windows", "grades", "label_mass", "relevance")
    return (
        a.query_id == b.query_id
        and a.candidate_ids == b.candidate_ids
        and a.partition == b.partition
        and all(equal(getattr(a, f), getattr(b, f)) for f in names)
    )


@given(n=st.integers(1, 9), rows=st.integers(1, 5), grades=st.booleans(), judged=st.booleans(), seed=st.integers(0, 99))
@settings(deadline=None)
def test_a_query_survives_the_table(n, rows, grades, judged, seed):
    import pyarrow as pa

    cuts = ("contiguous", "round_robin", "contiguous")
    queries = [scored(f"q{i}", n, rows, grades, judged, seed + i, cut) for i, cut in enumerate(cuts)]
    table = pa.concat_tables([to_table(q) for q in queries])
    assert table.schema.equals(score_schema())
    assert all(same(a, b) for a, b in zip(queries, from_table(table), strict=True))


def test_unjudged_candidates_stay_unjudged():
    from dataclasses import replace

    query = replace(scored(), relevance=np.array([1.0, np.nan, 0.0]))
    found = next(iter(from_table(to_table(query))))
    assert np.array_equal(found.relevance, [1, np.nan, 0], equal_nan=True)


def test_the_canonical_row_is_kept_apart():
    query = scored(rows=4)
    assert np.array_equal(query.first_stage, query.scores[0])
    assert np.array_equal(query.permuted, query.scores[1:])


def test_orders_are_recovered_from_places():
    query = scored(n=6, rows=3)
    orders = query.orders()
    assert all(np.array_equal(query.slots[1 + m][orders[m]], np.arange(6)) for m in range(2))


def test_a_table_that_does_not_tell_its_partition_is_contiguous():
    table = to_table(scored(partition="round_robin")).drop_columns("partition")
    assert [query.partition for query in from_table(table)] == ["contiguous"]


def test_a_truncated_file_is_named(tmp_path):
    import pyarrow.parquet as pq

    file = tmp_path / "000000.parquet"
    pq.write_table(to_table(scored()), file)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"000000.parquet is damaged.*Run the command that made it again"):
        read_table(file)
