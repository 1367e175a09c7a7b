"""`steadyscore.attack`: how far the text of one hostile candidate moves its own grade, its companions' and what is decided.

In every query one candidate that is not relevant attacks. The pool is scored in first-stage order as it is, under every attack,
and with a neutral sentence of the same length instead, each into a run folder of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from ..collection import Data
from ..engines import EngineOptions, Recording
from ..errors import InputError
from ..machine.disk import explaining_os_errors, write_record
from ..machine.places import Place, parse_place
from ..machine.progress import bar
from ..measures.reading import Reading
from ..runs.layout import CLEAN, SUMMARY_FILE
from ..scoring.attacks import Wording, attacked_sources, choose_attacks, not_relevant
from ..scoring.estimate import Estimate, estimate
from ..scoring.rate import Rate
from ..scoring.score import AuditConfig, cut_instances, score_collection, scorer_for, settings_for
from ..tasks import TASKS
from .attack_result import NOBODY_ATTACKS, AttackAudit, load_attack
from .audit import Additions, Output, open_backend, open_one, open_sources, stored_threshold, working_folder
from .configuration import OrderSettings, configure
from .estimate import AuditEstimates, estimate_audit
from .load import match_threshold


def attack(
    scorer: Any,
    data: Data,
    *,
    attacks: Sequence[str] | None = None,
    out: str | Place | None = None,
    config: AuditConfig | None = None,
    options: EngineOptions | None = None,
    quiet: bool = False,
    command: Sequence[str] = (),
    **settings: Unpack[OrderSettings],
) -> AttackAudit:
    """Score a collection as it is, under every attack and under each one's harmless control, and measure what moved.

    Each is a run in a folder of its own below `out`; the same call resumes what was stopped. Without `out` nothing is kept.

    attacks   names of `ATTACKS`; None: all of them

    >>> print(steadyscore.attack("synthetic:companion", "passages", queries=6, pool=8, match_retention=0.3))
    """
    how, names = attack_config(config or AuditConfig(), **settings), choose_attacks(attacks)
    name, one, source = open_one(scorer, data, how, options, "an attack")
    output = Output(None if out is None else parse_place(out), command=command)
    by = match_threshold(how.threshold, source.collection.name, 1, Reading())
    if not any(not_relevant(instance) for instance in cut_instances(source.instances(), how.cut)):
        raise InputError(NOBODY_ATTACKS)
    with working_folder(output) as folder:
        backend = open_backend(name, one, options or EngineOptions())
        if isinstance(backend, Recording):
            raise InputError(
                f"{backend.name} holds scores and reads no text, so no text can attack it. Name what gave the scores."
            )
        plain = scorer_for(backend, source.collection, how)
        wording = Wording(plain.task, plain.settings.markers, plain.settings.prompt or "paper")
        for place, changed in attacked_sources(source, names, wording, how.cut, how.seed).items():
            run = score_collection(
                plain, changed, folder / place, how, command=list(command), progress=bar(f"{name}, {place}", quiet),
                may_fail=place != CLEAN,
            )  # fmt: skip
            if place == CLEAN:
                run.update_record(threshold=stored_threshold(by))
        found = load_attack(folder, attacks=names)
        if output.folder is None:
            return replace(found, folder=None)
        with explaining_os_errors(folder):
            write_record(folder / SUMMARY_FILE, found.to_json())
        return found


def attack_config(config: AuditConfig, **settings: Any) -> AuditConfig:
    """A configuration for attacks, which score the first-stage order and no permutation."""
    if unknown := [name for name in settings if name not in OrderSettings.__annotations__]:
        raise InputError(f"attack has no setting {', '.join(unknown)}. It has {', '.join(OrderSettings.__annotations__)}.")
    how = replace(configure(config, **settings), permutations=0, scheme="hashed")
    if how.threshold.protocol == "reference":
        raise InputError(
            "the reference protocol fits its cutoff in a random order, which an attack does not score. Leave it out."
        )
    return how


def estimate_attack(
    scorer: str, data: Data, names: Sequence[str], config: AuditConfig, options: EngineOptions | None = None
) -> AuditEstimates:
    """Windows, tokens, time and money of every run of an attack; a few windows are timed, of the collection as it is."""
    how = attack_config(config)
    (source,) = open_sources({scorer: scorer}, [data], Additions(), is_plan=True)
    (part,) = estimate_audit([scorer], [source], how, Additions(), options).parts
    settings = settings_for(how, source.collection, {})
    wording = Wording(TASKS[source.collection.task], settings.markers, settings.prompt or "paper")
    price = None if options is None else options.price
    runs = [
        estimate(scorer, changed, how, price=price)
        for changed in attacked_sources(source, choose_attacks(names), wording, how.cut, how.seed).values()
    ]
    tokens, costs = sum(run.tokens for run in runs), [run.cost for run in runs if run.cost is not None]
    whole = Estimate(
        queries=part.scoring.queries,
        windows=sum(run.windows for run in runs),
        tokens=tokens,
        seconds=tokens / part.timed.tokens_per_second if isinstance(part.timed, Rate) else None,
        cost=sum(costs) if costs else None,
    )
    return AuditEstimates((replace(part, scoring=whole),))
