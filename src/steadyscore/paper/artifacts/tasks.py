"""Transfer to multi-document QA and response ranking: Tables 16 to 20."""

from __future__ import annotations

from ...collection.catalogue import CATALOGUE
from ...studies.width import Condition
from ..names import COLLECTIONS, QA, RESPONSES
from ..recipe import Artifact, Block, Fields, Line, Term, line, minus, minus_cell
from .common import ALL_SEEDS, collection_lines, system_line

ONE_PERMUTATION = minus(width=1)
ORDER_AVERAGED = (Term(1, {"serving": 10}), Term(-1, {"width": 1}))
MATCHED = (Term(1, {"serving": 10}), Term(-1, {"width": 1, "is_reread": True}))
"""Ten permutations against ten reads of width 1: the same number of passes on both sides."""
EFFECTS = (
    line("One permutation", group="Width effect", form="signed", terms=ONE_PERMUTATION),
    line("Order-averaged", group="Width effect", form="signed", terms=ORDER_AVERAGED),
)


def between(condition: Condition, other: Condition, serving: int = 1) -> tuple[Term, ...]:
    """What changes from one condition to another, alone being width 1; averaged over `serving` permutations where served so."""

    def how(one: Condition) -> dict[str, object]:
        return {"width": 1} if one == "alone" else {"condition": one, "serving": serving}

    return (Term(1, how(condition)), Term(-1, how(other)))


CONTENT: tuple[Condition, Condition] = ("companions", "fillers")
LENGTH: tuple[Condition, Condition] = ("fillers", "skeleton")
SKELETON: tuple[Condition, Condition] = ("skeleton", "alone")

_RANKED = "Response ranking (B=4), 5 collections"
WIDTH = Artifact(
    "width",
    "tab:width",
    "Table 16",
    "Serving-width effects differ by task and collection",
    (
        Block(
            "",
            (
                line("Reranking: 18 collections (B=20)", collections="reranking", measure="ndcg@10"),
                line("Multi-doc QA (B=10), 3 collections", collections="qa", measure="ndcg@10"),
                *(
                    line(
                        f"{COLLECTIONS[name]} ({CATALOGUE[name].pool} candidates)",
                        group=_RANKED,
                        collections=name,
                        measure="ndcg@1",
                    )
                    for name in RESPONSES
                ),
            ),
            (line("B=1", group="Level", width=1), line("Training width", group="Level"), *EFFECTS),
            Fields(system="oc-sft", seeds=ALL_SEEDS),
            corner="Task",
        ),
    ),
    "OC-SFT on Qwen3-4B, seeds 42 to 44; order-averaged: the mean score of ten permutations at the training width.",
)


def _read(label: str, system: str) -> tuple[Line, ...]:
    return tuple(
        line(name, group=label, system=system, measure=measure, reader="first")
        for name, measure in (("EM", "answer_em"), ("F1", "answer_f1"))
    )


QA_TRANSFER = Artifact(
    "qa-transfer-reader",
    "tab:qa-transfer-reader",
    "Table 17",
    "Support ranking transfers zero-shot; reader accuracy depends on context",
    (
        Block(
            "",
            collection_lines(QA),
            (
                line("nDCG@10", group="OC-SFT support", system="oc-sft", measure="mean_ndcg@10"),
                line("τ-PSI", group="OC-SFT support", system="oc-sft", measure="tau_psi"),
                *_read("Reader: OC-SFT", "oc-sft"),
                *_read("Reader: pointwise", "pointwise"),
                *_read("Reader: ten-order labels", "ten-order-b1"),
            ),
            corner="Collection",
        ),
    ),
    "Qwen3-4B, seed 42, M = 10; the first reader reads the first five passages under every permutation.",
)

QA_WIDTH = Artifact(
    "qa-width",
    "tab:qa-width",
    "Table 18",
    "QA width effects are positive and come from real companion passages",
    (
        Block(
            "(a) Mean width effect by collection",
            collection_lines(QA),
            (
                line("One permutation", form="signed", terms=ONE_PERMUTATION),
                line("Order-averaged", form="signed", terms=ORDER_AVERAGED),
            ),
            Fields(system="oc-sft", measure="ndcg@10", seeds=ALL_SEEDS, digits=4),
            corner="Collection",
        ),
        Block(
            "(b) Three-collection one-permutation width decomposition",
            (
                line("Observed width effect", terms=ONE_PERMUTATION),
                line("Informative alternatives", terms=between(*CONTENT)),
                line("Prompt length and target position", terms=between(*LENGTH)),
                line("Answer skeleton", terms=between(*SKELETON)),
            ),
            (line("Mean", form="signed", digits=4),),
            Fields(system="oc-sft", collections="qa", measure="ndcg@10", seeds=ALL_SEEDS),
            corner="Three-collection component",
        ),
        Block(
            "Order-averaged three-collection mean by calls of the engine at B=1",
            (line("One call", terms=ORDER_AVERAGED), line("Ten calls, batched independently", terms=MATCHED)),
            (line("Mean", form="signed", digits=4),),
            Fields(system="oc-sft", collections="qa", measure="ndcg@10", seeds=ALL_SEEDS),
            corner="B=1 estimator",
        ),
    ),
    "OC-SFT on Qwen3-4B, three training seeds, each served at both widths. (b) the first-stage order; fillers are texts of "
    "other questions, the nearest in length, one for each candidate of a pool.",
)

BEST_OF = ("rewardbench2", "ppe-math", "ppe-mmlu-pro", "rm-bench")
RR_CONTROLS = Artifact(
    "rr-controls",
    "tab:rr-controls",
    "Table 19",
    "Response-ranking width and design effects vary by collection and model family",
    (
        Block(
            "(a) Mean fixed-weight width effects",
            collection_lines(RESPONSES),
            (
                line("One-permutation effect", form="signed", terms=ONE_PERMUTATION),
                line("Order-averaged effect", form="signed", terms=ORDER_AVERAGED),
                line("Pool size"),
            ),
            Fields(system="oc-sft", measure="ndcg@1", seeds=ALL_SEEDS),
            corner="Collection",
            special={(row, 2): Fields(text=str(CATALOGUE[name].pool)) for row, name in enumerate(RESPONSES)},
        ),
        Block(
            "(b) Label construction and serving geometry, Qwen3-4B",
            collection_lines(BEST_OF),
            (
                system_line("ten-order-b1", "Ten-order labels (B=1)"),
                system_line("pointwise", "Pointwise labels (B=1)"),
                system_line("oc-sft", "OC-SFT (B=4)"),
            ),
            Fields(measure="ndcg@1"),
            corner="Collection",
        ),
        Block(
            "(c) Family replication, Gemma-E4B",
            collection_lines(BEST_OF[1:]),
            (line("OC-SFT (B=4) minus pointwise (B=1)", form="signed"), line("95% CI", form="interval")),
            Fields(
                system="oc-sft", base="gemma-e4b", measure="ndcg@1", terms=minus(system="pointwise"), scheme="queries", digits=4
            ),
            corner="Collection",
        ),
    ),
    "(a) three seeds; (b, c) seed 42; intervals of (c) resample prompts.",
)

_PAIRRM = ("nectar", "rewardbench2", "ppe-math", "ppe-mmlu-pro", "rm-bench")
PAIRRM = Artifact(
    "pairrm",
    "tab:pairrm",
    "Table 20",
    "PairRM and Skywork against matched Qwen3-4B controls",
    (
        Block(
            "",
            collection_lines(_PAIRRM),
            (
                line("n", system="pairrm", statistic="count", form="count"),
                *(
                    system_line(name, label, group="nDCG@1")
                    for name, label in (
                        ("pointwise", "Pointwise"),
                        ("pairrm", "PairRM"),
                        ("skywork", "Skywork"),
                        ("oc-sft", "OC-SFT"),
                    )
                ),
                line("Estimate", group="PairRM − pointwise", system="pairrm", terms=minus(system="pointwise"), form="signed"),
                line("95% CI", group="PairRM − pointwise", system="pairrm", terms=minus(system="pointwise"), form="interval"),
                line("Estimate", group="OC-SFT − PairRM", system="pairrm", terms=minus_cell(system="oc-sft"), form="signed"),
                line("95% CI", group="OC-SFT − PairRM", system="pairrm", terms=minus_cell(system="oc-sft"), form="interval"),
            ),
            Fields(measure="ndcg@1", scheme="queries", digits=4),
            corner="Collection",
        ),
    ),
    "Seed 42; queries that both sides have; 20,000 resamples of queries.",
)

TASK_TRANSFER = (WIDTH, QA_TRANSFER, QA_WIDTH, RR_CONTROLS, PAIRRM)
