"""What lies in the cache is for its owner alone, and one process at a time works in a folder."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steadyscore.collection import cache_folder as collections_folder
from steadyscore.collection import open_collection, read_instances, write
from steadyscore.engines import Capabilities, Generator
from steadyscore.errors import InputError, StorageError
from steadyscore.machine import disk
from steadyscore.machine.disk import LOCK, NO_LOCKS, atomic_folder, cache_folder, lock_folder, make_folder, write_json
from steadyscore.readers.reader import Reader
from steadyscore.scoring.estimate import remember_speed
from steadyscore.tasks import TASKS


class Speaker(Generator):
    """A reader that always says the same."""

    name, context = "speaker", 10_000
    capabilities = Capabilities(gives="score")

    def identity(self):
        return {"kind": "speaker"}

    def generate(self, prompts, most_tokens):
        return ["lisbon" for _ in prompts]

    def label_log_probabilities(self, prompts, labels):
        raise NotImplementedError


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(params=["default", "named"])
def cache(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "default":
        monkeypatch.delenv("STEADYSCORE_CACHE", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
    else:
        monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "kept"))
    return cache_folder()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def fill() -> None:
    """Something of everything that is kept in the cache."""
    remember_speed("some scorer", 120, 10.0)
    write_json(cache_folder() / "responses" / "ab" / "abc.json", {"answer": "text"})
    instances = open_collection("multidoc_qa").instances
    first = next(iter(instances()))
    Reader(Speaker(), TASKS["multidoc_qa"]).read(first, [[0]])
    header = open_collection("multidoc_qa").collection
    write(collections_folder() / "mine.jsonl.gz", header, [first])
    assert len(list(read_instances(collections_folder() / "mine.jsonl.gz"))) == 1


def test_everything_made_in_a_cache_is_private(cache):
    fill()
    made = [cache, *cache.rglob("*")]
    assert {path.name for path in made} >= {"speed.json", "abc.json", "readings", "mine.jsonl.gz"}
    assert {path.name: oct(mode(path)) for path in made if mode(path) != (0o700 if path.is_dir() else 0o600)} == {}


def test_a_default_cache_of_an_earlier_version_is_closed(tmp_path, monkeypatch):
    monkeypatch.delenv("STEADYSCORE_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (cache_folder() / "responses" / "ab").mkdir(parents=True)
    fill()
    assert [mode(cache_folder() / part) for part in ("", "responses", "responses/ab")] == [0o700] * 3
    assert mode(tmp_path / ".cache") == 0o755, "that is not ours"


def test_a_cache_folder_that_the_user_made_stays_as_it_is(tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    (shared / "models").mkdir(parents=True)
    shared.chmod(0o775)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(shared))
    fill()
    make_folder(shared / "models" / "new")
    assert [mode(shared / part) for part in ("", "models", "models/new", "readings")] == [0o775, 0o755, 0o700, 0o700]


def test_what_lies_elsewhere_has_the_user_s_own_permissions(cache, tmp_path):
    with lock_folder(tmp_path / "run"):
        write_json(tmp_path / "run" / "parts" / "run.json", {})
    assert [mode(tmp_path / "run" / part) for part in ("", "parts", "parts/run.json")] == [0o755, 0o755, 0o644]


# -- folders that appear whole


def test_a_folder_appears_whole_in_place_of_an_older_one(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    left = tmp_path / f".out.{disk.place()}.999999999.0.tmp"  # of a process that was killed
    left.mkdir()
    (left / "half").touch()
    with atomic_folder(tmp_path / "out") as scratch:
        (scratch / "new").touch()
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["old"], "until the new one is whole"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["new"]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002], ids=oct)
def test_who_may_read_the_files_of_a_folder_follows_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        with atomic_folder(tmp_path / "out") as scratch:
            (scratch / "private").touch(0o600)  # as libraries write that take a temporary file
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out" / "private").stat().st_mode) == 0o666 & ~umask


def test_a_folder_that_could_not_be_filled_leaves_the_older_one(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "out") as scratch:
        (scratch / "new").write_text(str(1 / 0))
    assert [str(file.relative_to(tmp_path)) for file in sorted(tmp_path.rglob("*"))] == ["out", "out/old"]


@pytest.mark.parametrize("target", ["kept", "nowhere"])
def test_a_folder_takes_the_place_of_a_link_and_not_of_what_it_leads_to(tmp_path, target):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old").touch()
    (tmp_path / "out").symlink_to(tmp_path / target)
    (tmp_path / f".out.{disk.place()}.999999999.0.tmp").symlink_to(tmp_path / target)  # an earlier version left such links
    with atomic_folder(tmp_path / "out") as scratch:
        (scratch / "new").touch()
    found = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*"))
    assert found == ["kept", "kept/old", "out", "out/new"]
    assert not (tmp_path / "out").is_symlink()


# -- one process at a time

HOLDS = """\
import sys
from pathlib import Path
from steadyscore.machine.disk import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("holds", flush=True)
    sys.stdin.read()
"""


def hold(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"holds\n"
    return process


def test_a_second_process_is_refused_until_the_first_ends(tmp_path):
    with hold(tmp_path / "run"):
        with pytest.raises(InputError, match=r"^another process works in .*run\. Wait for it to end, or choose another --out\.$"):
            lock_folder(tmp_path / "run").__enter__()
        assert (tmp_path / "run" / LOCK).exists(), "the refused one leaves the lock of the other alone"
    with lock_folder(tmp_path / "run"):
        pass
    assert list((tmp_path / "run").iterdir()) == []


def test_the_lock_of_a_killed_process_is_gone(tmp_path):
    with hold(tmp_path / "run") as process:
        process.kill()
    assert (tmp_path / "run" / LOCK).exists(), "what it could not delete"
    with lock_folder(tmp_path / "run"):
        pass
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("code", NO_LOCKS)
def test_a_file_system_without_locks_is_worked_on_without_one(tmp_path, monkeypatch, code):
    monkeypatch.setattr("fcntl.flock", lambda *_: fail_with(code))
    with lock_folder(tmp_path / "run"), lock_folder(tmp_path / "run"):
        pass
    assert list((tmp_path / "run").iterdir()) == []


def test_a_lock_that_the_disk_refuses_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", lambda *_: fail_with(errno.EIO))
    with pytest.raises(StorageError, match=r"cannot write .*run: Input/output error"):
        lock_folder(tmp_path / "run").__enter__()


def fail_with(code):
    raise OSError(code, os.strerror(code))


def test_an_audit_runs_where_python_has_neither_fcntl_nor_sighup(tmp_path):
    """What Windows lacks, taken away here."""
    lacking = (
        "import signal, sys; del signal.SIGHUP; sys.modules['fcntl'] = None; from steadyscore.cli import main; sys.exit(main())"
    )
    words = "audit --scorer synthetic:slot --data passages --queries 2 --permutations 2 --no-report --out run"
    done = subprocess.run([sys.executable, "-c", lacking, *words.split()], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_on_windows_no_process_is_sent_a_signal(monkeypatch):
    """There signal 0 is Ctrl-C."""
    sent = []
    monkeypatch.setattr(disk.sys, "platform", "win32")
    monkeypatch.setattr(disk.os, "kill", lambda *signal: sent.append(signal))
    assert disk.is_running("1")
    assert sent == []


# -- what killed processes left


def leftovers(folder, name="f"):
    """Scratch files of a dead process of this machine, of this process, and of processes elsewhere: just touched, and old."""
    dead, elsewhere, old, earlier = (
        folder / f".{name}.{words}.tmp"
        for words in (f"{disk.place()}.999999999.0", "0123456789ab.999999999.0", "0123456789ab.999999999.1", "999999999")
    )
    own = disk.scratch_beside(folder / name)
    for file in (dead, own, elsewhere, old, earlier):
        file.touch()
    os.utime(old, (0, 0))
    return {"dead": dead, "own": own, "elsewhere": elsewhere, "old": old, "earlier": earlier}


def test_what_another_machine_is_writing_is_left_alone(tmp_path):
    left = leftovers(tmp_path)
    write_json(tmp_path / "f", {})
    assert {who for who, file in left.items() if file.exists()} == {"own", "elsewhere", "earlier"}


def test_the_scratch_file_of_another_name_is_left_alone(tmp_path):
    """`labels` and `labels.parquet` begin alike."""
    left = leftovers(tmp_path, "labels.parquet")
    write_json(tmp_path / "labels", {})
    assert all(file.exists() for file in left.values())
    disk.remove_leftovers(tmp_path)
    assert {who for who, file in left.items() if file.exists()} == {"own", "elsewhere", "earlier"}


def test_two_writers_of_one_file_never_share_a_scratch_file(tmp_path):
    """Threads of a process have one id, and so have the first processes of two containers."""
    with disk.atomic(tmp_path / "f") as one, disk.atomic(tmp_path / "f") as other:
        one.write(b"one")
        other.write(b"other")
    assert (tmp_path / "f").read_bytes() == b"one", "the last that ended"
    assert [file.name for file in tmp_path.iterdir()] == ["f"]


def test_a_place_is_a_machine_since_it_started_and_a_container_on_it(monkeypatch):
    here = disk.place()
    for name, value in (("platform.node", "other"), ("os.readlink", "pid:[1]"), ("Path.read_text", "another boot")):
        with monkeypatch.context() as patch:
            patch.setattr(f"steadyscore.machine.disk.{name}", lambda *_, value=value: value)
            assert disk.place.__wrapped__() != here
    assert disk.place.__wrapped__() == here


def test_a_record_is_written_once_whoever_comes_first(tmp_path):
    assert disk.write_record_once(tmp_path / "run.json", {"by": 1})
    assert not disk.write_record_once(tmp_path / "run.json", {"by": 2})
    assert disk.read_json(tmp_path / "run.json")["by"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_a_folder_is_never_seen_half_removed(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").touch()
    (tmp_path / "out" / "b").touch()
    monkeypatch.setattr("shutil.rmtree", lambda *_, **how: None)  # stopped there
    disk.remove_folder(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_no_text_stays_one_that_json_reads(tmp_path):
    disk.write_json(tmp_path / "record.json", {"command": ["caf\udce9.jsonl"]})
    assert disk.read_json(tmp_path / "record.json")["command"] == ["caf\udce9.jsonl"]
