"""What this process may use of the processor: cores that it may run on, and threads that wait without taking one from others."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def wait_passively() -> None:
    """Have OpenMP's threads leave the core to others while they wait, unless the environment says otherwise.

    It is read when torch is loaded, and says nothing to a torch that was loaded before.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def cores() -> int:
    """Cores that this process may use at a time: those it may run on, and no more than its container's share of time."""
    if hasattr(os, "process_cpu_count"):  # from Python 3.13 on
        count = os.process_cpu_count() or 1
    else:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = container_share()
    return count if share is None else max(1, min(count, math.ceil(share)))


def container_share(root: Path = CGROUP) -> float | None:
    """Cores' worth of time that a container may use; None where it has no bound, or there is none."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period, *_ = " ".join((root / name).read_text() for name in names).split()
            return None if quota in ("max", "-1") else int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return None
