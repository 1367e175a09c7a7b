"""The command line: one verb, one module in `commands/`. Only the verb that was typed is imported, so help is quick.

stdout carries results, stderr progress. Exit codes: 0 done, 1 an error the user can mend, 2 wrong usage, 3 a gate
failed, 4 finished with rows that could not be scored.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .errors import SteadyscoreError

VERBS: dict[str, str] = {
    "demo": "audit the embedded language model on the embedded collections and write a report",
    "audit": "score a collection under M permutations and measure what its consumers decide",
    "score": "score a collection once and write a run file",
    "report": "draw the page of one or several runs",
    "compare": "compare runs, paired, against a baseline",
    "gate": "fail a build when a measure is on the wrong side of a bound",
    "plan": "say how many permutations and queries a margin needs",
    "recommend": "name the cheapest measured way of serving that reaches a target",
    "validate": "check the instrument itself on planted order effects",
    "measures": "list every measure with its meaning",
    "label": "score training pools with a teacher",
    "train": "train an order-consistent scorer, or any baseline it is compared with",
    "adapter": "show, verify, merge, halve and push trained adapters",
    "select": "choose a weight and a checkpoint by three rules side by side",
    "check": "check a training recipe before anything is loaded",
    "serve": "serve scorers behind the rerank APIs that clients already call",
    "explore": "open the explorer in the browser",
    "data": "list, get, check, build, show and export collections",
    "models": "list, get and locate language models",
    "scorers": "list what can be audited, and what to install for the rest",
    "doctor": "check versions, device, cache and the readout itself, or the files of a run",
}
"""Verbs that work, in the order of `--help`; each is the module `commands/<verb>.py` with `arguments` and `run`."""

EXAMPLES = """\
examples:
  steadyscore demo --out runs/demo
  steadyscore audit --scorer smollm2-135m --data passages --queries 4 --pool 8 --permutations 4 --out runs/first
"""


def parser(verb: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line, with the arguments of `verb` only."""
    from . import __version__

    top = argparse.ArgumentParser(
        prog="steadyscore",
        description="Audit, train and serve LLM scorers whose decisions hold still when the candidates are reordered.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"steadyscore {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        sub = verbs.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == verb:
            module = importlib.import_module(f".commands.{name}", __package__)
            module.arguments(sub)
            sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in argv if not word.startswith("-")), None)
    try:
        arguments = parser(verb).parse_args(argv)
        # What was typed, for the run record: the resolved values stand beside it.
        arguments.command = ["steadyscore", *argv]
        return arguments.run(arguments) or 0
    except SteadyscoreError as error:
        print(f"steadyscore: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("steadyscore: stopped. Run the same command again; it goes on where it stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `steadyscore ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
