"""`steadyscore.audit_decisions`: what other presentations of a state do to what a decision model decides about it.

Every state is asked as the file has it, then with its candidates, its options, its levels and its questions in other orders, one
channel at a time, and as it is again and again: beside the other requests and alone, which is the noise floor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..decisions.cases import Case, find_file, read_case, read_rows
from ..decisions.presentations import AS_GIVEN as NO_CHANGE
from ..decisions.presentations import CHANNELS, Channel, Presentation, irrelevance, presentations, put_back, show
from ..engines import EngineOptions, Price
from ..engines.decision_model import SHAPES, DecisionModel
from ..engines.kinds import open_engine, parse_address
from ..errors import InputError
from ..machine.disk import lock_folder, sha256, write_record
from ..machine.names import short_repr
from ..machine.places import Place, parse_place
from ..machine.progress import job
from ..measures.decisions import INSTABILITIES, NOISE, QUALITIES, Shown, calibration_error, measure_case, stack
from ..measures.registry import MEASURES
from ..runs.find import own_or_only
from ..runs.layout import SUMMARY_FILE
from ..scoring.score import naming_failures
from ..terms import Array, Failure
from ..window.prompt import CHARS_PER_TOKEN
from .decision_run import AS_GIVEN, Asked, DecisionRun, find_decision_folders
from .figure import Figure, beside_floor, mean_figure
from .remarks import answer_remarks
from .table import html_table, text_table

CALIBRATION = "calibration_error"
REPEATS = 2
"""Identical requests beside the others, and as many alone: the noise floor."""
HEADER = ("measure", "channel", "value", "same batch", "other batch", "states")


@dataclass(frozen=True)
class DecisionAudit:
    """One decision model on one file of states: what was decided, and what moved it. Prints as its table."""

    name: str
    """The model's address."""
    collection: str
    """The name of the file."""
    cases: Sequence[Case]
    asked: Sequence[Asked]
    """Per state, every presentation with its answers, the one of the file first."""
    failed: Sequence[Failure] = ()
    """States without a usable answer: in no mean, asked again by the same command."""
    spent: dict[str, float] = field(default_factory=dict)
    folder: Place | None = None

    @property
    def query_ids(self) -> list[str]:
        return [case.id for case in self.cases]

    @cached_property
    def values(self) -> dict[str, Array]:
        """`measure.channel` -> (S,) over states."""
        return stack(
            [measure_case(case, _by_channel(asked), asked[0][1]) for case, asked in zip(self.cases, self.asked, strict=True)]
        )

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """`measure.channel` -> its mean over states with its interval, beside the larger noise floor."""
        figures = {name: mean_figure(values) for name, values in self.values.items()}
        for name, figure in figures.items():
            measure, _, channel = name.partition(".")
            floors = [figures[floor].value for noise in NOISE if (floor := f"{measure}.{noise}") in figures]
            if channel in CHANNELS and floors:
                figures[name] = beside_floor(figure, max(floors))
        error = calibration_error(self.cases, [asked[0][1][1] for asked in self.asked])
        judged = sum(any(gold is not None for gold in case.gold) for case in self.cases)
        whole = {} if np.isnan(error) else {f"{CALIBRATION}.{AS_GIVEN}": Figure(error, None, None, judged)}
        return figures | whole

    def __getitem__(self, measure: str) -> Figure:
        return self.figures[measure]

    @property
    def channels(self) -> dict[str, str]:
        """What each channel was changed in, or why it cannot matter."""
        return {channel: self._describe_channel(channel) for channel in CHANNELS}

    def _describe_channel(self, channel: Channel) -> str:
        reasons = Counter(reason for case in self.cases if (reason := irrelevance(case, channel)))
        changed = len(self.cases) - reasons.total()
        said = [f"changed in {changed} of {len(self.cases)} states"] if changed else []
        return "; ".join([*said, *(f"cannot matter in {count}: {reason}" for reason, count in reasons.items())])

    def to_json(self) -> dict[str, Any]:
        """As `--json` and `summary.json` have it."""
        return {
            "scorer": self.name,
            "data": self.collection,
            "run": None if self.folder is None else str(self.folder),
            "measures": {name: figure.to_json() for name, figure in self.figures.items()},
            "channels": self.channels,
            "states": len(self.cases) + len(self.failed),
            "failed": [failure.to_json() for failure in self.failed],
            "spent": self.spent,
        }

    def rows(self) -> list[list[Any]]:
        """The table: a row per measure and channel, with both noise floors."""
        rows = []
        for measure in (*INSTABILITIES, *QUALITIES, CALIBRATION):
            noise = [f"{f.value:.3f}" if (f := self.figures.get(f"{measure}.{floor}")) else "-" for floor in NOISE]
            for channel in (*CHANNELS, AS_GIVEN):
                if figure := self.figures.get(f"{measure}.{channel}"):
                    cells = [str(replace(figure, floor=None)), *(noise if channel in CHANNELS else "--"), figure.queries]
                    rows.append([measure, channel, *cells])
        return rows

    def report(self, folder: str | Place) -> Place:
        """Write the page; returns its path."""
        from ..report.decisions import write_decisions_report

        return write_decisions_report([self], parse_place(folder))

    def __str__(self) -> str:
        said = [f"{channel}: {what}" for channel, what in self.channels.items()]
        said += answer_remarks(self.name, self.name.partition(":")[2].partition("@")[0], self.spent)
        return "\n".join([f"{self.name} on {self.collection}", text_table(HEADER, self.rows()), *said])

    def __repr__(self) -> str:
        return short_repr(self, f"{self.name} on {self.collection}, {len(self.cases)} states")

    def _repr_html_(self) -> str:
        return html_table(HEADER, self.rows())


def _by_channel(asked: Asked) -> dict[str, list[Shown]]:
    by_channel: dict[str, list[Shown]] = {}
    for channel, shown in asked[1:]:
        by_channel.setdefault(channel, []).append(shown)
    return by_channel


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
) -> DecisionAudit:
    """Audit a decision model on a file of states and questions; a run that was stopped goes on where it was.

    scorer        systemone:<model>@<base url> or decisions:<model>@<base url>
    file          JSONL or JSON (docs/decision-models.md), or the embedded `tickets`
    name          what the model is called in tables; otherwise its address
    permutations  other presentations per state and channel; fewer where there are fewer
    """
    rows = read_rows(file)
    model = open_decision_model(scorer, options)
    fingerprint = {
        "scorer": model.identity(),
        "data": {"name": Path(file).name, "sha256": sha256(find_file(file))},
        "permutations": permutations,
        "seed": seed,
        "repeats": REPEATS,
    }
    with lock_folder(out := parse_place(folder)):
        about = {"name": name or model.name, "collection": Path(file).stem, "states": len(rows)}
        run = DecisionRun.create_or_resume(out, fingerprint, **about)
        failed: list[Failure] = []
        waiting = [number for number in range(len(rows)) if not run.has(number)]
        run.write_record(status="asking", sessions=[*run.record.get("sessions", []), {}])
        with job("asking", len(rows), "state", initial=len(rows) - len(waiting), hidden=quiet) as progress:
            for number in waiting:
                case = read_case(rows[number])
                with naming_failures(failed, case.id):
                    run.write(number, rows[number], ask_case(model, case, permutations, seed))
                run.record["sessions"][-1] = model.spent()
                run.write_record()
                progress.advance()
        if len(failed) == len(rows):
            raise InputError(f"{model.name} answered none of the {len(rows)} states: {failed[0].reason}.")
        run.write_record(status="complete", failed=[failure.to_json() for failure in failed])
        audit = load_decision_run(run)
        write_record(out / SUMMARY_FILE, audit.to_json())
    return audit


def open_decision_model(address: str, options: EngineOptions | None = None) -> DecisionModel:
    if parse_address(address).kind not in SHAPES:
        raise InputError(
            f"{address} does not answer typed questions. Give systemone:<model>@<base url> or decisions:<model>@<base url>; "
            "`steadyscore serve` answers both for a local model."
        )
    model = open_engine(address, options)
    assert isinstance(model, DecisionModel)
    return model


def plan_case(case: Case, permutations: int, seed: int) -> list[tuple[str, Presentation]]:
    """What is asked about a state at once. Repeats follow the presentation that they repeat, so that they share its batch."""
    first = [(AS_GIVEN, NO_CHANGE), *[("same_batch", NO_CHANGE)] * REPEATS]
    return first + [(channel, p) for channel in CHANNELS for p in presentations(case, channel, permutations, seed)]


def ask_case(model: DecisionModel, case: Case, permutations: int, seed: int) -> Asked:
    """Every presentation of a state together, then the same request again, each alone."""

    async def ask(planned: tuple[str, Presentation]) -> tuple[str, Shown]:
        channel, presentation = planned
        return channel, (presentation, put_back(presentation, await model.ask(*show(case, presentation))))

    together = model.endpoint.map(ask, plan_case(case, permutations, seed))
    alone = [model.endpoint.map(ask, [("other_batch", NO_CHANGE)])[0] for _ in range(REPEATS)]
    return together + alone


def load_decisions(folder: str | Place) -> DecisionAudit:
    """The audit in a folder, or the only one below it, measured again; no model is needed."""
    place = parse_place(folder)
    return load_decision_run(DecisionRun.open(own_or_only(place, find_decision_folders([place]) or [place])))


def load_decision_run(run: DecisionRun) -> DecisionAudit:
    cases, asked = zip(*run.read(), strict=True)
    spent: Counter[str] = Counter()
    for session in run.record["sessions"]:
        spent.update(session)
    failed = [Failure(**failure) for failure in run.record.get("failed", [])]
    return DecisionAudit(run.record["name"], run.record["collection"], cases, asked, failed, dict(spent), run.folder)


def split_decisions(given: Sequence[Any]) -> tuple[list[DecisionAudit], list[Any]]:
    """The audits of decisions among audits and folders, and the rest, which are audits of scores."""
    decided: list[DecisionAudit] = []
    rest: list[Any] = []
    for one in given:
        if isinstance(one, DecisionAudit):
            decided.append(one)
        elif isinstance(one, str | Place) and (folders := find_decision_folders([one])):
            decided += [load_decisions(folder) for folder in folders]
        else:
            rest.append(one)
    return decided, rest


def is_measure(name: str) -> bool:
    """Whether a gate or a comparison may name it: a measure of scores, or `measure.channel` of decisions."""
    measure, _, channel = name.partition(".")
    known = measure in INSTABILITIES and channel in (*CHANNELS, *NOISE)
    return name in MEASURES or known or (measure in (*QUALITIES, CALIBRATION) and channel == AS_GIVEN)


@dataclass(frozen=True, slots=True)
class DecisionPlan:
    """What an audit of decisions will ask."""

    states: int
    requests: int
    questions: int
    tokens: int
    """Of every request, by the length of its text; a server that keeps the state between questions reads fewer."""
    cost: float | None = None

    def to_json(self) -> dict[str, Any]:
        counts = {"states": self.states, "requests": self.requests, "questions": self.questions, "tokens": self.tokens}
        return counts | ({} if self.cost is None else {"cost": self.cost})

    def __str__(self) -> str:
        money = "" if self.cost is None else f", cost {self.cost:.2f}"
        return f"{self.states} states, {self.requests} requests, {self.questions} questions, about {self.tokens:,} tokens{money}"


def plan_decisions(file: str | Path, permutations: int = 10, seed: int = 0, price: Price | None = None) -> DecisionPlan:
    """Requests, questions, tokens and cost of an audit, without asking anything."""
    cases = [read_case(row) for row in read_rows(file)]
    counts = [len(plan_case(case, permutations, seed)) + REPEATS for case in cases]
    words = [len(case.state.text) + sum(len(f"{q.instructions}{''.join(q.outcomes)}") for q in case.questions) for case in cases]
    tokens = round(sum(n * length for n, length in zip(counts, words, strict=True)) / CHARS_PER_TOKEN)
    questions = sum(n * len(case.questions) for n, case in zip(counts, cases, strict=True))
    return DecisionPlan(len(cases), sum(counts), questions, tokens, None if price is None else price.of(tokens))
