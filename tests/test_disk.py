"""What lies in the cache is for its owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from steadyscore.collection import cache_folder as collections_folder
from steadyscore.collection import open_collection, read_instances, write
from steadyscore.disk import cache_folder, held, make_folder, write_json
from steadyscore.estimate import keep_speed
from steadyscore.reading import Reader
from steadyscore.tasks import TASKS


class Speaker:
    """A reader that always says the same."""

    name, context = "speaker", 10_000

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
    keep_speed("some scorer", 12.0)
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
    with held(tmp_path / "run"):
        write_json(tmp_path / "run" / "parts" / "run.json", {})
    assert [mode(tmp_path / "run" / part) for part in ("", "parts", "parts/run.json")] == [0o755, 0o755, 0o644]
