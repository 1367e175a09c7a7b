"""Measure the kept scores again, a line for every file, and beside it its input and the mixture of both.

    python lab/measure.py [NAME...]     NAME: of files in lab/kept, such as dl19-20-set-42; all of them without any

nDCG counts every judgement of a collection where its qrels are kept; the others judge nothing outside their pools. Where
pools came from a first stage, `input` is its order and `first-stage:30` what the mitigation of that name gives.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import steadyscore
from steadyscore.measures.measurement import Measured, measure, rank_by_pool, with_scores
from steadyscore.measures.threshold import Threshold
from steadyscore.results.figure import mean_figures, paired_gain
from steadyscore.runs.table import Scored
from steadyscore.scoring.mitigations import mix_with_first_stage

KEPT = Path(__file__).parent / "kept"
MEASURES = ("ndcg@10", "ndcg@1", "tau_psi", "overlap", "retained_f1", "pair_flip")
RANKED = ("dl19", "dl21", "scifact", "climate")
"""Collections whose pools stand in the order of a first stage (BM25)."""
BY = Threshold(keep_share=0.3)
SHARE = 0.3
"""Of the first stage in the mixture: chosen on tuning pools (LOG.md, twelfth round)."""


def main() -> None:
    for name in sys.argv[1:] or sorted(file.stem for file in KEPT.glob("*.parquet")):
        collection = name.split("-")[0]
        qrels = KEPT / f"{collection}.qrels.gz"
        (found,) = steadyscore.audit(scores=KEPT / f"{name}.parquet", relevance=qrels if qrels.exists() else None, keep_share=0.3)
        if collection not in RANKED:
            show(name, found.measured, None)
            continue
        ranked = [one for query in found.queries if (one := rank_by_pool(query)) is not None]
        before = measure(ranked, BY)
        mixed = [mix(query, one) for query, one in zip(found.queries, ranked, strict=True)]
        for label, measured in ((name, found.measured), ("  input", before), ("  first-stage:30", measure(mixed, BY))):
            show(label, measured, None if measured is before else before)


def mix(query: Scored, ranked: Scored) -> Scored:
    """What `--mitigation first-stage` serves of these scores."""
    mixed = with_scores(query, mix_with_first_stage(query.scores, ranked.scores[0], SHARE))
    return replace(mixed, permutations=query.permutations)


def show(label: str, measured: Measured, before: Measured | None) -> None:
    figures = mean_figures(measured)
    shown = [f"{m} {figures[m].value:.3f} [{figures[m].low:.3f}, {figures[m].high:.3f}]" for m in MEASURES if m in figures]
    gain = before and paired_gain("ndcg@10", measured, before)
    difference = [f"ndcg@10 minus input {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"] if gain else []
    print(label, *shown, *difference, sep="  ", flush=True)


if __name__ == "__main__":
    main()
