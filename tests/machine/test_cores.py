"""Cores that a process may use: where it may run, and its container's share of time."""

import os
from types import SimpleNamespace

import pytest
import torch

from steadyscore.engines.local.device import share_threads
from steadyscore.machine import process


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({}, None),
    ],
    ids=["second", "second without", "first", "first without", "unreadable", "none"],
)
def test_a_containers_share_of_time(files, share, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert process.container_share(tmp_path) == share


@pytest.mark.parametrize(("share", "count"), [(None, 6), (1.5, 2), (0.2, 1), (64.0, 6)])
def test_cores_are_those_it_may_run_on_and_no_more_than_its_share(share, count, monkeypatch):
    own = SimpleNamespace(sched_getaffinity=lambda process: range(6), cpu_count=lambda: 96, environ=os.environ)
    monkeypatch.setattr(process, "os", own)
    monkeypatch.setattr(process, "container_share", lambda: share)
    assert process.cores() == count
    own.process_cpu_count = lambda: 3
    assert process.cores() == min(3, count)


def test_a_model_takes_no_more_threads_than_cores_and_never_more_than_before(monkeypatch):
    told = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr("steadyscore.engines.local.device.cores", lambda: 3)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    share_threads()  # the user's word
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert told == []
    share_threads()
    assert told == [3]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    share_threads()
    assert told == [3]
