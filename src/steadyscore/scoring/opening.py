"""How a scorer is opened for a collection: with the settings that were asked for, its adapter's, or the collection's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from ..engines import Backend, Engine, EngineOptions, Precision, Reranker
from ..engines.kinds import honoured, open_engine, refuse_unhonoured
from ..engines.python import open_object
from ..errors import SteadyscoreError
from ..machine.bounds import changed_fields
from ..machine.places import Place
from ..models.adapter import adapter_of, prompt_mistakes, refuse_mismatches
from ..models.card import TrainedSettings
from ..runs.requests import read_run_record
from ..tasks import TASKS
from ..terms import Candidate, Collection, Instance, Prompt, Window
from .config import AuditConfig
from .scorer import Scorer, Settings, resolve_settings


def check_use(
    scorers: Mapping[str, Any], config: AuditConfig, options: EngineOptions | None = None, readers: Sequence[str] = (),
    perturb: Sequence[str] = (),
) -> None:  # fmt: skip
    """Refuse settings and options that say nothing to any scorer of a call; readers are opened with the options too."""
    shown = [*(f"perturb {kind}" for kind in perturb if "markers" in kind), *changed_fields(config.settings)]
    shown += ["chars"] * (config.chars is not None)
    refuse_unhonoured([name for name in shown if name != "label_mass"], scorers)
    refuse_unhonoured(changed_fields(options or EngineOptions()), {**scorers, **{reader: reader for reader in readers}})


def open_scorer(scorer: Any, collection: Collection, config: AuditConfig, options: EngineOptions | None = None) -> Scorer:
    """A scorer for a collection, by its address or as a Python value: its task, its instruction, its characters kept."""
    value = None if isinstance(scorer, str) else open_object(scorer)
    check_use({scorer if value is None else value.name: scorer if value is None else value}, config, options)
    return scorer_for(value or open_engine(scorer, options), collection, config)


def refuse_mismatch(scorer: Scorer) -> None:
    """An adapter behind another prompt than it was trained with is another scorer; another task's words are transfer."""
    trained = adapter_of(scorer.backend.identity())
    if trained is None or not isinstance(scorer.backend, Engine):
        return
    at_home = Scorer(scorer.backend, TASKS[trained["task"]], scorer.settings)
    probe = at_home.prompt(Instance("probe", "probe", (Candidate("a", "a"),)), Window(0, (0,)))
    allowed = scorer.backend.options.allow_base_mismatch
    assert isinstance(probe, Prompt)
    refuse_mismatches(prompt_mistakes(trained, at_home.prompt_hash, probe.grade_tokens), allowed)


def settings_for(config: AuditConfig, collection: Collection, trained: TrainedSettings, *, is_whole: bool = False) -> Settings:
    """How a collection is presented: as was asked, else as an adapter was trained, else as the collection says.

    is_whole   of a reranker, which gets whole texts unless a number of characters is asked for
    """
    settings = replace(
        config.settings,
        chars=config.chars or trained.get("chars") or (None if is_whole else collection.chars),
        instruction=config.settings.instruction or collection.instruction,
    )
    return resolve_settings(settings, trained)


def scorer_for(backend: Backend, collection: Collection, config: AuditConfig) -> Scorer:
    settings = settings_for(config, collection, backend.trained_settings, is_whole=isinstance(backend, Reranker))
    scorer = Scorer(backend, TASKS[collection.task], settings)
    refuse_mismatch(scorer)
    return scorer


def in_precision_of(folders: Iterable[Place], scorer: Any, options: EngineOptions) -> EngineOptions:
    """Options for opening a scorer, with the precision that the first of these folders' scores were made in, where none was asked
    for and the scorer has one.
    """
    for folder in folders if options.dtype == "auto" and "dtype" in honoured(scorer) else ():
        try:
            stored = read_run_record(folder).fingerprint.scorer
        except (SteadyscoreError, OSError):  # no run, or one that is refused with a reason when it is opened
            continue
        if isinstance(stored, dict) and stored.get("dtype") in get_args(Precision):
            return replace(options, dtype=stored["dtype"])
    return options
