"""Measure the kept scores again, one line for every file.

    python lab/measure.py [NAME...]     NAME: of files in lab/kept, such as dl19-20-set-42; all of them without any

nDCG counts every judgement of a collection where its qrels are kept; the others judge nothing outside their pools.
"""

from __future__ import annotations

import sys
from pathlib import Path

import steadyscore

KEPT = Path(__file__).parent / "kept"
MEASURES = ("ndcg@10", "ndcg@1", "tau_psi", "overlap", "retained_f1", "pair_flip")


def main() -> None:
    for name in sys.argv[1:] or sorted(file.stem for file in KEPT.glob("*.parquet")):
        qrels = KEPT / f"{name.split('-')[0]}.qrels.gz"
        (found,) = steadyscore.audit(scores=KEPT / f"{name}.parquet", relevance=qrels if qrels.exists() else None, keep_share=0.3)
        figures = {m: found.figures[m] for m in MEASURES if m in found.figures}
        print(name, *(f"{m} {f.value:.3f} [{f.low:.3f}, {f.high:.3f}]" for m, f in figures.items()), sep="  ", flush=True)


if __name__ == "__main__":
    main()
