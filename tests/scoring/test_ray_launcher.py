"""Rows on a cluster, without one: what an actor gives back, and what is handed out again. `test_ray.py` has the real thing."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from steadyscore.errors import InputError
from steadyscore.scoring import parts
from steadyscore.scoring.parts import RETRIES, Actor, Cluster, map_on_ray


@pytest.fixture
def rounds(monkeypatch):
    """Rows that each round was handed, by a cluster whose actors die under some of them."""
    handed: list[list[int]] = []
    deaths = {1: 1, 2: RETRIES, 3: RETRIES + 1}
    """Row -> rounds in which its actor dies."""

    def hand_out(ray, rows, actors, work, cluster):
        handed.append([row["number"] for row in rows])
        actor = Actor(*work)
        alive = [row for row in rows if deaths.get(row["number"], 0) < len(handed)]
        given = [actor({"number": [row["number"]], "row": [row["row"]]}) for row in alive]
        return [{name: column[0] for name, column in row.items()} for row in reversed(given)]

    data = SimpleNamespace(DataContext=SimpleNamespace(get_current=SimpleNamespace))
    fake = SimpleNamespace(data=data, cluster_resources=lambda: {"CPU": 2})
    monkeypatch.setattr(parts, "connect", lambda cluster: contextlib.nullcontext(fake))
    monkeypatch.setattr(parts, "_hand_out", hand_out)
    return handed


def open_squares(opened):
    opened.append("open")
    return lambda row: row["n"] ** 2


def test_rows_whose_actor_died_are_handed_out_again_and_then_named(rounds):
    answers = map_on_ray(Cluster(), open_squares, [], [{"n": n} for n in range(5)])
    assert [answer.value for answer in answers] == [0, 1, 4, None, 16]
    assert answers[3].error == f"its actor died each of the {RETRIES + 1} times that it was handed out"
    assert rounds == [[0, 1, 2, 3, 4], [1, 2, 3], [2, 3], [2, 3]]


def test_no_rows_are_no_work(rounds):
    assert map_on_ray(Cluster(), open_squares, [], []) == []
    assert rounds == []


def test_an_actor_opens_its_work_once_and_makes_a_failure_a_value(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value")
    opened = []

    def refuse(row):
        if row["n"] == 1:
            raise InputError("no such row.")
        if row["n"] == 2:
            raise ValueError("key very-secret-value")
        return row["n"]

    def open_work(argument):
        opened.append(argument)
        return refuse

    actor = Actor(open_work, "argument")
    found = [actor({"number": [n], "row": [json.dumps({"n": n})]}) for n in range(4)]
    assert opened == ["argument"]
    assert [row["answer"][0] for row in found] == ["0", "", "", "3"]
    assert [row["error"][0] for row in found] == ["", "no such row.", "ValueError: key ***", ""]
