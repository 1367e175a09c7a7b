"""`steadyscore.audit_decisions`: what other presentations of a state do to what a decision model decides about it.

Every state is asked as the file has it, then with its candidates, its options, its levels and its questions in other orders, one
channel at a time, and as it is again and again: beside the other requests and alone, which is the noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..engines import EngineOptions, Price
from ..engines.kinds import open_engine, parse_address
from ..errors import InputError, UsageError
from ..machine.console import job
from ..machine.disk import lock_folder, sha256, write_record
from ..machine.places import Place, parse_place
from ..measures.stopping import Evidence, Until
from ..runs.layout import SUMMARY_FILE
from ..runs.records import to_json
from ..scoring.loop import naming_failures
from ..scoring.until import shuffle_ids, stop_record
from ..terms import Failure, JsonObject
from ..window.prompt import CHARS_PER_TOKEN
from .cases import Case, find_file, read_cases
from .engine import SHAPES, DecisionModel
from .measures import AS_GIVEN, SHARES, Asked, Shown, measure_state
from .presentations import AS_GIVEN as NO_CHANGE
from .presentations import CHANNELS, CasePresentation, irrelevance, presentations, put_back, show
from .result import DecisionAudit, DecisionRun, is_decision_measure, load_decision_run

REPEATS = 2
"""Identical requests beside the others, and as many alone: the noise floor."""


def audit_decisions(
    scorer: str,
    file: str | Path,
    folder: str | Place,
    *,
    name: str | None = None,
    permutations: int = 10,
    seed: int = 0,
    options: EngineOptions | None = None,
    quiet: bool = False,
    until: Until | str | None = None,
) -> DecisionAudit:
    """Audit a decision model on a file of states and questions; a run that was stopped goes on where it was.

    scorer        systemone:<model>@<base url> or decisions:<model>@<base url>
    file          JSONL or JSON (docs/decision-models.md), or the embedded `tickets`
    name          what the model is called in tables; otherwise its address
    permutations  other presentations per state and channel; fewer where there are fewer
    until         ask about states in random order until this is known at an error of 5 %, such as choice_flip.options<=0.1
    """
    cases = read_cases(file)
    bound = Until.parse(until) if isinstance(until, str) else until
    if bound is not None:
        check_until(bound, cases)
    model = open_decision_model(scorer, options)
    fingerprint = {
        "scorer": model.identity(),
        "data": {"name": Path(file).name, "sha256": sha256(find_file(file))},
        "permutations": permutations,
        "seed": seed,
        "repeats": REPEATS,
    }
    with lock_folder(out := parse_place(folder)):
        about = {"name": name or model.name, "collection": Path(file).stem, "states": len(cases)}
        run = DecisionRun.create_or_resume(out, fingerprint, **about)
        failed: list[Failure] = []
        waiting = {number for number in range(len(cases)) if not run.has(number)}
        run.write_record(status="asking", sessions=[*run.record.get("sessions", []), {}])
        evidence, looked = None if bound is None or not waiting else Evidence(bound), []
        ids = shuffle_ids(map(str, range(len(cases))), seed) if evidence else range(len(cases))
        with job("asking", len(cases), "state", initial=len(cases) - len(waiting), hidden=quiet) as progress:
            for number in map(int, ids):
                if number in waiting:
                    case = cases[number]
                    with naming_failures(failed, case.id):
                        run.write(number, case, ask_case(model, case, permutations, seed))
                    run.record["sessions"][-1] = model.spent()
                    run.write_record()
                    progress.advance()
                looked.append(number)
                if bound is not None and evidence is not None:
                    known = run.has(number)
                    evidence.add(measure_state(*run.read_state(number)).get(bound.measure, math.nan) if known else math.nan)
                    if evidence.answer != "undecided":
                        break
        if len(failed) == len(looked):
            raise InputError(f"{model.name} answered none of the {len(looked)} states: {failed[0].reason}.")
        requests = sum(len(plan_case(case, permutations, seed)) + REPEATS for case in cases) if evidence else 0
        counts = (len(looked), len(cases)), (permutations, permutations), requests
        stop = None if evidence is None else stop_record(evidence, *counts)
        run.write_record(
            status="complete",
            failed=[failure.to_json() for failure in failed],
            stop=None if stop is None else to_json(stop),
            looked=sorted(looked) if stop else None,
        )
        audit = load_decision_run(run)
        write_record(out / SUMMARY_FILE, audit.to_json())
    return audit


def check_until(until: Until, cases: Sequence[Case]) -> None:
    """Refuse a measure that no state has, or that is not between 0 and 1."""
    if not is_decision_measure(until.measure) or until.measure.partition(".")[0] not in SHARES:
        raise UsageError(f"until {until}: give one of {', '.join(SHARES)} with its channel, such as choice_flip.options<=0.1.")
    if not any(has_measure(case, until.measure) for case in cases):
        raise UsageError(f"until {until}: no state has {until.measure}. Name another measure.")


def has_measure(case: Case, name: str) -> bool:
    """Whether a state has a measure: a question of its kind, and something that its channel can change."""
    measure, _, channel = name.partition(".")
    if measure == "accuracy":
        return any(gold is not None for gold in case.gold)
    is_asked = any(question.kind == measure.partition("_")[0] for question in case.questions)
    return is_asked and not any(channel == one and irrelevance(case, one) for one in CHANNELS)


def open_decision_model(address: str, options: EngineOptions | None = None) -> DecisionModel:
    if parse_address(address).kind not in SHAPES:
        raise InputError(
            f"{address} does not answer typed questions. Give systemone:<model>@<base url> or decisions:<model>@<base url>; "
            "`steadyscore serve` answers both for a local model."
        )
    model = open_engine(address, options)
    assert isinstance(model, DecisionModel)
    return model


def plan_case(case: Case, permutations: int, seed: int) -> list[tuple[str, CasePresentation]]:
    """What is asked about a state at once. Repeats follow the presentation that they repeat, so that they share its batch."""
    first = [(AS_GIVEN, NO_CHANGE), *[("same_batch", NO_CHANGE)] * REPEATS]
    return first + [(channel, p) for channel in CHANNELS for p in presentations(case, channel, permutations, seed)]


def ask_case(model: DecisionModel, case: Case, permutations: int, seed: int) -> Asked:
    """Every presentation of a state together, then the same request again, each alone."""

    async def ask(planned: tuple[str, CasePresentation]) -> tuple[str, Shown]:
        channel, presentation = planned
        return channel, (presentation, put_back(presentation, await model.ask(*show(case, presentation))))

    together = model.endpoint.map(ask, plan_case(case, permutations, seed))
    alone = [model.endpoint.map(ask, [("other_batch", NO_CHANGE)])[0] for _ in range(REPEATS)]
    return together + alone


@dataclass(frozen=True, slots=True)
class DecisionPlan:
    """What an audit of decisions will ask."""

    states: int
    requests: int
    questions: int
    tokens: int
    """Of every request, by the length of its text; a server that keeps the state between questions reads fewer."""
    cost: float | None = None

    def to_json(self) -> JsonObject:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        money = "" if self.cost is None else f", cost {self.cost:.2f}"
        return f"{self.states} states, {self.requests} requests, {self.questions} questions, about {self.tokens:,} tokens{money}"


def plan_decisions(file: str | Path, permutations: int = 10, seed: int = 0, price: Price | None = None) -> DecisionPlan:
    """Requests, questions, tokens and cost of an audit, without asking anything."""
    cases = read_cases(file)
    counts = [len(plan_case(case, permutations, seed)) + REPEATS for case in cases]
    words = [len(case.state.text) + sum(len(f"{q.instructions}{''.join(q.outcomes)}") for q in case.questions) for case in cases]
    tokens = round(sum(n * length for n, length in zip(counts, words, strict=True)) / CHARS_PER_TOKEN)
    questions = sum(n * len(case.questions) for n, case in zip(counts, cases, strict=True))
    return DecisionPlan(len(cases), sum(counts), questions, tokens, None if price is None else price.of(tokens))
