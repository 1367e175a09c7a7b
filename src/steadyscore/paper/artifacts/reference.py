"""Per-collection and cross-base results: Figures 9 to 11, Tables 32 to 36."""

from __future__ import annotations

from ..names import BASES, DENSE, RERANKING, TWELVE
from ..recipe import Artifact, Block, Fields, Line, joined, line
from .common import FOUR, collection_line, collection_lines, measure_line, system_line, variants_by_measure

SHORT = {
    "touche2020": "Touche", "climate-fever": "Climate", "trec-covid": "T-COVID", "signal1m": "Signal1M", "trec-news": "T-NEWS",
}  # fmt: skip
ACROSS = tuple(collection_line(name, SHORT.get(name, "")) for name in RERANKING)
PUBLIC_16, ALL_18 = line("Public 16", collections="public"), line("All 18", collections="reranking")

_STUDENTS = tuple(
    system_line(name, is_rival=True)
    for name in ("single-order", "order-averaged", "permutation-augmentation", "debias-first", "oc-sft")
)
_CAPCAL = system_line("off-the-shelf", "CapCal", mitigation="capcal")
PUBLIC_FULL = Artifact(
    "public-full",
    "tab:public-full",
    "Table 32",
    "Full per-collection reranking results for the Qwen3-4B student and its baselines",
    (
        Block(
            "nDCG@10, higher is better",
            (
                line("BM25 retrieval", system="off-the-shelf", measure="first_stage_ndcg@10"),
                system_line("gpt-5.4"),
                system_line("off-the-shelf"),
                _CAPCAL,
                *_STUDENTS,
            ),
            (PUBLIC_16, *ACROSS),
            Fields(measure="ndcg@10", digits=2),
            corner="Method",
        ),
        Block(
            "τ-PSI, lower is better",
            (system_line("off-the-shelf"), _CAPCAL, *_STUDENTS),
            (PUBLIC_16, *ACROSS),
            Fields(measure="tau_psi", digits=2),
            corner="Method",
            bold="best",
        ),
    ),
    "Seed 42, M = 10. BM25 is the order of the pool itself; its τ-PSI is zero by construction.",
)

_STAGED = tuple(
    Line(
        column.label,
        joined(column.fields, Fields(first_stage=stage)),
        f"{label}: {column.group}",
    )
    for stage, label in (("bge", "BGE"), ("splade", "SPLADE++ ED"))
    for column in variants_by_measure(FOUR)
)
_THIRTEEN = (
    "dl19", "dl20", "touche2020", "fiqa", "nfcorpus", "arguana", "climate-fever", "dbpedia", "scifact", "signal1m", "trec-covid",
    "trec-news", "robust04",
)  # fmt: skip
FIRST_STAGE_BY_COLLECTION = Artifact(
    "firststage-perdataset",
    "tab:firststage-perdataset",
    "Table 33",
    "Per-collection results under dense and learned-sparse first stages",
    (
        Block(
            "",
            (*collection_lines(_THIRTEEN), line("Mean (13)", collections="first-stages")),
            _STAGED,
            corner="Collection",
        ),
    ),
    "Qwen3-4B, seed 42; students trained on BM25 candidates.",
)

_RERANKER = Fields(base="qwen3-reranker-4b")


_QWEN3_RERANKER = tuple(
    system_line(name, f"Qwen3-Reranker-4B: {label}", **_RERANKER)
    for name, label in (("off-the-shelf", "Off the shelf"), ("order-averaged", "Order-avg."), ("oc-sft", "OC-SFT"))
)

SPECIALIZED = Artifact(
    "specialized",
    "tab:specialized",
    "Table 34",
    "Purpose-built rerankers and training variants on Qwen3-Reranker-4B",
    (
        Block(
            "nDCG@10, higher is better",
            (*(system_line(name) for name in ("rank-zephyr", "jina", "jina-b20", "mxbai-base", "mxbai-large")), *_QWEN3_RERANKER),
            (PUBLIC_16, *ACROSS),
            Fields(measure="ndcg@10", digits=2),
            corner="Method",
        ),
        Block(
            "τ-PSI, lower is better",
            (*(system_line(name) for name in ("rank-zephyr", "jina", "jina-b20")), *_QWEN3_RERANKER),
            (PUBLIC_16, *ACROSS),
            Fields(measure="tau_psi", digits=2),
            corner="Method",
        ),
    ),
    "Seed 42, M = 10. The external systems get what `steadyscore audit --scorer system:...` shows them.",
)

TEACHERS = ("oc-sft", "oc-sft-by-qwen3-32b", "oc-sft-by-gpt-5.4")
STUDENT_SIZES = ("qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b")


def _by_size(title: str, measure: str, axis: str) -> Block:
    return Block(
        title,
        tuple(line(BASES[name].label, base=name, at=BASES[name].billions) for name in DENSE),
        FOUR,
        Fields(collections="reranking", measure=measure),
        corner="Base",
        draw="points",
        axes=("parameters, billions", axis),
    )


SIZE_FAMILY = Artifact(
    "sizefam",
    "fig:sizefam",
    "Figure 9",
    "Model size, family and teacher identity",
    (
        _by_size("(a) nDCG@10 by model size", "ndcg@10", "nDCG@10"),
        _by_size("(b) τ-PSI by model size", "tau_psi", "τ-PSI"),
        Block(
            "(c) nDCG@10 by teacher",
            tuple(
                system_line(name, label) for name, label in zip(TEACHERS, ("Self-distilled", "Qwen3-32B", "GPT-5.4"), strict=True)
            ),
            tuple(line(BASES[name].label, base=name, at=BASES[name].billions) for name in STUDENT_SIZES),
            Fields(collections="reranking", measure="ndcg@10"),
            corner="Teacher",
            draw="lines",
            axes=("student's parameters, billions", "nDCG@10"),
        ),
    ),
    "18 collections, seed 42. Gemma E2B and E4B at their effective sizes. The paper does not list the student sizes of (c).",
)

BOXES = Artifact(
    "taupsibox",
    "fig:taupsibox",
    "Figure 10",
    "Per-variant τ-PSI spread across collections",
    tuple(
        Block(
            title,
            FOUR,
            (line("Mean τ-PSI"), line("Lowest", statistic="minimum"), line("Highest", statistic="maximum")),
            Fields(collections="reranking", measure="tau_psi", base=base),
            corner="Variant",
            draw="boxes",
            axes=("τ-PSI", "variant"),
        )
        for title, base in (("(a) Qwen3-4B, 18 collections", "qwen3-4b"), ("(b) 11 dense bases, 198 cells", "dense"))
    ),
    "Seed 42, M = 10; a box holds the means of collections (and bases).",
)

EIGHT = (
    ("oc-sft", "Qwen3-4B"),
    ("oc-sft-by-qwen3-8b", "Qwen3-8B"),
    ("oc-sft-by-qwen3-14b", "Qwen3-14B"),
    ("oc-sft-by-qwen3-32b", "Qwen3-32B"),
    ("oc-sft-by-gemma-31b", "Gemma-31B"),
    ("oc-sft-by-granite-8b", "Granite-8B"),
    ("oc-sft-by-granite-30b", "Granite-30B"),
    ("oc-sft-by-gpt-5.4", "GPT-5.4"),
)
_RIVALS = tuple(name for name, _ in EIGHT)
TEACHER_CLEAN = Artifact(
    "teacherclean",
    "fig:teacherclean",
    "Figure 11",
    "Student quality correlates with label order-consistency across teachers",
    (
        Block(
            "Teachers",
            tuple(system_line(name, label) for name, label in EIGHT),
            (
                line("Silver-β", measure="silver_beta", statistic="teacher_figure"),
                measure_line("Student nDCG@10", "ndcg@10"),
                line("Silver nDCG@10", measure="ndcg@10", statistic="teacher_figure"),
            ),
            Fields(collections="reranking"),
            corner="Teacher",
            draw="points",
            axes=("silver-β of the teacher", "nDCG@10 of the student"),
        ),
        Block(
            "Correlations over teachers",
            (
                line("Silver-β and student nDCG@10", measure="silver_beta", second="student"),
                line("Silver quality and student nDCG@10", measure="ndcg@10", second="student"),
                line("Silver-β and silver quality", measure="silver_beta", second="ndcg@10"),
            ),
            (line("Correlation", form="signed"),),
            Fields(system="oc-sft", collections="reranking", statistic="teacher_correlation", rivals=_RIVALS),
        ),
    ),
    "Qwen3-4B students of eight teachers, seed 42. Silver-β and silver quality are those of the teacher's scores on held-out MS "
    "MARCO. The paper does not name its eight teachers; these are ours.",
)

FIVE = ("off-the-shelf", "single-order", "order-averaged", "oc-sft", "oc-sft-averaged")


def _grid(measure: str, *means: Line) -> tuple[Block, ...]:
    return tuple(
        Block(
            BASES[base].label,
            tuple(system_line(name) for name in FIVE),
            (*ACROSS, *means),
            Fields(base=base, measure=measure),
            corner="Variant",
        )
        for base in TWELVE
    )


GRIDS_NDCG = Artifact(
    "grids-ndcg",
    "tab:grids-ndcg",
    "Table 35",
    "Per-collection nDCG@10 for every base and training variant",
    _grid("ndcg@10", PUBLIC_16, ALL_18),
    "Seed 42, in first-stage order; means over 16 public and all 18 collections.",
)
GRIDS_TAU = Artifact(
    "grids-tau",
    "tab:grids-tau",
    "Table 36",
    "Per-collection τ-PSI for every base and training variant",
    _grid("tau_psi", ALL_18),
    "Seed 42, M = 10 random permutations.",
)

REFERENCE = (PUBLIC_FULL, FIRST_STAGE_BY_COLLECTION, SPECIALIZED, SIZE_FAMILY, BOXES, TEACHER_CLEAN, GRIDS_NDCG, GRIDS_TAU)
