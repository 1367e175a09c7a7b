"""Checkpoints of a training run: adapter, optimizer moments and history, as safetensors and JSON; no pickles.

    checkpoints/step-000100/   adapter_config.json, adapter_model.safetensors,
                               card.json, README.md                             usable as an adapter
                               optimizer.safetensors                            AdamW moments, and the EMA where there is one
                               state.json                                       step and evaluation history

Random numbers need no state: everything drawn is a function of (seed, step). A folder appears by rename, so a kill at any
moment leaves whole checkpoints only. Tensors of sharded models are gathered, so a run may resume with other processes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..machine.disk import atomic, atomic_folder, explaining_os_errors, read_json, remove_folder, remove_leftovers, write_json
from ..models.adapter import FILES, WEIGHTS, load_tensors
from ..models.card import Card, HeldOutPoint, write_card
from ..runs.requests import check_same_command
from ..terms import JsonObject
from .labels import label_contents

if TYPE_CHECKING:
    from torch import Tensor

MOMENTS = ("exp_avg", "exp_avg_sq")
STEP_FOLDER = re.compile(r"step-(\d{6}|[1-9]\d{6,})")


@dataclass(frozen=True, slots=True)
class TrainRecord:
    """What train.json says of a run."""

    status: Literal["training", "complete", "collapsed"]
    fingerprint: JsonObject
    config: JsonObject = field(default_factory=dict)
    weight: float | None = None
    """Of the penalty, in the run's own convention."""
    command: Sequence[str] = ()
    versions: JsonObject = field(default_factory=dict)
    reason: str | None = None
    """Why it collapsed."""

    def write(self, out: Path) -> None:
        write_json(out / "train.json", {name: value for name, value in asdict(self).items() if value is not None})


def begin(out: Path, record: TrainRecord) -> TrainRecord:
    """The record of a run: this one, or the one on disk if it was made by the same command."""
    if known := read_record(out, record.fingerprint):
        return known
    with explaining_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        record.write(out)
    return record


def read_record(out: Path, fingerprint: JsonObject) -> TrainRecord | None:
    """The record on disk, of a run with this fingerprint; None where no run began there."""
    if not (out / "train.json").exists():
        return None
    record = read_json(out / "train.json")
    began = record["fingerprint"]  # earlier versions kept there whatever the card says about its labels
    check_same_command(out, began | {"labels": label_contents(began.get("labels", {}))}, fingerprint)
    return TrainRecord(**{name: value for name, value in record.items() if name in TrainRecord.__dataclass_fields__})


def latest(out: Path) -> Path | None:
    """The newest whole checkpoint."""
    steps = steps_on_disk(out)
    return step_folder(out, steps[-1]) if steps else None


def step_folder(out: Path, step: int) -> Path:
    return out / "checkpoints" / f"step-{step:06d}"


def copy_adapter(checkpoint: Path, out: Path) -> None:
    """Copy what a checkpoint holds for those who use the adapter; all of it or nothing."""
    with explaining_os_errors(out), ExitStack() as files:  # all are written before the first one has its name
        for name in FILES:
            copied = files.enter_context(atomic(out / name))
            with open(checkpoint / name, "rb") as stream:
                shutil.copyfileobj(stream, copied)
            copied.flush()


def save(
    out: Path,
    card: Card,
    adapter: dict[str, Tensor],
    lora: Any,
    tensors: dict[str, Tensor],
    history: Sequence[HeldOutPoint],
    keep: set[int],
) -> None:
    """Write a checkpoint, its card included, whole or not at all; then remove those that are not in `keep`."""
    from safetensors.torch import save_file

    root, step = out / "checkpoints", card.steps
    folder = step_folder(out, step)
    with explaining_os_errors(folder):
        with atomic_folder(folder) as scratch:
            gathered = {name: tensor.contiguous() for name, tensor in sorted(adapter.items())}
            save_file(gathered, scratch / WEIGHTS, metadata={"format": "pt"})
            portable = copy(lora)  # peft names the folder that the base was read from
            portable.base_model_name_or_path = card.base.model
            portable.save_pretrained(str(scratch))
            save_file(tensors, scratch / "optimizer.safetensors")
            write_json(scratch / "state.json", {"step": step, "history": history})
            write_card(scratch, card)
        for old in steps_on_disk(out):
            if old not in keep | {step}:
                remove_folder(step_folder(out, old))
        remove_leftovers(root)


def steps_to_keep(step: int, history: Sequence[HeldOutPoint], on_disk: list[int], keep: int) -> set[int]:
    """The last `keep` steps, and as many trained ones with the best held-out quality; a tie goes to the earlier step."""
    last = sorted({*on_disk, step})[-keep:]
    best = sorted((e for e in history if e["step"] > 0), key=lambda e: (-e["quality"], e["step"]))[:keep]
    return {*last, *(e["step"] for e in best)}


def steps_on_disk(out: Path) -> list[int]:
    """Steps that have a checkpoint; a folder of another name, such as somebody's copy, is none."""
    names = (STEP_FOLDER.fullmatch(folder.name) for folder in (out / "checkpoints").glob("step-*"))
    return sorted(int(name[1]) for name in names if name)


# -- tensors of a run


def gather(tensor: Any) -> Any:
    """A whole tensor on the CPU, also where FSDP keeps it in shards."""
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().cpu().clone()


def optimizer_tensors(optimizer: Any, named: dict[str, Tensor], ema: dict[str, Tensor] | None) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, parameter in named.items():
        state = optimizer.state[parameter]
        tensors |= {f"{moment}/{name}": gather(state[moment]) for moment in MOMENTS}
        tensors[f"step/{name}"] = state["step"].detach().cpu().clone()
    return tensors | {f"ema/{name}": gather(tensor) for name, tensor in (ema or {}).items()}


def restore_optimizer(folder: Path, optimizer: Any, named: dict[str, Tensor], ema: dict[str, Tensor] | None) -> None:
    """Put the moments (and the EMA) back, each on its parameter's device and shards."""
    remedy = " Delete its folder; the run resumes from the checkpoint before."
    tensors = load_tensors(folder / "optimizer.safetensors", remedy)
    for name, parameter in named.items():
        optimizer.state[parameter] = {moment: _like(tensors[f"{moment}/{name}"], parameter) for moment in MOMENTS} | {
            "step": tensors[f"step/{name}"]
        }
        if ema is not None:
            ema[name].copy_(_like(tensors[f"ema/{name}"], parameter))


def _like(tensor: Any, parameter: Any) -> Any:
    if not hasattr(parameter, "device_mesh"):
        return tensor.to(parameter.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(parameter.device), parameter.device_mesh, parameter.placements)
