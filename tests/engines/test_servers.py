"""Several servers behind one address: windows are spread, one that dies is left out, and the table is that of one server."""

import contextlib
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions, http, servers
from steadyscore.engines.http import Endpoint, EndpointDown
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.servers import Servers, split_bases
from steadyscore.errors import InputError
from steadyscore.runs.layout import SCORES_FILE
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.score import score_collection
from tests.helpers.decision_server import DecisionServer
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection

CONFIG = AuditConfig(permutations=3)
OPTIONS = EngineOptions(timeout=30, retries=2, concurrency=2, cache=False)


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch, tmp_path):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))


@contextlib.contextmanager
def some_servers(count):
    """Servers that answer alike, whichever is asked."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Server(DecisionServer(slot=0.5).answer)) for _ in range(count)]


def audit_over(bases, tmp_path, name):
    """The table of an audit over some servers, and the engine that asked them."""
    source = open_collection(str(write_collection(tmp_path / "pools.jsonl", some_instances())))
    engine = open_engine(f"systemone:model@{','.join(bases)}", OPTIONS)
    score_collection(scorer_for(engine, source.collection, CONFIG), source, tmp_path / name, CONFIG)
    return (tmp_path / name / SCORES_FILE).read_bytes(), engine


def test_the_table_of_three_servers_is_that_of_one_and_each_scores_its_share(tmp_path):
    with some_servers(3) as spread, some_servers(1) as alone:
        together, _ = audit_over([server.url for server in spread], tmp_path, "three")
        assert together == audit_over([alone[0].url], tmp_path, "one")[0]
        assert min(len(server.requests) for server in spread) > len(alone[0].requests) / 6
        assert sum(len(server.requests) for server in spread) == len(alone[0].requests)


def test_a_server_that_dies_is_left_out_and_named_and_nothing_is_lost(tmp_path, caplog):
    with some_servers(2) as spread, some_servers(1) as alone:
        dying = spread[0]
        dying.always = lambda body: "500" if len(dying.requests) > 3 else None
        with caplog.at_level(logging.WARNING, "steadyscore.engines"):
            together, engine = audit_over([server.url for server in spread], tmp_path, "two")
        assert together == audit_over([alone[0].url], tmp_path, "one")[0]
        assert any(f"{dying.url} gives no answer (HTTP 500" in message for message in caplog.messages)
        assert len(dying.requests) < len(spread[1].requests)
        assert engine.spent()["retried: HTTP 500"] >= 1


def test_a_server_that_was_never_there_is_left_out(tmp_path, caplog):
    with some_servers(2) as spread:
        gone = spread[0].url
        spread[0].__exit__()
        together, _ = audit_over([gone, spread[1].url], tmp_path, "two")
        assert together == audit_over([spread[1].url], tmp_path, "one")[0]
        assert any(message.startswith(f"{gone} gives no answer") for message in caplog.messages)


def test_all_servers_down_is_an_endpoint_that_is_down(tmp_path):
    with some_servers(2) as spread:
        for server in spread:
            server.always = lambda body, server=server: "500" if len(server.requests) > 3 else None
        with pytest.raises(EndpointDown, match="run the same command again"):
            audit_over([server.url for server in spread], tmp_path, "two")


def test_servers_that_serve_different_models_are_refused():
    with Server(lambda path, body: {"context": 1}) as one, Server(lambda path, body: {"context": 2}) as other:
        asked = Endpoint(f"{one.url},{other.url}", OPTIONS)
        with pytest.raises(InputError, match=f"{other.url} serves something else than {one.url}"):
            asked.get("/props", lambda answer: answer["context"])


def test_what_a_server_says_of_itself_is_asked_of_those_that_answer():
    with Server(lambda path, body: {"context": 1}) as one, Server(lambda path, body: {}) as other:
        gone = other.url
        other.__exit__()
        assert Endpoint(f"{gone},{one.url}", OPTIONS).get("/props", lambda answer: answer["context"]) == 1
        with pytest.raises(InputError, match="Are the servers running there"):
            Endpoint(f"{gone},{gone.replace('127.0.0.1', 'localhost')}", OPTIONS).get("/props", lambda answer: answer)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("http://a:1,http://a:1/", "names a server twice"),
        ("http://a:1/v1,http://b:1", "the same path behind each"),
        ("http://a:1,http://user:secret@b:1", "was given with a user name"),
        ("http://a:1,http://b:99999", "is not an address"),
    ],
)
def test_bad_addresses_are_refused(base, words):
    with pytest.raises(InputError, match=words) as refusal:
        split_bases(base)
    assert "secret" not in str(refusal.value)


def test_a_comma_inside_an_address_belongs_to_it():
    assert split_bases("http://a:1/x,y,http://b:2/x,y/") == ("http://a:1/x,y", "http://b:2/x,y")


# -- which server is asked


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_silent_server_rests_longer_each_time_and_is_then_tried_again():
    clock = Clock()
    fleet = Servers(["http://a", "http://b"], clock)
    a = fleet.all[0]
    rests = []
    for _ in range(9):
        fleet.note_silence(a, "no")
        fleet.note_silence(a, "no")  # asked before it fell silent: counted once
        rests.append(a.rests_until - clock.now)
        assert {fleet.choose().base for _ in range(4)} == {"http://b"}
        clock.now = a.rests_until
        assert {fleet.choose().base for _ in range(4)} == {"http://a", "http://b"}
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    fleet.note_answer(a)
    fleet.note_silence(a, "later", 7.0)
    assert a.rests_until - clock.now == 7.0


@given(st.lists(st.sampled_from(["ask", "end", "fail", "wait"]), max_size=60), st.integers(1, 4))
def test_some_server_is_always_asked_and_none_has_two_more_than_another_that_is_awake(events, count):
    clock = Clock()
    fleet = Servers([f"http://{i}" for i in range(count)], clock)
    under_way = []
    for event in events:
        if event == "ask":
            chosen = fleet.choose()
            awake = [server for server in fleet.all if server.rests_until <= clock.now]
            assert chosen in (awake or fleet.all)
            assert chosen.asked <= min((server.asked for server in awake), default=chosen.asked)
            under_way.append(fleet.asking(chosen))
            under_way[-1].__enter__()
        elif event == "end" and under_way:
            under_way.pop(0).__exit__(None, None, None)
        elif event == "fail":
            fleet.note_silence(fleet.choose(), "no")
        else:
            clock.now += servers.FIRST_REST
    assert fleet.choose(fleet.all) is None
    for request in under_way:
        request.__exit__(None, None, None)
    assert not any(server.asked for server in fleet.all)
