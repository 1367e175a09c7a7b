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
from .shared import add_engine, add_json, cell_text, engine_options, examples, print_rows

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
    runs = find_folders(args.runs)
    findings = [(folder, finding) for folder in runs for finding in _inspect(folder)]
    findings += [(folder, finding) for folder in args.runs if folder not in runs for finding in inspect_results(folder)]
    rows = [
        {"run": str(folder), "file": f.file, "state": f.state, "about": ". ".join(filter(None, (f.words, f.remedy)))}
        for folder, f in findings
    ]
    print_rows(args, rows, ["run", "file", "state", "about"], [list(row.values()) for row in rows])
    return 1 if any(finding.state == "damaged" for _, finding in findings) else 0


def _inspect(folder: Place) -> list[Finding]:
    try:
        return inspect_run(folder)
    except SteadyscoreError as refusal:  # without run.json nothing else can be judged
        return [Finding("run.json", "damaged", str(refusal))]


def check_machine(args: argparse.Namespace) -> int:
    (args.scorer,) = scorers_by_name([args.scorer]).values()
    rows = [_row(f"version of {name}", value) for name, value in versions().items()] + [_row("cache folder", cache_folder())]
    for model in EMBEDDED.values():
        where = "present" if is_present(model) else f"not fetched: steadyscore data get {model.name}"
        rows.append(_row(f"model {model.name}", where))
    for what, module in (("local models", "torch"), ("report page", "matplotlib"), ("BM25", "bm25s"), ("vLLM", "vllm")):
        is_there = is_installed(module)
        result = "installed" if is_there else f"{module} is not installed: {install_line([module])}"
        rows.append(_row(what, result, is_there or module == "vllm"))
    if not args.no_probe:
        rows += probe(args)
    cells = [[row["check"], row["result"], "yes" if row["ok"] else "NO"] for row in rows]
    print_rows(args, rows, ["check", "result", "ok"], cells)
    return 0 if all(row["ok"] for row in rows) else 1


def probe(args: argparse.Namespace) -> list[JsonObject]:
    """What an address gives, and whether it reads what the model says: the parity check for engines, a trial for the rest."""
    from ..engines import Engine, Recording
    from ..engines.http import Unusable
    from ..engines.kinds import open_engine

    try:
        backend = open_engine(args.scorer, engine_options(args), check_parity=False)
        capabilities = ", ".join(f"{name} {cell_text(value)}" for name, value in backend.capabilities.to_json().items())
        rows = [_row(f"{args.scorer} can tell", capabilities)]
        if isinstance(backend, Engine):
            return rows + check_readout(backend, args)
        return rows if isinstance(backend, Recording) else rows + score_trial_pool(backend)
    except (SteadyscoreError, Unusable) as refusal:
        return [_row(f"opening {args.scorer}", refusal, False)]


def check_readout(engine: Engine, args: argparse.Namespace) -> list[JsonObject]:
    from ..engines.kinds import open_local_model
    from ..engines.local.checks import examine, remember

    parity = examine(engine, engine_options(args), args.reference, open_local_model)
    if engine.needs_parity and (parity.passed or args.accept):
        remember(engine, parity, accepted=not parity.passed)
    mass = "not told by this engine" if parity.label_mass != parity.label_mass else f"{parity.label_mass:.3f}"
    difference = f"differs by {parity.difference:.1e} (at most {parity.tolerance:.0e})"
    # A server batches as it likes; a local engine has no excuse.
    is_steady = parity.repeatable or not engine.capabilities.deterministic
    return [
        _row("device", engine.identity().get("device", "the server's")),
        _row("grade tokens", " ".join(map(str, parity.grade_tokens))),
        _row("label mass on the four grades", mass),
        _row(f"readout against {parity.reference}", difference, parity.passed or args.accept),
        _row("the same twice", "bit-identical" if parity.repeatable else "differs", is_steady),
    ]


def score_trial_pool(backend: Backend) -> list[JsonObject]:
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
        return [_row("a pool of three", f"{type(fault).__name__}: {fault}", False)]
    return [
        _row("a pool of three", " ".join(f"{score:.4f}" for score in first)),
        _row("the same twice", "equal" if (first == again).all() else "differs"),
        _row("in reverse order", f"differs by {abs(first - turned).max():.1e}"),
    ]


def _row(check: str, result: object, ok: bool = True) -> JsonObject:
    return {"check": check, "result": str(result), "ok": ok}
