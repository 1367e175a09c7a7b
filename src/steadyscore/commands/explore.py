"""`steadyscore explore`: the explorer in the browser, on this machine only."""

from __future__ import annotations

import argparse
import threading
import webbrowser

from ..models.embedded import embedded_scorers
from .serve import add_server, serve
from .shared import add_engine, examples

SHOWN_FIRST = ("smollm2-135m", "smollm2-135m-single", "smollm2-135m-set")
"""Ticked when the page opens: off the shelf, distilled in one order, without an order."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scorers", nargs="*", metavar="[NAME=]SCORER",
        help="what to look at, side by side (default: the embedded model and the adapters shipped for it)",
    )  # fmt: skip
    parser.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    add_server(parser)
    add_engine(parser, keeps_answers=False)
    examples(
        parser,
        "steadyscore explore",
        "steadyscore explore planted=synthetic:slot:0.3 steady=synthetic:none",
    )


def run(args: argparse.Namespace) -> int:
    def show(url: str) -> None:
        if not args.no_browser:  # a moment later, when the server listens
            threading.Timer(1.0, webbrowser.open, [url]).start()

    others = (name for name in embedded_scorers() if name not in SHOWN_FIRST)
    return serve(args.scorers or [*SHOWN_FIRST, *others], args, show)
