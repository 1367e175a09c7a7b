"""Mitigation, supervision cost and robustness: Figures 6 and 7, Tables 9 to 15."""

from __future__ import annotations

from ..names import GROUPS, SEEDS
from ..recipe import Block, Drawing, Fields, Line, gain_of_gains, line, minus, panels
from .common import DASH, FOUR, NDCG, SIX, TAU, amortized, collections, estimate, measures, systems, table, variants_by_measure

ROUND_ROBIN = Fields(partition="round_robin")
CHANGE = estimate("Change")
FIRST_READER = Fields(measure="verdict_flip", reader="first", digits=4)

PARTITION_CONTROLS = panels(
    "partitioncontrols",
    "Round-robin partitioning does not explain the trained gain",
    "Qwen3-4B, seed 42; intervals of (a) and (c) resample collections, those of one collection its queries, 20,000 times. The "
    "last block, of the text, standardises the scores of each window before they are merged.",
    Block(
        "(a) Training gain under fixed partitioning",
        (
            line("Contiguous"),
            line("Round-robin", partition="round_robin"),
            line("Contiguous minus round-robin", form="signed", terms=minus(partition="round_robin")),
        ),
        (
            line("Off the shelf", system="off-the-shelf"),
            line("OC-SFT", system="oc-sft"),
            line("Training gain [95% CI]", system="oc-sft", form="with_interval", terms=minus(system="off-the-shelf")),
        ),
        Fields(collections="reranking", measure="ndcg@10", scheme="collections"),
        corner="Partition rule",
        special={(2, 2): Fields(system="off-the-shelf", terms=gain_of_gains(Fields(system="oc-sft"), ROUND_ROBIN))},
    ),
    Block(
        "(b) Partition effect on instability",
        systems(SIX),
        (
            line(
                "Round-robin minus contiguous τ-PSI",
                measure="tau_psi",
                partition="round_robin",
                terms=minus(partition="contiguous"),
                form="signed",
                digits=4,
            ),
        ),
        Fields(collections="reranking"),
        corner="Variant",
    ),
    Block(
        "(c) Off-the-shelf consumer effect",
        (
            line("Retained-set overlap", collections="reranking", measure="overlap"),
            *collections({"scifact": "Verdict flip, SciFact", "climate-fever": "Verdict flip, Climate-FEVER"}, **FIRST_READER),
            line("Selected pair", collections="responses", measure="pair_flip", digits=4),
        ),
        CHANGE,
        Fields(system="off-the-shelf", partition="round_robin", terms=minus(partition="contiguous"), scheme="collections"),
        corner="Consumer",
    ),
    Block(
        "Rescaling the scores of each window, off the shelf",
        (
            line("Rescaled minus plain, contiguous", mitigation="rescale", terms=minus(mitigation="")),
            line("Round-robin minus contiguous", partition="round_robin", terms=minus(partition="contiguous")),
        ),
        CHANGE,
        Fields(system="off-the-shelf", collections="reranking", measure="ndcg@10", scheme="collections"),
        corner="nDCG@10",
    ),
)

CLOSED = line(
    "% closed", measure="tau_psi", statistic="percent_closed", rivals=("single-order", "oc-sft"), form="closed", digits=1
)
VARIANTS = panels(
    "variants",
    "Mitigation baselines and regularizers on the Qwen3-4B student",
    "Qwen3-4B, 18 collection means, three training seeds, mean ± sample SD. Bold: a lead larger than the seed SD of every row "
    "that it leads. PINE here has the documents of its prompt in segments, which recovers most of the paper's loss of nDCG@10.",
    Block(
        "",
        systems(
            {
                "single-order": "Single-order (T=1)",
                "dropout": "+ LoRA dropout 0.20",
                "kl": "+ KL-to-base β=0.05",
                "ema": "+ EMA mean-teacher α=0.5",
                "order-averaged-t2": "Order-avg. T=2",
                "order-averaged-t3": "Order-avg. T=3",
                "order-averaged-t5": "Order-avg. T=5",
                "order-averaged": "Order-avg. T=10",
                "permutation-augmentation": "Perm. aug.",
                "debias-first": "DebiasFirst",
                "oc-sft": "OC-SFT (λ*=5)",
            },
            is_rival=True,
        ),
        (*measures({"Mean nDCG@10": "ndcg@10", "Mean τ-PSI": "tau_psi"}, form="spread"), CLOSED),
        Fields(collections="reranking", seeds=SEEDS),
        corner="Variant",
        bold="seed_spread",
    ),
    Block(
        "PINE minus the plain scorer, off the shelf on DL19",
        (line("B=20", width=20), line("B=1", width=1)),
        (line("ΔnDCG@10", **NDCG), line("Δτ-PSI", **TAU)),
        Fields(system="off-the-shelf", collections="dl19", mitigation="pine", terms=minus(mitigation=""), form="signed"),
        corner="Serving width",
        special={(1, 1): DASH},
    ),
)

TEACHER_DESIGN = panels(
    "teacher-design",
    "Batched-teacher labels improve student nDCG@10 at both training widths",
    "Qwen3-4B teacher and student, served at width 1 in first-stage order; 100,000 resamples of collections. The paper's "
    "control runs over three checkpoints of one run, ours over three training seeds.",
    Block(
        "Batched minus pointwise teacher labels",
        (
            line("B_train=1", system="batched-labels-b1", terms=minus(system="pointwise")),
            line("B_train=20", system="single-order", terms=minus(system="pointwise-labels")),
        ),
        (*estimate("ΔnDCG@10", digits=4), line("Wins (of 18)", statistic="wins", form="count")),
        Fields(collections="reranking", measure="ndcg@10", width=1, scheme="collections", draws=100_000),
        corner="Student training width",
    ),
    Block(
        "Control",
        (line("Rank-quantile matching", system="batched-labels-b1", terms=minus(system="recalibrated")),),
        (
            line("Minimum residual", statistic="seed_minimum", form="signed"),
            line("Maximum residual", statistic="seed_maximum", form="signed"),
        ),
        Fields(collections="reranking", measure="ndcg@10", width=1, seeds=SEEDS, digits=4),
        corner="Control",
    ),
)

_VIEWS = Fields(statistic="spread_of_rivals", rivals=("oc-sft", "oc-sft-n3", "oc-sft-n4", "oc-sft-n8"), form="range")
_PASSES = Fields(system="order-averaged-t40", terms=minus(system="order-averaged-t5-of-40"), form="signed", digits=4)
VIEW_CONTROLS = table(
    "view-controls",
    "Extra student views raise training cost; extra teacher passes lower τ-PSI",
    "Qwen3-4B, seed 42, 18 collections; the caption states no basis. Cost follows from N and T.",
    (
        line("Student training, N∈{2,3,4,8}, nDCG@10", measure="ndcg@10", digits=4, **_VIEWS),
        line("Student training, N∈{2,3,4,8}, τ-PSI", measure="tau_psi", **_VIEWS),
        line("Teacher labels, T=5→40, nDCG@10", measure="ndcg@10", **_PASSES),
        line("Teacher labels, T=5→40, τ-PSI", measure="tau_psi", **_PASSES),
    ),
    (line("Observed range / change"), line("Forward-pass cost")),
    Fields(system="oc-sft", collections="reranking"),
    corner="Stage varied, sweep, metric",
    special={(row, 1): Fields(text="100–400% training" if row < 2 else "800% labeling") for row in range(4)},
)

REDISTILL = table(
    "redistill",
    "Iterative self-distillation gains diminish after the first round",
    "18 collections, seed 42; a round labels with the student before it and trains OC-SFT anew on the base.",
    tuple(
        line(f"{label}, round {number}", system=f"redistilled-{number}", base=base, terms=minus(system=before))
        for base, label in (("qwen3-4b", "Qwen3-4B"), ("gemma-e4b", "Gemma-E4B"))
        for number, before in ((1, "oc-sft"), (2, "redistilled-1"))
    ),
    (line("ΔnDCG@10", **NDCG), line("Δτ-PSI", **TAU)),
    Fields(collections="reranking", form="signed", digits=4),
    corner="Base, round",
)

AMORT = panels(
    "amort",
    "OC-SFT at K=1 is within 0.006 nDCG@10 of the off-the-shelf K=10 ensemble",
    "Qwen3-4B, 18 collections. K = 1 is the first-stage order; K of 2 and more are means over ensembles of random permutations.",
    amortized("(left) nDCG@10 against K", "nDCG@10", FOUR, collections="reranking", **NDCG),
    Block("(right) Single-pass τ-PSI", FOUR, (line("τ-PSI", **TAU),), Fields(collections="reranking")),
)

SIZES = (300, 1_000, 3_000, 10_000, 30_000)


def _by_queries(title: str, measure: str, axis: str) -> Block:
    trained = ("single-order", "order-averaged", "oc-sft")
    return Block(
        title,
        systems(trained),
        tuple(line(f"{size:,}", at=float(size)) for size in SIZES),
        Fields(collections="public", measure=measure),
        corner="labelled queries",
        special={(r, c): Fields(system=f"{name}-{size}") for r, name in enumerate(trained) for c, size in enumerate(SIZES[:-1])},
        draw=Drawing("lines", "labelled queries", axis),
    )


SAMPLE_EFFICIENCY = panels(
    "sampleeff",
    "Stability saturates with fewer labeled queries than quality",
    "Qwen3-4B, 16 public collections, nested pools: the first N training queries. The paper's text names 1K, 3K and 30K.",
    _by_queries("(a) τ-PSI", "tau_psi", "τ-PSI"),
    _by_queries("(b) nDCG@10", "ndcg@10", "nDCG@10"),
)


def _crossing(system: str, group: str, seeds: tuple[int, ...] = SEEDS[:1]) -> tuple[Line, ...]:
    named = {"Gold cross.": "gold_crossing", "1 perm.": "label_accuracy", "10 perm.": "label_accuracy_averaged"}
    return measures(named, group, system=system, seeds=seeds)


LABEL_CROSSING = panels(
    "labelcrossing",
    "Gold crossing and label accuracy on response ranking",
    "Qwen3-4B, M = 10; off the shelf one evaluation, single-order seed 42, OC-SFT the mean over seeds 42 to 44.",
    Block(
        "",
        (*collections(GROUPS["responses"]), line("Binary-gold mean", collections="binary-gold")),
        (
            *_crossing("off-the-shelf", "Off the shelf"),
            *_crossing("single-order", "Single-order"),
            *_crossing("oc-sft", "OC-SFT", SEEDS),
        ),
        corner="Collection",
    ),
    Block(
        "Pair flips on crossing queries",
        (line("Share of pair flips on crossing queries", measure="flips_on_crossing", scheme="collections"),),
        (line("Off the shelf", system="off-the-shelf"),),
        Fields(collections="binary-gold"),
    ),
)

FIRST_STAGE = table(
    "firststage",
    "Four variants under three first stages",
    "Qwen3-4B, seed 42, checkpoints trained on BM25 candidates, 13 collections.",
    (line("BM25"), line("BGE (dense)", first_stage="bge"), line("SPLADE (learned-sparse)", first_stage="splade")),
    variants_by_measure(FOUR),
    Fields(collections="first-stages"),
    corner="First stage",
)

MITIGATIONS = (
    PARTITION_CONTROLS, VARIANTS, TEACHER_DESIGN, VIEW_CONTROLS, REDISTILL, AMORT, SAMPLE_EFFICIENCY, LABEL_CROSSING, FIRST_STAGE,
)  # fmt: skip
