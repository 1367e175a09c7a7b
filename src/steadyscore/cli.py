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
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

from .errors import SteadyscoreError
from .machine.console import has_bar, results_only, say
from .machine.credentials import redact
from .machine.disk import name_addresses
from .machine.extras import EXTRA, missing_extra
from .machine.names import nearest
from .machine.process import wait_passively

GROUPS: dict[str, dict[str, str]] = {
    "first steps": {
        "demo": "audit the embedded language model on the embedded collections and write a report",
        "list": "list measures, scorers, models and recipes",
        "doctor": "check versions, device, cache and the readout itself, or the files of a run",
    },
    "audit what you have": {
        "audit": "score a collection under M permutations and measure what its consumers decide",
        "score": "score a collection once and write a run file",
        "report": "draw the page of one or several runs",
        "data": "list, get, check, build, show and export collections; get embedded models",
    },
    "decide what to serve": {
        "compare": "compare runs, paired, against a baseline; or name the cheapest way of serving that reaches a target",
        "gate": "fail a build when a measure is on the wrong side of a bound",
        "study": "study one question: attacks, width, variance, teachers, planning, the instrument itself",
    },
    "train": {
        "label": "score training pools with a teacher",
        "train": "train an order-consistent scorer, or any baseline it is compared with",
        "adapter": "choose, show, verify, merge, halve and push trained adapters",
    },
    "serve": {
        "serve": "serve scorers behind the rerank APIs that clients already call",
        "explore": "open the explorer in the browser",
    },
    "the paper": {
        "reproduce": "list, plan, run and show the paper's tables and figures",
    },
}
"""What a person wants -> the verbs for it, in the order of `--help`."""

VERBS: dict[str, str] = {name: summary for verbs in GROUPS.values() for name, summary in verbs.items()}
"""Each is the module `commands/<verb>.py` with `arguments` and `run`."""

MOVED: dict[str, str] = {
    "recommend": "`steadyscore recommend` is now `steadyscore compare RUN [OTHER ...] --target MEASURE=VALUE`.",
    "select": "`steadyscore select` is now `steadyscore adapter select`, with the same flags.",
    "check": "`steadyscore check RECIPE` is now `steadyscore train --recipe RECIPE --dry-run`; "
    "`steadyscore list recipes RECIPE` prints it.",
    "recipe": "`steadyscore list recipes` prints their names, `steadyscore list recipes NAME > mine.yaml` one to edit.",
    "models": "`steadyscore models list` is now `steadyscore list models`; "
    "`steadyscore data get NAME` fetches one and prints its folder.",
    **{name: f"`steadyscore {name} list` is now `steadyscore list {name}`." for name in ("measures", "scorers")},
    **{
        name: f"`steadyscore {name}` is now `steadyscore study {name}`, with the same flags."
        for name in ("attack", "width", "variance", "teachers", "plan", "validate")
    },
}
"""Word that was a verb, or is looked for -> the sentence that says what to type instead."""

GONE: dict[str, str] = {
    "--keep-first": "--keep K",
    "--keep-share": "--keep SHARE",
    "--reader-decoding": "left out: verdicts are decoded as in the paper",
    "--actors": "--on ray,actors=N",
    "--actor-cpus": "--on ray,cpus=N",
    "--actor-gpus": "--on ray,gpus=N",
    **dict.fromkeys(("--hours", "--hourly-price"), "left to you: --dry-run tells the time of one worker"),
}
"""Flag that is gone and not a setting of `--set` either -> what says it now."""

WELCOME = """\
steadyscore audits, trains and serves LLM scorers whose decisions hold still when the candidates are reordered.
  steadyscore demo --out runs/demo                                a first look, without data of your own
  steadyscore audit --scorer ADDRESS --data FILE --out runs/mine  how steady a scorer is on your table
  steadyscore serve ADDRESS                                       a scorer behind rerank APIs
An ADDRESS is a model, an endpoint or a Python function: steadyscore list scorers. Every verb: steadyscore --help
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
        settings = {name for action in self._actions for name in getattr(action, "settings", ())}
        typed = {word.partition("=")[0] for word in words if word[:2] == "--"}
        gone = [sentence for word in sorted(typed) if (sentence := _sentence_of(word, settings))]
        if gone:
            self.error(" ".join(gone))
        meant = {word: nearest(word.partition("=")[0], options) for word in words if word[:1] == "-"}
        hints = "".join(f"; {word} may mean {near}" for word, near in meant.items() if near)
        self.error(f"unrecognized arguments: {' '.join(words)}{hints}")


def _sentence_of(flag: str, settings: Collection[str]) -> str:
    """What to type instead of a flag that is gone; empty for one that never was."""
    name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    if name in settings:
        return f"{flag} is now --set {name}={'no' if flag.startswith('--no-') else 'VALUE'}."
    return f"{flag} is now {GONE[flag]}." if flag in GONE else ""


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


def _verb_lines() -> str:
    """Every verb with its summary, under what a person wants."""
    width = max(map(len, VERBS)) + 2
    groups = ((title, "\n".join(f"  {name:{width}}{text}" for name, text in verbs.items())) for title, verbs in GROUPS.items())
    return "".join(f"{title}:\n{lines}\n\n" for title, lines in groups)


def parser(verb: str | None = None) -> Parser:
    """The parser of the whole command line, with the arguments of `verb` only."""
    from . import __version__

    top = Parser(
        prog="steadyscore",
        description="Audit, train and serve LLM scorers whose decisions hold still when the candidates are reordered.",
        epilog=_verb_lines() + EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"steadyscore {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, help="what to do, of those below")
    for name, summary in VERBS.items():
        sub = verbs.add_parser(
            name,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == verb:
            module = importlib.import_module(f".commands.{name}", __package__)
            module.arguments(sub)
            sub.set_defaults(run=module.run, parser=sub)
    return top


def completions(line: str) -> list[str]:
    """The words that may end a command line that is half typed: verbs, actions, flags, choices and settings of --set."""
    *typed, word = line.split(" ")[1:] or [""]
    verb, *rest = [one for one in typed if one] or [""]
    if verb not in VERBS:
        return [name for name in VERBS if name.startswith(word)]
    sub: Any = next(a.choices for a in parser(verb)._actions if isinstance(a, argparse._SubParsersAction))[verb]
    for one in rest:
        sub = next((a.choices[one] for a in sub._actions if isinstance(a, argparse._SubParsersAction) and one in a.choices), sub)
    flag = sub._option_string_actions.get(rest[-1] if rest else "")
    if settings := getattr(flag, "settings", None):
        return [f"{name}=" for name in settings if name.startswith(word)]
    if flag is not None and flag.nargs != 0:
        return [str(choice) for choice in flag.choices or () if str(choice).startswith(word)]
    actions = [name for a in sub._actions if isinstance(a, argparse._SubParsersAction) for name in a.choices]
    return [name for name in (*actions, *sub._option_string_actions) if name.startswith(word)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if argv is None and "COMP_LINE" in os.environ:  # as a shell does after `complete -C steadyscore steadyscore`
        print("\n".join(completions(os.environ["COMP_LINE"][: int(os.environ.get("COMP_POINT", "9999"))])))
        return 0
    wait_passively()  # as in `engines`, for what loads torch without one
    argv = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in argv if not word.startswith("-")), None)
    if not argv:
        sys.stderr.write(WELCOME)
        return 2
    try:
        top = parser(verb)
        if verb in MOVED:
            top.error(MOVED[verb])
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
