"""Runs shared out among workers: every job once, nothing that two workers would train or label, the store of one process."""

import json

import pytest

from steadyscore.cli import main
from steadyscore.engines import EngineOptions
from steadyscore.reproduce.artifacts import ARTIFACTS
from steadyscore.reproduce.execute import Store
from steadyscore.reproduce.jobs import jobs_of, requests_of, trainings_of
from steadyscore.reproduce.scale import choices_from
from steadyscore.reproduce.sharing import SharedJobs, independent_groups, jobs_of_share
from steadyscore.runs.find import find_runs
from steadyscore.scoring.parts import Share


def jobs_at(scale, *names):
    choices = choices_from(scale)
    return jobs_of(requests_of((cell for name in names for cell in ARTIFACTS[name].cells()), choices), choices)


@pytest.mark.parametrize("names", [("redistill",), ("rr-pairflip", "reportedscore")])
def test_every_job_is_in_one_group_and_groups_share_neither_adapters_nor_labels(names):
    jobs = jobs_at("laptop", *names)
    groups = independent_groups(jobs)
    assert sorted(job.content.key for group in groups for job in group) == sorted(job.content.key for job in jobs)
    made = [{key for t in trainings_of(group) for key in (t.content.key, t.labels.key)} for group in groups]
    assert sum(map(len, made)) == len(set().union(*made))
    assert all(len(group) == 1 for group, needs in zip(groups, made, strict=True) if not needs)


@pytest.mark.parametrize("workers", [1, 2, 7, 100])
def test_the_shares_of_all_workers_are_all_jobs(workers):
    jobs = jobs_at("tiny", "rr-pairflip", "reportedscore")
    shares = [jobs_of_share(jobs, Share(number, workers)) for number in range(1, workers + 1)]
    assert sorted(job.content.key for share in shares for job in share) == sorted(job.content.key for job in jobs)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_two_workers_fill_the_store_and_the_command_without_a_share_has_nothing_left_to_score(tmp_path, capsys):
    words = ["reproduce", "run", "reportedscore", "--store", str(tmp_path), "--json"]
    runs = []
    for share in ("1/2", "2/2"):
        assert main([*words, "--shard", share]) == 0
        runs.append(json.loads(capsys.readouterr().out)["runs"])
    sessions = {run.folder: run.record["sessions"] for run in find_runs([tmp_path / "runs"])}
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": sum(runs), "done": sum(runs), "failed": []}
    assert {run.folder: run.record["sessions"] for run in find_runs([tmp_path / "runs"])} == sessions


def test_an_actor_does_the_groups_it_is_handed_and_says_what_failed(tmp_path):
    jobs, choices = jobs_at("tiny", "rr-pairflip"), choices_from("tiny", systems={"oc-sft": "python:nowhere:score"})
    absent = next(job for job in jobs_of(requests_of(ARTIFACTS["rr-pairflip"].cells(), choices), choices) if job.scoring.address)
    shared = SharedJobs([[jobs[0]], [absent]], Store(tmp_path), choices, EngineOptions())
    do = shared.open()
    assert do({"group": 0}) == {"failed": [], "remarks": []}
    assert not Store(tmp_path).unmet(jobs[0], choices)
    assert "nowhere" in do({"group": 1})["failed"][0]
