"""The configuration of an audit: what is scored, of which part of the data, how it is shown and what is measured besides; and
a scorer opened by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args, get_type_hints

import numpy as np

from ..collection import Data
from ..engines import Backend, Engine, EngineOptions, Precision, Reranker
from ..engines.kinds import honoured, open_engine, refuse_unhonoured
from ..engines.python import open_object
from ..errors import InputError, SteadyscoreError
from ..machine.bounds import Positive, changed_fields, check_fields, field_mistakes
from ..machine.names import nearest
from ..machine.places import Place
from ..measures.answers import EVIDENCE
from ..measures.stopping import Until
from ..measures.threshold import Threshold
from ..measures.views import ScoreView
from ..models.adapter import adapter_of, prompt_mistakes, refuse_mismatches
from ..models.card import TrainedSettings
from ..runs.requests import read_run_record
from ..tasks import TASKS
from ..terms import (
    PERTURBATIONS,
    Candidate,
    Collection,
    Instance,
    Markers,
    Partition,
    Perturbation,
    Placeholder,
    Prompt,
    PromptStyle,
    Readout,
    Ties,
    Window,
)
from .scorer import Scorer, Settings, resolve_settings


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of a collection is scored; the rest is named in the run, not hidden."""

    queries: Positive | None = None
    """Only the first N queries."""
    pool: Positive | None = None
    """Only the first N candidates of each pool."""
    query_ids: tuple[str, ...] | None = None
    """Only these queries, by id."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """What an audit does with one collection."""

    permutations: Positive = 10
    """Random orders to score, M."""
    seed: int = 0
    """Seed of the permutations."""
    scheme: Literal["distinct", "hashed", "reference", "balanced"] = "distinct"
    """Where permutations come from; distinct: no order of a pool twice, so a pool of few candidates has fewer; hashed: the
    same, but always M, as in the paper; reference: the released code's global seeds; balanced: every candidate in every slot
    equally often."""
    settings: Settings = field(default_factory=Settings)
    canonical: bool = True
    """Score the first-stage order too; quality and cutoffs are read off it."""
    chars: Positive | None = None
    """Characters kept of each candidate (default: the adapter's, else the collection's; whole texts without a prompt)."""
    cut: Cut = field(default_factory=Cut)
    threshold: Threshold = field(default_factory=Threshold)
    view: ScoreView = field(default_factory=ScoreView)
    noise_floor: bool = False
    """Also score one order repeatedly in other batches, and print what that alone moves."""
    noise_reads: Positive | None = None
    """Read every window of every query so often for the noise floor, shuffled over all queries (default: 3 times, 20 queries)."""
    mitigations: tuple[str, ...] = ()
    """Served in another way, the first innermost."""
    perturb: tuple[Perturbation, ...] = ()
    """Also change the pool, the markers or the first stage's order."""
    readers: tuple[str, ...] = ()
    """Frozen models that read the first candidates."""
    reader_k: Positive = EVIDENCE
    """Candidates a reader is shown."""
    ir: tuple[str, ...] = ()
    """Further ranking measures that ir_measures knows, such as P@5."""
    curve: bool = False
    """Add every measure at serving budgets K = 1..10 to --json; quality at K = 1 is that of the first-stage order."""
    until: Until | None = None
    """Score queries in random order until this is known at an error of 5 %: overlap>=0.8, tau_psi<=0.1, or a width,
    pair_flip=±0.03."""
    apart_from: tuple[Data, ...] = ()
    """Refuse data that shares a query (by id or text) or a candidate (by text) with these, such as what the scorer was trained
    on."""


class ShownSettings(TypedDict, total=False):
    """Settings by name of whatever shows a language model candidates."""

    queries: int | None
    pool: int | None
    chars: int | None
    width: int | None
    partition: Partition
    markers: Markers
    placeholder: Placeholder
    prompt: PromptStyle | None
    fit: str
    instruction: str | None


class OrderSettings(ShownSettings, total=False):
    """Settings by name of whatever scores one order: fields of `AuditConfig`, `Settings`, `Cut` and `Threshold`."""

    seed: int
    query_ids: Sequence[str] | None
    marker_seed: int | None
    cutoff: float | Literal["f1"] | None
    match_retention: float | str | Path | None
    keep_first: int | None
    keep_share: float | None


class PermutationSettings(OrderSettings, total=False):
    """Settings by name of whatever scores several orders."""

    permutations: int
    scheme: str
    threshold_protocol: str
    readout: Readout
    ties: Ties


class AuditSettings(PermutationSettings, total=False):
    """Settings of `audit` by name: those of several orders, and what is done besides scoring them."""

    noise_floor: bool
    noise_reads: int | None
    mitigations: Sequence[str]
    perturb: Sequence[Perturbation]
    readers: Sequence[str]
    reader_k: int
    ir: Sequence[str]
    serving_permutations: int
    curve: bool
    until: Until | str | None
    apart_from: Sequence[Data]


_FIELDS: dict[str, tuple[str, str]] = {
    **{name: ("", name) for name in AuditSettings.__annotations__},
    **{name: ("cut", name) for name in Cut.__dataclass_fields__},
    **{name: ("settings", name) for name in Settings.__dataclass_fields__ if name != "chars"},
    **{name: ("view", name) for name in ScoreView.__dataclass_fields__},
    **{name: ("threshold", name) for name in ("cutoff", "keep_first", "keep_share")},
    "match_retention": ("threshold", "retention"),
    "threshold_protocol": ("threshold", "protocol"),
}
"""Setting -> the part of a configuration that it stands in, and the field there."""
_RULES: dict[str, Any] = dict.fromkeys(("cutoff", "retention", "retention_of", "keep_first", "keep_share")) | {"half": False}
"""What says which candidates are kept, each in its own way."""
_LISTS = ("query_ids", "mitigations", "perturb", "readers", "ir", "apart_from")


def changed_settings(config: AuditConfig) -> list[str]:
    """The settings of a configuration that are not at their defaults, by the names that `audit` has for them."""
    default = AuditConfig()
    return [name for name in get_type_hints(AuditSettings) if _setting(config, name) != _setting(default, name)]


def _setting(config: AuditConfig, name: str) -> Any:
    part, field = _FIELDS[name]
    return getattr(getattr(config, part) if part else config, field)


def configure(config: AuditConfig, settings: Mapping[str, Any], known: type = AuditSettings, verb: str = "audit") -> AuditConfig:
    """A configuration with some settings changed, each by its own name wherever it stands; every mistake at once.

    known  the settings that this verb reads: any other, typed or in the configuration, is refused
    """
    names = get_type_hints(known)
    if unknown := [name for name in dict.fromkeys([*settings, *changed_settings(config)]) if name not in names]:
        meant = [near for name in unknown if (near := nearest(name, names))]
        hint = f" Did you mean {', '.join(meant)}?" if meant else ""
        raise InputError(f"{verb} has no setting {', '.join(unknown)}. It has {', '.join(names)}.{hint}")
    settings = dict(settings)
    changes: dict[str, dict[str, Any]] = {"cut": {}, "settings": {}, "threshold": {}, "view": {}, "": {}}
    mistakes = [f"{name} is {settings.pop(name)!r}: give a list." for name in _LISTS if isinstance(settings.get(name), str)]
    for name, value in settings.items():
        part, field = _FIELDS[name]
        if name == "match_retention" and isinstance(value, str | Path):
            field, value = "retention_of", str(value)
        elif name in _LISTS and value is not None:
            value = tuple(value)
        elif name == "until" and isinstance(value, str):
            value = Until.parse(value)
        elif isinstance(value, np.generic):
            value = value.item()  # numbers of numpy are no JSON
        changes[part][field] = value
    if changes["threshold"].keys() & _RULES.keys() or config.threshold == Threshold():  # what is given takes its place
        changes["threshold"] = _RULES | changes["threshold"]
    for part, values in changes.items():
        try:
            config = replace(config, **{part: replace(getattr(config, part), **values)} if part else values)
        except InputError as error:
            mistakes += error.mistakes
    mistakes += field_mistakes(config)
    unknown = [kind for kind in config.perturb if kind not in PERTURBATIONS]
    mistakes += [f"there is no perturbation {kind!r}; there are {', '.join(PERTURBATIONS)}." for kind in unknown]
    if mistakes:
        raise InputError(mistakes)
    return config


# -- a scorer, opened with the settings that were asked for, its adapter's, or the collection's


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
