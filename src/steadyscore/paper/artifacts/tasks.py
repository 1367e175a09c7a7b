"""Other tasks, and what consumers decide: Tables 16 to 25."""

from __future__ import annotations

from collections.abc import Iterator

from ...collection.catalogue import CATALOGUE
from ...studies.width import Condition
from ..names import COLLECTIONS, QA, RERANKING, RESPONSES, SEEDS, TWELVE
from ..recipe import Block, Fields, Line, Term, line, minus, minus_cell, panels
from .common import SIX, bases, collections, estimate, measures, systems, table

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
WIDTH = table(
    "width",
    "Serving-width effects differ by task and collection",
    "OC-SFT on Qwen3-4B, seeds 42 to 44; order-averaged: the mean score of ten permutations at the training width.",
    (
        line("Reranking: 18 collections (B=20)", collections="reranking", measure="ndcg@10"),
        line("Multi-doc QA (B=10), 3 collections", collections="qa", measure="ndcg@10"),
        *(
            line(f"{COLLECTIONS[name]} ({CATALOGUE[name].pool} candidates)", _RANKED, collections=name, measure="ndcg@1")
            for name in RESPONSES
        ),
    ),
    (line("B=1", group="Level", width=1), line("Training width", group="Level"), *EFFECTS),
    Fields(system="oc-sft", seeds=SEEDS),
    corner="Task",
)

_READ = {"EM": "answer_em", "F1": "answer_f1"}
QA_TRANSFER = table(
    "qa-transfer-reader",
    "Support ranking transfers zero-shot; reader accuracy depends on context",
    "Qwen3-4B, seed 42, M = 10; the first reader reads the first five passages under every permutation.",
    collections(QA),
    (
        *measures({"nDCG@10": "mean_ndcg@10", "τ-PSI": "tau_psi"}, "OC-SFT support", system="oc-sft"),
        *measures(_READ, "Reader: OC-SFT", system="oc-sft", reader="first"),
        *measures(_READ, "Reader: pointwise", system="pointwise", reader="first"),
        *measures(_READ, "Reader: ten-order labels", system="ten-order-b1", reader="first"),
    ),
    corner="Collection",
)

QA_WIDTH = panels(
    "qa-width",
    "QA width effects are positive and come from real companion passages",
    "OC-SFT on Qwen3-4B, three training seeds, each served at both widths. (b) the first-stage order; fillers are texts of "
    "other questions, the nearest in length, one for each candidate of a pool.",
    Block(
        "(a) Mean width effect by collection",
        collections(QA),
        (line("One permutation", terms=ONE_PERMUTATION), line("Order-averaged", terms=ORDER_AVERAGED)),
        Fields(system="oc-sft", measure="ndcg@10", seeds=SEEDS, form="signed", digits=4),
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
        Fields(system="oc-sft", collections="qa", measure="ndcg@10", seeds=SEEDS),
        corner="Three-collection component",
    ),
    Block(
        "Order-averaged three-collection mean by calls of the engine at B=1",
        (line("One call", terms=ORDER_AVERAGED), line("Ten calls, batched independently", terms=MATCHED)),
        (line("Mean", form="signed", digits=4),),
        Fields(system="oc-sft", collections="qa", measure="ndcg@10", seeds=SEEDS),
        corner="B=1 estimator",
    ),
)

BEST_OF = ("rewardbench2", "ppe-math", "ppe-mmlu-pro", "rm-bench")
RR_CONTROLS = panels(
    "rr-controls",
    "Response-ranking width and design effects vary by collection and model family",
    "(a) three seeds; (b, c) seed 42; intervals of (c) resample prompts.",
    Block(
        "(a) Mean fixed-weight width effects",
        collections(RESPONSES),
        (
            line("One-permutation effect", form="signed", terms=ONE_PERMUTATION),
            line("Order-averaged effect", form="signed", terms=ORDER_AVERAGED),
            line("Pool size"),
        ),
        Fields(system="oc-sft", measure="ndcg@1", seeds=SEEDS),
        corner="Collection",
        special={(row, 2): Fields(text=str(CATALOGUE[name].pool)) for row, name in enumerate(RESPONSES)},
    ),
    Block(
        "(b) Label construction and serving geometry, Qwen3-4B",
        collections(BEST_OF),
        systems({"ten-order-b1": "Ten-order labels (B=1)", "pointwise": "Pointwise labels (B=1)", "oc-sft": "OC-SFT (B=4)"}),
        Fields(measure="ndcg@1"),
        corner="Collection",
    ),
    Block(
        "(c) Family replication, Gemma-E4B",
        collections(BEST_OF[1:]),
        estimate("OC-SFT (B=4) minus pointwise (B=1)"),
        Fields(system="oc-sft", base="gemma-e4b", measure="ndcg@1", terms=minus(system="pointwise"), scheme="queries", digits=4),
        corner="Collection",
    ),
)

PAIRRM = table(
    "pairrm",
    "PairRM and Skywork against matched Qwen3-4B controls",
    "Seed 42; queries that both sides have; 20,000 resamples of queries.",
    collections(("nectar", *BEST_OF)),
    (
        line("n", system="pairrm", statistic="count", form="count"),
        *systems({"pointwise": "Pointwise", "pairrm": "PairRM", "skywork": "Skywork", "oc-sft": "OC-SFT"}, "nDCG@1"),
        *estimate(group="PairRM − pointwise", system="pairrm", terms=minus(system="pointwise")),
        *estimate(group="OC-SFT − PairRM", system="pairrm", terms=minus_cell(system="oc-sft")),
    ),
    Fields(measure="ndcg@1", scheme="queries", digits=4),
    corner="Collection",
)

TASK_TRANSFER = (WIDTH, QA_TRANSFER, QA_WIDTH, RR_CONTROLS, PAIRRM)

GAIN = Fields(terms=minus(system="single-order"))
REDUCTION = Fields(system="single-order", terms=minus(system="oc-sft"))
"""Of a flip: single-order minus OC-SFT, so that positive favours OC-SFT."""

PER_BASE = table(
    "jaccard-perbase",
    "Retained-set overlap gain of OC-SFT over single-order distillation by base",
    "18 collections at a frozen per-collection F1 threshold, seed 42; intervals resample collections.",
    bases(TWELVE),
    (*estimate("Gain"), line("Improving", statistic="wins", form="of")),
    Fields(system="oc-sft", collections="reranking", measure="overlap", scheme="collections") | GAIN,
    corner="Base",
)

FIVE = ("oc-sft", "order-averaged", "permutation-augmentation", "debias-first", "single-order")
SEVEN = (*systems(("gpt-5.4",)), *systems(FIVE, is_rival=True, seeds=SEEDS), *systems({"jina-b20": "jina-v3"}))
NAMES = tuple(variant.fields["system"] for variant in SEVEN)
WINNERS = Fields(statistic="discordant", rivals=NAMES, seeds=SEEDS, form="of")
PER_COLLECTION = panels(
    "jaccard-percollection",
    "Retained-set overlap by collection for seven systems",
    "Three-seed means for trained rows, at the frozen per-collection F1 thresholds; the winners are theirs, disagreement "
    "is at seed 42.",
    Block(
        "Overlap",
        (*collections(RERANKING), line("Mean overlap", collections="reranking")),
        SEVEN,
        Fields(measure="overlap"),
        corner="Collection",
    ),
    Block(
        "Summary measures, 18-collection means",
        measures(
            {"nDCG@10": "ndcg@10", "Retained-set F1": "retained_f1", "Retained-set F1 spread": "f1_spread", "τ-PSI": "tau_psi"}
        ),
        SEVEN,
        Fields(collections="reranking"),
        corner="Measure",
        special={(3, 0): Fields(text="---")},
        bold="every_seed",
    ),
    Block(
        "Do measures choose the same system?",
        (
            line("Quality and overlap winners differ, seven systems", measure="ndcg@10", **WINNERS),
            line("Median disagreement of τ-PSI with overlap, six systems", measure="tau_psi"),
            line("Median disagreement of nDCG@10 with overlap, six systems", measure="ndcg@10"),
        ),
        (line("Value"),),
        Fields(system="oc-sft", collections="reranking", statistic="disagreement", second="overlap", rivals=NAMES[1:]),
    ),
    Block(
        "Where the loss is",
        measures(
            {
                "Relevance density of churned documents": "churned_relevance",
                "Relevance density of documents kept by both": "kept_relevance",
            }
        ),
        (line("OC-SFT", system="oc-sft"),),
        Fields(collections="reranking"),
    ),
)


def _flips(measure: str, reader: str, collections: dict[str, str]) -> Iterator[Line]:
    """Flip reductions by one reader, each with what it is called."""
    before = "Single-order → OC-SFT, " + "second reader, " * (reader == "second")
    for name, label in collections.items():
        yield line(before + label, collections=name, measure=measure, reader=reader, **REDUCTION)


ANSWERS = {"hotpotqa": "HotpotQA answer", "2wikimultihopqa": "2Wiki answer", "musique": "MuSiQue answer"}
COUNTED = (line("n", statistic="count", form="count"), *estimate())
CLIMATE = Fields(collections="climate-fever", scheme="queries")
EMA = Fields(system="ema", terms=minus(system="permutation-augmentation"))
DOWNSTREAM = panels(
    "downstream",
    "Verdict- and answer-flip reductions and controls at 4B",
    "Qwen3-4B; positive estimates favour the variant after the arrow. (a) three seeds; (b) seed 42, queries resampled; (c) "
    "queries whose first five are the same under every permutation for both; (d) collections, then queries resampled.",
    Block(
        "(a) Repeated-fit flip and accuracy estimates",
        (
            *_flips("verdict_flip", "first", {"climate-fever": "Climate-FEVER", "scifact": "SciFact"}),
            *_flips("verdict_flip", "second", {"climate-fever": "Climate-FEVER"}),
            line("Perm. aug. → EMA, QA exact match", collections="qa", measure="answer_em", reader="first", **EMA),
        ),
        (line("Estimate", form="signed"), line("SD", form="sd")),
        Fields(seeds=SEEDS, digits=4),
        corner="Contrast, collection / output",
    ),
    Block(
        "(b) Flip reductions with query-paired intervals",
        (
            *_flips("verdict_flip", "second", {"scifact": "SciFact"}),
            *_flips("answer_flip", "first", ANSWERS),
            *_flips("answer_flip", "second", ANSWERS),
        ),
        COUNTED,
        Fields(scheme="queries", digits=4),
        corner="Contrast, collection / output",
    ),
    Block(
        "(c) Same-evidence point controls",
        (
            line("Single-order → OC-SFT, same top 5, Climate-FEVER verdict", collections="climate-fever"),
            line("Single-order → OC-SFT, same top 5, QA answer", collections="qa"),
        ),
        (
            line("Matched-query share", second="share", form="percent", digits=1),
            line("Estimate", second="reduction", form="signed"),
        ),
        Fields(system="oc-sft", rivals=("single-order",), statistic="same_evidence", reader="first"),
        corner="Contrast, collection / output",
    ),
    Block(
        "(d) Reader accuracy",
        (
            line("Single-order → OC-SFT, Climate-FEVER verdict", measure="verdict_accuracy", **CLIMATE),
            line("Single-order → OC-SFT, QA exact match", measure="answer_em"),
            line("Single-order → OC-SFT, QA F1", measure="answer_f1"),
        ),
        COUNTED,
        Fields(system="oc-sft", collections="qa", reader="first", digits=4) | GAIN,
        corner="Contrast, collection / output",
    ),
)

PAIR_FLIP = table(
    "rr-pairflip",
    "Preference-pair flip on response ranking",
    "Qwen3-4B, seed 42, M = 10.",
    collections(RESPONSES),
    systems(SIX, is_rival=True),
    Fields(measure="pair_flip"),
    corner="Collection",
    bold="best",
)

GAP = Fields(measure="mean_ndcg@1", terms=minus(system="skywork"))
REPORTED_SCORE = table(
    "reportedscore",
    "Permutation spread exceeds the mean system gap on two collections",
    "OC-SFT on Qwen3-4B, seed 42, minus pointwise Skywork, on the prompts that both have; intervals resample prompts. Reversals: "
    "permutations whose leader is not that of their mean (the paper's text reports none).",
    collections(RESPONSES),
    (
        line("n", statistic="count", form="count", **GAP),
        line("Perm. SD", measure="benchmark_sd@1", scheme="collections", digits=4),
        line("Range", measure="benchmark_range@1", scheme="collections", digits=4),
        *estimate("Gap", **GAP),
        line("Reversals", statistic="leader_reversals", measure="ndcg@1", rivals=("skywork",), form="of"),
    ),
    Fields(system="oc-sft", scheme="queries"),
    corner="Collection",
)

CONSUMERS = (PER_BASE, PER_COLLECTION, DOWNSTREAM, PAIR_FLIP, REPORTED_SCORE)
