"""What the workers of an audit are told: its scorers, its collections, and the folder that all of them see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..collection import Data
from ..engines import EngineOptions
from ..errors import InputError
from ..machine.progress import job
from ..machine.working_copies import local_folder
from ..runs.parts import is_record
from ..scoring.mitigations import mitigate
from ..scoring.parts import Worker
from ..scoring.score import AuditConfig, check_apart, scorer_for
from .audit import Additions, Output, open_backend, open_sources
from .folders import run_folders


@dataclass(frozen=True, slots=True)
class AuditWork:
    """An audit whose scoring is done by workers (`scoring.workers.Work`).

    Perturbations, readers and the noise floor are left to the call that collects: they are made from complete runs.
    """

    scorers: Mapping[str, Any]
    data: Sequence[Data]
    config: AuditConfig
    options: EngineOptions
    additions: Additions
    output: Output

    @property
    def quiet(self) -> bool:
        return self.output.quiet

    def workers(self) -> Iterator[tuple[str, Worker]]:
        """A worker for every scorer on every collection; a scorer is opened before the first of its collections."""
        if self.output.folder is None:
            raise InputError("workers need a run folder that all of them see. Say where it is with --out.")
        sources = open_sources(self.scorers, self.data, self.additions)
        check_apart(sources, self.config.cut, self.additions.apart_from)
        places = run_folders(local_folder(self.output.folder, is_record), self.scorers, sources)
        for name, scorer in self.scorers.items():
            folders = [places[name, source.name] for source in sources]
            with job(f"loading {name}", unit=""):
                backend = open_backend(name, scorer, self.options, self.additions, folders, self.output)
            for source, folder in zip(sources, folders, strict=True):
                served = mitigate(scorer_for(backend, source.collection, self.config), self.additions.mitigations)
                yield f"{name} on {source.collection.name}", Worker(served, source, folder, self.config, self.output.command)
