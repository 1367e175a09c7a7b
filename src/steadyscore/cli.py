"""The command line: one verb, one module in `commands/`. Only the verb that was typed is imported, so help is quick.

stdout carries results, stderr progress. Exit codes: 0 done, 1 an error the user can fix, 2 wrong usage, 3 a gate
failed, 4 finished with rows that could not be scored; 130, 143 and 129 stopped by SIGINT, SIGTERM and SIGHUP.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

from .errors import SteadyscoreError
from .machine.console import results_only, say
from .machine.credentials import redact
from .machine.disk import name_addresses
from .machine.extras import EXTRA, missing_extra
from .machine.names import nearest
from .machine.progress import has_bar

VERBS: dict[str, str] = {
    "demo": "audit the embedded language model on the embedded collections and write a report",
    "audit": "score a collection under M permutations and measure what its consumers decide",
    "score": "score a collection once and write a run file",
    "report": "draw the page of one or several runs",
    "compare": "compare runs, paired, against a baseline",
    "gate": "fail a build when a measure is on the wrong side of a bound",
    "width": "say what serving candidates in company changes, and why: content, length or answer",
    "attack": "say how far hostile candidate text moves its own grade, its companions' and the decisions",
    "plan": "say how many permutations and queries a margin needs",
    "variance": "say where the movement of a score comes from: slot, window or companions",
    "recommend": "name the cheapest measured way of serving that reaches a target",
    "validate": "check the instrument itself on planted order effects",
    "measures": "list every measure with its meaning",
    "label": "score training pools with a teacher",
    "teachers": "say whether steadier labels made better students, over several teachers",
    "train": "train an order-consistent scorer, or any baseline it is compared with",
    "adapter": "show, verify, merge, halve and push trained adapters",
    "select": "choose a weight and a checkpoint by four rules side by side",
    "check": "check a training recipe before anything is loaded",
    "reproduce": "list, plan, run and show the paper's tables and figures",
    "serve": "serve scorers behind the rerank APIs that clients already call",
    "explore": "open the explorer in the browser",
    "data": "list, get, check, build, show and export collections",
    "models": "list, get and locate language models",
    "scorers": "list what can be audited, and what to install for the rest",
    "doctor": "check versions, device, cache and the readout itself, or the files of a run",
}
"""Verbs that work, in the order of `--help`; each is the module `commands/<verb>.py` with `arguments` and `run`."""

WELCOME = """\
steadyscore audits, trains and serves LLM scorers whose decisions hold still when the candidates are reordered.
  steadyscore demo --out runs/demo                                a first look, without data of your own
  steadyscore audit --scorer ADDRESS --data FILE --out runs/mine  how steady a scorer is on your table
  steadyscore serve ADDRESS                                       a scorer behind rerank APIs
An ADDRESS is a model, an endpoint or a Python function: steadyscore scorers list. Every verb: steadyscore --help
"""
"""What somebody reads who typed the name alone."""
EXAMPLES = """\
examples:
  steadyscore demo --out runs/demo
  steadyscore audit --scorer smollm2-135m --data passages --queries 4 --pool 8 --permutations 4 --out runs/first
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in a line, without a secret that stands in it."""

    def error(self, message: str) -> NoReturn:
        say(f"{self.prog}: error: {redact(message)}")
        self.exit(2, f"See {self.prog} --help.\n")

    def refuse_unknown(self, words: Sequence[str]) -> NoReturn:
        """Of options that do not exist, the ones that were probably meant."""
        options = [option for action in self._actions for option in action.option_strings]
        meant = {word: nearest(word.partition("=")[0], options) for word in words if word[:1] == "-"}
        hints = "".join(f"; {word} may mean {near}" for word, near in meant.items() if near)
        self.error(f"unrecognized arguments: {' '.join(words)}{hints}")


SERVERS = ("serve", "explore")
"""Verbs that answer signals themselves: requests in flight are finished, and SIGHUP opens the models again."""


STOPS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that stop a command as Ctrl-C does; Windows has no SIGHUP."""


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGHUP: whatever ends well at Ctrl-C ends well at these."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP do what Ctrl-C does; one that is ignored (`nohup`) or handled already is left alone."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped(number)

    is_main = threading.current_thread() is threading.main_thread()  # no other thread may set a handler
    ours = [n for n in STOPS if is_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def parser(verb: str | None = None) -> Parser:
    """The parser of the whole command line, with the arguments of `verb` only."""
    from . import __version__

    top = Parser(
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
            sub.set_defaults(run=module.run, parser=sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in `engines`, for what loads torch without one
    argv = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in argv if not word.startswith("-")), None)
    if not argv:
        sys.stderr.write(WELCOME)
        return 2
    try:
        top = parser(verb)
        if verb is not None and verb not in VERBS and (near := nearest(verb, VERBS)):
            top.error(f"there is no verb {verb!r}; did you mean {near}?")
        arguments, unknown = top.parse_known_args(argv)
        if unknown:
            arguments.parser.refuse_unknown(unknown)
        # What was typed, for the run record: it has the resolved values too.
        arguments.command = ["steadyscore", *map(redact, argv)]
        arguments.quiet = getattr(arguments, "json", False) and has_bar()  # --json leaves out bars; lines are written
        with results_only(), nullcontext() if verb in SERVERS else stop_on_signals():
            return arguments.run(arguments) or 0
    except SteadyscoreError as error:
        say(f"steadyscore: {redact(name_addresses(str(error)))}")
        return error.exit_code
    except ModuleNotFoundError as missing:  # a part of an extra that was taken out, or that it asks for only now and then
        module = (missing.name or "").partition(".")[0]
        if module not in EXTRA:
            raise
        say(f"steadyscore: {missing_extra(f'steadyscore {verb}', [module])}")
        return 1
    except KeyboardInterrupt as stop:
        say("steadyscore: stopped. Run the same command again; it goes on where it stopped.")
        return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)
    except BrokenPipeError:  # `steadyscore ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as refusal:
        if refusal.errno != errno.ENAMETOOLONG:
            raise
        name = redact(str(refusal.filename))
        say(f"steadyscore: {name[:80]}... is a longer name than this file system takes. Give a shorter one.")
        return 1
