"""`steadyscore audit --decisions FILE`: states and typed questions instead of a collection."""

from __future__ import annotations

import argparse

from ..audits.decisions import audit_decisions, plan_decisions
from ..machine.names import slug
from . import can_draw_page, engine_options, note_failed, print_json, refuse

UNUSED = ("data", "scores", "relevance", "perturb", "mitigation", "reader", "ir", "curve", "noise_floor", "watch")
"""Flags of an audit of scores that say nothing about decisions; identical requests are always asked."""


def run_decisions(args: argparse.Namespace) -> int:
    refuse(
        *(
            ["--scorer is missing: say what to audit, for example --scorer systemone:m@http://localhost:8000."]
            * (not args.scorer)
        ),
        *(["--out is missing: say where the run goes."] if args.out is None and not args.dry_run else []),
        *(f"--{flag.replace('_', '-')} has no meaning with --decisions; leave it out." for flag in UNUSED if getattr(args, flag)),
    )
    options = engine_options(args)
    if args.dry_run:
        plan = plan_decisions(args.decisions, args.permutations, args.seed, options.price)
        print_json(plan.to_json()) if args.json else print(plan)
        return 0
    draws_page = not args.no_report and can_draw_page(args.out)
    audits = [
        audit_decisions(
            scorer,
            args.decisions,
            args.out / slug(scorer) if len(args.scorer) > 1 else args.out,
            permutations=args.permutations,
            seed=args.seed,
            options=options,
        )
        for scorer in args.scorer
    ]
    page = None
    if draws_page:
        from ..report.decisions import write_decisions_report

        page = write_decisions_report(audits, args.out / "report")
    if args.json:
        print_json({"audits": [audit.to_json() for audit in audits]} | ({"report": str(page)} if page else {}))
    else:
        print("\n\n".join(map(str, audits)))
        if page:
            print(f"report: {page}")
    return max(note_failed(audit.failed, f"the states of {audit.name}", "answered") for audit in audits)
