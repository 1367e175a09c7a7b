"""`steadyscore audit --decisions FILE`: states and typed questions instead of a collection."""

from __future__ import annotations

import argparse

from ..audits.audit import decision_folders
from ..decision_models.audit import audit_decisions, plan_decisions
from ..decision_models.result import write_decisions_report
from .flags import scorers_by_name
from .shared import can_draw_page, engine_options, form_of, note_failed, note_next, print_json, refuse

READ_WITH_DECISIONS = (
    "decisions", "scorer", "out", "dry_run", "no_report", "json", "format", "permutations", "seed", "until",
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
        print_json(plan.to_json()) if form_of(args) == "json" else print(plan)
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
            until=args.until,
        )
        for (name, address), folder in zip(scorers.items(), decision_folders(out, [*scorers]), strict=True)
    ]
    page = write_decisions_report(audits, out / "report") if draws_page else None
    if (form := form_of(args)) == "json":
        print_json({"audits": [audit.to_json() for audit in audits]} | ({"report": str(page)} if page else {}))
    elif form != "table":
        print("\n".join(audit.to_format(form) for audit in audits), end="")
    else:
        for audit in audits:
            if audit.saved:
                print(f"{audit.name} on {audit.collection}: {audit.saved}")
        print("\n\n".join(map(str, audits)))
        if page:
            print(f"report: {page!s}")
    code = max(note_failed(audit.failed, f"the states of {audit.name}", "answered") for audit in audits)
    if not code:
        several = ("compare", out, "--baseline", audits[0].name)
        note_next(args, *(several if len(audits) > 1 else ("gate", out, "--max", f"{audits[0].compared[0]}=0.1")))
    return code
