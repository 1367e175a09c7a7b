"""`scores:` replays a file or a run by query, permutation and candidate id, and refuses what it does not hold."""

import numpy as np
import pytest

from steadyscore.collection import open_collection
from steadyscore.engines import Recording
from steadyscore.engines.address import open_engine
from steadyscore.errors import InputError
from steadyscore.scoring.score import AuditConfig, Cut, open_scorer, score_collection
from tests.helpers.pools import some_instances, write_collection

CONFIG = AuditConfig(permutations=3)


def score(address, pools, folder, config=CONFIG):
    collection = open_collection(str(pools)).collection
    return score_collection(open_scorer(address, collection, config), str(pools), folder, config)


@pytest.fixture
def original(collection_file, tmp_path):
    return score("synthetic:slot", collection_file, tmp_path / "original")


def same(a, b):
    return all(
        x.query_id == y.query_id
        and np.array_equal(x.scores, y.scores)
        and np.array_equal(x.slots, y.slots)
        and np.array_equal(x.relevance, y.relevance)
        for x, y in zip(a.read_queries(), b.read_queries(), strict=True)
    )


def test_a_run_replays_itself(original, collection_file, tmp_path):
    address = f"scores:{original.folder}"
    assert isinstance(open_engine(address), Recording)
    again = score(address, collection_file, tmp_path / "again")
    assert same(original, again)


def test_a_file_replays_with_fewer_permutations(original, collection_file, tmp_path):
    file = original.folder / "scores.parquet"
    found = score(f"scores:{file}", collection_file, tmp_path / "fewer", AuditConfig(permutations=2)).read_queries()
    assert [q.permutations.tolist() for q in found] == [[-1, 0, 1]] * 4
    assert np.array_equal(found[0].scores, original.read_queries()[0].scores[:3])


def test_the_first_stage_row_may_be_absent(original, collection_file, tmp_path):
    import pyarrow.parquet as pq

    table = pq.read_table(original.folder / "scores.parquet")
    file = tmp_path / "permuted.parquet"
    pq.write_table(table.filter(np.asarray(table["permutation"]) >= 0), file)
    found = score(f"scores:{file}", collection_file, tmp_path / "run").read_queries()
    assert found[0].first_stage is None
    assert np.array_equal(found[0].permuted, original.read_queries()[0].permuted)


@pytest.mark.parametrize(
    ("config", "instances", "message"),
    [
        (AuditConfig(permutations=9), some_instances(), "holds no permutation 3 of query q0"),
        (CONFIG, some_instances(queries=5), "holds no query q4"),
        (AuditConfig(permutations=3, cut=Cut(pool=4)), some_instances(), "differ in candidate d4 of query q0"),
    ],
)
def test_what_was_not_recorded_is_refused(original, tmp_path, config, instances, message):
    other = write_collection(tmp_path / "other.jsonl", instances)
    with pytest.raises(InputError, match=message):
        score(f"scores:{original.folder}", other, tmp_path / "run", config)


def test_a_recording_of_a_distribution_says_so(tiny_engine, collection_file, tmp_path):
    from steadyscore.scoring.score import scorer_for

    config = AuditConfig(permutations=2, cut=Cut(queries=1, pool=3))
    collection = open_collection(str(collection_file)).collection
    score_collection(scorer_for(tiny_engine, collection, config), str(collection_file), tmp_path / "run", config)
    recording = open_engine(f"scores:{tmp_path / 'run'}")
    assert recording.capabilities.gives == "distribution"
    again = score(recording.name, collection_file, tmp_path / "again", config)
    assert np.allclose(again.read_queries()[0].grades.sum(-1), 1)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match=r"file .* does not exist"):
        open_engine(f"scores:{tmp_path / 'none.csv'}")
    with pytest.raises(InputError, match="holds no run"):
        open_engine(f"scores:{tmp_path}")
