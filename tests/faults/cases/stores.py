"""Faults of a run whose folder is in an object store (fsspec's in memory): power cuts between any two requests, flipped bits."""

from __future__ import annotations

from pathlib import Path

import fsspec

from steadyscore.machine.places import StorePath
from tests.faults.audits import audit, make_collection, score_share
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.helpers.stores import flip_bit, is_cut_before

HOW = "before every n-th write or removal in the store, and again while another machine resumes"


@fault("power cut, object store", HOW, times=60, few=3)
def cut_store(folder: Path, times: int) -> Counts:
    data = make_collection(folder, 4)
    audit(data, folder / "whole")
    counts, n = Counts(), 1
    while counts.times < times:
        out = StorePath(f"memory://cut-{folder.name}/{n}")
        cuts = [is_cut_before(at, lambda: audit(data, out, seconds=0.0)) for at in (n, max(n // 2, 1))]  # noqa: B023
        if not cuts[0]:  # it has fewer changes
            break
        audit(data, out, seconds=0.0)
        counts += Counts(sum(cuts)) + compare_runs(out, folder / "whole")
        n += 1 if times > 10 else 6
    return counts


@fault("bit flipped, object store", "one bit of a part in the store, before another machine collects", times=8, few=2)
def flip_in_store(folder: Path, times: int) -> Counts:
    data, files = make_collection(folder), fsspec.filesystem("memory")
    audit(data, folder / "whole")
    counts = Counts()
    for number in range(times):
        out = StorePath(f"memory://flip-{folder.name}/{number}")
        score_share(data, out, 1, 1)
        parts = sorted(files.find(f"{out}/parts/scores"))
        flip_bit(files, parts[number % len(parts)])
        audit(data, out)
        assert files.find(f"{out}/damaged"), "the part was not set aside"
        counts += Counts(1) + compare_runs(out, folder / "whole")
    return counts
