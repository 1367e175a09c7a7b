"""`steadyscore study`: attacks, the width effect, variance, teachers, planning, and the instrument on planted order effects."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from ..audits.estimate import AuditEstimates
from ..audits.gate import Gate, parse_bounds
from ..collection import name_columns
from ..machine.places import Place, parse_place
from ..measures.decomposition import Estimator
from ..results.render import Printed
from ..scoring.config import AuditConfig
from ..studies.attack import attack, estimate_attack
from ..studies.attack_result import LISTED, is_attack_measure, load_attack
from ..studies.attack_words import ATTACKS
from ..studies.plan import PLANNED, plan
from ..studies.teachers import study_teachers
from ..studies.validate import validate
from ..studies.variance import study_variance
from ..studies.width import load_width_study, study_width
from ..terms import Failure
from .flags import above_zero, add_columns, add_field, add_settings, finite, mode_mistakes, scorers_by_name
from .shared import (
    THRESHOLD_FLAGS,
    add_allow_missing,
    add_dry_run,
    add_engine,
    add_json,
    add_presentation,
    add_threshold,
    can_draw_page,
    config_of,
    engine_options,
    examples,
    note_failed,
    print_json,
    refuse,
    threshold_of,
)


@dataclass(frozen=True, slots=True)
class StudyOutput:
    """The result of a study, and how its command ends."""

    result: Printed | AuditEstimates
    failed: Sequence[Failure] = ()
    """Queries that could not be scored."""
    scorer: str = ""
    gate: Gate | None = None
    page: Place | None = None
    code: int = 0


class Study(NamedTuple):
    """One word after `steadyscore study`."""

    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], StudyOutput]
    examples: tuple[str, ...]


def arguments(parser: argparse.ArgumentParser) -> None:
    studies = parser.add_subparsers(dest="study", metavar="STUDY", required=True)
    for name, study in STUDIES.items():
        about = study.summary[0].upper() + study.summary[1:] + "."
        sub = studies.add_parser(name, help=study.summary, description=about, formatter_class=parser.formatter_class)
        study.arguments(sub)
        add_json(sub)
        examples(sub, *(f"steadyscore study {name} {words}".rstrip() for words in study.examples))
        sub.set_defaults(parser=sub)
    examples(parser, *(f"steadyscore study {name} {study.examples[0]}".rstrip() for name, study in STUDIES.items()))


def run(args: argparse.Namespace) -> int:
    answer = STUDIES[args.study].run(args)
    if args.json:
        gated = {} if answer.gate is None else {"gate": answer.gate.to_json()}
        drawn = {} if answer.page is None else {"report": str(answer.page)}
        value: Any = answer.result.to_json()
        print_json(value | gated | drawn if gated or drawn else value)
    else:
        print(answer.result)
        if answer.gate is not None:
            print(f"\n{answer.gate}")
        if answer.page is not None:
            print(f"report: {answer.page!s}")
    code = note_failed(answer.failed, f"the queries of {answer.scorer}")
    if answer.gate is not None:  # one that holds has accepted what is missing
        answer.gate.raise_if_failed()
        return 0
    return code or answer.code


# -- studies that score, or read what they scored


def _scored(parser: argparse.ArgumentParser) -> None:
    """What is scored, and where its runs are kept."""
    parser.add_argument("--scorer", metavar="[NAME=]ADDRESS", help="what to study")
    parser.add_argument("--data", metavar="NAME|FILE|FOLDER", help="the collection to score")
    add_columns(parser)
    parser.add_argument(
        "--out", type=parse_place, metavar="DIR", help="where the runs and the page go; the same command resumes them"
    )
    add_field(parser, AuditConfig, "seed")
    add_presentation(parser)
    add_engine(parser)


def _check_mode(args: argparse.Namespace, finished: str, read: Sequence[str], needed: Sequence[str]) -> None:
    """Refuse flags of scoring beside --runs, and scoring without what it needs."""
    if args.runs:
        refuse(*mode_mistakes(f"--runs reads {finished}", STUDIES[args.study].arguments, args, ("runs", *read)))
    else:
        refuse(*(f"--{name} is missing; or name {finished} with --runs." for name in needed if not getattr(args, name)))


def _kept(args: argparse.Namespace) -> dict[str, Any]:
    """Where the runs go and how they are made, as both functions take it."""
    return {"out": args.out, "options": engine_options(args), "quiet": args.quiet, "command": args.command}


def _attack_arguments(parser: argparse.ArgumentParser) -> None:
    _scored(parser)
    parser.add_argument(
        "--runs", type=parse_place, metavar="DIR", help="instead of scoring: the folder of a finished attack, measured again"
    )
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), metavar="NAME", help=f"only some of {', '.join(ATTACKS)}")
    bound = "the measure must be at {} X under every attack; NAME.ATTACK for one of them"
    parser.add_argument("--min", action="append", default=[], metavar="NAME=X", help=bound.format("least"))
    parser.add_argument("--max", action="append", default=[], metavar="NAME=X", help=bound.format("most"))
    add_allow_missing(parser)
    add_dry_run(parser)
    parser.add_argument("--no-report", action="store_true", help="leave out the HTML page")
    add_threshold(parser, offers_protocol=False)


def _attack(args: argparse.Namespace) -> StudyOutput:
    bounds = parse_bounds(args.min, args.max, is_attack_measure, LISTED) if args.min or args.max else []
    needed = ("scorer", "data") if args.dry_run else ("scorer", "data", "out")
    read = ("attacks", "min", "max", "allow_missing", "no_report", *THRESHOLD_FLAGS)
    _check_mode(args, "a finished attack", read, needed)
    if args.runs:
        out, result = args.runs, load_attack(args.runs, attacks=args.attacks, threshold=threshold_of(args))
    else:
        out, scorers, data = args.out, scorers_by_name([args.scorer]), name_columns(args.data, args.columns)
        config = config_of(args)
        if args.dry_run:
            (address,) = scorers.values()
            return StudyOutput(estimate_attack(address, data, args.attacks, config, engine_options(args)))
        result = attack(scorers, data, attacks=args.attacks, config=config, **_kept(args))
    page = None if args.no_report or not can_draw_page(out) else result.report(out / "report")
    gate = result.check(bounds, args.allow_missing) if bounds else None
    return StudyOutput(result, result.failed, result.name, gate, page)


def _width_arguments(parser: argparse.ArgumentParser) -> None:
    _scored(parser)
    parser.add_argument(
        "--runs",
        nargs="+",
        type=parse_place,
        metavar="RUN",
        help="instead of scoring: finished runs, one at width 1 and one at another width, or the folder of a study",
    )
    add_field(parser, AuditConfig, "permutations", metavar="M")
    add_settings(parser, AuditConfig, "scheme")


def _width(args: argparse.Namespace) -> StudyOutput:
    _check_mode(args, "finished runs", (), ("scorer", "data", "out"))
    if args.runs:
        result = load_width_study(args.runs)
    else:
        data = name_columns(args.data, args.columns)
        result = study_width(scorers_by_name([args.scorer]), data, config=config_of(args), **_kept(args))
    return StudyOutput(result, result.failed, result.scorer)


# -- studies of what was scored


def _variance_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=parse_place, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument(
        "--estimator",
        choices=get_args(Estimator),
        default="unbiased",
        help="unbiased: effects fitted on two halves of the permutations; reference: the paper's one OLS fit (default unbiased)",
    )


def _teachers_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        required=True,
        metavar=("LABELS", "RUN"),
        help="a label folder, and the run of the student that was trained on it; once for every teacher",
    )
    parser.add_argument("--data", metavar="NAME|FILE|FOLDER", help="the training collection, for the labels' own quality")
    add_columns(parser)


def _teachers(args: argparse.Namespace) -> StudyOutput:
    return StudyOutput(
        study_teachers([(labels, student) for labels, student in args.pair], name_columns(args.data, args.columns))
    )


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", type=parse_place, metavar="RUN", help="a pilot run with at least 4 permutations")
    parser.add_argument("--measure", choices=PLANNED, default="overlap", help="what to plan for (default overlap)")
    parser.add_argument("--margin", type=above_zero, default=0.02, help="wanted half-width of the 95 %% interval (default 0.02)")
    parser.add_argument(
        "--is-below", type=finite, metavar="X", help="also ask whether the measure is below X, looking query by query"
    )
    add_threshold(parser)


def _plan(args: argparse.Namespace) -> StudyOutput:
    return StudyOutput(plan(args.run_folder, args.measure, args.margin, is_below=args.is_below, threshold=threshold_of(args)))


def _validate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation (default 0)")


def _validate(args: argparse.Namespace) -> StudyOutput:
    result = validate(args.seed)
    return StudyOutput(result, code=0 if result.ok else 3)


STUDIES: dict[str, Study] = {
    "attack": Study(
        "say how far hostile candidate text moves its own grade, its companions' and the decisions", _attack_arguments, _attack,
        (
            "--scorer synthetic:companion --data passages --queries 6 --pool 8 --width 4 --match-retention 0.3 --out runs/attack",
            "--runs runs/attack --attacks instruction skeleton --max own_gain=0.9 --min companion_overlap=0.1",
        ),
    ),
    "width": Study(
        "say what serving candidates in company changes, and why: content, length or answer", _width_arguments, _width,
        (
            "--scorer synthetic:slot --data passages --queries 6 --pool 8 --width 4 --permutations 4 --out runs/w",
            "--runs runs/w",
        ),
    ),
    "variance": Study(
        "say where the movement of a score over orders comes from: slot, window or companions", _variance_arguments,
        lambda args: StudyOutput(study_variance(*args.runs, estimator=args.estimator)),
        ("runs/planted/responses/synthetic-slot", "runs/planted --estimator reference --json"),
    ),
    "teachers": Study(
        "say whether steadier labels made better students, over several teachers", _teachers_arguments, _teachers,
        (
            "--pair labels/first runs/first --pair labels/judged runs/first",
            "--pair labels/first runs/first --pair labels/judged runs/first --data passages --json",
        ),
    ),
    "plan": Study(
        "say how many permutations and queries a margin needs, from a pilot run", _plan_arguments, _plan,
        (
            "runs/planted/responses/synthetic-slot --measure pair_flip --margin 0.05",
            "runs/planted/responses/synthetic-slot --measure pair_flip --is-below 0.9",
        ),
    ),
    "validate": Study(
        "check the instrument itself on planted order effects", _validate_arguments, _validate, ("", "--seed 7 --json")
    ),
}  # fmt: skip
"""Every study; one more is a line here, and its module in `studies`."""
