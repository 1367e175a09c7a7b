"""`steadyscore list`: measures, scorers, models and recipes; one recipe is printed whole."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from ..engines import Listing
from ..engines.kinds import KINDS, kind_of
from ..machine.extras import absent_modules, install_line
from ..measures.registry import MEASURES
from ..models.embedded import EMBEDDED, embedded_scorers, is_present
from ..training.recipe import recipe_names, recipe_text
from .shared import add_json, cell_text, examples, print_json, print_rows

QWEN, RERANKER = "hf:Qwen/Qwen3-4B", "hf:Qwen/Qwen3-Reranker-4B"

PAPER = (
    Listing(QWEN, "distribution", "Off the shelf"),
    Listing(QWEN, "distribution", "CapCal", "--mitigation capcal"),
    Listing(QWEN, "distribution", "Round-robin", "--set partition=round-robin"),
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


class ScorerRow(NamedTuple):
    """What is listed, and the modules that it needs here."""

    listing: Listing
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        install = install_line(self.needs) if self.needs else ""
        return self.listing._asdict() | {"installed": not absent_modules(self.needs), "install": install}


def scorer_rows() -> list[ScorerRow]:
    """The embedded models, every kind of address with each system of the paper, and the other rows of its tables."""
    named = [*(Listing(name, "distribution") for name in embedded_scorers()), *PAPER]
    addresses = [(kind_of(listing.address), listing) for listing in named]
    every = [*addresses, *((kind, listing) for kind in KINDS for listing in kind.listed)]
    return [ScorerRow(listing, kind.needs(listing.address.partition(":")[2] or listing.address)) for kind, listing in every]


def _measures() -> list[dict[str, object]]:
    return [{"name": m.name, "better": m.better, "needs": list(m.needs), "summary": m.summary} for m in MEASURES.values()]


def _models() -> list[dict[str, object]]:
    return [
        {
            "name": m.name,
            "present": is_present(m),
            "licence": m.licence,
            "source": f"{m.distribution} {m.version}",
            "summary": m.summary,
        }
        for m in EMBEDDED.values()
    ]


def _recipes() -> list[dict[str, object]]:
    texts = {name: recipe_text(name)[1] for name in recipe_names()}
    return [{"name": name, "summary": text.partition("\n")[0].lstrip("# ")} for name, text in texts.items()]


LISTS = {
    "measures": ("every measure: direction, what it needs and what it says", _measures),
    "scorers": (
        "every kind of address, every system of the paper, and what to install for it",
        lambda: [row.to_json() for row in scorer_rows()],
    ),
    "models": ("every embedded model and whether it is in the cache; `data get NAME` fetches one", _models),
    "recipes": ("every shipped recipe, or one of them to edit in a file of your own", _recipes),
}
"""What is listed -> its summary, and its rows."""


def arguments(parser: argparse.ArgumentParser) -> None:
    lists = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, (summary, _) in LISTS.items():
        added = lists.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == "recipes":
            added.add_argument("recipe", nargs="?", metavar="RECIPE", help="print this one: a shipped recipe or a YAML file")
        add_json(added)
    examples(parser, "steadyscore list measures", "steadyscore list scorers --json", "steadyscore list recipes smollm2_passages")


def run(args: argparse.Namespace) -> int:
    if getattr(args, "recipe", None):
        text = recipe_text(args.recipe)[1]
        print_json({"name": args.recipe, "text": text}) if args.json else print(text, end="")
        return 0
    rows = LISTS[args.what][1]()
    shown = [row | {"install": ""} if row.get("installed") else row for row in rows]  # nothing is left to do
    print_rows(args, rows, [*rows[0]], [[cell_text(value) for value in row.values()] for row in shown])
    return 0
