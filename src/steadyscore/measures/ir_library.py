"""Any ranking measure that `ir_measures` knows, on the same rankings as ours: P@5, ERR@20, RBP(p=0.8), ...

Tools differ in how they break ties, so they are given ranks instead of scores: our tie rule holds for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..machine.extras import check_installed
from ..runs.table import Scored
from ..terms import Array
from .ranking import ranking
from .views import ranked_first_stage, ranked_permuted


def parse_measures(names: Sequence[str]) -> list[Any]:
    """Measures by name; all that ir_measures cannot compute on this machine are named at once."""
    if not names:
        return []
    check_installed("the measures of ir", "ir_measures")
    import ir_measures

    measures, mistakes = [], []
    for name in names:
        try:
            measure = ir_measures.parse_measure(name)
            cutoff = measure.params.get("cutoff", 1)  # trec_eval crashes on a cutoff of 0
            usable = isinstance(cutoff, int) and cutoff > 0 and ir_measures.DefaultPipeline.supports(measure)
        except Exception:  # the library refuses a name with whatever exception comes up
            usable = False
        if usable:
            measures.append(measure)
        else:
            mistakes.append(f"ir={name}: ir_measures cannot compute it here. Write it as nDCG@10, P@5 or AP(rel=2).")
    if mistakes:
        raise InputError(mistakes)
    return measures


def library_values(queries: Sequence[Scored], names: Sequence[str]) -> dict[str, Array]:
    """Measure -> (Q,), in first-stage order where that was scored, else the mean over permutations. NaN: not judged."""
    measures = parse_measures(names)
    import ir_measures

    judgements, run = [], []
    for place, query in enumerate(queries):
        if not query.is_judged:
            continue
        judged = () if query.relevance is None else query.relevance
        pool = {f"in{i}": int(r) for i, r in enumerate(judged) if not np.isnan(r)}
        outside = _judged_outside(query)
        first = ranked_first_stage(query)
        served = ranked_permuted(query) if first is None else first[None]
        for row, columns in enumerate(ranking(served)):
            key = f"{place}/{row}"
            judgements += [ir_measures.Qrel(key, doc, grade) for doc, grade in {**pool, **outside}.items()]
            run += [ir_measures.ScoredDoc(key, f"in{column}", float(len(columns) - rank)) for rank, column in enumerate(columns)]
    values_of = {name: [[] for _ in queries] for name in names}  # type: ignore[var-annotated]
    spelled = dict(zip(measures, names, strict=True))
    for metric in ir_measures.iter_calc(measures, judgements, run):
        values_of[spelled[metric.measure]][int(metric.query_id.split("/")[0])].append(metric.value)
    return {name: np.array([np.mean(values) if values else np.nan for values in rows]) for name, rows in values_of.items()}


def _judged_outside(query: Scored) -> dict[str, int]:
    """Judged documents that are not in the pool: the ideal's gains less the pool's."""
    if query.ideal is None:
        return {}
    rest = sorted(int(gain) for gain in query.ideal)
    for gain in query.relevance if query.relevance is not None else ():
        if not np.isnan(gain):
            rest.remove(int(gain))
    return {f"out{i}": gain for i, gain in enumerate(rest)}
