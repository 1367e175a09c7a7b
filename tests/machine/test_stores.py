"""Folders and files in object stores, with fsspec's store in memory: what others wrote is seen, and what is written is there."""

import json
import uuid

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steadyscore.errors import InputError, MissingExtra, StorageError
from steadyscore.machine import leases, working_copies
from steadyscore.machine.disk import lock_folder, set_aside, write_json, write_record_once
from steadyscore.machine.leases import hold
from steadyscore.machine.mirrors import fetch, is_address, name_of, parse_place
from steadyscore.machine.stores import Store, local_file
from steadyscore.machine.working_copies import close_copies, local_folder, open_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    yield
    close_copies()


@pytest.fixture
def address():
    return f"memory://{uuid.uuid4().hex}"


def other_machine():
    """Forget what this process has of any store, as a process elsewhere would not have it."""
    close_copies()


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
    assert parse_place("s3://bucket/run/") == "s3://bucket/run"


def test_a_key_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(InputError, match="user name and a password") as refusal:
        parse_place("s3://user:very-secret@bucket/run")
    assert "secret@" not in str(refusal.value)


def test_a_kind_of_store_that_nobody_knows():
    with pytest.raises(InputError, match=r"no kind of store is called s4://"):
        local_folder("s4://bucket/run")


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
    with pytest.raises(MissingExtra, match=words):
        Store(address)


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
    store = Store(address)
    assert store.put_once("run.json", b"first")
    assert not store.put_once("run.json", b"second")
    assert store.read("run.json") == b"first"


def test_a_write_that_was_sent_twice_by_the_connection_is_ours(address):
    store = Store(address)
    store.write("run.json", b"ours")  # the first sending, whose answer was lost
    assert store.put_once("run.json", b"ours")


def test_an_object_whose_name_leads_out_of_the_folder_is_refused(address, monkeypatch):
    store = Store(address)
    root = store._root
    monkeypatch.setattr(store._files, "find", lambda *_, **__: {f"{root}/../../etc/passwd": {"size": 1}})
    with pytest.raises(StorageError, match="cannot be the name of a file"):
        store.versions()


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
    store = Store(address)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abcdefgh12345")

    def refuse(*_, **__):
        raise type(kind, (Exception,), {})("all is\nlost" + " abcdefgh12345" * (kind != "Strange"))

    monkeypatch.setattr(store._files, "pipe_file", refuse)
    with pytest.raises(StorageError, match=words) as refusal:
        store.write("run.json", b"")
    assert "\n" not in str(refusal.value)
    assert "abcdefgh12345" not in str(refusal.value)


# -- working copies


def test_a_local_path_is_itself(tmp_path):
    assert local_folder(tmp_path) == tmp_path
    with open_folder(str(tmp_path)) as folder:
        assert folder == tmp_path


def test_what_is_written_whole_is_in_the_store_at_once(address):
    with open_folder(address) as folder:
        write_json(folder / "a" / "run.json", {"x": 1})
        assert json.loads(content(f"{address}/a/run.json")) == {"x": 1}
        assert name_of(folder / "a" / "run.json") == f"{address}/a/run.json"
    other_machine()
    assert json.loads((local_folder(address) / "a" / "run.json").read_text()) == {"x": 1}


def test_what_is_written_otherwise_is_in_the_store_at_the_end_but_no_scratch(address):
    with open_folder(address) as folder:
        (folder / "page.html").write_text("page")
        (folder / ".scratch.tmp").write_text("half")
        assert names(address) == []
    assert names(address) == ["page.html"]


def test_before_a_record_goes_to_the_store_what_moved_has_moved_there(address):
    """A resumed run must never find the new record beside the old tables."""
    with open_folder(address) as folder:
        write_json(folder / "scores.json", {"old": 1})
        write_json(folder / "run.json", {})
    seen = []
    with open_folder(address) as folder:
        set_aside(folder / "scores.json", folder / "damaged")
        store = working_copies._copies[address]._store
        put_file, remove = store.put, store.remove
        store.put = lambda name, file: (seen.append(f"put {name}"), put_file(name, file))
        store.remove = lambda gone: (seen.append(f"remove {', '.join(gone)}"), remove(gone))
        write_json(folder / "run.json", {"status": "scoring"})
    assert seen == ["put damaged/scores.json", "remove scores.json", "put run.json"]
    assert names(address) == ["damaged/scores.json", "run.json"]


def test_what_others_changed_is_seen_when_the_folder_is_opened_again(address):
    put(f"{address}/a.txt", b"a")
    put(f"{address}/b.txt", b"b")
    folder = local_folder(address)
    put(f"{address}/a.txt", b"other")
    fsspec.filesystem("memory").rm(f"{address.removeprefix('memory:/')}/b.txt")
    assert local_folder(address) == folder
    assert (folder / "a.txt").read_bytes() == b"other"
    assert not (folder / "b.txt").exists()
    working_copies.push_changes(address)
    assert names(address) == ["a.txt"]


def test_a_worker_gets_only_what_it_asks_for(address):
    for name in ("run.json", "shards/part-1.parquet", "shards/part-2.parquet"):
        put(f"{address}/{name}", b"{}")
    folder = local_folder(address, lambda name: name == "run.json")
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    fetch(folder / "shards" / "part-2.parquet")
    fetch(folder / "shards" / "part-3.parquet")
    assert [path.name for path in (folder / "shards").iterdir()] == ["part-2.parquet"]
    working_copies.push_changes()
    assert len(names(address)) == 3


def test_a_record_is_written_by_the_first_and_read_by_the_others(address):
    folder = local_folder(address)
    put(f"{address}/run.json", b'{"by": "another machine"}')  # after this one looked
    assert not write_record_once(folder / "run.json", {"by": "this one"})
    assert json.loads((folder / "run.json").read_text()) == {"by": "another machine"}
    assert write_record_once(folder / "second.json", {"by": "this one"})
    assert names(address) == ["run.json", "second.json"]


def test_an_object_that_goes_between_listing_and_copy_is_listed_again(address, monkeypatch):
    put(f"{address}/a.txt", b"a")
    put(f"{address}/b.txt", b"b")
    get, times = Store.get, []

    def remove_one_first(self, files):
        if not times:
            fsspec.filesystem("memory").rm(f"{address.removeprefix('memory:/')}/b.txt")
        times.append(files)
        get(self, files)

    monkeypatch.setattr(Store, "get", remove_one_first)
    folder = local_folder(address)
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert len(times) == 2


def test_a_record_that_changes_while_the_folder_is_copied_has_it_copied_again(address, monkeypatch):
    """A reader must not find a record that names a table which it has not seen."""
    put(f"{address}/run.json", b"{}")
    get = Store.get

    def add_a_table_first(self, files):
        monkeypatch.setattr(Store, "get", get)
        put(f"{address}/noise.parquet", b"table")
        put(f"{address}/run.json", b'{"files": ["noise.parquet"]}')
        get(self, files)

    monkeypatch.setattr(Store, "get", add_a_table_first)
    assert sorted(path.name for path in local_folder(address).iterdir()) == ["noise.parquet", "run.json"]


NAMES = st.sampled_from(["run.json", "scores.json", "shards/1.json", "shards/2.json", "damaged/1.json"])
CHANGES = st.one_of(
    st.tuples(st.just("write"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("move"), NAMES, NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("elsewhere")),
)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(CHANGES, max_size=12))
def test_after_every_whole_file_the_store_has_what_the_folder_has(changes):
    """Whatever is written, moved and removed, also when the work goes on on another machine in between."""
    address = f"memory://{uuid.uuid4().hex}"
    folder = local_folder(address)
    for kind, *given_names in changes:
        if kind == "elsewhere":
            working_copies.push_changes(address)
            other_machine()
            folder = local_folder(address)
            continue
        file = folder / given_names[0]
        if kind == "write":
            write_json(file, given_names[1])
        elif kind == "remove":
            file.unlink(missing_ok=True)
        elif file.exists():
            (folder / given_names[1]).parent.mkdir(exist_ok=True)
            file.replace(folder / given_names[1])
        if kind == "write":
            here = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.json")}
            assert {name: content(f"{address}/{name}") for name in names(address)} == here


def test_half_a_copy_is_never_written_back(address, monkeypatch):
    put(f"{address}/a.txt", b"whole")
    folder = local_folder(address, lambda name: False)

    def break_off(self, files):
        for file in files.values():
            file.write_bytes(b"wh")
        raise StorageError("the store cannot be reached")

    monkeypatch.setattr(Store, "get", break_off)
    with pytest.raises(StorageError):
        local_folder(address)
    working_copies.push_changes()
    assert content(f"{address}/a.txt") == b"whole"
    assert not list(folder.iterdir())


def test_errors_name_the_address(address):
    with pytest.raises(InputError) as refusal, open_folder(address) as folder:
        raise InputError([f"{folder}/run.json is damaged.", f"{folder} is empty."])
    assert refusal.value.mistakes == [f"{address}/run.json is damaged.", f"{address} is empty."]
    assert str(refusal.value) == "\n".join(refusal.value.mistakes)


def test_the_copies_of_killed_processes_go(address, tmp_path):
    copies = tmp_path / "cache" / "remote" / "copies"
    left = copies / "0123-4567"
    left.mkdir(parents=True)
    left.with_suffix(".lock").touch()
    folder = local_folder(address)
    assert not left.exists()
    close_copies()
    assert not folder.exists()
    assert not list(copies.iterdir())


# -- leases


def test_a_second_process_is_refused_while_the_first_lives(address):
    with hold(Store(address)), pytest.raises(InputError, match=r"process \d+ on .* works in memory://"), hold(Store(address)):
        pass
    with hold(Store(address)):
        pass
    assert names(address) == []


def elsewhere(number=1):
    return json.dumps({"holder": "other", "host": "far", "process": 7, "place": "another", "renewals": 0}).encode()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(leases, "PATIENCE", 0.4)
    monkeypatch.setattr(leases, "RENEWAL", 0.05)


def test_a_lease_that_nobody_renews_is_taken_over(address, quick, caplog):
    put(f"{address}/.lease-000001", elsewhere())
    with hold(Store(address)):
        assert names(address) == [".lease-000001", ".lease-000002"]
    assert names(address) == []
    assert "process 7 on far holds" in caplog.text


def test_a_process_of_this_machine_that_is_gone_holds_nothing(address, monkeypatch):
    with hold(Store(address)) as lease:
        mine = content(f"{address}/.lease-000001")
        lease._ends.set()
    put(f"{address}/.lease-000001", mine)
    monkeypatch.setattr(leases, "is_running", lambda process: False)
    with hold(Store(address)):
        assert names(address) == [".lease-000001", ".lease-000002"]


def test_what_is_no_file_of_a_store_is_said(address, tmp_path):
    put(f"{address}/folder/pools.jsonl")
    with pytest.raises(InputError, match="is a folder"):
        local_file(f"{address}/folder")
    with pytest.raises(InputError, match="names no file"):
        working_copies.local_file_to_write("memory://bucket")


def test_a_lease_of_an_earlier_process_with_our_number_is_taken_over(address, quick):
    with hold(Store(address)) as lease:
        mine = json.loads(content(f"{address}/.lease-000001"))
        lease._ends.set()
    put(f"{address}/.lease-000001", json.dumps(mine | {"began": "1"}).encode())
    with hold(Store(address)):
        assert names(address) == [".lease-000001", ".lease-000002"]


def test_a_lease_that_is_renewed_elsewhere_refuses(address, quick, monkeypatch):
    monkeypatch.setattr(leases, "PATIENCE", 10.0)  # it ends at the first renewal that is seen
    far = Store(address)
    with hold(far) as lease:
        renewed = json.loads(content(f"{address}/.lease-000001"))
        lease._words["place"] = "another"
        lease.renew()
        assert renewed["holder"] == lease._words["holder"]
        with pytest.raises(InputError, match="works in"), hold(Store(address)):
            pass


def test_a_holder_that_was_taken_over_writes_nothing_more(address, quick):
    with open_folder(address) as folder, lock_folder(folder):
        put(f"{address}/.lease-000002", elsewhere())
        working_copies._copies[address]._leases[0].renew()
        with pytest.raises(StorageError, match="another process took over"):
            write_json(folder / "run.json", {})
        (folder / "run.json").unlink()
    assert names(address) == [".lease-000001", ".lease-000002"]


def test_a_folder_is_read_again_once_it_is_held(address):
    """What the holder before wrote, between the opening of the folder and the lease."""
    with open_folder(address) as folder:
        put(f"{address}/run.json", b"late")
        with lock_folder(folder):
            assert (folder / "run.json").read_bytes() == b"late"


def test_the_kind_of_a_store_may_be_in_capitals(tmp_path):
    """Found by the guided fuzzer: fsspec knows `memory`, not `Memory`."""
    Store("Memory://bucket/capitals").write("a", b"1")
    assert Store("memory://bucket/capitals").read("a") == b"1"
