"""`steadyscore.attack`: how far the text of one hostile candidate moves its own grade, its companions' and what is decided.

In every query one candidate that is not relevant attacks. The pool is scored in first-stage order as it is, under every attack,
and with a neutral sentence of the same length instead, each into a run folder of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from ..audits.audit import ScorerInput, name_scorers, open_sources, stored_threshold, working_folder
from ..audits.estimate import AuditEstimates, estimate_audit
from ..collection import Data
from ..engines import EngineOptions
from ..errors import InputError
from ..machine.disk import explaining_os_errors, write_record
from ..machine.places import Place, parse_place
from ..measures.views import ScoreView
from ..results.load import match_threshold
from ..runs.layout import CLEAN, SUMMARY_FILE
from ..scoring.config import AuditConfig, OrderSettings, configure, settings_for
from ..scoring.estimate import Estimate, Rate, estimate
from ..scoring.score import cut_instances
from ..scoring.scorer import PoolScorer, Settings
from ..tasks import TASKS, Task
from .attack_result import NOBODY_ATTACKS, AttackAudit, load_attack
from .attack_words import Wording, attacked_sources, choose_attacks, not_relevant
from .study import Variant, open_one, run_variants


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
    place = None if out is None else parse_place(out)
    given = ScorerInput(name_scorers(scorer), [data], how, options or EngineOptions(), place, quiet, command)
    source = open_one(given, "an attack")
    by = match_threshold(how.threshold, source.collection.name, ScoreView())
    if not any(not_relevant(instance) for instance in cut_instances(source.instances(), how.cut)):
        raise InputError(NOBODY_ATTACKS)

    def variants(plain: PoolScorer) -> dict[str, Variant]:
        sources = attacked_sources(source, names, wording_of(plain.task, plain.settings), how.cut, how.seed)
        return {place: Variant(plain, attacked, may_fail=place != CLEAN) for place, attacked in sources.items()}

    with working_folder(place) as folder:
        for variant, run in run_variants(given, source, variants, folder):
            if variant == CLEAN:
                run.update_record(threshold=stored_threshold(by))
        result = load_attack(folder, attacks=names)
        if place is None:
            return replace(result, folder=None)
        with explaining_os_errors(folder):
            write_record(folder / SUMMARY_FILE, result.to_json())
        return result


def wording_of(task: Task, settings: Settings) -> Wording:
    """The words that a scorer with these settings is asked in."""
    return Wording(task, settings.markers, settings.prompt or "paper")


def attack_config(config: AuditConfig, **settings: Any) -> AuditConfig:
    """A configuration for attacks, which score the first-stage order and no permutation."""
    return replace(configure(config, settings, OrderSettings, "attack"), permutations=0, scheme="hashed")


def estimate_attack(
    scorer: str, data: Data, names: Sequence[str], config: AuditConfig, options: EngineOptions | None = None
) -> AuditEstimates:
    """Windows, tokens, time and money of every run of an attack; a few windows are timed, of the collection as it is."""
    how = attack_config(config)
    (source,) = open_sources({scorer: scorer}, [data], how, is_plan=True)
    (part,) = estimate_audit([scorer], [source], how, options).parts
    wording = wording_of(TASKS[source.collection.task], settings_for(how, source.collection, {}))
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
