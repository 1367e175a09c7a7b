"""Object stores for real: s3fs against moto's S3 server. `make test-stores` runs them where both are installed.

moto answers as S3 does and keeps everything in the memory of one process, so it is as consistent as S3 says it is; that S3 is so
under load, across zones and through its own faults no local server can show.
"""

import os
import re
import threading

import pytest

pytest.importorskip("s3fs", reason="s3fs is not installed; see `make test-stores`")
pytest.importorskip("moto.server", reason="moto[server] is not installed; see `make test-stores`")

import steadyscore
from steadyscore.audits.audit import audit
from steadyscore.cli import main
from steadyscore.errors import StorageError
from steadyscore.machine import places
from steadyscore.machine.places import StorePath
from steadyscore.training.labels import read_labels
from tests.helpers import tiny
from tests.helpers.s3 import KEYS, begin, end, serving_s3

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

BUCKET = "steady"
SMALL = "--data passages --queries 12 --pool 6 --permutations 2 --no-report"
SMALL_PARTS = "from steadyscore.scoring import parts\nparts.plan_parts.__kwdefaults__['windows'] = 6"
AT_ONCE = "from steadyscore.runs import folder\nfolder.HELD_FOR_A_STORE = 0.0"
SCORER = """
import os, signal
from pathlib import Path
calls, deadly = Path("calls"), Path("deadly")
def score(query, texts):
    with calls.open("a") as file:
        file.write(".")
    if deadly.exists() and calls.stat().st_size == int(deadly.read_text()):
        deadly.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return [len(text) - 5 * place for place, text in enumerate(texts)]
"""


@pytest.fixture(scope="module")
def s3():
    with serving_s3(BUCKET) as (client, environment):
        before = dict(os.environ)
        os.environ.update(environment)
        yield client
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def place(s3, tmp_path, monkeypatch, request):
    """The address of a new folder; the working folder holds a scorer that counts its calls."""
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text(SCORER)
    places._file_system.cache_clear()  # what another test set in the environment is seen
    return f"s3://{BUCKET}/{request.node.name}"


def key(address):
    return address.removeprefix(f"s3://{BUCKET}/")


def objects(s3, address):
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix=key(address) + "/").get("Contents", [])
    return {one["Key"].removeprefix(key(address) + "/"): one["Size"] for one in listed}


def content(s3, address, name):
    return s3.get_object(Bucket=BUCKET, Key=f"{key(address)}/{name}")["Body"].read()


def same_tables(s3, address, folder):
    """The views, whose bytes are equal whoever wrote what."""
    files = [file for file in folder.rglob("*.parquet") if "parts" not in file.parts]
    here = {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}
    names = objects(s3, address)
    stored = [name for name in names if name.endswith(".parquet") and not re.search("damaged/|parts/", name)]
    return len(here) == 3 and {name: content(s3, address, name) for name in stored} == here


def score_here(tmp_path, scorer="python:mine:score"):
    assert main(f"audit --scorer {scorer} {SMALL} --out {tmp_path / 'here'}".split()) == 0
    (tmp_path / "calls").unlink(missing_ok=True)
    return tmp_path / "here"


def test_an_audit_in_s3_has_the_bytes_of_a_local_one(s3, place, tmp_path):
    here = score_here(tmp_path)
    assert main(f"audit --scorer python:mine:score {SMALL} --out {place}".split()) == 0
    assert same_tables(s3, place, here)
    assert not [name for name in objects(s3, place) if re.search(r"parts/scores/[sw]", name)]


def test_no_key_is_in_any_object(s3, place):
    command = f"audit --scorer synthetic:slot {SMALL} --out {place}"
    assert main(command.split()) == 0
    whole = b"".join(content(s3, place, name) for name in objects(s3, place))
    assert not [value for name, value in KEYS.items() if "KEY" in name and value.encode() in whole]


@pytest.mark.parametrize("way", ["ledger", "parts"])
def test_a_killed_run_goes_on_from_the_store_alone_on_another_machine(s3, place, tmp_path, way):
    here = score_here(tmp_path)
    share = " --shard 1/1" if way == "parts" else ""
    command = f"audit --scorer python:mine:score {SMALL} --out {place}{share}"
    (tmp_path / "deadly").write_text("20")  # 3 presentations a query: in the seventh query of twelve
    code, said = end(begin(command, tmp_path / "first", tmp_path, f"{AT_ONCE}\n{SMALL_PARTS}"))
    assert code == -9, said
    kept = [name for name in objects(s3, place) if "parts/scores/" in name]
    assert len(kept) >= 2
    code, said = end(begin(command, tmp_path / "second", tmp_path, SMALL_PARTS))
    assert code == 0, said
    calls = (tmp_path / "calls").stat().st_size
    again = 3 + (6 if way == "parts" else 3)  # stored windows that must score as they did; and what was in flight
    assert 36 < calls <= 36 + again
    if share:
        code, said = end(begin(command.replace(share, ""), tmp_path / "third", tmp_path))
        assert code == 0, said
    assert same_tables(s3, place, here)


def test_two_shares_at_the_same_time_give_the_table_of_one_process(s3, place, tmp_path):
    here = score_here(tmp_path)
    command = f"audit --scorer python:mine:score {SMALL} --out {place}"
    both = [begin(f"{command} --shard {i}/2", tmp_path / f"cache-{i}", tmp_path, SMALL_PARTS) for i in (1, 2)]
    for process in both:
        code, said = end(process)
        assert code == 0, said
    assert sum("parts/scores/w" in name for name in objects(s3, place)) == 6
    assert 36 <= (calls := (tmp_path / "calls").stat().st_size) <= 36 + 2 * 3  # each may look at windows of the other
    assert main(command.split()) == 0
    assert (tmp_path / "calls").stat().st_size == calls + 3
    assert same_tables(s3, place, here)


def test_two_collecting_commands_at_the_same_time(s3, place, tmp_path):
    """Both work, and may pay twice for the same; the table is right."""
    here = score_here(tmp_path)
    command = f"audit --scorer python:mine:score {SMALL} --out {place}"
    both = [begin(command, tmp_path / f"cache-{i}", tmp_path) for i in (1, 2)]
    ends = [end(process) for process in both]
    assert [code for code, _ in ends] == [0, 0], ends
    assert 36 <= (tmp_path / "calls").stat().st_size <= 2 * (36 + 3)
    assert same_tables(s3, place, here)


def test_a_flipped_bit_is_found_set_aside_in_the_store_and_scored_again(s3, place, tmp_path):
    here = score_here(tmp_path)
    command = f"audit --scorer python:mine:score {SMALL} --out {place}"
    assert end(begin(f"{command} --shard 1/1", tmp_path / "one", tmp_path, SMALL_PARTS))[0] == 0
    part = next(name for name in objects(s3, place) if "parts/scores/w" in name)
    bits = bytearray(content(s3, place, part))
    bits[len(bits) // 2] ^= 1
    s3.put_object(Bucket=BUCKET, Key=f"{key(place)}/{part}", Body=bytes(bits))
    (tmp_path / "calls").unlink()
    code, said = end(begin(f"{command} --shard 1/1", tmp_path / "two", tmp_path, SMALL_PARTS))
    assert code == 0, said
    assert (tmp_path / "calls").stat().st_size == 6 + 3
    (aside,) = (name for name in objects(s3, place) if "damaged/scores/" in name)
    assert content(s3, place, aside) == bytes(bits)
    assert f"{place}/{part} is damaged" in said
    assert main(command.split()) == 0
    assert same_tables(s3, place, here)


def test_of_many_conditional_writes_at_once_one_succeeds(s3, place):
    start, wins = threading.Barrier(12), []

    def write(number):
        start.wait()
        if StorePath(f"{place}/run.json").create(f"by {number}".encode()):
            wins.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert content(s3, place, "run.json") == f"by {wins[0]}".encode()


def test_a_collection_labels_and_training_from_s3(s3, place, tmp_path):
    data = tiny.write_collection(tmp_path / "pools.jsonl", 6, 5, seed=0)
    s3.upload_file(str(data), BUCKET, f"{key(place)}/pools.jsonl")
    stored = f"{place}/pools.jsonl"
    here = audit("synthetic:slot", str(data), permutations=2, cutoff=0.5)
    assert audit("synthetic:slot", stored, permutations=2, cutoff=0.5)[0].figures == here[0].figures
    assert main(f"label --scorer synthetic:slot --data {stored} --teacher-orders 2 --out {place}/labels --json".split()) == 0
    assert len(read_labels(f"{place}/labels")) == 6
    tiny.save(tmp_path / "base", tiny.decoder())
    settings = {"base": f"hf:{tmp_path / 'base'}", "data": stored, "labels": f"{place}/labels", "widths": (5,), "device": "cpu"}
    trained = steadyscore.train(settings, steps=1, batch=2, held_out=2, out=str(tmp_path / "adapter"))
    assert trained.to_json()["steps"] == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (f"audit --scorer synthetic:slot {SMALL} --out s3://absent-bucket/run", "no bucket s3://absent-bucket"),
        ("report s3://absent-bucket/run", "no bucket s3://absent-bucket"),
        (f"report s3://{BUCKET}/nothing", "holds no run"),
        (f"audit --scorer synthetic:slot --data s3://{BUCKET}/none.jsonl --out runs", "there is no such object"),
    ],
)
def test_what_is_not_there_is_one_sentence(place, words, sentence, capsys):
    assert main(words.split()) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "the store cannot be reached"),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_EC2_METADATA_DISABLED": "true"}, "no credentials"),
    ],
)
def test_a_store_that_does_not_answer_is_one_sentence(place, change, sentence, monkeypatch, capsys):
    for name, value in change.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", "/nonexistent")
    places._file_system.cache_clear()
    assert main(["gate", place, "--max", "tau_psi=1"]) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_access_that_is_denied_is_one_sentence(place, monkeypatch):
    files, _ = places._open(place)

    def deny(*_, **__):
        raise PermissionError("User: arn:aws:iam::1:user/me is not authorized to perform: s3:PutObject")

    monkeypatch.setattr(files, "pipe_file", deny)
    with pytest.raises(StorageError, match="access was denied"):
        StorePath(f"{place}/run.json").write_bytes(b"")


def test_ray_actors_write_their_parts_into_the_store(s3, place, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    here = score_here(tmp_path, "synthetic:slot")
    command = f"audit --scorer synthetic:slot {SMALL} --out {place} --on ray,actors=1"
    code, said = end(begin(command, tmp_path / "c", tmp_path, "import os\nos.environ['RAY_ENABLE_UV_RUN_RUNTIME_ENV'] = '0'"))
    assert code == 0, said
    assert "scored here now" not in said  # no part was left to the command itself
    assert same_tables(s3, place, here)
