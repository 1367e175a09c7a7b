"""Labels, adapters and runs shared out among workers: every job once, evenly, one stage after the other, one store."""

import json
import pickle

import pytest

from steadyscore.cli import main
from steadyscore.engines import EngineOptions
from steadyscore.paper import work
from steadyscore.paper.artifacts import ARTIFACTS
from steadyscore.paper.jobs import jobs_of, requests_of
from steadyscore.paper.plan import WORKERS, fleet_of, plan_of
from steadyscore.paper.scale import choices_from
from steadyscore.paper.work import Store, Workshop, do_on_ray, do_pieces, open_actor, pieces_of, pieces_of_share
from steadyscore.runs.folder import find_runs
from steadyscore.scoring.parts import Answer, Cluster, Share


def jobs_at(choices, *names):
    return jobs_of(requests_of((cell for name in names for cell in ARTIFACTS[name].cells()), choices), choices)


def plan_at(scale, tmp_path, *names, **given):
    return plan_of([ARTIFACTS[name] for name in names], choices_from(scale, **given), Store(tmp_path))


def of_stage(plan, stage):
    return [piece for piece in plan.pieces if piece.stage == stage]


@pytest.mark.parametrize("workers", [1, 2, 7, 100])
@pytest.mark.parametrize("stage", ["train", "score"])
def test_the_shares_of_all_workers_are_all_jobs_of_a_stage(stage, workers, tmp_path):
    pieces = of_stage(plan_at("laptop", tmp_path, "redistill", "rr-pairflip"), stage)
    shares = [pieces_of_share(pieces, Share(number, workers)) for number in range(1, workers + 1)]
    assert sorted(piece.key for share in shares for piece in share) == sorted(piece.key for piece in pieces)
    assert len({piece.key for piece in pieces}) == len(pieces)


def test_every_label_set_is_made_once_and_by_all_workers(tmp_path):
    pieces = of_stage(plan_at("paper", tmp_path, "levels"), "labels")
    assert len(pieces) == 6  # three tasks, of one order and of ten
    assert [piece.key for piece in pieces_of_share(pieces, Share(2, 8))] == [piece.key for piece in pieces]


def test_every_variant_seed_and_task_is_a_training_of_its_own(tmp_path):
    assert len(of_stage(plan_at("paper", tmp_path, "levels"), "train")) == 5 * 3 * 3


@pytest.mark.parametrize("name", ["levels", "variants", "grids-ndcg"])
def test_eight_gpus_have_about_equally_much_to_do_in_every_stage(name, tmp_path):
    plan = plan_at("paper", tmp_path, name)
    fleets = {count: fleet_of(plan.pieces, count) for count in WORKERS}
    assert 1 <= fleets[8].balance <= 1.3
    assert fleets[1].gpu_hours == pytest.approx(fleets[8].gpu_hours)
    assert fleets[8].wall < fleets[1].wall / 6


def test_a_longer_run_weighs_more_and_a_larger_base_more_than_a_small_one(tmp_path):
    seconds = {piece.work.base_name: piece.seconds for piece in of_stage(plan_at("paper", tmp_path, "grids-ndcg"), "train")}
    assert seconds["qwen3-32b"] == pytest.approx(8 * seconds["qwen3-4b"])
    runs = {p.work.request.collection: p.seconds for p in of_stage(plan_at("paper", tmp_path, "amort"), "score")}
    assert runs["climate-fever"] > 10 * runs["dl19"]


def test_two_workers_fill_the_store_and_the_command_without_a_share_has_nothing_left_to_score(tmp_path, capsys):
    words = ["reproduce", "run", "reportedscore", "--store", str(tmp_path), "--json"]
    runs = []
    for share in ("1/2", "2/2"):
        assert main([*words, "--shard", share]) == 0
        runs.append(json.loads(capsys.readouterr().out)["runs"])
    sessions = {run.folder: run.record.sessions for run in find_runs([tmp_path / "runs"])}
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": sum(runs), "done": sum(runs), "failed": []}
    assert {run.folder: run.record.sessions for run in find_runs([tmp_path / "runs"])} == sessions


def test_a_share_of_what_must_be_trained_names_its_stage(tmp_path, capsys):
    assert main(["reproduce", "run", "rr-pairflip", "--scale", "laptop", "--store", str(tmp_path), "--shard", "1/2"]) == 2
    assert "add --stage labels, train or score" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stage", "said"), [("train", "has no labels yet. Run the same command with --stage labels first."),
                        ("score", "is not trained yet. Run the same command with --stage train first.")],
)  # fmt: skip
def test_a_stage_says_which_one_comes_before_it(stage, said, tmp_path):
    choices = choices_from("laptop")
    jobs = [job for job in jobs_at(choices, "deploywidth") if job.request.collection == "dl19"][:1]
    pieces = [piece for piece in pieces_of(jobs) if piece.stage == stage]
    failed = do_pieces(pieces, Workshop(Store(tmp_path), choices, EngineOptions(), quiet=True, stage=stage), print)
    assert failed
    assert all(sentence.endswith(f"oc-sft of qwen3-4b for passage_reranking, seed 42, {said}") for sentence in failed)
    assert not (tmp_path / "adapters").exists()


def test_an_actor_does_the_jobs_it_is_handed_and_says_what_failed(tmp_path):
    choices = choices_from("tiny", systems={"oc-sft": "python:nowhere:score"})
    pieces = pieces_of(jobs_at(choices, "rr-pairflip"))
    good = next(place for place, piece in enumerate(pieces) if not piece.work.scoring.address)
    bad = next(place for place, piece in enumerate(pieces) if piece.work.scoring.address)
    do = open_actor((Workshop(Store(tmp_path), choices, EngineOptions(), quiet=True, stage="score"), pieces))
    assert do({"piece": good}) == {"failed": [], "remarks": []}
    assert not Store(tmp_path).unmet(pieces[good].work, choices)
    assert "nowhere" in do({"piece": bad})["failed"][0]


def test_a_cluster_is_told_what_it_needs_and_the_command_what_failed(tmp_path, monkeypatch):
    def on_a_cluster(cluster, open_work, argument, rows, *, quiet):
        do = open_work(pickle.loads(pickle.dumps(argument)))
        answers = [Answer(json.loads(json.dumps(do(row)))) for row in rows[1:]]
        return [Answer(None, "its actor died"), *answers]

    monkeypatch.setattr(work, "map_on_ray", on_a_cluster)
    choices, said = choices_from("tiny", systems={"oc-sft": "python:nowhere:score"}), []
    pieces = pieces_of(jobs_at(choices, "rr-pairflip"))
    workshop = Workshop(Store(tmp_path), choices, EngineOptions(), launch=("torchrun", 2))
    workshop._opened = ("a model", open)  # which stays where it is
    do_on_ray(pieces, workshop, Cluster(), said.append)
    assert said[0] == f"{pieces[0].name}: its actor died. It is done here now."
    done = [not Store(tmp_path).unmet(piece.work, choices) for piece in pieces]
    assert done == [place > 0 and not piece.work.scoring.address for place, piece in enumerate(pieces)]
    assert any("nowhere" in sentence for sentence in said[1:])
