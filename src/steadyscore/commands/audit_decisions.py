"""`steadyscore audit --decisions FILE`: states and typed questions instead of a collection."""

from __future__ import annotations

import argparse

from ..audits.decisions import audit_decisions, plan_decisions
from ..audits.folders import decision_folders
from . import can_draw_page, engine_options, note_failed, print_json, refuse
from .flags import scorers_by_name

READ_WITH_DECISIONS = (
    "decisions", "scorer", "out", "dry_run", "no_report", "json", "permutations", "seed",
    "concurrency", "rate", "retries", "timeout", "price", "cache",
)  # fmt: skip
"""The flags of an audit that say something about decisions; identical requests are always asked."""


def run_decisions(args: argparse.Namespace, unread: list[str]) -> int:
    """`unread` are the mistakes in flags that nothing here reads."""
    refuse(
        *(
            ["--scorer is missing: say what to audit, for example --scorer systemone:m@http://localhost:8000."]
            * (not args.scorer)
        ),
        *(["--out is missing: say where the run goes."] if args.out is None and not args.dry_run else []),
        *unread,
    )
    options, scorers = engine_options(args), scorers_by_name(args.scorer)
    if args.dry_run:
        plan = plan_decisions(args.decisions, args.permutations, args.seed, options.price)
        print_json(plan.to_json()) if args.json else print(plan)
        return 0
    draws_page = not args.no_report and can_draw_page(args.out)
    out = args.out
    audits = [
        audit_decisions(
            address,
            args.decisions,
            folder,
            name=None if name == address else name,
            permutations=args.permutations,
            seed=args.seed,
            options=options,
            quiet=args.quiet,
        )
        for (name, address), folder in zip(scorers.items(), decision_folders(out, [*scorers]), strict=True)
    ]
    page = None
    if draws_page:
        from ..report.decisions import write_decisions_report

        page = write_decisions_report(audits, out / "report")
    if args.json:
        print_json({"audits": [audit.to_json() for audit in audits]} | ({"report": str(page)} if page else {}))
    else:
        print("\n\n".join(map(str, audits)))
        if page:
            print(f"report: {page!s}")
    return max(note_failed(audit.failed, f"the states of {audit.name}", "answered") for audit in audits)
