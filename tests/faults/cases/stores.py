"""Faults of a run whose folder is in an object store (fsspec's in memory): power cuts between any two requests, flipped bits."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec

from steadyscore.machine.working_copies import close_copies, local_folder, open_folder
from tests.faults.audits import audit, make_collection, score_share
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.helpers.stores import flip_bit, is_cut_before, without_holders


def own_cache(folder: Path) -> AbstractContextManager[Any]:
    return mock.patch.dict(os.environ, {"STEADYSCORE_CACHE": str(folder / "cache")})


def audit_in_store(data: Path, address: str) -> None:
    with open_folder(address) as folder:
        audit(data, folder, seconds=0.0)


HOW = "before every n-th write or removal in the store, and again while another machine resumes"


@fault("power cut, object store", HOW, times=60, few=3)
def cut_store(folder: Path, times: int) -> Counts:
    data = make_collection(folder, 4)
    audit(data, folder / "whole")
    counts, n = Counts(), 1
    with without_holders(), own_cache(folder):
        while counts.times < times:
            address = f"memory://cut-{folder.name}/{n}"
            cuts = [is_cut_before(at, lambda: audit_in_store(data, address)) for at in (n, max(n // 2, 1))]  # noqa: B023
            if not cuts[0]:  # it has fewer changes
                break
            audit_in_store(data, address)
            close_copies()
            counts += Counts(sum(cuts)) + compare_runs(local_folder(address), folder / "whole")
            close_copies()
            n += 1 if times > 10 else 6
    return counts


@fault("bit flipped, object store", "one bit of a part in the store, before another machine collects", times=8, few=2)
def flip_in_store(folder: Path, times: int) -> Counts:
    data, files = make_collection(folder), fsspec.filesystem("memory")
    audit(data, folder / "whole")
    counts = Counts()
    with own_cache(folder):
        for number in range(times):
            address = f"memory://flip-{folder.name}/{number}"
            score_share(data, local_folder(address), 1, 1)
            parts = sorted(files.find(f"{address}/shards"))
            flip_bit(files, parts[number % len(parts)])
            close_copies()
            audit_in_store(data, address)
            assert files.find(f"{address}/damaged"), "the part was not set aside"
            counts += Counts(1) + compare_runs(local_folder(address), folder / "whole")
            close_copies()
    return counts
