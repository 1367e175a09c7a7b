"""Mechanism and stability controls: Figure 5, Tables 5 to 8."""

from __future__ import annotations

from ..recipe import Block, Drawing, Fields, line, minus, minus_cell, panels
from .common import DASH, FOUR, FOUR_RIVALS, THREE, collections, estimate, measures, table

SAMPLE = Fields(collections="msmarco.held-out", pool=20, permutations=500, digits=4)
SLOTS = tuple(line(str(p), at=float(p), statistic="slot_value") for p in range(1, 21))


def _slot_profile(title: str, rms: str, fields: Fields) -> Block:
    columns = (*SLOTS, line("RMS", measure=rms, scheme="collections", digits=4))
    return Block(title, (FOUR[0], FOUR[3]), columns, fields, "slot", draw=Drawing("lines", "slot in the window", "ψ(p)"))


PSI_PROFILE = panels(
    "psiprofile",
    "Residual variation consistent with companion coupling dominates score variance",
    "Qwen3-4B. (a, b) OLS fixed effects of slot and window index within a candidate, as in the released code; the paper does not "
    "name its eleven and four collections, ours are the first eleven public ones and DL19, DL20, NFCorpus, SciFact. (c, d) "
    "held-out MS MARCO, pools of 20 in one window, 500 permutations.",
    Block(
        "(a) Off-the-shelf variance shares",
        measures({"Slot": "slot_share_ols", "Window index": "window_share_ols", "Companions and rest": "companion_share_ols"}),
        (line("Share", form="percent", digits=1),),
        Fields(system="off-the-shelf", collections="decomposed", scheme="collections"),
    ),
    Block(
        "(b) Residual variance relative to off the shelf",
        FOUR,
        (line("Relative", measure="residual_variance", statistic="relative_residual", rivals=("off-the-shelf",)),),
        Fields(collections="matched"),
    ),
    _slot_profile("(c) Slot residual ψ(p), all candidates", "slot_rms_all", SAMPLE),
    _slot_profile("(d) Slot residual ψ(p), relevant candidates", "slot_rms_gold", SAMPLE | Fields(second="gold")),
)

POOL_CONTROLS = table(
    "pool-controls",
    "Pool perturbations change decisions without changing mean quality",
    "Qwen3-4B, seed 42, 15 collections, up to 100 queries each by hash; rankings of the shared candidates.",
    (
        line("Pool-PSI", measure="pool_psi"),
        line("Top-10 changed", measure="top10_changed", form="percent", digits=1),
        line("Mean ΔnDCG@10", measure="pool_delta_ndcg@10", form="signed"),
        line("Mean absolute ΔnDCG@10", measure="pool_absolute_delta_ndcg@10", digits=4),
    ),
    FOUR_RIVALS,
    Fields(collections="replaceable", perturb=("replace",)),
    corner="Quantity",
    bold="best",
)

MECHANISM_CONTROLS = panels(
    "mechanism-controls",
    "Three controls separate order mechanisms and perturbation transfer",
    "(a, c) off-the-shelf Qwen3-4B, 18 collections. (a) primacy: quality falls from top to middle to bottom and the paired "
    "interval of top minus bottom is above zero; U-shape: both ends above the middle, both intervals above zero. (b) Qwen3-1.7B "
    "and Qwen3-4B on DL19, NFCorpus and Legal-A: τ-PSI over the Roman and the random three-character scheme, each with labels "
    "shuffled over the slots by two seeds, on up to 100 queries.",
    Block(
        "(a) Ranking-level slot preference",
        (line("Forced-position nDCG@10", measure="ndcg@10"),),
        (
            line("Collections with primacy", statistic="primacy", form="of"),
            line("Collections with U-shape", statistic="u_shape", form="of"),
        ),
        Fields(system="off-the-shelf", collections="reranking", permutations=1),
        corner="Diagnostic",
    ),
    Block(
        "(b) Marker-renaming transfer",
        (
            line("Held-out marker τ-PSI"),
            line("Penalty improvement over marker-varied SFT", terms=minus_cell(system="marker-sft")),
        ),
        (
            line("Minimum", statistic="minimum"),
            line("Maximum", statistic="maximum"),
            line("Coverage / wins", statistic="cells", form="count"),
        ),
        Fields(system="marker-consistency", base="small", collections="markers", permutations=1)
        | Fields(measure="held_out_marker_tau_psi", perturb=("held-out-markers",)),
        corner="Measure",
        special={(1, 2): Fields(statistic="above", form="of")},
    ),
    Block(
        "(c) First-stage-order controls",
        (
            line("nDCG@10", measure="ndcg@10"),
            line("τ-PSI", measure="tau_psi", digits=4),
            line("Kendall correlation with BM25", measure="first_stage_tau"),
        ),
        (line("Reverse", arrangement="reverse"), line("Forward"), line("Random permutation")),
        Fields(system="off-the-shelf", collections="reranking"),
        corner="Measure",
        special={(1, 2): DASH, (2, 0): DASH}
        | {(0, 2): Fields(measure="mean_ndcg@10"), (2, 2): Fields(measure="first_stage_tau_random")},
    ),
)

_GAINS: dict[str, Fields] = {
    "|corr(ΔnDCG@10, off-the-shelf τ-PSI)|": Fields(statistic="gain_correlation"),
    "Queries improving over off the shelf": Fields(statistic="improving", form="percent", digits=1),
    "Regressions relative to single-order": Fields(statistic="regressing", rivals=("single-order",), form="percent", digits=1),
}
STABILITY_CONTROLS = panels(
    "stability-controls",
    "Validity controls for the stability result",
    "Qwen3-4B, seed 42, M = 10. (a) gains in first-stage order, query by query; a query that stays equal counts as improving. "
    "The last block, of the text, reads the first query of DL19, FiQA and Climate-FEVER ten times in one order.",
    Block(
        "(a) Quality controls",
        tuple(
            row
            for label, how in _GAINS.items()
            for row in collections({at: f"{label}, {at.upper()}" for at in ("dl19", "dl20")}, **how)
        ),
        THREE,
        Fields(measure="ndcg@10", rivals=("off-the-shelf",)),
        corner="Diagnostic",
        special={(4, 0): Fields(text="reference"), (5, 0): Fields(text="reference")},
    ),
    Block(
        "(b) Score-geometry controls",
        (
            line("Residual normalized by score dispersion", measure="normalized_residual"),
            line("Exact tied pairs", measure="tied_pairs", form="percent"),
        ),
        THREE,
        Fields(collections="reranking"),
        corner="Diagnostic",
    ),
    Block(
        "(c1) Ranking-head levels",
        THREE,
        (line("Top-10 instability", measure="top10_instability"),),
        Fields(collections="reranking"),
        corner="Variant",
    ),
    Block(
        "(c2) Ranking-head paired contrasts",
        (
            line("Single-order − OC", system="single-order", terms=minus(system="oc-sft")),
            line("Order-avg. − OC", system="order-averaged", terms=minus(system="oc-sft")),
            line("Single-order − Order-avg.", system="single-order", terms=minus(system="order-averaged")),
        ),
        (*estimate(), line("Collection wins", statistic="above", form="of")),
        Fields(collections="reranking", measure="top10_instability"),
        corner="Contrast",
    ),
    Block(
        "GPT-5.4, one order read again",
        measures({"Equal grades": "floor:grade_agreement", "τ-PSI": "floor:tau_psi"}, scheme="collections"),
        (line("Mean of three queries"),),
        Fields(system="gpt-5.4", collections="floors", noise=True, permutations=1, queries=1),
        corner="Measure",
    ),
)

METRICS = table(
    "metrics",
    "The variant ordering holds across metrics",
    "Eleven dense bases by 18 reranking collections, each cell with equal weight; seed 42, M = 10.",
    FOUR_RIVALS,
    measures(
        {
            "mean-perm nDCG": "mean_ndcg@10",
            "worst-perm nDCG": "worst_ndcg@10",
            "order-spread": "order_spread@10",
            "τ-PSI": "tau_psi",
        }
    ),
    Fields(base="dense", collections="reranking", digits=4),
    corner="Variant",
    bold="best",
)

MECHANISMS = (PSI_PROFILE, POOL_CONTROLS, MECHANISM_CONTROLS, STABILITY_CONTROLS, METRICS)
