"""What `steadyscore audit --dry-run` prints: windows, tokens, time and money, before anything is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..collection import Source
from ..readers.estimate import estimate_reader
from ..scoring.estimate import estimate, is_hosted
from ..scoring.score import AuditConfig
from . import engine_options, print_json, print_table


def dry_run(args: argparse.Namespace, config: AuditConfig, sources: Sequence[Source]) -> int:
    price = engine_options(args).price
    rows = []
    for address in args.scorer:
        for data, source in zip(args.data, sources, strict=True):
            scoring = estimate(address, source, config, args.mitigation, price)
            readings = {
                reader: estimate_reader(reader, source, config, args.reader_k, args.serving_permutations, price)
                for reader in args.reader
            }
            rows.append(
                {
                    "scorer": address,
                    "data": data,
                    **asdict(scoring),
                    "readers": [
                        {"reader": name, "prompts": e.windows, "tokens": e.tokens, "cost": e.cost} for name, e in readings.items()
                    ],
                    "total_cost": total([scoring.cost, *(e.cost for e in readings.values())]),
                }
            )
    if args.json:
        print_json(rows)
        return 0
    told: list[list[Any]] = []
    for row in rows:
        known = row["seconds"] is not None
        time = duration(row["seconds"]) if known else "unknown until its first run here"
        figures = [row["windows"], row["tokens"], time, money(row["scorer"], row["cost"])]
        told.append([row["scorer"], row["data"], row["queries"], *figures])
        for r in row["readers"]:
            figures = [f"up to {r['prompts']}", r["tokens"], "-", money(r["reader"], r["cost"])]
            told.append([f"  read by {r['reader']}", row["data"], row["queries"], *figures])
    print_table(["scorer", "data", "queries", "windows", "tokens (about)", "time (about)", "cost (about)"], told)
    if (whole := total([row["total_cost"] for row in rows])) is not None and len(told) > 1:
        print(f"\nall together, where the price is known: about {whole:.2f}")
    return 0


def total(costs: Sequence[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


def money(address: str, cost: float | None) -> str:
    if cost is None:
        return "give --price" if is_hosted(address) else "-"
    return f"{cost:.2f}" if cost >= 0.01 else f"{cost:.4f}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"
