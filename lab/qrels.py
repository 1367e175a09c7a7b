"""Judgements of the evaluation pools as TREC qrels, so that kept scores give nDCG against all that was judged.

python lab/qrels.py LAB/pools lab/kept

Only the first 60 queries, and of them documents with a grade above 0 and the first 50 candidates; no text.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from steadyscore.collection import read_instances
from steadyscore.machine.disk import atomic

COLLECTIONS = ("dl19", "dl21", "scifact", "antique", "climate")


def main() -> None:
    pools, kept = map(Path, sys.argv[1:])
    for name in COLLECTIONS:
        with atomic(kept / f"{name}.qrels.gz") as out:
            for instance in islice(read_instances(pools / f"{name}.jsonl"), 60):
                shown = {candidate.id for candidate in instance.pool[:50]}
                for document, grade in instance.judgements().items():
                    if grade > 0 or document in shown:
                        out.write(f"{instance.id}\t0\t{document}\t{grade}\n".encode())


if __name__ == "__main__":
    main()
