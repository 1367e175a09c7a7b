"""Audits, labels and workers whose folders are in an object store: the tables of a local run, whatever stops them when."""

import re
import uuid
from dataclasses import replace

import fsspec
import pytest

import steadyscore
from steadyscore.audits.audit import ScorerInput, audit
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.machine.places import parse_place
from steadyscore.runs import folder as run_folder
from steadyscore.scoring import parts
from steadyscore.scoring.config import AuditConfig, Cut, scorer_for
from steadyscore.scoring.parts import Share, score_share
from steadyscore.scoring.score import score_collection
from steadyscore.training.labels import read_labels
from tests.helpers.pools import some_instances, write_collection
from tests.helpers.stores import flip_bit, is_cut_before

CONFIG = AuditConfig(permutations=2, cut=Cut(queries=4, pool=4))
MEMORY = fsspec.filesystem("memory")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run_folder, "HELD_FOR_A_STORE", 0.0)
    monkeypatch.setattr(parts.plan_parts, "__kwdefaults__", {"windows": 3})


@pytest.fixture
def address():
    return f"memory://{uuid.uuid4().hex}/run"


def score(out, permutations=2, **how):
    how = {"config": CONFIG, "report": False} | how
    return audit("synthetic:slot", "passages", out=out, permutations=permutations, **how)


def work(out):
    return ScorerInput({"synthetic:slot": "synthetic:slot"}, ["passages"], CONFIG, EngineOptions(), parse_place(out))


def names(address):
    root = address.removeprefix("memory:/") + "/"
    return sorted(path.removeprefix(root) for path in MEMORY.find(root))


def content(address, name):
    return MEMORY.cat_file(f"{address.removeprefix('memory:/')}/{name}")


def same_tables(address, folder):
    """The views, whose bytes are equal whoever wrote what."""
    files = [file for file in folder.rglob("*.parquet") if "parts" not in file.parts]
    here = {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
    stored = [name for name in names(address) if name.endswith(".parquet") and not re.search("damaged/|parts/", name)]
    return len(here) >= 2 and {name: content(address, name) for name in stored} == here


def place_of(address, file):
    """A file of the only run below an address."""
    (name,) = (name for name in names(address) if name.endswith(file) and "damaged/" not in name)
    return name


def score_only(out, permutations=2):
    """Scored and not measured."""
    config = replace(CONFIG, permutations=permutations)
    source = open_collection("passages")
    scorer = scorer_for(open_engine("synthetic:slot"), source.collection, config)
    return score_collection(scorer, source, parse_place(out), config)


def test_an_audit_in_a_store_has_the_bytes_of_a_local_one(address, tmp_path):
    stored, here = score(address), score(tmp_path / "here")
    assert same_tables(address, tmp_path / "here")
    ends = [name.rpartition("/")[2] for name in names(address) if not re.search("parts/|requests/", name)]
    tables = ["measures.parquet", "queries.parquet", "run.json", "scores.parquet", "status.json", "summary.json"]
    assert sorted(ends) == tables
    assert stored[0].figures == here[0].figures
    records = [content(address, place_of(address, name)).decode() for name in ("run.json", "summary.json")]
    assert f'"run": "{address}/' in records[1]
    assert str(tmp_path) not in "".join(records)


def test_every_reading_verb_takes_an_address(address, tmp_path, capsys):
    score(address)
    assert steadyscore.load(address)[0].figures == steadyscore.load(score(tmp_path / "here")[0].folder)[0].figures
    audit("synthetic:none", "passages", out=f"{address}-none", config=CONFIG, report=False)
    verbs = (f"report {address}", f"compare {address} {address}-none", f"gate {address} --max tau_psi=1", f"doctor {address}")
    for words in verbs:
        assert main(words.split()) == 0, words
    assert f"{address}/report/index.html" in capsys.readouterr().out
    assert "report/index.html" in names(address)
    for runs in ([address], [address, f"{address}-none"]):
        assert main(["report", *runs, "--out", f"{address}-page"]) == 0
    assert "index.html" in names(f"{address}-page")


def test_a_folder_that_holds_no_run_is_named_by_its_address(address, capsys):
    assert main(["gate", address, "--max", "tau_psi=1"]) == 1
    assert capsys.readouterr().err == f"steadyscore: {address} holds no run: neither it nor a folder below it has a run.json.\n"


def test_another_command_is_refused_in_the_words_of_the_address(address, capsys):
    score_only(address)
    command = f"audit --scorer synthetic:none --data passages --queries 4 --pool 4 --permutations 2 --out {address}"
    assert main(command.split()) == 1
    assert f"{address} was made by another command" in capsys.readouterr().err


@pytest.mark.parametrize("is_grown", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["new", "grown"])
def test_a_stop_before_any_change_in_the_store_costs_nothing(address, tmp_path, is_grown):
    permutations = 2 + is_grown
    if is_grown:
        score_only(tmp_path / "here")
    score_only(tmp_path / "here", permutations)
    number, was_stopped = 1, True
    while was_stopped:
        place = f"{address}-{number}"
        if is_grown:
            score_only(place)
        was_stopped = is_cut_before(number, lambda: score_only(place, permutations))  # noqa: B023
        resumed = score_only(place, permutations)
        assert same_tables(place, tmp_path / "here"), number
        assert resumed.record.coverage.scored == 4
        assert not [name for name in names(place) if re.search(r"damaged|parts/scores/[sw]", name)]
        number += 1
    assert number > 13


def test_workers_that_are_stopped_anywhere_leave_whole_parts(address, tmp_path):
    score(tmp_path / "here")
    number, was_stopped = 1, True
    while was_stopped:
        place = f"{address}-{number}"
        was_stopped = is_cut_before(number, lambda: score_share(work(place), Share(1, 1)))  # noqa: B023
        assert all(re.search(r"(^|/)(run\.json|parts/scores/w../w[\w-]+\.parquet)$", name) for name in names(place))
        score_share(work(place), Share(2, 2))
        score(place)
        assert same_tables(place, tmp_path / "here"), number
        number += 1
    assert number > 5


def test_a_part_that_another_machine_wrote_meanwhile_is_not_scored_again(address):
    _, first = next(work(address).workers())
    assert first.score(0).scored > 0
    _, second = next(work(address).workers())
    first.score(1)
    assert [second.score(number).scored for number in (0, 1)] == [0, 0]
    assert len(second.parts) > 1


def test_a_flipped_bit_in_a_part_is_found_set_aside_and_scored_again(address, tmp_path, caplog):
    score(tmp_path / "here")
    score_share(work(address), Share(1, 1))
    part = next(name for name in names(address) if "/w" in name)
    flip_bit(MEMORY, f"{address}/{part}")
    assert sum(row.scored for row in score_share(work(address), Share(1, 1)).rows) > 0
    assert [name for name in names(address) if "damaged/scores/w" in name]
    assert f"{address}/{part} is damaged" in caplog.text
    score(address)
    assert same_tables(address, tmp_path / "here")


def test_a_flipped_bit_in_a_table_is_found_by_doctor_and_repaired_by_the_same_command(address, tmp_path, capsys):
    score(tmp_path / "here")
    score(address)
    (part,) = (name for name in names(address) if "parts/scores/c-" in name)
    flip_bit(MEMORY, f"{address}/{part}")
    assert main(["doctor", address]) == 1
    assert "damaged" in capsys.readouterr().out
    score(address)
    assert same_tables(address, tmp_path / "here")
    assert any("damaged/scores/c-" in name for name in names(address))


def test_a_second_command_in_a_folder_of_a_store_may_pay_twice_and_changes_nothing(address, tmp_path):
    """It begins while the first is at work, and ends before it."""
    score_only(tmp_path / "here")
    source, other = open_collection("passages"), []
    config = replace(CONFIG, permutations=2)
    scorer = scorer_for(open_engine("synthetic:slot"), source.collection, config)
    real = scorer.score_orders

    def meanwhile(instance, orders, numbers):
        if not other:
            other.append(None)
            other.append(score_only(address))
        return real(instance, orders, numbers)

    scorer.score_orders = meanwhile
    first = score_collection(scorer, source, parse_place(address), config)
    assert first.is_complete
    assert other[1].is_complete
    assert same_tables(address, tmp_path / "here")


def test_a_collection_in_a_store(address, tmp_path, capsys):
    file = write_collection(tmp_path / "pools.jsonl", some_instances())
    place = f"{address}/pools.jsonl"
    MEMORY.pipe_file(place.removeprefix("memory:/"), file.read_bytes())
    here = audit("synthetic:slot", str(file), permutations=2, cutoff=0.5)
    stored = audit("synthetic:slot", place, permutations=2, cutoff=0.5)
    assert stored[0].figures == here[0].figures
    assert stored[0].record.source == place
    assert stored[0].record.fingerprint.data == here[0].record.fingerprint.data
    MEMORY.pipe_file(place.removeprefix("memory:/"), file.read_bytes() + b"{\n")
    assert main(["audit", "--scorer", "synthetic:slot", "--data", place, "--out", str(tmp_path / "out")]) == 1
    assert f"{place}:" in capsys.readouterr().err


def test_labels_in_a_store(address, tmp_path):
    made = steadyscore.label("synthetic:slot", "passages", address, queries=4, pool=4, teacher_orders=2)
    assert made.to_json()["out"] == address
    steadyscore.label("synthetic:slot", "passages", tmp_path / "here", queries=4, pool=4, teacher_orders=2)
    assert content(address, "labels.parquet") == (tmp_path / "here" / "labels.parquet").read_bytes()
    assert [label.query_id for label in read_labels(address)] == [label.query_id for label in made.labels]
    steadyscore.label(start=address, data="passages", out=f"{address}-one", teacher_orders=1)
    assert [len(label.vectors) for label in read_labels(f"{address}-one")] == [1] * 4


def test_rankings_in_a_store(address, tmp_path):
    words = "score --scorer synthetic:slot --data passages --queries 4 --pool 4 --format trec --out"
    assert main([*words.split(), f"{address}/passages.run", "--shard", "1/2"]) == 0
    assert any(re.search("passages.run.parts/parts/scores/.*/w", name) for name in names(address))
    assert main([*words.split(), f"{address}/passages.run"]) == 0
    assert main([*words.split(), str(tmp_path / "passages.run")]) == 0
    assert names(address) == ["passages.run"]
    assert content(address, "passages.run") == (tmp_path / "passages.run").read_bytes()


def test_what_is_written_here_only_refuses_an_address(capsys):
    with pytest.raises(SystemExit):
        main(["demo", "--out", "s3://bucket/demo"])
    assert "s3://bucket/demo is the address of a store; give a path of this machine" in capsys.readouterr().err
