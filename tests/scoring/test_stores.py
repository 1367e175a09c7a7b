"""Audits, labels and workers whose folders are in an object store: the tables of a local run, whatever stops them when."""

import re
import uuid
from dataclasses import replace

import fsspec
import pytest

import steadyscore
from steadyscore.audits.audit import Additions, AuditWork, Output, audit
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.errors import InputError
from steadyscore.machine import working_copies
from steadyscore.machine.leases import hold
from steadyscore.machine.stores import Store
from steadyscore.machine.working_copies import close_copies, open_folder
from steadyscore.runs import folder as run_folder
from steadyscore.scoring import parts
from steadyscore.scoring.parts import Share
from steadyscore.scoring.score import AuditConfig, Cut, score_collection, scorer_for
from steadyscore.scoring.workers import score_share
from steadyscore.training.labels import read_labels
from tests.helpers.pools import some_instances, write_collection
from tests.helpers.stores import flip_bit, is_cut_before, without_holders

CONFIG = AuditConfig(permutations=2, cut=Cut(queries=4, pool=4))
MEMORY = fsspec.filesystem("memory")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run_folder, "HELD_FOR_A_STORE", 0.0)
    monkeypatch.setattr(parts.plan_parts, "__kwdefaults__", {"windows": 3})
    yield
    close_copies()


@pytest.fixture
def address():
    return f"memory://{uuid.uuid4().hex}/run"


def score(out, permutations=2, **how):
    how = {"config": CONFIG, "report": False} | how
    return audit("synthetic:slot", "passages", out=out, permutations=permutations, **how)


def work(out):
    return AuditWork(
        {"synthetic:slot": "synthetic:slot"}, ["passages"], CONFIG, EngineOptions(), Additions(), Output(out, report=False)
    )


def names(address):
    root = address.removeprefix("memory:/") + "/"
    return sorted(path.removeprefix(root) for path in MEMORY.find(root))


def content(address, name):
    return MEMORY.cat_file(f"{address.removeprefix('memory:/')}/{name}")


def same_tables(address, folder):
    here = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*.parquet")}
    stored = [name for name in names(address) if name.endswith(".parquet") and "damaged/" not in name]
    return len(here) >= 2 and {name: content(address, name) for name in stored} == here


def place_of(address, file):
    """A file of the only run below an address."""
    (name,) = (name for name in names(address) if name.endswith(file) and "damaged/" not in name)
    return name


def score_only(out, permutations=2):
    """Scored and not measured."""
    config = replace(CONFIG, permutations=permutations)
    source = open_collection("passages")
    with open_folder(out) as folder:
        return score_collection(scorer_for(open_engine("synthetic:slot"), source.collection, config), source, folder, config)


def test_an_audit_in_a_store_has_the_bytes_of_a_local_one(address, tmp_path):
    stored, here = score(address), score(tmp_path / "here")
    assert same_tables(address, tmp_path / "here")
    ends = [name.rpartition("/")[2] for name in names(address)]
    assert sorted(ends) == ["measures.parquet", "queries.parquet", "run.json", "scores.parquet", "summary.json"]
    assert stored[0].figures == here[0].figures
    records = [content(address, place_of(address, name)).decode() for name in ("run.json", "summary.json")]
    assert f'"run": "{address}/' in records[1]
    assert str(tmp_path) not in "".join(records)


def test_every_reading_verb_takes_an_address(address, tmp_path, capsys):
    score(address)
    close_copies()
    assert steadyscore.load(address)[0].figures == steadyscore.load(score(tmp_path / "here")[0].folder)[0].figures
    audit("synthetic:none", "passages", out=f"{address}-none", config=CONFIG, report=False)
    verbs = (f"report {address}", f"compare {address} {address}-none", f"gate {address} --max tau_psi=1", f"doctor {address}")
    for words in verbs:
        close_copies()
        assert main(words.split()) == 0, words
    assert f"{address}/report/index.html" in capsys.readouterr().out
    assert "report/index.html" in names(address)
    assert main(["report", address, "--out", f"{address}-page"]) == 0
    assert "index.html" in names(f"{address}-page")


def test_a_folder_that_holds_no_run_is_named_by_its_address(address, capsys):
    assert main(["gate", address, "--max", "tau_psi=1"]) == 1
    assert capsys.readouterr().err == f"steadyscore: {address} holds no run: neither it nor a folder below it has a run.json.\n"


def test_another_command_is_refused_in_the_words_of_the_address(address, capsys):
    score_only(address)
    command = f"audit --scorer synthetic:none --data passages --queries 4 --pool 4 --permutations 2 --out {address}"
    assert main(command.split()) == 1
    assert f"{address} was made by another command" in capsys.readouterr().err


@pytest.fixture
def no_holders():
    """What is left of the lease of a killed process."""
    with without_holders():
        yield


@pytest.mark.parametrize("is_grown", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["new", "grown"])
def test_a_stop_before_any_change_in_the_store_costs_nothing(address, tmp_path, no_holders, is_grown):
    permutations = 2 + is_grown
    if is_grown:
        score_only(tmp_path / "here")
    score_only(tmp_path / "here", permutations)
    number, was_stopped = 1, True
    while was_stopped:
        place = f"{address}-{number}"
        if is_grown:
            score_only(place)
            close_copies()
        was_stopped = is_cut_before(number, lambda: score_only(place, permutations))  # noqa: B023
        resumed = score_only(place, permutations)
        assert same_tables(place, tmp_path / "here"), number
        assert resumed.record["coverage"]["scored"] == 4
        assert not [name for name in names(place) if re.search(r"shards|damaged|\.lease|earlier", name)]
        close_copies()
        number += 1
    assert number > 13


@pytest.mark.slow
@pytest.mark.parametrize("grown", range(5, 16))
def test_a_growth_that_was_stopped_is_undone_whatever_stops_that(address, tmp_path, no_holders, grown):
    score_only(tmp_path / "here")
    number, was_stopped = 1, True
    while was_stopped:
        place = f"{address}-{number}"
        score_only(place)
        close_copies()
        assert is_cut_before(grown, lambda: score_only(place, 3))  # noqa: B023
        was_stopped = is_cut_before(number, lambda: score_only(place))  # noqa: B023
        score_only(place)
        assert same_tables(place, tmp_path / "here"), number
        close_copies()
        number += 1


def test_workers_that_are_stopped_anywhere_leave_whole_parts(address, tmp_path, no_holders):
    score(tmp_path / "here")
    number, was_stopped = 1, True
    while was_stopped:
        place = f"{address}-{number}"
        was_stopped = is_cut_before(number, lambda: score_share(work(place), Share(1, 1)))  # noqa: B023
        assert all(re.search(r"(^|/)(run\.json|shards/part-\w+\.parquet)$", name) for name in names(place))
        score_share(work(place), Share(2, 2))
        close_copies()
        score(place)
        assert same_tables(place, tmp_path / "here"), number
        close_copies()
        number += 1
    assert number > 5


def test_a_part_that_another_machine_wrote_meanwhile_is_not_scored_again(address):
    _, first = next(work(address).workers())
    assert first.score(0).scored > 0
    working_copies._copies.popitem()  # as if it went on elsewhere
    _, second = next(work(address).workers())
    first.score(1)
    assert [second.score(number).scored for number in (0, 1)] == [0, 0]
    assert len(second.parts) > 1


def test_a_flipped_bit_in_a_part_is_found_set_aside_and_scored_again(address, tmp_path, caplog):
    score(tmp_path / "here")
    score_share(work(address), Share(1, 1))
    part = next(name for name in names(address) if "part-" in name)
    flip_bit(MEMORY, f"{address}/{part}")
    close_copies()
    assert sum(row.scored for row in score_share(work(address), Share(1, 1)).rows) > 0
    (aside,) = (name for name in names(address) if "damaged/shards/part-" in name)
    assert f"moved to {address}/{aside}" in caplog.text
    close_copies()
    score(address)
    assert same_tables(address, tmp_path / "here")


def test_a_flipped_bit_in_a_table_is_found_by_doctor_and_repaired_by_the_same_command(address, tmp_path, capsys):
    score(tmp_path / "here")
    score(address)
    close_copies()
    flip_bit(MEMORY, f"{address}/{place_of(address, 'scores.parquet')}")
    assert main(["doctor", address]) == 1
    assert "damaged" in capsys.readouterr().out
    close_copies()
    score(address)
    assert same_tables(address, tmp_path / "here")
    assert any(name.endswith("damaged/scores.parquet") for name in names(address))


def test_a_second_command_that_would_collect_is_refused(address):
    score_only(address)
    close_copies()
    with hold(Store(address)), pytest.raises(InputError, match=rf"works in {address}\. Wait"):
        score_only(address, 3)
    close_copies()
    assert score_only(address, 3).is_complete


def test_a_collection_in_a_store(address, tmp_path, capsys):
    file = write_collection(tmp_path / "pools.jsonl", some_instances())
    place = f"{address}/pools.jsonl"
    MEMORY.pipe_file(place.removeprefix("memory:/"), file.read_bytes())
    here = audit("synthetic:slot", str(file), permutations=2, cutoff=0.5)
    stored = audit("synthetic:slot", place, permutations=2, cutoff=0.5)
    assert stored[0].figures == here[0].figures
    assert stored[0].record["source"] == place
    assert stored[0].record["fingerprint"]["data"] == here[0].record["fingerprint"]["data"]
    MEMORY.pipe_file(place.removeprefix("memory:/"), file.read_bytes() + b"{\n")
    assert main(["audit", "--scorer", "synthetic:slot", "--data", place, "--out", str(tmp_path / "out")]) == 1
    assert f"{place}:" in capsys.readouterr().err


def test_labels_in_a_store(address, tmp_path):
    made = steadyscore.label("synthetic:slot", "passages", address, queries=4, pool=4, teacher_orders=2)
    assert made.to_json()["out"] == address
    steadyscore.label("synthetic:slot", "passages", tmp_path / "here", queries=4, pool=4, teacher_orders=2)
    assert content(address, "labels.parquet") == (tmp_path / "here" / "labels.parquet").read_bytes()
    close_copies()
    assert [label.query_id for label in read_labels(address)] == [label.query_id for label in made.labels]
    steadyscore.label(start=address, data="passages", out=f"{address}-one", teacher_orders=1)
    assert [len(label.vectors) for label in read_labels(f"{address}-one")] == [1] * 4


def test_rankings_in_a_store(address, tmp_path):
    words = "score --scorer synthetic:slot --data passages --queries 4 --pool 4 --format trec --out"
    assert main([*words.split(), f"{address}/passages.run", "--shard", "1/2"]) == 0
    assert any("passages.run.parts/shards/part-" in name for name in names(address))
    close_copies()
    assert main([*words.split(), f"{address}/passages.run"]) == 0
    assert main([*words.split(), str(tmp_path / "passages.run")]) == 0
    assert names(address) == ["passages.run"]
    assert content(address, "passages.run") == (tmp_path / "passages.run").read_bytes()


def test_what_is_written_here_only_refuses_an_address(capsys):
    with pytest.raises(SystemExit):
        main(["demo", "--out", "s3://bucket/demo"])
    assert "s3://bucket/demo is the address of a store; give a path of this machine" in capsys.readouterr().err
