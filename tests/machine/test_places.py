"""Places in object stores, with fsspec's store in memory: used as paths are, written by one request, seen at once."""

import json
import uuid

import fsspec
import pyarrow as pa
import pytest

from steadyscore.errors import InputError, MissingExtra, StorageError
from steadyscore.machine import places
from steadyscore.machine.contents import check_parquet
from steadyscore.machine.disk import (
    is_there,
    list_files,
    local_file,
    lock_folder,
    read_json,
    remove_tree,
    set_aside,
    sha256,
    write_parquet,
    write_record,
    write_record_once,
)
from steadyscore.machine.places import StorePath, is_address, parse_place


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def address():
    return f"memory://{uuid.uuid4().hex}"


def put(address, content=b"x"):
    fsspec.filesystem("memory").pipe_file(address.removeprefix("memory:/"), content)


def names(address):
    root = address.removeprefix("memory:/") + "/"
    return sorted(path.removeprefix(root) for path in fsspec.filesystem("memory").find(root))


def content(address):
    return fsspec.filesystem("memory").cat_file(address.removeprefix("memory:/"))


# -- names


@pytest.mark.parametrize(("text", "is_one"), [("s3://b/run", True), ("gs://b", True), ("runs/a", False), ("C:/runs", False)])
def test_an_address_has_a_scheme(text, is_one):
    assert is_address(text) == is_one


def test_a_slash_at_the_end_says_nothing():
    assert parse_place("s3://bucket/run/") == StorePath("s3://bucket/run")


def test_a_key_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(InputError, match="user name and a password") as refusal:
        parse_place("s3://user:very-secret@bucket/run")
    assert "secret@" not in str(refusal.value)


def test_a_kind_of_store_that_nobody_knows():
    with pytest.raises(InputError, match=r"no kind of store is called s4://"):
        parse_place("s4://bucket/run").exists()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("gs://bucket/run", "pip install gcsfs"),
        ("az://bucket/run", "pip install adlfs"),
        ("s3://bucket/run", r"pip install .*\[stores\]'"),
    ],
)
def test_a_package_that_is_absent_is_named(address, words, monkeypatch):
    import sys

    for module in ("gcsfs", "adlfs", "s3fs"):
        monkeypatch.setitem(sys.modules, module, None)
    places._file_system.cache_clear()
    with pytest.raises(MissingExtra, match=words):
        parse_place(address).exists()


# -- files of a store


def test_a_file_is_copied_once_and_again_when_it_changes(address):
    put(f"{address}/pools.jsonl", b"one")
    first = local_file(f"{address}/pools.jsonl")
    assert (first.name, first.read_bytes()) == ("pools.jsonl", b"one")
    assert local_file(f"{address}/pools.jsonl") == first
    put(f"{address}/pools.jsonl", b"other")
    assert local_file(f"{address}/pools.jsonl").read_bytes() == b"other"


def test_a_file_that_is_not_there(address):
    with pytest.raises(StorageError, match=r"cannot read memory://.*there is no such object"):
        local_file(f"{address}/pools.jsonl")


def test_one_of_two_writes_of_one_name_succeeds(address):
    file = parse_place(f"{address}/run.json")
    assert file.create(b"first")
    assert not file.create(b"second")
    assert file.read_bytes() == b"first"


def test_a_write_that_was_sent_twice_by_the_connection_is_ours(address):
    file = parse_place(f"{address}/run.json")
    file.write_bytes(b"ours")  # the first sending, whose answer was lost
    assert file.create(b"ours")


def test_an_object_whose_name_leads_out_of_the_folder_is_refused(address, monkeypatch):
    files, root = places._open(address)
    monkeypatch.setattr(files, "find", lambda *_, **__: {f"{root}/../../etc/passwd": {"size": 1}})
    with pytest.raises(StorageError, match="cannot be the name of a file"):
        list_files(parse_place(address))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("NoCredentialsError", "there are no credentials"),
        ("EndpointConnectionError", "cannot be reached"),
        ("PermissionError", "access was denied"),
        ("Strange", r"all is lost\. What was written before is kept"),
    ],
)
def test_what_a_store_refuses_is_one_sentence(address, kind, words, monkeypatch):
    files, _ = places._open(address)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abcdefgh12345")

    def refuse(*_, **__):
        raise type(kind, (Exception,), {})("all is\nlost" + " abcdefgh12345" * (kind != "Strange"))

    monkeypatch.setattr(files, "pipe_file", refuse)
    with pytest.raises(StorageError, match=words) as refusal:
        parse_place(f"{address}/run.json").write_bytes(b"")
    assert "\n" not in str(refusal.value)
    assert "abcdefgh12345" not in str(refusal.value)


# -- as paths are used


def test_a_place_has_names_as_a_path_has(address):
    file = parse_place(address) / "a" / "run.json"
    assert (file.name, file.stem, file.suffix, file.parent.name) == ("run.json", "run", ".json", "a")
    assert str(file.relative_to(parse_place(address))) == "a/run.json"
    assert file.with_name("x") == parse_place(f"{address}/a/x")
    assert str(file) == f"{address}/a/run.json"


def test_what_opens_files_of_this_machine_refuses_a_place_of_a_store(address):
    with pytest.raises(TypeError):
        (lambda place: open(place, "w"))(parse_place(address))  # noqa: SIM115


def test_records_and_tables_are_in_the_store_when_they_are_written(address):
    folder = parse_place(address)
    write_record(folder / "run.json", {"x": 1})
    write_parquet(folder / "t.parquet", pa.table({"a": [1, 2]}))
    assert json.loads(content(f"{address}/run.json"))["x"] == 1
    assert read_json(folder / "run.json")["x"] == 1
    assert check_parquet(folder / "t.parquet") == "OK"
    assert len(sha256(folder / "t.parquet")) == 64
    assert is_there(folder / "run.json")
    assert not is_there(folder / "other.json")
    assert [file.name for file in list_files(folder)] == ["run.json", "t.parquet"]


def test_what_others_wrote_is_seen_at_once(address):
    folder = parse_place(address)
    assert list_files(folder) == []
    put(f"{address}/b/a.txt")
    put(f"{address}/.hidden")
    assert [str(file.relative_to(folder)) for file in list_files(folder)] == ["b/a.txt"]
    assert [file.name for file in list_files(folder / "b", "a")] == ["a.txt"]
    assert list_files(folder / "b", "x") == []


def test_a_record_is_written_by_the_first_and_read_by_the_others(address):
    folder = parse_place(address)
    assert write_record_once(folder / "run.json", {"by": "one"})
    assert not write_record_once(folder / "run.json", {"by": "another"})
    assert read_json(folder / "run.json")["by"] == "one"


def test_what_is_set_aside_keeps_its_name_and_takes_a_free_one(address):
    folder = parse_place(address)
    for number in (1, 2):
        put(f"{address}/a.txt", b"%d" % number)
        set_aside(folder / "a.txt", folder / "damaged")
    assert names(address) == ["damaged/a.txt", "damaged/a.txt.2"]
    remove_tree(folder)
    assert names(address) == []


def test_a_store_has_no_lock(address):
    with lock_folder(parse_place(address)), lock_folder(parse_place(address)):
        assert names(address) == []
