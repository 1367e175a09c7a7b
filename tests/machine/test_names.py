"""Whatever a scorer, a collection or a record is called, nothing is written or moved outside the folder that was given."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from steadyscore.audits.audit import run_folders
from steadyscore.cli import main
from steadyscore.collection import from_records
from steadyscore.errors import InputError
from steadyscore.machine.disk import atomic, open_to_write
from steadyscore.machine.names import is_plain_name, slug
from steadyscore.runs.folder import Run
from tests.fuzz.formats import RECORD

HOSTILE = (
    "..", "../../x", "/etc/passwd", "a/../../b", "\x00", "a\x00b", "CON", "nul.txt", "com1", "LPT9.x", "." * 300, "x" * 5000,
    "-rf", ".hidden", "a\nb", "C:\\x", "\\\\host\\share", "~", "é" * 200, "", " ", "{}", "%00", "aux.", "a:b", "\u202egpj.exe",
)  # fmt: skip
names = st.text(max_size=200) | st.sampled_from(HOSTILE) | st.lists(st.sampled_from(HOSTILE), max_size=4).map("/".join)


def stays_in(folder: Path, place: Path) -> bool:
    return Path(os.path.normpath(place)).is_relative_to(folder) and len(place.name.encode()) <= 255 and "\x00" not in str(place)


@settings(deadline=None)
@given(names)
def test_any_name_becomes_a_folder_on_one_level(name):
    folder = slug(name)
    assert is_plain_name(folder) or folder.startswith("_")
    assert stays_in(Path("/top"), Path("/top") / folder)
    assert slug(folder) == folder


@settings(deadline=None)
@given(st.lists(names, min_size=2, max_size=3, unique=True), names)
def test_runs_of_any_scorers_and_collections_stay_below_their_folder(scorers, collection):
    assume(len(set(map(slug, scorers))) == len(scorers))  # names that share a folder are refused
    source = from_records([{"id": "q", "query": "w", "candidates": ["a", "b"]}], name=collection)
    for place in run_folders(Path("/top/out"), scorers, [source]).values():
        assert stays_in(Path("/top/out"), place)
        assert len(place.relative_to("/top/out").parts) == 2


@settings(deadline=None)
@given(names)
def test_a_record_names_tables_of_its_own_folder_only(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp() / "record"
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(json.loads(RECORD) | {"format": 2, "files": {name: 1}}))
    if is_plain_name(name):
        assert Run.open(folder).record.files == {name: 1}
        assert stays_in(folder, folder / name)
    else:
        with pytest.raises(InputError, match="is not the name of a table in this folder"):
            Run.open(folder)


@pytest.mark.parametrize("name", [name for name in HOSTILE if not name.startswith("-")])
def test_no_collection_is_built_outside_the_cache(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache" / "deep"))
    source = tmp_path / "mine.jsonl"
    source.write_text('{"id": "q", "query": "w", "candidates": [{"id": "a", "text": "t"}]}\n')
    before = sorted(tmp_path.iterdir())
    assert main(["data", "build", name, "--format", "jsonl", "--from", str(source)]) == 2
    assert "cannot be the name of a file in the cache" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("part", ["../x", "a/b", "CON", ""])
def test_no_part_is_written_elsewhere(part, tmp_path, capsys):
    asked = ["data", "build", "mine", "--format", "jsonl", "--from", "x", "--out", str(tmp_path / "o.jsonl")]
    with pytest.raises(SystemExit) as ended:
        main([*asked, "--parts", f"train=1,{part}=1"])
    assert ended.value.code == 2
    assert "every part needs" in capsys.readouterr().err


def test_a_link_in_a_run_folder_is_not_written_through(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    folder.mkdir()
    (outside / "kept").write_text("kept")
    (folder / "scratch").symlink_to(outside / "kept")
    with pytest.raises(OSError, match="symbolic links"):
        open_to_write(folder / "scratch", "wb")
    (folder / "y").symlink_to(outside / "kept")
    with atomic(folder / "y") as stream:  # the link itself is replaced
        stream.write(b"hostile")
    (folder / "parts").symlink_to(outside)
    with pytest.raises(InputError, match="leads out of the run folder"):
        Run.create_or_resume(folder, {}, name="s", collection="c", task="passage_reranking")
    assert [file.name for file in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept"
