"""Consumer outputs and reported scores: Tables 21 to 25."""

from __future__ import annotations

from ..names import BASES, RERANKING, RESPONSES, TWELVE
from ..recipe import Artifact, Block, Fields, Line, joined, line, minus
from .common import ALL_SEEDS, SIX, collection_lines, measure_line, system_line

PER_BASE = Artifact(
    "jaccard-perbase",
    "tab:jaccard-perbase",
    "Table 21",
    "Retained-set overlap gain of OC-SFT over single-order distillation by base",
    (
        Block(
            "",
            tuple(line(BASES[name].label, base=name) for name in TWELVE),
            (line("Gain", form="signed"), line("95% CI", form="interval"), line("Improving", statistic="wins", form="of")),
            Fields(
                system="oc-sft",
                collections="reranking",
                measure="overlap",
                terms=minus(system="single-order"),
                scheme="collections",
            ),
            corner="Base",
        ),
    ),
    "18 collections at a frozen per-collection F1 threshold, seed 42; intervals resample collections.",
)

SEVEN = (
    system_line("gpt-5.4"),
    system_line("oc-sft", is_rival=True, seeds=ALL_SEEDS),
    system_line("order-averaged", is_rival=True, seeds=ALL_SEEDS),
    system_line("permutation-augmentation", is_rival=True, seeds=ALL_SEEDS),
    system_line("debias-first", is_rival=True, seeds=ALL_SEEDS),
    system_line("single-order", is_rival=True, seeds=ALL_SEEDS),
    system_line("jina-b20", "jina-v3"),
)
NAMES = tuple(variant.fields["system"] for variant in SEVEN)
PER_COLLECTION = Artifact(
    "jaccard-percollection",
    "tab:jaccard-percollection",
    "Table 22",
    "Retained-set overlap by collection for seven systems",
    (
        Block(
            "Overlap",
            (*collection_lines(RERANKING), line("Mean overlap", collections="reranking")),
            SEVEN,
            Fields(measure="overlap"),
            corner="Collection",
        ),
        Block(
            "Summary measures, 18-collection means",
            (
                measure_line("nDCG@10", "ndcg@10"),
                measure_line("Retained-set F1", "retained_f1"),
                measure_line("Retained-set F1 spread", "f1_spread"),
                measure_line("τ-PSI", "tau_psi"),
            ),
            SEVEN,
            Fields(collections="reranking"),
            corner="Measure",
            special={(3, 0): Fields(text="---")},
            bold="every_seed",
            bold_over="columns",
        ),
        Block(
            "Do measures choose the same system?",
            (
                line(
                    "Quality and overlap winners differ, seven systems",
                    statistic="discordant",
                    measure="ndcg@10",
                    second="overlap",
                    rivals=NAMES,
                    seeds=ALL_SEEDS,
                    form="of",
                ),
                *(
                    line(
                        f"Median disagreement of {label} with overlap, six systems",
                        statistic="disagreement",
                        measure=measure,
                        second="overlap",
                        rivals=NAMES[1:],
                    )
                    for label, measure in (("τ-PSI", "tau_psi"), ("nDCG@10", "ndcg@10"))
                ),
            ),
            (line("Value"),),
            Fields(system="oc-sft", collections="reranking"),
        ),
        Block(
            "Where the loss is",
            (
                measure_line("Relevance density of churned documents", "churned_relevance"),
                measure_line("Relevance density of documents kept by both", "kept_relevance"),
            ),
            (line("OC-SFT", system="oc-sft"),),
            Fields(collections="reranking"),
        ),
    ),
    "Three-seed means for trained rows, at the frozen per-collection F1 thresholds; the winners are theirs, disagreement "
    "is at seed 42.",
)

REDUCTION = minus(system="oc-sft")
"""Of a flip: single-order minus OC-SFT, so that positive favours OC-SFT."""
GAIN = minus(system="single-order")


def _flip(label: str, collection: str, measure: str, reader: str = "first") -> Line:
    return line(label, system="single-order", collections=collection, measure=measure, reader=reader, terms=REDUCTION)


ANSWERS = (("hotpotqa", "HotpotQA"), ("2wikimultihopqa", "2Wiki"), ("musique", "MuSiQue"))
ESTIMATE_WITH_INTERVAL = (
    line("n", statistic="count", form="count"),
    line("Estimate", form="signed"),
    line("95% CI", form="interval"),
)
DOWNSTREAM = Artifact(
    "downstream",
    "tab:downstream",
    "Table 23",
    "Verdict- and answer-flip reductions and controls at 4B",
    (
        Block(
            "(a) Repeated-fit flip and accuracy estimates",
            (
                _flip("Single-order → OC-SFT, Climate-FEVER", "climate-fever", "verdict_flip"),
                _flip("Single-order → OC-SFT, SciFact", "scifact", "verdict_flip"),
                _flip("Single-order → OC-SFT, second reader, Climate-FEVER", "climate-fever", "verdict_flip", "second"),
                line(
                    "Perm. aug. → EMA, QA exact match",
                    system="ema",
                    collections="qa",
                    measure="answer_em",
                    reader="first",
                    terms=minus(system="permutation-augmentation"),
                ),
            ),
            (line("Estimate", form="signed"), line("SD", form="sd")),
            Fields(seeds=ALL_SEEDS, digits=4),
            corner="Contrast, collection / output",
        ),
        Block(
            "(b) Flip reductions with query-paired intervals",
            (
                _flip("Single-order → OC-SFT, second reader, SciFact", "scifact", "verdict_flip", "second"),
                *(_flip(f"Single-order → OC-SFT, {label} answer", name, "answer_flip") for name, label in ANSWERS),
                *(
                    _flip(f"Single-order → OC-SFT, second reader, {label} answer", name, "answer_flip", "second")
                    for name, label in ANSWERS
                ),
            ),
            ESTIMATE_WITH_INTERVAL,
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
                line(
                    "Single-order → OC-SFT, Climate-FEVER verdict",
                    collections="climate-fever",
                    measure="verdict_accuracy",
                    scheme="queries",
                ),
                line("Single-order → OC-SFT, QA exact match", collections="qa", measure="answer_em"),
                line("Single-order → OC-SFT, QA F1", collections="qa", measure="answer_f1"),
            ),
            ESTIMATE_WITH_INTERVAL,
            Fields(system="oc-sft", terms=GAIN, reader="first", digits=4),
            corner="Contrast, collection / output",
        ),
    ),
    "Qwen3-4B; positive estimates favour the variant after the arrow. (a) three seeds; (b) seed 42, queries resampled; (c) "
    "queries whose first five are the same under every permutation for both; (d) collections, then queries resampled.",
)

PAIR_FLIP = Artifact(
    "rr-pairflip",
    "tab:rr-pairflip",
    "Table 24",
    "Preference-pair flip on response ranking",
    (
        Block(
            "",
            collection_lines(RESPONSES),
            tuple(system_line(name, is_rival=True) for name in SIX),
            Fields(measure="pair_flip"),
            corner="Collection",
            bold="best",
            bold_over="columns",
        ),
    ),
    "Qwen3-4B, seed 42, M = 10.",
)

GAP = Fields(measure="mean_ndcg@1", terms=minus(system="skywork"))
REPORTED_SCORE = Artifact(
    "reportedscore",
    "tab:reportedscore",
    "Table 25",
    "Permutation spread exceeds the mean system gap on two collections",
    (
        Block(
            "",
            collection_lines(RESPONSES),
            (
                Line("n", joined(GAP, Fields(statistic="count", form="count"))),
                measure_line("Perm. SD", "benchmark_sd@1", scheme="collections", digits=4),
                measure_line("Range", "benchmark_range@1", scheme="collections", digits=4),
                Line("Gap", joined(GAP, Fields(form="signed"))),
                Line("95% CI", joined(GAP, Fields(form="interval"))),
                line("Reversals", statistic="leader_reversals", measure="ndcg@1", rivals=("skywork",), form="of"),
            ),
            Fields(system="oc-sft", scheme="queries"),
            corner="Collection",
        ),
    ),
    "OC-SFT on Qwen3-4B, seed 42, minus pointwise Skywork, on the prompts that both have; intervals resample prompts. Reversals: "
    "permutations whose leader is not that of their mean (the paper's text reports none).",
)

CONSUMERS = (PER_BASE, PER_COLLECTION, DOWNSTREAM, PAIR_FLIP, REPORTED_SCORE)
