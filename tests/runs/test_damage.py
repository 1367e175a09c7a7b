"""A run folder after bits flipped, files were cut or deleted: named, repaired by the same command, never other numbers."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from steadyscore.audits.load import load_run
from steadyscore.cli import main
from steadyscore.errors import DamagedFile, InputError, SteadyscoreError
from steadyscore.machine.checksums import parquet_state, record_state, seal_record
from steadyscore.measures import intervals
from steadyscore.measures.measurement import measure
from steadyscore.models.card import read_card
from steadyscore.runs.folder import Run, find_run
from steadyscore.runs.table import read_table, to_table
from steadyscore.training import recipe
from tests.helpers.pools import a_card, some_instances, write_collection
from tests.runs.test_folder import audit, half_done
from tests.runs.test_table import scored

BESIDE = ("--noise-floor", "--perturb", "drop", "replace")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Figures are compared with each other here, so a few draws of the bootstrap say as much as all of them."""
    for name in ("mean_interval", "paired_interval"):
        monkeypatch.setattr(f"steadyscore.audits.figure.{name}", partial(getattr(intervals, name), draws=10))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A folder with a run that has every table an audit without a reader writes, and its collection beside it."""
    folder = tmp_path_factory.mktemp("finished")
    write_collection(folder / "pools.jsonl", some_instances())
    assert main(command(folder)) == 0
    return folder


def command(folder: Path, *more: str) -> list[str]:
    words = ["audit", "--scorer", "synthetic:slot", "--data", str(folder / "pools.jsonl"), "--permutations", "3"]
    return [*words, *BESIDE, "--no-report", "--out", str(folder / "run"), *more]


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    """A copy to damage, with everything in one folder, as earlier versions wrote one scorer on one collection.

    The collection stays where it was: its path is no part of a fingerprint.
    """
    folder = Path(shutil.copytree(find_run(finished).folder, tmp_path / "run"))
    for name in ("summary.json", "measures.parquet"):
        shutil.copy(finished / "run" / name, folder)
    return folder


def again(copy: Path, finished: Path) -> int:
    """The command that made the run, on its copy."""
    words = command(finished)
    words[words.index("--out") + 1] = str(copy)
    return main(words)


def figures(folder: Path) -> dict:
    whole = load_run(Run.open(folder)).to_json()
    return {key: whole[key] for key in ("measures", "coverage", "cutoff", "slot_profile")}


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def same_table(one: Path, other: Path) -> bool:
    return read_table(one / "scores.parquet").equals(read_table(other / "scores.parquet"))


def flipped_outcome(folder: Path, file: Path, before: dict, measured: bytes) -> str:
    """What a damaged folder says: `refused`, `seen by doctor`, `without effect`, or `silently other`."""
    try:
        if figures(folder) != before:
            return "silently other"
    except SteadyscoreError:
        return "refused"
    if file.name in ("summary.json", "measures.parquet"):  # written for people and other programs: doctor judges them
        if main(["doctor", str(folder)]) == 1:
            return "seen by doctor"
        return "without effect" if _content(file) == measured else "silently other"
    return "without effect"


def _content(file: Path) -> bytes:
    """What a file says, whatever its layout is."""
    if file.suffix != ".json":
        return str(pq.read_table(file).to_pylist()).encode()
    value = json.loads(file.read_bytes())
    return json.dumps([v for k, v in value.items() if k in ("measures", "coverage", "cutoff", "runs")]).encode()


def flip_bits(finished: Path, copy: Path, count: int) -> Counter:
    """Single flips spread evenly over every file of a finished run."""
    before, dice, found = figures(copy), random.Random(0), Counter()
    files = files_of(copy)
    for n in range(count):
        file = files[n % len(files)]
        whole, measured = file.read_bytes(), _content(file)
        flip(file, dice.randrange(8 * len(whole)))
        found[flipped_outcome(copy, file, before, measured)] += 1
        file.write_bytes(whole)
    return found


def test_a_flipped_bit_of_a_finished_run_never_gives_other_numbers(finished, copy, capsys):
    found = flip_bits(finished, copy, 64)
    assert found["silently other"] == 0
    assert found["refused"] > 20


@pytest.mark.slow
def test_500_flipped_bits_of_finished_and_unfinished_runs(finished, copy, collection_file, tmp_path, capsys):
    found = flip_bits(finished, copy, 350) + flip_shards(collection_file, tmp_path, 150)
    with capsys.disabled():
        print(f"\n500 bit flips: {dict(found)}, silently other {found['silently other']}")
    assert found.total() == 500
    assert found["silently other"] == 0


def flip_shards(collection: Path, folder: Path, count: int) -> Counter:
    """Single flips over run.json and the shards of a run that stopped, which is then taken up."""
    half, whole, dice, found = folder / "half", folder / "whole", random.Random(1), Counter()
    half_done(collection, half)
    audit(collection, whole)
    rows = sorted(read_table(whole / "scores.parquet").to_pylist(), key=str)
    names = [file.relative_to(half) for file in files_of(half)]
    for n in range(count):
        trial = Path(shutil.copytree(half, folder / "trial"))
        file = trial / names[n % len(names)]
        flip(file, dice.randrange(8 * file.stat().st_size))
        try:
            audit(collection, trial)
            repaired = "repaired" if list(trial.glob("damaged/**/*.parquet")) else "without effect"
            equal = sorted(read_table(trial / "scores.parquet").to_pylist(), key=str) == rows
            found[repaired if equal else "silently other"] += 1
        except SteadyscoreError:
            found["refused"] += 1
        shutil.rmtree(trial)
    return found


def test_a_flipped_bit_of_an_unfinished_run_never_gives_another_table(collection_file, tmp_path):
    found = flip_shards(collection_file, tmp_path, 30)
    assert found["silently other"] == 0
    assert found["repaired"] >= 15


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 0.999])
@pytest.mark.parametrize("name", ["scores.parquet", "queries.parquet", "noise.parquet", "perturbed-drop.parquet"])
def test_a_truncated_table_is_named_with_the_command_that_repairs_it_and_is_repaired(finished, copy, name, share, caplog):
    before, file = figures(copy), copy / name
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(DamagedFile, match=f"{name} is damaged.*To repair the run: steadyscore audit --scorer synthetic:slot"):
        figures(copy)
    assert again(copy, finished) == 0
    assert f"{name} is damaged" in caplog.text
    assert (copy / "damaged" / name).exists()
    assert figures(copy) == before
    assert same_table(copy, find_run(finished).folder)


@pytest.mark.parametrize("name", ["scores.parquet", "queries.parquet", "noise.parquet", "perturbed-replace.parquet"])
def test_a_deleted_table_is_missed_and_made_again(finished, copy, name):
    before = figures(copy)
    (copy / name).unlink()
    with pytest.raises(DamagedFile, match=f"{name} is missing. To repair the run: steadyscore audit"):
        figures(copy)
    assert main(["gate", str(copy), "--max", "tau_psi=1"]) == 1
    assert main(["doctor", str(copy)]) == 1
    assert again(copy, finished) == 0
    assert figures(copy) == before
    assert same_table(copy, find_run(finished).folder)
    assert main(["doctor", str(copy)]) == 0


def test_a_table_beside_the_scores_that_is_not_asked_for_again_is_set_aside_and_said(finished, copy, caplog):
    flip(copy / "noise.parquet", 999)
    words = [word for word in command(finished) if word != "--noise-floor"]
    words[words.index("--out") + 1] = str(copy)
    with caplog.at_level(logging.WARNING):
        assert main(words) == 0
    assert (
        "noise.parquet is damaged: it is not what was written. It is set aside; pass --noise-floor to make it again."
        in caplog.text
    )
    assert "floor" not in figures(copy)["measures"]["tau_psi"]
    assert [told["file"] for told in Run.open(copy).record["set_aside"]] == ["noise.parquet"]


@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_shard_is_set_aside_and_only_its_queries_are_scored_again(collection_file, tmp_path, which, monkeypatch):
    half_done(collection_file, tmp_path / "half")
    shard = sorted((tmp_path / "half" / "shards").glob("*.parquet"))[which]
    lost = set(read_table(shard).column("query_id").to_pylist())
    flip(shard, 8 * shard.stat().st_size // 3)
    asked: list[str] = []
    from steadyscore.scoring.scorer import Scorer

    real = Scorer.score_orders
    monkeypatch.setattr(Scorer, "score_orders", lambda self, i, *rest: asked.append(i.id) or real(self, i, *rest))
    audit(collection_file, tmp_path / "half")
    assert set(asked) == lost | {"q2", "q3"}
    assert (tmp_path / "half" / "damaged" / "shards" / shard.name).exists()
    audit(collection_file, tmp_path / "whole")
    tables = [read_table(tmp_path / name / "scores.parquet").to_pylist() for name in ("half", "whole")]
    assert sorted(tables[0], key=str) == sorted(tables[1], key=str)


def test_a_folder_of_an_earlier_version_loads_and_resumes_and_is_called_not_checksummed(collection_file, tmp_path, capsys):
    def age(folder: Path) -> None:
        """As a folder was written before there were checksums."""
        for file in folder.rglob("*.parquet"):
            pq.write_table(pq.read_table(file), file)
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({k: v for k, v in record.items() if k not in ("sha256", "files")}))

    audit(collection_file, tmp_path / "whole")
    half_done(collection_file, tmp_path / "half")
    age(tmp_path / "half")
    audit(collection_file, tmp_path / "half")
    assert same_table(tmp_path / "half", tmp_path / "whole")
    before = figures(tmp_path / "whole")
    age(tmp_path / "whole")
    assert figures(tmp_path / "whole") == before
    assert main(["doctor", str(tmp_path / "whole"), "--json"]) == 0
    states = {row["file"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states == dict.fromkeys(("run.json", "queries.parquet", "scores.parquet"), "not checksummed") | {"rows": "OK"}
    audit(collection_file, tmp_path / "whole")


# -- doctor


def test_doctor_names_every_file_of_every_run_and_what_is_damaged(finished, copy, capsys):
    assert main(["doctor", str(copy), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["state"] for row in told} == {"OK"}
    assert {row["file"] for row in told} >= {file.name for file in files_of(copy)} | {"rows"}
    shutil.copytree(copy, copy.parent / "other")
    flip(copy / "scores.parquet", 4000)
    (copy / ".scores.parquet.1.tmp").write_bytes(b"half")
    assert main(["doctor", str(copy.parent)]) == 1
    out = capsys.readouterr().out
    assert out.count("damaged: it is not what was written") == 1
    assert "left by a process that was killed" in out
    assert str(copy.parent / "other") in out


def test_doctor_looks_at_what_stands_beside_the_runs_too(finished, tmp_path, capsys):
    out = Path(shutil.copytree(finished / "run", tmp_path / "run"))
    assert main(["doctor", str(out), "--json"]) == 0
    assert {file.name for file in files_of(out)} <= {row["file"] for row in json.loads(capsys.readouterr().out)}
    flip(out / "summary.json", 4000)
    flip(out / "measures.parquet", 4000)
    assert main(["doctor", str(out)]) == 1
    assert capsys.readouterr().out.count("it is written anew") == 2


def test_doctor_counts_rows_against_run_json(collection_file, tmp_path, capsys):
    run = audit(collection_file, tmp_path / "run")
    table = read_table(run.folder / "scores.parquet")
    run.write("scores.parquet", table.slice(24))
    assert main(["doctor", str(run.folder)]) == 1
    assert "queries in scores.parquet: 3, run.json says 4" in capsys.readouterr().out
    run.write("scores.parquet", table.slice(1))
    assert main(["doctor", str(run.folder)]) == 1
    assert "1 queries lack candidates under some permutations: q0" in capsys.readouterr().out


# -- records


KINDS = {"list": [1], "null": None, "number": 7, "text": "x", "missing": ...}


def changed_records(record: dict, kind: str):
    """A record with one of its values replaced by another kind, or taken out: every key, and every key of its objects."""
    nested = [(key, inner) for key in ("fingerprint", "coverage", "threshold") for inner in record[key]]
    for place in [*((key,) for key in record), *nested]:
        changed = json.loads(json.dumps(record))
        inside = changed if len(place) == 1 else changed[place[0]]
        inside[place[-1]] = KINDS[kind]
        if kind == "missing":
            del inside[place[-1]]
        yield place, changed


@pytest.mark.parametrize("kind", KINDS)
def test_a_sealed_record_that_was_changed_is_refused_wherever_it_was(copy, kind, capsys):
    file = copy / "run.json"
    record = json.loads(file.read_text())
    for place, changed in changed_records(record, kind):
        if place == ("sha256",) or changed == record:
            continue
        file.write_text(json.dumps(changed))
        with pytest.raises(SteadyscoreError, match=r"changed since it was written|has format"):
            Run.open(copy)
    assert main(["gate", str(copy), "--max", "tau_psi=1"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_run_json_holds_the_answer_is_a_sentence(finished, copy, kind, capsys, monkeypatch):
    """A record of other kinds is refused where it is opened; one that opens goes through every command that reads it."""
    measured = measure(Run.open(copy).queries())  # of the same scores every time: the numbers are not in question here
    monkeypatch.setattr("steadyscore.audits.load.measure", lambda *_: measured)
    file = copy / "run.json"
    opened = 0
    for place, changed in changed_records(json.loads(file.read_text()), kind):
        changed.pop("sha256", None)
        file.write_text(json.dumps(changed))
        try:
            Run.open(copy)
        except SteadyscoreError:
            continue
        opened += 1
        for words in (["gate", str(copy), "--max", "tau_psi=1"], ["doctor", str(copy)], ["compare", str(copy), str(finished)]):
            assert main(words) in (0, 1, 3), (place, words)
    assert opened
    capsys.readouterr()


@pytest.mark.parametrize(
    "content",
    [b"[]", b"null", b"7", b'"x"', b"\xff\xfe{", b"{", b"", b"[" * 2_000],
    ids=["list", "null", "number", "string", "not UTF-8", "cut", "empty", "nested"],
)
def test_bytes_that_are_no_record_are_a_sentence(copy, tmp_path, content, capsys):
    (copy / "run.json").write_bytes(content)
    with pytest.raises(DamagedFile, match=r"run.json (cannot be read|holds).*Copy it back"):
        Run.open(copy)
    assert main(["doctor", str(copy)]) == 1
    (copy / "card.json").write_bytes(content)
    with pytest.raises(DamagedFile, match=r"card.json (cannot be read|holds).*Copy it back"):
        read_card(copy)
    (tmp_path / "r.yaml").write_bytes(content)
    with pytest.raises(InputError, match=r"r.yaml (is not text in UTF-8|is not YAML|holds no keys)"):
        recipe.read_recipe(str(tmp_path / "r.yaml"))


def test_all_mistakes_of_a_record_are_said_at_once(copy):
    (copy / "run.json").write_text('{"format": 1, "status": "done", "name": 3, "fingerprint": {}, "future": {"key": 1}}')
    with pytest.raises(InputError) as refusal:
        Run.open(copy)
    words = str(refusal.value)
    for mistake in (
        "status: input should be 'scoring' or 'complete'",
        "name: input should be a valid string",
        "task: field required",
    ):
        assert mistake in words
    assert "future" not in words


def test_a_record_changed_by_hand_is_refused_until_its_checksum_is_deleted(copy):
    file = copy / "run.json"
    text = file.read_text().replace('"name": "synthetic', '"name": "my synthetic')
    file.write_text(text)
    with pytest.raises(
        DamagedFile, match=r'was changed since it was written\. If you changed it on purpose, delete its line "sha256"'
    ):
        Run.open(copy)
    lines = text.splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"sha256": ' not in line or not line.startswith('  "sha256"')))
    assert Run.open(copy).record["name"].startswith("my synthetic")


def test_a_card_of_other_kinds_is_refused_with_every_mistake(tmp_path):
    (tmp_path / "card.json").write_text(a_card(views="two", base={"model": 3, "weights": None}, future=1))
    with pytest.raises(InputError, match=r"base.model: input should be a valid string; views: input should be a valid integer"):
        read_card(tmp_path)


def test_a_recipe_whose_keys_are_no_words_is_refused(tmp_path):
    (tmp_path / "r.yaml").write_text("1: 2\nviews: 2\n? [a, b]\n: 3\n2024-01-01: x\n")
    with pytest.raises(InputError, match=r"key 1 is not a word|is not YAML"):
        recipe.make_config(recipe.read_recipe(str(tmp_path / "r.yaml")))
    (tmp_path / "r.yaml").write_text("views: 2024-13-45\n")
    with pytest.raises(InputError, match="is not YAML"):
        recipe.read_recipe(str(tmp_path / "r.yaml"))


# -- the checksum itself


def test_a_digest_is_found_although_a_text_of_the_table_looks_like_one(tmp_path):
    from steadyscore.machine.disk import write_parquet

    table = to_table(scored())
    fake = table.set_column(0, "query_id", [["steadyscore.sha256\x18@" + "0" * 64] * table.num_rows])
    write_parquet(tmp_path / "t.parquet", fake)
    assert parquet_state(tmp_path / "t.parquet") == "OK"
    whole = (tmp_path / "t.parquet").read_bytes()
    for bit in range(0, 8 * len(whole), 97):
        (tmp_path / "t.parquet").write_bytes(whole)
        flip(tmp_path / "t.parquet", bit)
        assert parquet_state(tmp_path / "t.parquet") != "OK"


def test_a_record_in_another_layout_has_the_same_checksum():
    sealed = seal_record({"b": [1.5, None], "a": {"2": "ü", "10": 1}})
    assert record_state(json.loads(json.dumps(sealed, indent=7, sort_keys=True))) == "OK"
    assert record_state(sealed | {"b": [1.5, 0]}) == "damaged"
    assert record_state({"b": 1}) == "not checksummed"
