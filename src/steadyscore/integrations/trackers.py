"""Audits in MLflow, Weights & Biases or TensorBoard, each where it is installed, and none of them online.

Every audit is a run of the tracker: its figures are metrics, its settings parameters.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..machine.extras import check_installed
from ..machine.names import slug

if TYPE_CHECKING:
    from ..results.audit import Audit

Tracker = Literal["mlflow", "wandb", "tensorboard"]
PROJECT = "steadyscore"


def track(audits: Iterable[Audit], tracker: Tracker, folder: Path) -> None:
    """Log audits with a tracker, below a folder; MLFLOW_TRACKING_URI and WANDB_MODE, where they are set, send them elsewhere."""
    check_installed(f"--track {tracker}", tracker)
    for audit in audits:
        settings = {**audit.record.fingerprint.keys, "scorer": audit.name, "collection": audit.collection}
        given = {key: str(value) for key, value in settings.items() if value is not None}
        LOGS[tracker](f"{audit.name} on {audit.collection}", given, _metrics(audit), folder.resolve())


def _metrics(audit: Audit) -> dict[str, float]:
    """Every figure with the ends of its interval, and why decisions flip."""
    values: dict[str, float | None] = {}
    for name, figure in audit.figures.items():
        key = name.replace("@", "_at_")  # MLflow takes no @
        values |= {key: figure.value, f"{key}/low": figure.low, f"{key}/high": figure.high}
    if audit.causes is not None:
        values |= {f"flips/{cause.replace(' ', '_')}": float(count) for cause, count in audit.causes.counts.items()}
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def _log_mlflow(name: str, parameters: dict[str, str], metrics: dict[str, float], folder: Path) -> None:
    import mlflow

    if "MLFLOW_TRACKING_URI" not in os.environ:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment(PROJECT)
    with mlflow.start_run(run_name=name):
        mlflow.log_params(parameters)
        mlflow.log_metrics(metrics)


def _log_wandb(name: str, parameters: dict[str, str], metrics: dict[str, float], folder: Path) -> None:
    import wandb

    mode: Any = os.environ.get("WANDB_MODE", "offline")
    with wandb.init(project=PROJECT, name=name, config=parameters, dir=folder, mode=mode, reinit="finish_previous") as run:
        run.summary.update(metrics)


def _log_tensorboard(name: str, parameters: dict[str, str], metrics: dict[str, float], folder: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / slug(name)))
    writer.add_event(Event(step=0, summary=Summary(value=[Summary.Value(tag=k, simple_value=v) for k, v in metrics.items()])))
    writer.close()


LOGS: dict[Tracker, Callable[[str, dict[str, str], dict[str, float], Path], None]] = {
    "mlflow": _log_mlflow, "wandb": _log_wandb, "tensorboard": _log_tensorboard,
}  # fmt: skip
