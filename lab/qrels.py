"""Judgements of the evaluation pools as TREC qrels, so that kept scores give nDCG against all that was judged.

python lab/qrels.py LAB/pools lab/kept

Only documents with a grade above 0 and those of the first 50 candidates are written; no text.
"""

from __future__ import annotations

import sys
from pathlib import Path

from steadyscore.collection import read_instances
from steadyscore.machine.disk import atomic

COLLECTIONS = ("dl19", "dl21", "scifact")


def main() -> None:
    pools, kept = map(Path, sys.argv[1:])
    for name in COLLECTIONS:
        with atomic(kept / f"{name}.qrels.gz") as out:
            for instance in read_instances(pools / f"{name}.jsonl"):
                shown = {candidate.id for candidate in instance.pool[:50]}
                for document, grade in instance.judgements().items():
                    if grade > 0 or document in shown:
                        out.write(f"{instance.id} 0 {document} {grade}\n".encode())


if __name__ == "__main__":
    main()
