"""The command that starts a training run on several processes or machines: Accelerate's launcher with a shipped configuration."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..errors import InputError

Launch = Literal["ddp", "fsdp"]
"""The whole model in every process, or its weights sharded over them."""
CONFIGURATIONS = Path(__file__).parent / "launch"
PORT = 29500


def launch_command(kind: Launch, words: Sequence[str], processes: int, machines: int = 1, host: str | None = None) -> str:
    """One shell command, the same on every machine, that runs `steadyscore train WORDS` on `processes` in all.

    Several machines meet at `host`, the name or address of one of them.
    """
    mistakes = []
    if processes % machines:
        mistakes.append(f"{processes} processes do not divide among {machines} machines; give a multiple of {machines}")
    if machines > 1 and host is None:
        mistakes.append("several machines meet at one of them; name it with --host")
    if mistakes:
        raise InputError(mistakes)
    command = ["accelerate", "launch", "--config_file", str(CONFIGURATIONS / f"{kind}.yaml"), "--num_processes", str(processes)]
    if machines > 1:  # by c10d the machines number themselves, so that none needs a command of its own
        meeting = ["--main_process_ip", str(host), "--main_process_port", str(PORT)]
        command += ["--num_machines", str(machines), "--rdzv_backend", "c10d", *meeting]
    else:
        command += ["--main_process_port", "0"]  # any free one
    return shlex.join([*command, "-m", "steadyscore", "train", *words])
