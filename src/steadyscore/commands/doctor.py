"""`steadyscore doctor`: is this machine able to score, does the readout read what the model says, is a run folder whole?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import SteadyscoreError
from ..machine.disk import cache_folder
from ..machine.extras import install_line, is_installed, versions
from ..machine.places import Place, parse_place
from ..models.embedded import EMBEDDED, is_present
from ..runs.folder import find_folders
from ..runs.inspection import Finding, inspect_results, inspect_run
from ..terms import JsonObject
from .flags import scorers_by_name
from .shared import add_engine, add_json, engine_options, examples, print_json, print_table

if TYPE_CHECKING:
    from ..engines import Backend, Engine


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        type=parse_place,
        metavar="RUN",
        help="check these run folders, or folders that hold some, and nothing else",
    )
    parser.add_argument("--scorer", default="smollm2-135m", metavar="[NAME=]ADDRESS", help="what to probe (default smollm2-135m)")
    parser.add_argument(
        "--reference",
        metavar="ADDRESS",
        help="hf address of the same weights, for a served model (default: its own, where known)",
    )
    parser.add_argument(
        "--accept", action="store_true", help="let runs use an engine that fails the parity check; each records the difference"
    )
    parser.add_argument("--no-probe", action="store_true", help="look at the installation only; load no model")
    add_json(parser)
    add_engine(parser)
    examples(parser, "steadyscore doctor --no-probe", "steadyscore doctor runs/first", "steadyscore doctor --json")


def run(args: argparse.Namespace) -> int:
    return check_runs(args) if args.runs else check_machine(args)


def check_runs(args: argparse.Namespace) -> int:
    """Every file of some run folders: its checksum, and its rows against what was asked."""
    given = [parse_place(place) for place in args.runs]
    runs = find_folders(given)
    findings = [(folder, finding) for folder in runs for finding in _inspect(folder)]
    findings += [(folder, finding) for folder in given if folder not in runs for finding in inspect_results(folder)]
    rows = [
        {"run": str(folder), "file": f.file, "state": f.state, "about": ". ".join(filter(None, (f.words, f.remedy)))}
        for folder, f in findings
    ]
    if args.json:
        print_json(rows)
    else:
        print_table(["run", "file", "state", "about"], [list(row.values()) for row in rows])
    return 1 if any(finding.state == "damaged" for _, finding in findings) else 0


def _inspect(folder: Place) -> list[Finding]:
    try:
        return inspect_run(folder)
    except SteadyscoreError as refusal:  # without run.json nothing else can be judged
        return [Finding("run.json", "damaged", str(refusal))]


def check_machine(args: argparse.Namespace) -> int:
    (args.scorer,) = scorers_by_name([args.scorer]).values()
    rows: list[JsonObject] = [{"check": f"version of {name}", "result": value, "ok": True} for name, value in versions().items()]
    rows.append({"check": "cache folder", "result": str(cache_folder()), "ok": True})
    for model in EMBEDDED.values():
        where = "present" if is_present(model) else f"not fetched: steadyscore data get {model.name}"
        rows.append({"check": f"model {model.name}", "result": where, "ok": True})
    for what, module in (("local models", "torch"), ("report page", "matplotlib"), ("BM25", "bm25s"), ("vLLM", "vllm")):
        is_there = is_installed(module)
        result = "installed" if is_there else f"{module} is not installed: {install_line([module])}"
        rows.append({"check": what, "result": result, "ok": is_there or module == "vllm"})
    if not args.no_probe:
        rows += probe(args)
    if args.json:
        print_json(rows)
    else:
        print_table(["check", "result", "ok"], [[row["check"], row["result"], "yes" if row["ok"] else "NO"] for row in rows])
    return 0 if all(row["ok"] for row in rows) else 1


def probe(args: argparse.Namespace) -> list[dict[str, object]]:
    """What an address gives, and whether it reads what the model says: the parity check for engines, a trial for the rest."""
    from ..engines import Engine, Recording
    from ..engines.http import Unusable
    from ..engines.kinds import open_engine

    try:
        backend = open_engine(args.scorer, engine_options(args), check_parity=False)
        capabilities = ", ".join(f"{name} {_show_capability(value)}" for name, value in backend.capabilities.to_json().items())
        rows = [{"check": f"{args.scorer} can tell", "result": capabilities, "ok": True}]
        if isinstance(backend, Engine):
            return rows + check_readout(backend, args)
        return rows if isinstance(backend, Recording) else rows + score_trial_pool(backend)
    except (SteadyscoreError, Unusable) as refusal:
        return [{"check": f"opening {args.scorer}", "result": str(refusal), "ok": False}]


def check_readout(engine: Engine, args: argparse.Namespace) -> list[dict[str, object]]:
    from ..engines.kinds import open_local_model
    from ..engines.local.checks import examine, remember

    parity = examine(engine, engine_options(args), args.reference, open_local_model)
    if engine.needs_parity and (parity.passed or args.accept):
        remember(engine, parity, accepted=not parity.passed)
    mass = "not told by this engine" if parity.label_mass != parity.label_mass else f"{parity.label_mass:.3f}"
    return [
        {"check": "device", "result": str(engine.identity().get("device", "the server's")), "ok": True},
        {"check": "grade tokens", "result": " ".join(map(str, parity.grade_tokens)), "ok": True},
        {"check": "label mass on the four grades", "result": mass, "ok": True},
        {
            "check": f"readout against {parity.reference}",
            "result": f"differs by {parity.difference:.1e} (at most {parity.tolerance:.0e})",
            "ok": parity.passed or args.accept,
        },
        {
            "check": "the same twice",
            "result": "bit-identical" if parity.repeatable else "differs",
            # A server batches as it likes; a local engine has no excuse.
            "ok": parity.repeatable or not engine.capabilities.deterministic,
        },
    ]


def score_trial_pool(backend: Backend) -> list[dict[str, object]]:
    """A small pool scored twice in two orders: does it answer, and does the order move it?"""
    from ..scoring.scorer import Scorer
    from ..tasks import PASSAGE_RERANKING
    from ..terms import Candidate, Instance

    texts = ("Short waves of light scatter more in air.", "The ferry leaves at nine.", "Blue paint was made from a stone.")
    instance = Instance("probe", "why is the sky blue", tuple(Candidate(f"d{i}", text) for i, text in enumerate(texts)))
    scorer = Scorer(backend, PASSAGE_RERANKING)
    try:
        first, again, turned = (scorer.score(instance, order) for order in ([0, 1, 2], [0, 1, 2], [2, 1, 0]))
    except Exception as fault:  # somebody else's code or server: its own words say most
        return [{"check": "a pool of three", "result": f"{type(fault).__name__}: {fault}", "ok": False}]
    return [
        {"check": "a pool of three", "result": " ".join(f"{score:.4f}" for score in first), "ok": True},
        {"check": "the same twice", "result": "equal" if (first == again).all() else "differs", "ok": True},
        {"check": "in reverse order", "result": f"differs by {abs(first - turned).max():.1e}", "ok": True},
    ]


def _show_capability(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
