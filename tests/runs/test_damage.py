"""A run folder after bits flipped, files were cut or deleted: named, repaired by the same command, never other numbers."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from steadyscore.cli import main
from steadyscore.errors import DamagedFile, InputError, SteadyscoreError
from steadyscore.machine.contents import check_parquet, record_state, seal_record
from steadyscore.measures import intervals
from steadyscore.measures.measurement import measure
from steadyscore.models.card import read_card
from steadyscore.results.load import load_run
from steadyscore.runs.folder import Run, find_run
from steadyscore.runs.parts import COMPACTED
from steadyscore.runs.records import Start
from steadyscore.runs.table import Scored, to_table
from steadyscore.training import recipe
from steadyscore.training.check import make_config
from tests.helpers.pools import a_card, some_instances, write_collection
from tests.runs.test_folder import audit, half_done
from tests.runs.test_table import scored

BESIDE = ("--noise-floor", "--perturb", "drop", "replace")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Figures are compared with each other here, so a few draws of the bootstrap say as much as all of them."""
    for name in ("mean_interval", "paired_interval"):
        monkeypatch.setattr(f"steadyscore.results.figure.{name}", partial(getattr(intervals, name), draws=10))


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
    return Run.open(one).read("scores.parquet").equals(Run.open(other).read("scores.parquet"))


def part_of(folder: Path, table: str) -> Path:
    (part,) = (folder / "parts" / table).iterdir()
    return part


def flipped_outcome(folder: Path, file: Path, before: dict, measured: bytes) -> str:
    """What a damaged folder says: `refused`, `seen by doctor`, `without effect`, or `silently other`."""
    try:
        if figures(folder) != before:
            return "silently other"
    except SteadyscoreError:
        return "refused"
    if file.parent == folder and file.name != "run.json":  # written for people and other programs: doctor judges them
        if main(["doctor", str(folder)]) == 1:
            return "seen by doctor"
        return "without effect" if _content(file) == measured else "silently other"
    return "without effect"


def _content(file: Path) -> bytes:
    """What a file says, whatever its layout is."""
    if file.suffix != ".json":
        return str(pq.read_table(file).to_pylist()).encode()
    value = json.loads(file.read_bytes())
    return json.dumps([v for k, v in value.items() if k in ("measures", "coverage", "cutoff", "runs", "fingerprint")]).encode()


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
    found = flip_bits(finished, copy, 350) + flip_parts(collection_file, tmp_path, 150)
    with capsys.disabled():
        print(f"\n500 bit flips: {dict(found)}, silently other {found['silently other']}")
    assert found.total() == 500
    assert found["silently other"] == 0


def flip_parts(collection: Path, folder: Path, count: int) -> Counter:
    """Single flips over run.json and the parts of a run that stopped, which is then taken up."""
    half, whole, dice, found = folder / "half", folder / "whole", random.Random(1), Counter()
    half_done(collection, half)
    audit(collection, whole)
    rows = Run.open(whole).read("scores.parquet").to_pylist()
    names = [file.relative_to(half) for file in files_of(half)]
    for n in range(count):
        trial = Path(shutil.copytree(half, folder / "trial"))
        file = trial / names[n % len(names)]
        flip(file, dice.randrange(8 * file.stat().st_size))
        try:
            audit(collection, trial)
            repaired = "repaired" if list(trial.glob("damaged/**/*.parquet")) else "without effect"
            equal = Run.open(trial).read("scores.parquet").to_pylist() == rows
            found[repaired if equal else "silently other"] += 1
        except SteadyscoreError:
            found["refused"] += 1
        shutil.rmtree(trial)
    return found


def test_a_flipped_bit_of_an_unfinished_run_never_gives_another_table(collection_file, tmp_path):
    found = flip_parts(collection_file, tmp_path, 30)
    assert found["silently other"] == 0
    assert found["repaired"] >= 15


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 0.999])
@pytest.mark.parametrize("table", ["scores", "queries", "noise", "perturbed-drop"])
def test_a_truncated_part_is_named_with_the_command_that_repairs_it_and_is_repaired(finished, copy, table, share, caplog):
    before, file = figures(copy), part_of(copy, table)
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(
        DamagedFile, match=f"{file.name} is damaged.*To repair the run: steadyscore audit --scorer synthetic:slot"
    ):
        figures(copy)
    assert again(copy, finished) == 0
    assert f"{file.name} is damaged" in caplog.text
    assert (copy / "damaged" / table / file.name).exists()
    assert figures(copy) == before
    assert same_table(copy, find_run(finished).folder)


@pytest.mark.parametrize("table", ["scores", "queries", "noise", "perturbed-replace"])
def test_a_deleted_part_is_missed_and_made_again(finished, copy, table):
    before = figures(copy)
    part_of(copy, table).unlink()
    if table in ("scores", "queries"):
        with pytest.raises(InputError, match=r"is not complete\. Run the command that made it again"):
            figures(copy)
    else:
        with pytest.raises(DamagedFile, match=rf"{table}\.parquet is missing\. To repair the run: steadyscore audit"):
            figures(copy)
    assert main(["gate", str(copy), "--max", "tau_psi=1"]) == 1
    assert main(["doctor", str(copy)]) == 1
    assert again(copy, finished) == 0
    assert figures(copy) == before
    assert same_table(copy, find_run(finished).folder)
    assert main(["doctor", str(copy)]) == 0


def test_a_table_beside_the_scores_that_is_not_asked_for_again_is_set_aside_and_said(finished, copy, caplog):
    part = part_of(copy, "noise")
    flip(part, 999)
    words = [word for word in command(finished) if word != "--noise-floor"]
    words[words.index("--out") + 1] = str(copy)
    with caplog.at_level(logging.WARNING):
        assert main(words) == 0
    assert (
        f"{part.name} is damaged: it is not what was written. It is set aside; pass --noise-floor to make it again."
        in caplog.text
    )
    assert "floor" not in figures(copy)["measures"]["tau_psi"]
    assert [told.file for told in Run.open(copy).record.set_aside] == [f"parts/noise/{part.name}"]


@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_part_is_set_aside_and_only_its_queries_are_scored_again(collection_file, tmp_path, which, monkeypatch):
    parts = half_done(collection_file, tmp_path / "half").parts
    part = parts.files()[which]
    lost = set(parts.read(part)[0].column("query_id").to_pylist())
    flip(part, 8 * part.stat().st_size // 3)
    asked: list[str] = []
    from steadyscore.scoring.scorer import Scorer

    real = Scorer.score_orders
    monkeypatch.setattr(Scorer, "score_orders", lambda self, i, *rest: asked.append(i.id) or real(self, i, *rest))
    audit(collection_file, tmp_path / "half")
    assert set(asked) == lost | {"q2", "q3"}
    assert (tmp_path / "half" / "damaged" / "scores" / part.name).exists()
    audit(collection_file, tmp_path / "whole")
    assert same_table(tmp_path / "half", tmp_path / "whole")


@pytest.mark.parametrize("name", ["scores.parquet", "queries.parquet", "status.json"])
def test_a_view_that_was_changed_is_nobodys_truth_and_is_written_again(finished, copy, name, capsys):
    before, whole = figures(copy), (copy / name).read_bytes()
    flip(copy / name, 999)
    assert figures(copy) == before
    assert main(["doctor", str(copy)]) == 1
    assert again(copy, finished) == 0
    assert name == "status.json" or (copy / name).read_bytes() == whole
    assert main(["doctor", str(copy)]) == 0


# -- doctor


def test_doctor_names_every_file_of_every_run_and_what_is_damaged(finished, copy, capsys):
    assert main(["doctor", str(copy), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["state"] for row in told} == {"OK"}
    assert {row["file"] for row in told} >= {str(file.relative_to(copy)) for file in files_of(copy)} | {"rows"}
    shutil.copytree(copy, copy.parent / "other")
    flip(part_of(copy, "scores"), 4000)
    (copy / ".scores.parquet.1.tmp").write_bytes(b"half")
    assert main(["doctor", str(copy.parent)]) == 1
    out = capsys.readouterr().out
    assert out.count("damaged: it is not what was written") == 1
    assert "left by a process that was killed" in out
    assert str(copy.parent / "other") in out


def test_doctor_says_of_a_run_that_was_stopped_how_far_it_is_and_what_goes_on(tmp_path, capsys):
    run = Run.create_or_resume(tmp_path / "run", {"permutations": 1}, name="s", collection="c", task="passage_reranking")
    run.begin_session(Start({}))
    run.append(Scored("q1", ("a", "b"), np.array([0]), np.array([[0.1, 0.2]])))
    run.flush()
    assert main(["doctor", str(tmp_path / "run")]) == 0
    assert "the run is not complete: 1 queries have scores. Run the command that made it again" in capsys.readouterr().out


def test_doctor_looks_at_what_stands_beside_the_runs_too(finished, tmp_path, capsys):
    out = Path(shutil.copytree(finished / "run", tmp_path / "run"))
    assert main(["doctor", str(out), "--json"]) == 0
    told = {row["file"].rpartition("/")[2] for row in json.loads(capsys.readouterr().out)}
    assert {file.name for file in files_of(out)} <= told
    flip(out / "summary.json", 4000)
    flip(out / "measures.parquet", 4000)
    assert main(["doctor", str(out)]) == 1
    assert capsys.readouterr().out.count("it is written anew") == 2


def test_doctor_compares_rows_with_what_was_asked(collection_file, tmp_path, capsys):
    run = audit(collection_file, tmp_path / "run")
    (part,) = run.parts.files()
    table, note = run.parts.read(part)
    part.unlink()
    fewer = run.parts.put(COMPACTED, table.slice(24), note | {"keys": 12})
    assert main(["doctor", str(run.folder)]) == 1
    assert "the run was complete, and rows of it are missing" in capsys.readouterr().out
    fewer.unlink()
    run.parts.put(COMPACTED, table.slice(1), note)
    assert main(["doctor", str(run.folder)]) == 1
    assert "1 queries lack candidates under some permutations: q0" in capsys.readouterr().out


# -- records


KINDS = {"list": [1], "null": None, "number": 7, "text": "x", "missing": ...}


def changed_records(record: dict, kind: str):
    """A record with one of its values replaced by another kind, or taken out: every key, and every key of its objects."""
    nested = [(key, inner) for key in ("fingerprint", "threshold") for inner in record.get(key, {})]
    for place in [*((key,) for key in record), *nested]:
        changed = json.loads(json.dumps(record))
        inside = changed if len(place) == 1 else changed[place[0]]
        inside[place[-1]] = KINDS[kind]
        if kind == "missing":
            del inside[place[-1]]
        yield place, changed


RECORDS = pytest.mark.parametrize("name", ["run.json", "requests/000001.json"], ids=["run", "request"])


@RECORDS
@pytest.mark.parametrize("kind", KINDS)
def test_a_sealed_record_that_was_changed_is_refused_wherever_it_was(copy, kind, name, capsys):
    file = copy / name
    record = json.loads(file.read_text())
    for place, changed in changed_records(record, kind):
        if place == ("sha256",) or changed == record:
            continue
        file.write_text(json.dumps(changed))
        with pytest.raises(SteadyscoreError, match=r"changed since it was written|has format"):
            Run.open(copy)
    assert main(["gate", str(copy), "--max", "tau_psi=1"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@RECORDS
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_record_holds_the_answer_is_a_sentence(finished, copy, kind, name, capsys, monkeypatch):
    """A record of other kinds is refused where it is opened; one that opens goes through every command that reads it."""
    measured = measure(Run.open(copy).read_queries())  # of the same scores every time: the numbers are not in question here
    monkeypatch.setattr("steadyscore.results.load.measure", lambda *_: measured)
    file = copy / name
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
    text = file.read_text().replace('"collection": "', '"collection": "my ')
    file.write_text(text)
    with pytest.raises(
        DamagedFile, match=r'was changed since it was written\. If you changed it on purpose, delete its line "sha256"'
    ):
        Run.open(copy)
    lines = text.splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"sha256": ' not in line or not line.startswith('  "sha256"')))
    assert Run.open(copy).record.collection.startswith("my ")


def test_a_card_of_other_kinds_is_refused_with_every_mistake(tmp_path):
    (tmp_path / "card.json").write_text(a_card(views="two", base={"model": 3, "weights": None}, future=1))
    with pytest.raises(InputError, match=r"base.model: input should be a valid string; views: input should be a valid integer"):
        read_card(tmp_path)


def test_a_recipe_whose_keys_are_no_words_is_refused(tmp_path):
    (tmp_path / "r.yaml").write_text("1: 2\nviews: 2\n? [a, b]\n: 3\n2024-01-01: x\n")
    with pytest.raises(InputError, match=r"key 1 is not a word|is not YAML"):
        make_config(recipe.read_recipe(str(tmp_path / "r.yaml")))
    (tmp_path / "r.yaml").write_text("views: 2024-13-45\n")
    with pytest.raises(InputError, match="is not YAML"):
        recipe.read_recipe(str(tmp_path / "r.yaml"))


# -- the checksum itself


def test_a_digest_is_found_although_a_text_of_the_table_looks_like_one(tmp_path):
    from steadyscore.machine.disk import write_parquet

    table = to_table(scored())
    fake = table.set_column(0, "query_id", [["steadyscore.sha256\x18@" + "0" * 64] * table.num_rows])
    write_parquet(tmp_path / "t.parquet", fake)
    assert check_parquet(tmp_path / "t.parquet") == "OK"
    whole = (tmp_path / "t.parquet").read_bytes()
    for bit in range(0, 8 * len(whole), 97):
        (tmp_path / "t.parquet").write_bytes(whole)
        flip(tmp_path / "t.parquet", bit)
        with contextlib.suppress(DamagedFile):
            assert check_parquet(tmp_path / "t.parquet") != "OK"


def test_a_record_in_another_layout_has_the_same_checksum():
    sealed = seal_record({"b": [1.5, None], "a": {"2": "ü", "10": 1}})
    assert record_state(json.loads(json.dumps(sealed, indent=7, sort_keys=True))) == "OK"
    assert record_state(sealed | {"b": [1.5, 0]}) == "damaged"
    assert record_state({"b": 1}) == "not checksummed"
