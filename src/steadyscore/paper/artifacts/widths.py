"""Serving width and system trade-offs: Figure 8, Tables 26 to 31."""

from __future__ import annotations

from ..names import BASES, DEEP_LEARNING_V2, PRIVATE
from ..recipe import Artifact, Block, Fields, line, minus
from .common import ALL_SEEDS, collection_lines, measure_line, system_line
from .tasks import CONTENT, LENGTH, MATCHED, ONE_PERMUTATION, ORDER_AVERAGED, SKELETON, between

WIDTH_CONTROLS = Artifact(
    "width-controls",
    "tab:width-controls",
    "Table 26",
    "The passage-reranking gain survives estimator matching",
    (
        Block(
            "(a) nDCG@10 width effect",
            (
                line("One permutation, 18 reranking", terms=ONE_PERMUTATION, collections="reranking"),
                line("Order-averaged, original, 18 reranking", terms=ORDER_AVERAGED, collections="reranking"),
                line("Order-averaged, matched B=1, 18 reranking", terms=MATCHED, collections="reranking"),
                line("Order-averaged, original, excluding ArguAna", terms=ORDER_AVERAGED, collections="without-arguana"),
                line("Order-averaged, matched B=1, excluding ArguAna", terms=MATCHED, collections="without-arguana"),
            ),
            (line("Effect", form="signed"), line("95% CI", form="interval")),
            Fields(system="oc-sft", measure="ndcg@10", digits=4),
            corner="Comparison, collection basis",
        ),
        Block(
            "(b) Retained-set overlap under matched perturbations",
            (
                line("B=1, engine-call batching", width=1, noise=True, measure="floor:overlap"),
                line("B=20, engine-call batching, fixed candidate order", noise=True, measure="floor:overlap"),
                line("B=20, candidate order", measure="overlap"),
            ),
            (line("Overlap"),),
            Fields(system="oc-sft", collections="public", digits=4),
            corner="Serving width, perturbation",
        ),
    ),
    "OC-SFT on Qwen3-4B, seed 42. Matched B=1 and (b): every window read ten times, shuffled over all "
    "queries of a collection into calls of at most 128.",
)

_BASES = (
    ("18 reranking", "reranking"),
    ("Excluding ArguAna", "without-arguana"),
    ("ArguAna", "arguana"),
)


def _decomposed(title: str, serving: int) -> Block:
    return Block(
        title,
        tuple(line(label, collections=name) for label, name in _BASES),
        (
            line("Width", terms=between("companions", "alone", serving)),
            line("Content", terms=between(*CONTENT, serving)),
            line("Length + slot", terms=between(*LENGTH, serving)),
            line("Skeleton", terms=between(*SKELETON, serving)),
        ),
        Fields(system="oc-sft", measure="ndcg@10", digits=4, form="starred", scheme="queries"),
        corner="Collection basis",
    )


DECOMPOSITION = Artifact(
    "decomp",
    "tab:decomp",
    "Table 27",
    "Decomposition of the width effect",
    (
        _decomposed("First-stage order", 1),
        _decomposed("Averaged over K=10 serving permutations", 10),
    ),
    "OC-SFT on Qwen3-4B, seed 42, 18 reranking collections. Fillers are texts of other queries of the collection, the nearest in "
    "length, one for each candidate of a pool. Starred: the interval, paired by query, is clear of zero.",
)

TRAIN_DEPLOY = Artifact(
    "traindeploy",
    "tab:traindeploy",
    "Table 28",
    "Training width determines tolerance to serving-width changes",
    (
        Block(
            "(a) Fixed-weight width sensitivity, seed 42",
            (
                system_line("off-the-shelf"),
                system_line("pointwise", "Student trained at B=1"),
                system_line("order-averaged"),
                system_line("debias-first"),
                system_line("permutation-augmentation"),
                system_line("oc-sft"),
            ),
            (
                line("τ-PSI", measure="tau_psi", width=20),
                line("Width effect", measure="ndcg@10", width=20, terms=ONE_PERMUTATION, form="signed"),
                line("95% CI", measure="ndcg@10", width=20, terms=ONE_PERMUTATION, form="interval"),
            ),
            Fields(collections="reranking"),
            corner="Variant",
        ),
        Block(
            "(b) Train-serve width comparison, three-seed means",
            (system_line("oc-sft", "B=20 (OC-SFT)"), system_line("pointwise", "B=1-trained student")),
            (
                line("nDCG@10", group="Serve B=1", measure="ndcg@10", width=1),
                line("τ-PSI", group="Serve B=1", measure="tau_psi", width=1),
                line("nDCG@10", group="Serve B=20, one pass", measure="ndcg@10", width=20),
                line("τ-PSI", group="Serve B=20, one pass", measure="tau_psi", width=20),
                line("nDCG@10", group="Serve B=20, K=10", measure="ndcg@10", width=20, serving=10),
            ),
            Fields(collections="reranking", seeds=ALL_SEEDS),
            corner="Train",
        ),
    ),
    "Qwen3-4B, 18 collections with equal weight; τ-PSI at width 1 is zero by construction.",
)

COPRESENCE = Artifact(
    "copresence-level",
    "tab:copresence-level",
    "Table 29",
    "Magnitude of the score-level width effect across training variants",
    (
        Block(
            "",
            (
                system_line("off-the-shelf"),
                system_line("single-order"),
                system_line("permutation-augmentation"),
                system_line("oc-sft"),
                line("Augmentation minus OC-SFT", system="permutation-augmentation", terms=minus(system="oc-sft"), form="signed"),
            ),
            (line("Level or difference"), line("95% CI", form="interval")),
            Fields(collections="reranking", statistic="width_effect"),
            corner="Variant / contrast",
        ),
    ),
    "Mean |μ_B − μ_1| over the pooled SD of a collection, then over 18 collections; Qwen3-4B, seed 42; intervals resample "
    "collections.",
)

SERVED = (1, 5, 10, 20, 25, 30, 34, 40, 50)
DEPLOY_WIDTH = Artifact(
    "deploywidth",
    "tab:deploywidth",
    "Table 30",
    "OC-SFT quality is stable through B=1 to B=30",
    (
        Block(
            "",
            (measure_line("18-collection nDCG@10", "ndcg@10"), measure_line("18-collection τ-PSI", "tau_psi")),
            tuple(line(str(width), width=width, at=float(width)) for width in SERVED),
            Fields(system="oc-sft", collections="reranking"),
            corner="Serve B",
        ),
    ),
    "OC-SFT on Qwen3-4B, seed 42, M = 10. A window that does not fit the model is refused, "
    "where the paper's code cuts it from the left.",
)

_FRONTIER = (
    *(system_line("oc-sft", f"OC-SFT, {BASES[name].label}", base=name) for name in BASES),
    system_line("rank-zephyr"),
    system_line("jina"),
    system_line("jina-b20"),
    system_line("mxbai-base"),
    system_line("mxbai-large"),
)
FRONTIER = Artifact(
    "frontier",
    "fig:frontier",
    "Figure 8",
    "The system frontier across 16 public reranking collections",
    (
        Block(
            "",
            _FRONTIER,
            (
                line("Median s/query", statistic="latency", timed=(0,), second="0"),
                measure_line("nDCG@10", "ndcg@10"),
                measure_line("τ-PSI", "tau_psi"),
            ),
            Fields(collections="public"),
            corner="System",
            draw="points",
            axes=("median seconds per query", "nDCG@10"),
        ),
    ),
    "16 public collections, seed 42. Latency: the median of the collections' medians, one request at a time on this machine, "
    "three rounds; τ-PSI is in the table.",
)

_TIMED = (
    "dl19", "dl20", "trec-covid", "nfcorpus", "touche2020", "dbpedia", "scifact", "signal1m", "trec-news", "robust04", "fiqa",
    "arguana", "climate-fever", *DEEP_LEARNING_V2, *PRIVATE,
)  # fmt: skip
TIMED_WIDTHS = (1, 10, 20)
BATCHING_LATENCY = Artifact(
    "batching-latency",
    "tab:batching-latency",
    "Table 31",
    "Candidate batching roughly halves per-query latency",
    (
        Block(
            "",
            (
                *collection_lines(_TIMED),
                line("Public-16 median", collections="public"),
                line("Primary-18 median", collections="reranking"),
            ),
            (
                *(line(f"B={width}", second=str(width)) for width in TIMED_WIDTHS),
                *(
                    line(f"B={width} ↓", second=str(width), statistic="latency_reduction", form="percent", digits=1)
                    for width in TIMED_WIDTHS[1:]
                ),
            ),
            Fields(system="oc-sft", statistic="latency", timed=TIMED_WIDTHS, permutations=1),
            corner="Collection",
        ),
    ),
    "OC-SFT on Qwen3-4B, seed 42, this machine: a warm scorer, one request at a time in first-stage order, three rounds in which "
    "another width comes first. A query counts with the median of its rounds, a collection with the median of its queries.",
)

WIDTHS = (WIDTH_CONTROLS, DECOMPOSITION, TRAIN_DEPLOY, COPRESENCE, DEPLOY_WIDTH, FRONTIER, BATCHING_LATENCY)
