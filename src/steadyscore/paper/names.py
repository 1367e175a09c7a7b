"""What the paper's tables name: bases, collections, systems and readers, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..collection.catalogue import CATALOGUE
from ..training.objectives import ObjectiveName


@dataclass(frozen=True, slots=True)
class Base:
    """A model that is scored off the shelf and trained."""

    label: str
    address: str
    billions: float
    """Parameters, in billions; effective ones for Gemma E2B and E4B."""
    active_billions: float = 0
    """Of these, what computes a token, where a mixture of experts has more."""

    @property
    def active(self) -> float:
        return self.active_billions or self.billions


BASES: dict[str, Base] = {
    "qwen3-1.7b": Base("Qwen3-1.7B", "hf:Qwen/Qwen3-1.7B", 1.7),
    "qwen3-4b": Base("Qwen3-4B", "hf:Qwen/Qwen3-4B", 4),
    "qwen3-8b": Base("Qwen3-8B", "hf:Qwen/Qwen3-8B", 8),
    "qwen3-14b": Base("Qwen3-14B", "hf:Qwen/Qwen3-14B", 14),
    "qwen3-32b": Base("Qwen3-32B", "hf:Qwen/Qwen3-32B", 32),
    "gemma-e2b": Base("Gemma-E2B", "hf:google/gemma-4-E2B-it", 2),
    "gemma-e4b": Base("Gemma-E4B", "hf:google/gemma-4-E4B-it", 4),
    "gemma-31b": Base("Gemma-31B", "hf:google/gemma-4-31B-it", 31),
    "granite-3b": Base("Granite-3B", "hf:ibm-granite/granite-4.1-3b", 3),
    "granite-8b": Base("Granite-8B", "hf:ibm-granite/granite-4.1-8b", 8),
    "granite-30b": Base("Granite-30B", "hf:ibm-granite/granite-4.1-30b", 30),
    "gemma-26b-a4b": Base("Gemma-26B-A4B MoE", "hf:google/gemma-4-26B-A4B-it", 26, 4),
    "qwen3-reranker-4b": Base("Qwen3-Reranker-4B", "hf:Qwen/Qwen3-Reranker-4B", 4),
}
DENSE = tuple(BASES)[:11]
TWELVE = tuple(BASES)[:12]
BASE_GROUPS: dict[str, tuple[str, ...]] = {"dense": DENSE, "small": ("qwen3-1.7b", "qwen3-4b")}
"""Names of several bases at once: their cells are pooled."""


COLLECTIONS: dict[str, str] = {
    "dl19": "DL19",
    "dl20": "DL20",
    "dl21": "DL21",
    "dl22": "DL22",
    "dl23": "DL23",
    "touche2020": "Touche-2020",
    "fiqa": "FiQA",
    "nfcorpus": "NFCorpus",
    "arguana": "ArguAna",
    "climate-fever": "Climate-FEVER",
    "trec-covid": "TREC-COVID",
    "dbpedia": "DBPedia",
    "scifact": "SciFact",
    "signal1m": "Signal-1M",
    "trec-news": "TREC-NEWS",
    "robust04": "Robust04",
    "legal-a": "Legal-A",
    "legal-b": "Legal-B",
    "hotpotqa": "HotpotQA",
    "2wikimultihopqa": "2WikiMultiHopQA",
    "musique": "MuSiQue",
    "rewardbench2": "RewardBench-2",
    "nectar": "Nectar",
    "ppe-math": "PPE-MATH",
    "ppe-mmlu-pro": "PPE MMLU-Pro",
    "rm-bench": "RM-Bench",
    "msmarco.held-out": "MS MARCO, held out",
}
"""Name -> label. Legal-A and Legal-B are private: a user's own collections take their place."""
ALL = tuple(COLLECTIONS)
RERANKING, PUBLIC, QA, RESPONSES = ALL[:18], ALL[:16], ALL[18:21], ALL[21:26]
DEEP_LEARNING_V2 = ("dl21", "dl22", "dl23")
GROUPS: dict[str, tuple[str, ...]] = {
    "reranking": RERANKING,
    "public": PUBLIC,
    "qa": QA,
    "responses": RESPONSES,
    "binary-gold": tuple(name for name in RESPONSES if name != "nectar"),
    "without-arguana": tuple(name for name in RERANKING if name != "arguana"),
    "first-stages": tuple(name for name in PUBLIC if name not in DEEP_LEARNING_V2),
    "replaceable": tuple(name for name in RERANKING if name not in DEEP_LEARNING_V2),
    "decomposed": PUBLIC[:11],
    "matched": ("dl19", "dl20", "nfcorpus", "scifact"),
    "markers": ("dl19", "nfcorpus", "legal-a"),
    "floors": ("dl19", "fiqa", "climate-fever"),
}
"""Name -> collections that a cell averages over with equal weight. The paper names neither the eleven collections of its
variance decomposition nor the four of its residual: `decomposed` and `matched` are our choice."""


def collections_in(name: str) -> tuple[str, ...]:
    return GROUPS.get(name, (name,))


def bases_in(name: str) -> tuple[str, ...]:
    return BASE_GROUPS.get(name, (name,))


FIRST_STAGES = {"bge": "dense:BAAI/bge-base-en-v1.5", "splade": "splade:naver/splade-cocondenser-ensembledistil"}
"""How the other two first stages are spelt for `data get --first-stage`."""
TaskKind = Literal["passage_reranking", "multidoc_qa", "response_ranking"]


def task_of(collection: str) -> TaskKind:
    if collection in QA:
        return "multidoc_qa"
    return "response_ranking" if collection in RESPONSES else "passage_reranking"


TRAINING_DATA: dict[TaskKind, str] = {
    "passage_reranking": "msmarco",
    "multidoc_qa": "hotpotqa-train",
    "response_ranking": "ultrafeedback",
}
PRIVATE = tuple(name for name in ALL if name.partition(".")[0] not in CATALOGUE)


@dataclass(frozen=True, slots=True)
class Training:
    """How a student is made; what is left out is the recipe of its task."""

    objective: ObjectiveName
    teacher_orders: int = 1
    """T, orders averaged into a label."""
    labelled_orders: int | None = None
    """Orders that the teacher scores, where more than T are stored."""
    label_width: int | None = None
    """Width at which the teacher scores; None: the task's."""
    width: int | None = None
    """Width at which the student trains; None: the task's."""
    views: int = 2
    teacher: str | None = None
    """A base, or a trained system; None: the student's own base."""
    recalibrated: bool = False
    """Pointwise labels that carry the batched teacher's values in their own rank order."""
    queries: int | None = None
    dropout: float | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class System:
    """A row of the tables: a base as it is, a student, or a system of somebody else."""

    label: str
    training: Training | None = None
    address: str | None = None
    """Of a system that has no base of ours; empty: the user names it."""
    billions: float = 0
    """Its parameters, in billions; 0: hosted."""

    @property
    def is_external(self) -> bool:
        return self.address is not None


_TEACHERS = {name: base.label for name, base in BASES.items()} | {"gpt-5.4": "GPT-5.4"}
SINGLE, AVERAGED, OC = Training("single_order"), Training("order_averaged", 10), Training("oc_sft")

SYSTEMS: dict[str, System] = {
    "off-the-shelf": System("Off the shelf"),
    "single-order": System("Single-order", SINGLE),
    "order-averaged": System("Order-avg.", AVERAGED),
    "order-averaged-t2": System("Order-avg. T=2", Training("order_averaged", 2, 10)),
    "order-averaged-t3": System("Order-avg. T=3", Training("order_averaged", 3, 10)),
    "order-averaged-t5": System("Order-avg. T=5", Training("order_averaged", 5, 10)),
    "order-averaged-t5-of-40": System("Order-avg. T=5", Training("order_averaged", 5, 40)),
    "order-averaged-t40": System("Order-avg. T=40", Training("order_averaged", 40)),
    "permutation-augmentation": System("Perm. aug.", Training("permutation_augmentation")),
    "debias-first": System("DebiasFirst", Training("debias_first")),
    "oc-sft": System("OC-SFT", OC),
    "oc-sft-averaged": System("OC-SFT (avg. labels)", Training("oc_sft", 10)),
    "oc-sft-n3": System("OC-SFT, N=3", Training("oc_sft", views=3)),
    "oc-sft-n4": System("OC-SFT, N=4", Training("oc_sft", views=4)),
    "oc-sft-n8": System("OC-SFT, N=8", Training("oc_sft", views=8)),
    "ema": System("EMA mean-teacher", Training("mean_teacher", weight=0.5)),
    "kl": System("KL-to-base", Training("kl_to_base", weight=0.05)),
    "dropout": System("LoRA dropout 0.20", Training("dropout", dropout=0.2)),
    "marker-sft": System("Marker-varied SFT", Training("marker_consistency", weight=0)),
    "marker-consistency": System("Marker consistency", Training("marker_consistency")),
    "pointwise": System("Pointwise labels, B=1", Training("single_order", label_width=1, width=1)),
    "batched-labels-b1": System("Batched labels, B=1", Training("single_order", width=1)),
    "pointwise-labels": System("Pointwise labels", Training("single_order", label_width=1)),
    "recalibrated": System("Rank-quantile labels, B=1", Training("single_order", label_width=1, width=1, recalibrated=True)),
    "ten-order-b1": System("Ten-order labels, B=1", Training("order_averaged", 10, width=1)),
    "redistilled-1": System("Re-distilled, round 1", Training("oc_sft", teacher="oc-sft")),
    "redistilled-2": System("Re-distilled, round 2", Training("oc_sft", teacher="redistilled-1")),
    **{
        f"{name}-{queries}": System(f"{label}, {queries:,} queries", replace(training, queries=queries))
        for name, label, training in (
            ("single-order", "Single-order", SINGLE),
            ("order-averaged", "Order-avg.", AVERAGED),
            ("oc-sft", "OC-SFT", OC),
        )
        for queries in (300, 1_000, 3_000, 10_000)
    },
    **{
        f"oc-sft-by-{name}": System(f"OC-SFT, taught by {_TEACHERS[name]}", Training("oc_sft", teacher=name))
        for name in ("qwen3-32b", "gpt-5.4", "qwen3-8b", "qwen3-14b", "gemma-31b", "granite-8b", "granite-30b")
    },
    "jina-b20": System("jina-reranker-v3 (B=20)", address="system:jina-reranker-v3-b20", billions=0.6),
    "jina": System("jina-reranker-v3", address="system:jina-reranker-v3", billions=0.6),
    "rank-zephyr": System("RankZephyr-7B", address="system:rank-zephyr-7b", billions=7),
    "mxbai-base": System("mxbai-base-v2", address="system:mxbai-rerank-base-v2", billions=0.5),
    "mxbai-large": System("mxbai-large-v2", address="system:mxbai-rerank-large-v2", billions=1.5),
    "skywork": System("Skywork", address="system:skywork-reward-v2-qwen3-4b", billions=4),
    "pairrm": System("PairRM", address="system:pairrm", billions=0.4),
    "gpt-5.4": System("GPT-5.4", address=""),
}

READERS: dict[str, Base] = {"first": BASES["granite-8b"], "second": BASES["qwen3-4b"]}
"""Frozen readers by the order in which the paper names them."""
SEEDS = (42, 43, 44)
