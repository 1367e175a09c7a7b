"""A dry run that is asked about workers tells parts, bytes, hours and money; what it tells of parts and bytes comes true."""

import json

import pytest

from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.scoring.parts import Share, plan_parts
from steadyscore.scoring.rate import Rate
from steadyscore.scoring.score import AuditConfig, Cut, open_scorer
from steadyscore.scoring.scorer import Settings
from steadyscore.scoring.sizing import SIMULATED_PARTS, FleetQuestion, _merge, size_fleet
from steadyscore.scoring.workers import score_share
from tests.scoring.test_parts import work

CONFIG = AuditConfig(permutations=9, settings=Settings(width=5))
SECONDS = 32 * 40 * 0.5
"""Half a second for each of the forty windows of 32 queries: ten orders of a pool of twenty."""


TIMED = Rate(4, 1000, 2.0, opening=3.0)
NOTHING = FleetQuestion()


def size(question=NOTHING, timed=TIMED, seconds=SECONDS, config=CONFIG):
    return size_fleet("synthetic:slot", open_collection("passages"), config, [], timed, seconds, question)


def test_parts_and_windows_are_those_that_workers_plan():
    source = open_collection("passages")
    planned = plan_parts(open_scorer("synthetic:slot", source.collection, CONFIG), source, CONFIG)
    found = size()
    assert (found.parts, found.windows) == (len(planned), sum(part.windows for part in planned))
    assert found.largest_part == max(part.windows for part in planned)


def test_the_bytes_are_about_those_of_the_parts(tmp_path):
    config = AuditConfig(permutations=20, cut=Cut(queries=32))
    score_share(work(tmp_path, config=config), Share(1, 1))
    written = sum(file.stat().st_size for file in tmp_path.glob("**/part-*.parquet"))
    assert size(config=config).part_bytes == pytest.approx(written, rel=0.35)  # numbers of which none repeats weigh more


def test_hours_and_money_follow_the_workers():
    one, eight, asked = size(FleetQuestion(workers=9, hourly_price=3.0)).fleets
    assert (one.workers, eight.workers, asked.workers) == (1, 8, 9)
    assert one.hours == pytest.approx((SECONDS + 3) / 3600)
    assert one.cost == pytest.approx(3 * one.hours)
    assert eight.hours < one.hours / 5
    assert asked.cost == pytest.approx(3 * 9 * asked.hours)
    assert one.tail_seconds == 0 < asked.tail_seconds


def test_the_workers_for_a_time_are_found_or_it_is_too_short():
    found = size(FleetQuestion(hours=200 / 3600))
    assert found.needed == 4  # eight parts of 80 s, two for each worker
    assert found.needed in [fleet.workers for fleet in found.fleets]
    assert found.hours_text() == "4 workers end within 0.0555556 hours.\n"
    short = size(FleetQuestion(hours=10 / 3600))
    assert short.needed is None
    assert "No number of workers ends within" in short.hours_text()


def test_without_a_time_only_parts_and_bytes_are_told():
    found = size(timed=None, seconds=None)
    assert (found.fleets, found.needed, found.seconds_per_window) == ((), None, None)
    assert found.parts > 0
    assert found.part_bytes > 0


def test_very_many_parts_are_simulated_together():
    merged = _merge([3] * (2 * SIMULATED_PARTS + 1))
    assert len(merged) <= SIMULATED_PARTS
    assert sum(merged) == 3 * (2 * SIMULATED_PARTS + 1)


@pytest.mark.parametrize("verb", ["audit", "label", "score"])
def test_every_verb_that_scores_is_sized(verb, tmp_path, capsys):
    words = [verb, "--scorer", "synthetic:slot", "--data", "passages", "--dry-run", "--out", str(tmp_path / "run")]
    assert main([*words, "--shard", "1/3", "--hours", "2", "--hourly-price", "1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["workers"]["parts"] >= 1
    assert found["workers"]["needed"] == 1
    assert {"workers", "hours", "busy_share", "tail_seconds", "tail_parts", "cost"} == set(found["workers"]["fleets"][0])
    assert main([*words, "--actors", "3"]) == 0
    out = capsys.readouterr().out
    assert "workers  hours" in out
    assert "a window" in out
    assert not (tmp_path / "run").exists()
    assert main([*words, "--json"]) == 0
    assert "workers" not in json.loads(capsys.readouterr().out)[0]


@pytest.mark.parametrize("verb", ["audit", "label", "score"])
def test_hours_without_a_dry_run_are_wrong_usage(verb, tmp_path, capsys):
    words = [verb, "--scorer", "synthetic:slot", "--data", "passages", "--out", str(tmp_path / "run"), "--hours", "2"]
    assert main(words) == 2
    assert "--hours sizes a cluster: add --dry-run" in capsys.readouterr().err
