"""`steadyscore scorers`: what can be audited, and what to install for the rest."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from ..engines import Listing
from ..engines.kinds import KINDS, kind_of
from ..machine.extras import absent_modules, install_line
from ..models.embedded import embedded_scorers
from . import add_json, examples, print_json, print_table

QWEN, RERANKER = "hf:Qwen/Qwen3-4B", "hf:Qwen/Qwen3-Reranker-4B"

PAPER = (
    Listing(QWEN, "distribution", "Off the shelf"),
    Listing(QWEN, "distribution", "CapCal", "--mitigation capcal"),
    Listing(QWEN, "distribution", "Round-robin", "--partition round-robin"),
    Listing(QWEN, "distribution", "BSC (x10)", "--serving-permutations 10 --permutations 40"),
    Listing("openai:gpt-5.4@<base url>", "score", "GPT-5.4"),
    *(
        Listing(f"{QWEN}+<adapter>", "distribution", name)
        for name in ("Single-order", "Order-averaged", "DebiasFirst", "Perm. aug.", "OC-SFT")
    ),
    Listing(QWEN, "distribution", "Pointwise", "--width 1"),
    Listing(RERANKER, "distribution", "Qwen3-Reranker-4B, off the shelf"),
    Listing(f"{RERANKER}+<adapter>", "distribution", "Qwen3-Reranker-4B, order-avg."),
    Listing(f"{RERANKER}+<adapter>", "distribution", "Qwen3-Reranker-4B, OC-SFT"),
)
"""Rows of the paper's main, specialised-reranker and reward-model tables that are an address of some kind."""


class Row(NamedTuple):
    """What is listed, and the modules that it needs here."""

    listing: Listing
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        install = install_line(self.needs) if self.needs else ""
        return self.listing._asdict() | {"installed": not absent_modules(self.needs), "install": install}


def rows() -> list[Row]:
    """The embedded models, every kind of address with each system of the paper, and the other rows of its tables."""
    named = [*(Listing(name, "distribution") for name in embedded_scorers()), *PAPER]
    addresses = [(kind_of(listing.address), listing) for listing in named]
    every = [*addresses, *((kind, listing) for kind in KINDS for listing in kind.listed)]
    return [Row(listing, kind.needs(listing.address.partition(":")[2] or listing.address)) for kind, listing in every]


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_json(actions.add_parser("list", help="every kind of address, and every system of the paper"))
    examples(parser, "steadyscore scorers list", "steadyscore scorers list --json")


def run(args: argparse.Namespace) -> int:
    listed = [row.to_json() for row in rows()]
    if args.json:
        print_json(listed)
        return 0
    columns = ("address", "system", "gives", "installed", "install", "flags")
    shown = [row | {"installed": "yes", "install": ""} if row["installed"] else row | {"installed": "no"} for row in listed]
    print_table(list(columns), [[row[column] for column in columns] for row in shown])
    return 0
