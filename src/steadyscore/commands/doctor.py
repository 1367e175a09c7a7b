"""`steadyscore doctor`: is this machine able to score, and does the readout read what the model says?"""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from ..models import EMBEDDED, cache_folder, is_present
from ..runs import versions
from . import add_engine, add_json, engine_options, examples, print_json, print_table

TOLERANCE = 1e-4
"""How far two ways to the same prompt may differ in score."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scorer", default="smollm2-135m", metavar="ADDRESS", help="model to probe (default smollm2-135m)")
    parser.add_argument("--no-probe", action="store_true", help="look at the installation only; load no model")
    add_json(parser)
    add_engine(parser)
    examples(parser, "steadyscore doctor --no-probe", "steadyscore doctor --json")


def run(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = [
        {"check": f"version of {name}", "result": value, "ok": True} for name, value in versions().items()
    ]
    rows.append({"check": "cache folder", "result": str(cache_folder()), "ok": True})
    for model in EMBEDDED.values():
        where = "present" if is_present(model) else f"not fetched: steadyscore models get {model.name}"
        rows.append({"check": f"model {model.name}", "result": where, "ok": True})
    for what, module in (("local models", "torch"), ("report page", "matplotlib"), ("BM25", "bm25s"), ("vLLM", "vllm")):
        found = importlib.util.find_spec(module) is not None
        rows.append(
            {"check": what, "result": "installed" if found else f"{module} is not installed", "ok": found or module == "vllm"}
        )
    if not args.no_probe:
        rows += probe(args)
    if args.json:
        print_json(rows)
    else:
        print_table(["check", "result", "ok"], [[row["check"], row["result"], "yes" if row["ok"] else "NO"] for row in rows])
    return 0 if all(row["ok"] for row in rows) else 1


def probe(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The same window read in every way the engine has, against a plain forward over the whole vocabulary."""
    from ..engines import Engine, open_engine
    from ..errors import SteadyscoreError

    try:
        engine = open_engine(args.scorer, engine_options(args))
    except SteadyscoreError as refusal:
        return [{"check": f"opening {args.scorer}", "result": str(refusal), "ok": False}]
    rows = [{"check": f"{args.scorer} gives", "result": engine.capabilities.gives, "ok": True}]
    if isinstance(engine, Engine):
        from ..parity import probe_readout

        found = probe_readout(engine)
        rows += [
            {"check": "device", "result": str(engine.identity().get("device")), "ok": True},
            {"check": "grade tokens", "result": " ".join(map(str, found.grade_tokens)), "ok": True},
            {"check": "label mass on the four grades", "result": f"{found.label_mass:.3f}", "ok": True},
            {
                "check": "readout against a plain forward",
                "result": f"differs by {found.difference:.1e}",
                "ok": found.difference <= TOLERANCE,
            },
            {"check": "the same twice", "result": "bit-identical" if found.repeatable else "differs", "ok": found.repeatable},
        ]
    return rows
