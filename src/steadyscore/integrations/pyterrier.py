"""A transformer of PyTerrier pipelines (pip install python-terrier); it needs no Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyterrier as pt

from . import Ranker

if TYPE_CHECKING:
    import pandas as pd


class SteadyscoreTransformer(pt.Transformer):
    """`retriever >> SteadyscoreTransformer(Ranker("hf:..."))`: each query's rows are its pool, in rank order."""

    def __init__(self, ranker: Ranker, text_field: str = "text"):
        self.ranker, self.text_field = ranker, text_field

    def transform(self, frame: pd.DataFrame) -> pd.DataFrame:
        by_rank = frame.sort_values(["qid", "rank"], kind="stable") if "rank" in frame else frame
        scored = by_rank.reset_index(drop=True).assign(score=0.0)
        for _, rows in scored.groupby("qid", sort=False):
            scored.loc[rows.index, "score"] = self.ranker.scores(rows["query"].iloc[0], rows[self.text_field].tolist())
        return pt.model.add_ranks(scored)
