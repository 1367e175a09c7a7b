"""What only root may do to its own process: mounts, process ids and a host name that nobody else sees. They end with it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.fault import Unavailable
from tests.faults.processes import fork

MOUNTS, NAMES, PROCESSES = 0x00020000, 0x04000000, 0x20000000
"""CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID."""
DEATH_OF_PARENT = 1
"""PR_SET_PDEATHSIG."""


def unshare(kinds: int) -> None:
    """Have namespaces of these kinds for this process and its children alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare") or libc.unshare(kinds):
        raise Unavailable(f"this user may not make namespaces: {os.strerror(ctypes.get_errno())}")


def mount_small(folder: Path, kilobytes: int) -> None:
    """Put a file system of so many kilobytes on a folder, for this process and its children alone."""
    unshare(MOUNTS)
    folder.mkdir()
    for words in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]):
        ended = subprocess.run(["mount", *words], capture_output=True, text=True)
        if ended.returncode:
            raise Unavailable(f"this user may not mount: {ended.stderr.strip()}")


def fork_on_host(name: str, work: Callable[..., Any], *args: Any) -> int:
    """Begin work on what looks to it like another machine; gives an id to wait for."""

    def work_here() -> None:
        ctypes.CDLL(None).prctl(DEATH_OF_PARENT, signal.SIGKILL)  # whoever kills the host kills its work
        work(*args)

    def host() -> None:
        from steadyscore.machine import disk

        unshare(NAMES | PROCESSES)
        socket.sethostname(name)
        disk.place.cache_clear()
        child = fork(work_here)  # the first process of its namespace
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 1)

    return fork(host)
