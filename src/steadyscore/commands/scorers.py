"""`steadyscore scorers`: what can be audited, and what to install for the rest."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from ..engines.systems import SYSTEMS
from ..machine.extras import absent_modules, install_line
from ..models.embedded import embedded_scorers
from . import add_json, examples, print_json, print_table

LOCAL = ("torch", "transformers", "peft")
QWEN, RERANKER = "hf:Qwen/Qwen3-4B", "hf:Qwen/Qwen3-Reranker-4B"


class Row(NamedTuple):
    address: str
    system: str | None
    """The row of the paper's tables, where it has one."""
    gives: str
    needs: tuple[str, ...] = ()
    flags: str = ""
    """What the command line adds to the address."""

    @property
    def install(self) -> str:
        return install_line(self.needs) if self.needs else ""


KINDS = (
    *(Row(name, None, "distribution", LOCAL) for name in embedded_scorers()),
    Row("hf:<id|folder|file.gguf>[+adapter]", None, "distribution", LOCAL),
    Row(
        "vllm[+classifier|+token-ids|+top-k]:<id|folder>[+adapter]",
        None,
        "distribution",
        ("vllm", "transformers"),
    ),
    Row("vllm:<model>@<base url>", None, "distribution", ("httpx", "transformers")),
    Row("sglang:<model>@<base url>", None, "distribution", ("httpx", "transformers")),
    Row("openai:<model>@<base url>", None, "score", ("httpx",)),
    Row("openai+logprobs:<model>@<base url>", None, "distribution", ("httpx",)),
    Row("systemone:<model>@<base url>", None, "distribution", ("httpx",)),
    Row("decisions:<model>@<base url>", None, "distribution", ("httpx",)),
    Row("rerank[+cohere|+jina|+tei]:[<model>@]<url>", None, "score", ("httpx",)),
    Row(
        "llamacpp:<file.gguf>",
        None,
        "distribution",
        ("llama_cpp", "transformers"),
    ),
    Row("llamacpp:<model>@<base url>", None, "distribution", ("httpx", "transformers", "gguf")),
    Row("python:<module>:<function>", None, "score"),
    Row("command:<program>", None, "score"),
    Row("scores:<file|run folder>", None, "score"),
    Row("first-stage:", "BM25, or whatever retrieved the pool", "ranking"),
    Row("synthetic:<none|slot|companion|ties>[:size]", None, "score"),
)
"""Every kind of address."""

PAPER = (
    Row(QWEN, "Off the shelf", "distribution", LOCAL),
    Row(QWEN, "CapCal", "distribution", LOCAL, "--mitigation capcal"),
    Row(QWEN, "Round-robin", "distribution", LOCAL, "--partition round-robin"),
    Row(QWEN, "BSC (x10)", "distribution", LOCAL, "--serving-permutations 10 --permutations 40"),
    Row("openai:gpt-5.4@<base url>", "GPT-5.4", "score", ("httpx",)),
    *(
        Row(f"{QWEN}+<adapter>", name, "distribution", LOCAL)
        for name in ("Single-order", "Order-averaged", "DebiasFirst", "Perm. aug.", "OC-SFT")
    ),
    Row(QWEN, "Pointwise", "distribution", LOCAL, "--width 1"),
    Row(RERANKER, "Qwen3-Reranker-4B, off the shelf", "distribution", LOCAL),
    Row(f"{RERANKER}+<adapter>", "Qwen3-Reranker-4B, order-avg.", "distribution", LOCAL),
    Row(f"{RERANKER}+<adapter>", "Qwen3-Reranker-4B, OC-SFT", "distribution", LOCAL),
)
"""Rows of the paper's main, specialised-reranker and reward-model tables that are an address of the kinds above."""


def rows() -> tuple[Row, ...]:
    systems = (
        Row(
            f"system:{name}" + ("" if system.hub else "@<id|folder>"),
            system.paper,
            system.gives,
            system.needs,
            "--trust-remote-code" if system.loader == "listwise:jina" else "",
        )
        for name, system in SYSTEMS.items()
    )
    return (*KINDS, *PAPER, *systems)


def is_installed(row: Row) -> bool:
    return not absent_modules(row.needs)


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_json(actions.add_parser("list", help="every kind of address, and every system of the paper"))
    examples(parser, "steadyscore scorers list", "steadyscore scorers list --json")


def run(args: argparse.Namespace) -> int:
    if args.json:
        names = ("address", "system", "gives", "flags")
        print_json(
            [{n: getattr(row, n) for n in names} | {"installed": is_installed(row), "install": row.install} for row in rows()]
        )
        return 0
    print_table(
        ["address", "system", "gives", "installed", "install", "flags"],
        [
            [
                row.address,
                row.system,
                row.gives,
                "yes" if (there := is_installed(row)) else "no",
                "" if there else row.install,
                row.flags,
            ]
            for row in rows()
        ],
    )
    return 0
