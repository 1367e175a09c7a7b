"""Scores given before: `scores:` by query, permutation and candidate id; `first-stage:` as the pool came, always the same."""

import json

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines import Recording
from steadyscore.engines.kinds import open_engine
from steadyscore.errors import InputError
from steadyscore.measures.ranking import ndcg
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer
from steadyscore.scoring.score import score_collection
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
    from steadyscore.scoring.config import scorer_for

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


# -- the first stage


def test_an_audit_has_the_quality_of_the_pools_order_and_moves_nowhere(collection_file):
    audit = steadyscore.audit("first-stage:", str(collection_file), permutations=3, quiet=True)[0]
    relevance = np.array([[c["relevance"] for c in one["candidates"]] for one in some_instances()])
    own_order = -np.arange(6.0)[None]
    expected = np.mean([ndcg(own_order, gold, 10)[0] for gold in relevance])
    assert audit["ndcg@10"].value == pytest.approx(expected, abs=1e-12)
    assert (audit["tau_psi"].value, audit["pair_flip"].value, audit["overlap@10"].value) == (0, 0, 1)
    assert "overlap" not in audit.figures  # a ranking has no threshold


def test_it_stands_beside_other_scorers(collection_file):
    audits = steadyscore.audit(["first-stage:", "synthetic:slot"], str(collection_file), permutations=2, quiet=True)
    assert steadyscore.compare(*audits).baseline == "first-stage:"


def test_a_single_pool_is_ranked_as_it_came(collection_file, capsys):
    assert main(["score", "--scorer", "first-stage:", "--data", str(collection_file), "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["candidate_id"] for row in rows[:6]] == [f"d{c}" for c in range(6)]


def test_a_recording_scores_only_the_order_it_holds(collection_file, tmp_path):
    steadyscore.audit("synthetic:slot", str(collection_file), out=tmp_path / "run", permutations=2, report=False, quiet=True)
    source = open_collection(str(collection_file))
    instance = next(iter(source.instances()))
    replay, live = (
        open_scorer(address, source.collection, AuditConfig()) for address in (f"scores:{tmp_path / 'run'}", "synthetic:slot")
    )
    assert replay.score(instance).tolist() == live.score(instance).tolist()
    with pytest.raises(InputError, match="holds no scores of this order of query q0"):
        replay.score(instance, [1, 0, 2, 3, 4, 5])


def test_words_after_the_colon_are_refused():
    with pytest.raises(InputError, match="takes nothing after its colon"):
        open_engine("first-stage:bm25")
