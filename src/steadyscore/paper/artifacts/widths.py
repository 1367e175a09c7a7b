"""Serving width, systems, and results by base and collection: Figures 8 to 11, Tables 26 to 36."""

from __future__ import annotations

from collections.abc import Iterable

from ..names import BASES, COLLECTIONS, DEEP_LEARNING_V2, DENSE, PRIVATE, RERANKING, SEEDS, TWELVE
from ..recipe import Block, Bold, Drawing, Fields, Line, line, minus, panels
from .common import FOUR, NDCG, SIX, TAU, bases, collections, estimate, measures, systems, table, variants_by_measure
from .tasks import CONTENT, LENGTH, MATCHED, ONE_PERMUTATION, ORDER_AVERAGED, SKELETON, between

WIDTH_CONTROLS = panels(
    "width-controls",
    "The passage-reranking gain survives estimator matching",
    "OC-SFT on Qwen3-4B, seed 42. Matched B=1 and (b): every window read ten times, shuffled over all "
    "queries of a collection into calls of at most 128.",
    Block(
        "(a) nDCG@10 width effect",
        (
            line("One permutation, 18 reranking", terms=ONE_PERMUTATION, collections="reranking"),
            line("Order-averaged, original, 18 reranking", terms=ORDER_AVERAGED, collections="reranking"),
            line("Order-averaged, matched B=1, 18 reranking", terms=MATCHED, collections="reranking"),
            line("Order-averaged, original, excluding ArguAna", terms=ORDER_AVERAGED, collections="without-arguana"),
            line("Order-averaged, matched B=1, excluding ArguAna", terms=MATCHED, collections="without-arguana"),
        ),
        estimate("Effect"),
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
)

_BASES = (("18 reranking", "reranking"), ("Excluding ArguAna", "without-arguana"), ("ArguAna", "arguana"))


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


DECOMPOSITION = panels(
    "decomp",
    "Decomposition of the width effect",
    "OC-SFT on Qwen3-4B, seed 42, 18 reranking collections. Fillers are texts of other queries of the collection, the nearest in "
    "length, one for each candidate of a pool. Starred: the interval, paired by query, is clear of zero.",
    _decomposed("First-stage order", 1),
    _decomposed("Averaged over K=10 serving permutations", 10),
)

TRAIN_DEPLOY = panels(
    "traindeploy",
    "Training width determines tolerance to serving-width changes",
    "Qwen3-4B, 18 collections with equal weight; τ-PSI at width 1 is zero by construction.",
    Block(
        "(a) Fixed-weight width sensitivity, seed 42",
        (
            *systems({"off-the-shelf": "Off the shelf", "pointwise": "Student trained at B=1"}),
            *systems(("order-averaged", "debias-first", "permutation-augmentation", "oc-sft")),
        ),
        (line("τ-PSI", measure="tau_psi"), *estimate("Width effect", terms=ONE_PERMUTATION, **NDCG)),
        Fields(collections="reranking", width=20),
        corner="Variant",
    ),
    Block(
        "(b) Train-serve width comparison, three-seed means",
        systems({"oc-sft": "B=20 (OC-SFT)", "pointwise": "B=1-trained student"}),
        (
            *measures({"nDCG@10": "ndcg@10", "τ-PSI": "tau_psi"}, "Serve B=1", width=1),
            *measures({"nDCG@10": "ndcg@10", "τ-PSI": "tau_psi"}, "Serve B=20, one pass", width=20),
            line("nDCG@10", "Serve B=20, K=10", measure="ndcg@10", width=20, serving=10),
        ),
        Fields(collections="reranking", seeds=SEEDS),
        corner="Train",
    ),
)

COPRESENCE = table(
    "copresence-level",
    "Magnitude of the score-level width effect across training variants",
    "Mean |μ_B − μ_1| over the pooled SD of a collection, then over 18 collections; Qwen3-4B, seed 42; intervals resample "
    "collections.",
    (
        *systems(("off-the-shelf", "single-order", "permutation-augmentation", "oc-sft")),
        line("Augmentation minus OC-SFT", system="permutation-augmentation", terms=minus(system="oc-sft"), form="signed"),
    ),
    (line("Level or difference"), line("95% CI", form="interval")),
    Fields(collections="reranking", statistic="width_effect"),
    corner="Variant / contrast",
)

DEPLOY_WIDTH = table(
    "deploywidth",
    "OC-SFT quality is stable through B=1 to B=30",
    "OC-SFT on Qwen3-4B, seed 42, M = 10. A window that does not fit the model is refused, "
    "where the paper's code cuts it from the left.",
    measures({"18-collection nDCG@10": "ndcg@10", "18-collection τ-PSI": "tau_psi"}),
    tuple(line(str(width), width=width, at=float(width)) for width in (1, 5, 10, 20, 25, 30, 34, 40, 50)),
    Fields(system="oc-sft", collections="reranking"),
    corner="Serve B",
)

FRONTIER = table(
    "frontier",
    "The system frontier across 16 public reranking collections",
    "16 public collections, seed 42. Latency: the median of the collections' medians, one request at a time on this machine, "
    "three rounds; τ-PSI is in the table.",
    (
        *bases({name: f"OC-SFT, {base.label}" for name, base in BASES.items()}, system="oc-sft"),
        *systems(("rank-zephyr", "jina", "jina-b20", "mxbai-base", "mxbai-large")),
    ),
    (line("Median s/query", statistic="latency", timed=(0,), second="0"), *measures({"nDCG@10": "ndcg@10", "τ-PSI": "tau_psi"})),
    Fields(collections="public"),
    corner="System",
    draw=Drawing("points", "median seconds per query", "nDCG@10"),
)

_TIMED = (
    "dl19", "dl20", "trec-covid", "nfcorpus", "touche2020", "dbpedia", "scifact", "signal1m", "trec-news", "robust04", "fiqa",
    "arguana", "climate-fever", *DEEP_LEARNING_V2, *PRIVATE,
)  # fmt: skip
TIMED_WIDTHS = (1, 10, 20)
REDUCTION = Fields(statistic="latency_reduction", form="percent", digits=1)
BATCHING_LATENCY = table(
    "batching-latency",
    "Candidate batching roughly halves per-query latency",
    "OC-SFT on Qwen3-4B, seed 42, this machine: a warm scorer, one request at a time in first-stage order, three rounds in which "
    "another width comes first. A query counts with the median of its rounds, a collection with the median of its queries.",
    (*collections(_TIMED), line("Public-16 median", collections="public"), line("Primary-18 median", collections="reranking")),
    (
        *(line(f"B={width}", second=str(width)) for width in TIMED_WIDTHS),
        *(line(f"B={width} ↓", second=str(width), **REDUCTION) for width in TIMED_WIDTHS[1:]),
    ),
    Fields(system="oc-sft", statistic="latency", timed=TIMED_WIDTHS, permutations=1),
    corner="Collection",
)

WIDTHS = (WIDTH_CONTROLS, DECOMPOSITION, TRAIN_DEPLOY, COPRESENCE, DEPLOY_WIDTH, FRONTIER, BATCHING_LATENCY)

SHORT = {
    "touche2020": "Touche", "climate-fever": "Climate", "trec-covid": "T-COVID", "signal1m": "Signal1M", "trec-news": "T-NEWS",
}  # fmt: skip
ACROSS = collections({name: SHORT.get(name, COLLECTIONS[name]) for name in RERANKING})
PUBLIC_16, ALL_18 = line("Public 16", collections="public"), line("All 18", collections="reranking")


def _quality_across(*methods: Line) -> Block:
    """Quality on every reranking collection."""
    return Block("nDCG@10, higher is better", methods, (PUBLIC_16, *ACROSS), NDCG | Fields(digits=2), "Method")


def _instability_across(*methods: Line, bold: Bold = "") -> Block:
    return Block("τ-PSI, lower is better", methods, (PUBLIC_16, *ACROSS), TAU | Fields(digits=2), "Method", bold=bold)


_UNTRAINED = (*systems(("off-the-shelf",)), line("CapCal", system="off-the-shelf", mitigation="capcal"))
_STUDENTS = systems(SIX[1:], is_rival=True)
PUBLIC_FULL = panels(
    "public-full",
    "Full per-collection reranking results for the Qwen3-4B student and its baselines",
    "Seed 42, M = 10. BM25 is the order of the pool itself; its τ-PSI is zero by construction.",
    _quality_across(
        line("BM25 retrieval", system="off-the-shelf", measure="first_stage_ndcg@10"),
        *systems(("gpt-5.4",)),
        *_UNTRAINED,
        *_STUDENTS,
    ),
    _instability_across(*_UNTRAINED, *_STUDENTS, bold="best"),
)

_THIRTEEN = (
    "dl19", "dl20", "touche2020", "fiqa", "nfcorpus", "arguana", "climate-fever", "dbpedia", "scifact", "signal1m", "trec-covid",
    "trec-news", "robust04",
)  # fmt: skip
FIRST_STAGE_BY_COLLECTION = table(
    "firststage-perdataset",
    "Per-collection results under dense and learned-sparse first stages",
    "Qwen3-4B, seed 42; students trained on BM25 candidates.",
    (*collections(_THIRTEEN), line("Mean (13)", collections="first-stages")),
    (*variants_by_measure(FOUR, "BGE: ", first_stage="bge"), *variants_by_measure(FOUR, "SPLADE++ ED: ", first_stage="splade")),
    corner="Collection",
)

_VARIANTS = {"off-the-shelf": "Off the shelf", "order-averaged": "Order-avg.", "oc-sft": "OC-SFT"}
_RERANKER = systems({name: f"Qwen3-Reranker-4B: {label}" for name, label in _VARIANTS.items()}, base="qwen3-reranker-4b")
_LISTWISE, _MXBAI = systems(("rank-zephyr", "jina", "jina-b20")), systems(("mxbai-base", "mxbai-large"))

SPECIALIZED = panels(
    "specialized",
    "Purpose-built rerankers and training variants on Qwen3-Reranker-4B",
    "Seed 42, M = 10. The external systems get what `steadyscore audit --scorer system:...` shows them.",
    _quality_across(*_LISTWISE, *_MXBAI, *_RERANKER),
    _instability_across(*_LISTWISE, *_RERANKER),
)

TEACHERS = {"oc-sft": "Self-distilled", "oc-sft-by-qwen3-32b": "Qwen3-32B", "oc-sft-by-gpt-5.4": "GPT-5.4"}


def _sizes(bases: Iterable[str]) -> tuple[Line, ...]:
    """A line for each base, at its size."""
    return tuple(line(BASES[name].label, base=name, at=BASES[name].billions) for name in bases)


def _by_size(title: str, measure: str, axis: str) -> Block:
    return Block(
        title,
        _sizes(DENSE),
        FOUR,
        Fields(collections="reranking", measure=measure),
        corner="Base",
        draw=Drawing("points", "parameters, billions", axis),
    )


SIZE_FAMILY = panels(
    "sizefam",
    "Model size, family and teacher identity",
    "18 collections, seed 42. Gemma E2B and E4B at their effective sizes. The paper does not list the student sizes of (c).",
    _by_size("(a) nDCG@10 by model size", "ndcg@10", "nDCG@10"),
    _by_size("(b) τ-PSI by model size", "tau_psi", "τ-PSI"),
    Block(
        "(c) nDCG@10 by teacher",
        systems(TEACHERS),
        _sizes(("qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b")),
        Fields(collections="reranking", measure="ndcg@10"),
        corner="Teacher",
        draw=Drawing("lines", "student's parameters, billions", "nDCG@10"),
    ),
)

BOXES = panels(
    "taupsibox",
    "Per-variant τ-PSI spread across collections",
    "Seed 42, M = 10; a box holds the means of collections (and bases).",
    *(
        Block(
            title,
            FOUR,
            (line("Mean τ-PSI"), line("Lowest", statistic="minimum"), line("Highest", statistic="maximum")),
            Fields(collections="reranking", measure="tau_psi", base=base),
            corner="Variant",
            draw=Drawing("boxes", "τ-PSI", "variant"),
        )
        for title, base in (("(a) Qwen3-4B, 18 collections", "qwen3-4b"), ("(b) 11 dense bases, 198 cells", "dense"))
    ),
)

_EIGHT = ("qwen3-8b", "qwen3-14b", "qwen3-32b", "gemma-31b", "granite-8b", "granite-30b")
EIGHT = {"oc-sft": "Qwen3-4B", **{f"oc-sft-by-{name}": BASES[name].label for name in _EIGHT}, "oc-sft-by-gpt-5.4": "GPT-5.4"}
TEACHER_CLEAN = panels(
    "teacherclean",
    "Student quality correlates with label order-consistency across teachers",
    "Qwen3-4B students of eight teachers, seed 42. Silver-β and silver quality are those of the teacher's scores on held-out MS "
    "MARCO. The paper does not name its eight teachers; these are ours.",
    Block(
        "Teachers",
        systems(EIGHT),
        (
            line("Silver-β", measure="silver_beta", statistic="teacher_figure"),
            line("Student nDCG@10", measure="ndcg@10"),
            line("Silver nDCG@10", measure="ndcg@10", statistic="teacher_figure"),
        ),
        Fields(collections="reranking"),
        corner="Teacher",
        draw=Drawing("points", "silver-β of the teacher", "nDCG@10 of the student"),
    ),
    Block(
        "Correlations over teachers",
        (
            line("Silver-β and student nDCG@10", measure="silver_beta", second="student"),
            line("Silver quality and student nDCG@10", measure="ndcg@10", second="student"),
            line("Silver-β and silver quality", measure="silver_beta", second="ndcg@10"),
        ),
        (line("Correlation", form="signed"),),
        Fields(system="oc-sft", collections="reranking", statistic="teacher_correlation", rivals=tuple(EIGHT)),
    ),
)

FIVE = ("off-the-shelf", "single-order", "order-averaged", "oc-sft", "oc-sft-averaged")


def _grid(measure: str, *means: Line) -> tuple[Block, ...]:
    return tuple(
        Block(BASES[base].label, systems(FIVE), (*ACROSS, *means), Fields(base=base, measure=measure), corner="Variant")
        for base in TWELVE
    )


GRIDS_NDCG = panels(
    "grids-ndcg",
    "Per-collection nDCG@10 for every base and training variant",
    "Seed 42, in first-stage order; means over 16 public and all 18 collections.",
    *_grid("ndcg@10", PUBLIC_16, ALL_18),
)
GRIDS_TAU = panels(
    "grids-tau",
    "Per-collection τ-PSI for every base and training variant",
    "Seed 42, M = 10 random permutations.",
    *_grid("tau_psi", ALL_18),
)

REFERENCE = (PUBLIC_FULL, FIRST_STAGE_BY_COLLECTION, SPECIALIZED, SIZE_FAMILY, BOXES, TEACHER_CLEAN, GRIDS_NDCG, GRIDS_TAU)
