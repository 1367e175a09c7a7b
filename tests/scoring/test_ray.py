"""Ray on two nodes of this machine: the table of one process, how much faster, and what the simulated scheduler said before.

`make test-ray RAY_PYTHON=...`; faults of a cluster stand in `tests/faults/cases/ray_cluster.py`.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from steadyscore.cli import main
from steadyscore.runs.folder import Run
from steadyscore.runs.layout import SCORES_FILE
from steadyscore.scoring.parts import Cluster, Share, map_on_ray, score_on_ray, score_share
from tests.helpers.cluster import (
    QUERIES_PER_PART,
    Nodes,
    audit_alone,
    make_collection,
    node_work,
    wait_for_parts,
)

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PARTS = 40


@pytest.fixture(scope="module")
def nodes():
    with Nodes(2) as nodes:
        yield nodes


def timed(work, out, score):
    """(manifest, seconds until the first part was begun, seconds from then to the end of the last one), by the clock of files."""
    began = time.time()
    manifest = score(work)
    ends = sorted(file.stat().st_mtime for file in out.glob("parts/scores/*/w*.parquet"))
    first = min(row.seconds for row in manifest.rows)
    opening = ends[0] - began - first
    return manifest, opening, ends[-1] - began - opening


def test_two_nodes_give_the_table_of_one_process_about_twice_as_fast(nodes, tmp_path, capsys):
    data = make_collection(tmp_path, PARTS)
    alone = timed(node_work(data, tmp_path / "one"), tmp_path / "one", lambda work: score_share(work, Share(1, 1)))
    both = timed(node_work(data, tmp_path / "two"), tmp_path / "two", lambda work: score_on_ray(work, Cluster(actors=2)))
    for manifest, _, _ in (alone, both):
        assert not manifest.lost
        assert (len(manifest.rows), sum(row.scored for row in manifest.rows)) == (PARTS, PARTS * QUERIES_PER_PART)
    assert len({note.name.split("-")[0] for note in (tmp_path / "two-notes").iterdir()}) == 2, "both nodes scored"
    ratio = alone[2] / both[2]
    with capsys.disabled():
        print(
            f"\none process {alone[2]:.1f} s, two nodes {both[2]:.1f} s after {both[1]:.1f} s to begin: {ratio:.2f} times as fast"
        )
    for name in ("one", "two"):
        audit_alone(data, tmp_path / name)
    audit_alone(data, tmp_path / "whole")
    assert (tmp_path / "two" / SCORES_FILE).read_bytes() == (tmp_path / "whole" / SCORES_FILE).read_bytes()
    assert (tmp_path / "one" / SCORES_FILE).read_bytes() == (tmp_path / "whole" / SCORES_FILE).read_bytes()
    assert ratio > 1.5


def test_a_node_that_joins_gets_an_actor_and_rows_wait_until_an_actor_has_room(nodes, tmp_path):
    data = make_collection(tmp_path, PARTS)
    nodes.lose(nodes.nodes.pop())
    work = node_work(data, tmp_path / "run")
    with ThreadPoolExecutor(1) as other:
        running = other.submit(score_on_ray, work, Cluster(actors=2))
        wait_for_parts(tmp_path / "run", 2)
        assert len(list(work.notes.iterdir())) == 1, "there is room for one actor"
        nodes.nodes.append(nodes.add())
        manifest = running.result()
    assert len(list(work.notes.iterdir())) == 2, "the new node got one"
    assert sum(row.scored for row in manifest.rows) == PARTS * QUERIES_PER_PART


def open_counter(folder):
    """Counts what its actor did; refuses one row."""
    done = []

    def do(row):
        if row["row"] == 3:
            raise ValueError("odd row")
        done.append(row["row"])
        return row["row"]

    return do


def test_answers_come_in_the_order_of_the_rows_and_a_failure_is_a_value(nodes, tmp_path):
    answers = map_on_ray(Cluster(actors=2), open_counter, tmp_path, [{"row": i} for i in range(12)], quiet=True)
    assert [answer.value for answer in answers] == [i if i != 3 else None for i in range(12)]
    assert answers[3].error == "ValueError: odd row"


def test_the_verbs_run_on_the_cluster_of_this_machine(nodes, tmp_path, capsys):
    words = ["--scorer", "synthetic:slot", "--data", "passages", "--queries", "8"]
    for name, more in (("ray", ["--on", "ray:auto,actors=2"]), ("alone", [])):
        assert main(["score", *words, "--format", "trec", "--out", str(tmp_path / f"{name}.run"), *more]) == 0
        assert main(["label", *words, "--out", str(tmp_path / f"{name}-labels"), *more]) == 0
    assert (tmp_path / "ray.run").read_bytes() == (tmp_path / "alone.run").read_bytes()
    assert (tmp_path / "ray-labels/labels.parquet").read_bytes() == (tmp_path / "alone-labels/labels.parquet").read_bytes()
    assert Run.open(tmp_path / "ray-labels").is_complete
