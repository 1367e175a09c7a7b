"""The body of the paper and its setup: Figures 1 to 4, Tables 1 to 4."""

from __future__ import annotations

from collections.abc import Sequence

from ...collection.catalogue import CATALOGUE
from ...tasks import TASKS
from ..names import COLLECTIONS, DEEP_LEARNING_V2, PRIVATE, SEEDS, TRAINING_DATA
from ..recipe import Artifact, Block, Drawing, Fields, Line, line, minus, panels
from .common import BUDGETS, DASH, FOUR, SHUFFLES, THREE, amortized, measures, systems, table

TRAINED = ("single-order", "order-averaged", "debias-first", "permutation-augmentation", "oc-sft")

PHENOMENON = panels(
    "phenomenon",
    "The same candidates reordered give the same nDCG@10 but a different decision",
    "Qwen3-4B, M = 10, three seeds. The query of (a) is ours: of all queries and pairs of orders with equal nDCG@10 that both "
    "retain something, one with two verdicts of the first reader, if there is any, and the least overlap. A filled mark is a "
    "document that is retained; it has one place in both rows, that of the first stage.",
    Block(
        "(a) One query under two orders",
        (line("First order", at=1), line("Second order", at=2)),
        (
            line("nDCG@10", second="quality"),
            line("Retained", second="retained", form="count"),
            line("Verdict", second="verdict"),
            line("Documents", second="documents"),
            line("Query", second="query_id"),
        ),
        Fields(system="single-order", collections="climate-fever", reader="first", statistic="example"),
        draw=Drawing("chips", "documents of the pool", "what two orders decide"),
    ),
    Block(
        "(b) Quality and overlap of five trained scorers",
        systems(TRAINED),
        measures({"nDCG@10": "ndcg@10", "Overlap": "overlap"}),
        Fields(collections="reranking", seeds=SEEDS),
        draw=Drawing("points", "nDCG@10", "retained-set overlap"),
    ),
)

REMEDIES = Artifact(
    "remedies", "Order dependence can be addressed at serving, in the labels, or once in training", is_diagram=True
)


def _task(label: str, collections: str, quality: str, decision: str, measure: str, reader: str = "") -> list[Line]:
    return [
        line(quality, group=label, measure=quality.lower(), collections=collections),
        line("τ-PSI", group=label, measure="tau_psi", collections=collections),
        line(decision, group=label, measure=measure, collections=collections, reader=reader),
    ]


LEVELS = panels(
    "levels",
    "Quality saturates on all three tasks; what the consumers decide does not",
    "Qwen3-4B, M = 10 random permutations, trained rows three-seed means; BSC: four ensembles of ten from forty orders. Bold: "
    "ahead of every other trained row on every seed, and in the mean by more than the task's permutation range, which is the "
    "highest minus the lowest quality that one permutation gives, at the most unstable trained row.",
    Block(
        "",
        (
            line("Off the shelf", "Untrained", system="off-the-shelf"),
            line("CapCal", "Untrained", system="off-the-shelf", mitigation="capcal"),
            line("Round-robin", "Untrained", system="off-the-shelf", partition="round_robin"),
            Line("BSC (×10)", Fields(system="off-the-shelf", permutations=SHUFFLES, serving=10), "Untrained", mark="ᵃ"),
            *systems({"jina-b20": "jina-reranker-v3", "gpt-5.4": "GPT-5.4"}, "External"),
            *systems(TRAINED, "Trained", is_rival=True, seeds=SEEDS),
        ),
        (
            *_task("Passage reranking (18)", "reranking", "nDCG@10", "Jacc.", "overlap"),
            *_task("Multi-doc QA (3)", "qa", "nDCG@10", "Ans.", "answer_flip", "first"),
            *_task("Response ranking (5)", "responses", "nDCG@1", "Pair", "pair_flip"),
        ),
        corner="Variant",
        special={(5, column): Fields(text="---ᵇ") for column in (1, 4, 7)},
        bold="every_seed",
    ),
    Block(
        "GPT-5.4 under two tie rules",
        (
            line("nDCG@10, passage reranking", collections="reranking", measure="ndcg@10"),
            line("Answer flip, multi-doc QA", collections="qa", measure="answer_flip", reader="first"),
            line("Pair flip, response ranking", collections="responses", measure="pair_flip"),
        ),
        (
            line("Tied pairs", measure="tied_pairs", form="percent", digits=1),
            line("Candidate id"),
            line("Input order", ties="input"),
        ),
        Fields(system="gpt-5.4"),
        corner="Measure, task",
    ),
    notes=(
        "ᵃ Instability and decisions of four ensembles of ten permutations, which is what such a system serves; every other row "
        "compares single permutations, at a tenth of the cost.",
        "ᵇ GPT-5.4 writes whole grades, so many of its pairs tie. Here the smaller candidate id goes first, which no order "
        "changes: τ-PSI would credit the model with that, and is left out. The second block has both tie rules.",
    ),
)

SPREAD = panels(
    "spread",
    "Ranking quality moves across permutations and barely with the method",
    "(a) Qwen3-4B, M = 10, 18 collections. (b) 198 cells: 11 dense bases by 18 collections, pooled with equal weight.",
    Block(
        "(a) nDCG@10 over permutations",
        (FOUR[0], *systems(TRAINED)),
        measures({"Worst": "worst_ndcg@10", "Mean": "mean_ndcg@10", "Best": "best_ndcg@10", "Spread": "order_spread@10"}),
        Fields(collections="reranking"),
        draw=Drawing("boxes", "nDCG@10", "variant"),
    ),
    Block(
        "(b) Base and collection cells over 11 dense bases",
        THREE,
        measures({"nDCG@10": "ndcg@10", "Overlap": "overlap"}),
        Fields(collections="reranking", base="dense"),
        draw=Drawing("points", "nDCG@10", "retained-set overlap"),
    ),
)

AMORT_CONSUMERS = panels(
    "amortconsumers",
    "OC-SFT at K=1 beats BSC at K=10 permutations on two of the three consumers",
    "Qwen3-4B, ensembles of K from forty permutations. In (a) OC-SFT's cutoff keeps at each K the share that the off-the-shelf "
    "scorer's F1-tuned cutoff keeps on the half it was tuned on. The last block, of the text of the appendix, has three seeds.",
    amortized(
        "(a) Retained-set overlap",
        "overlap",
        (FOUR[0], line("OC-SFT", system="oc-sft", matched_to="off-the-shelf")),
        collections="reranking",
        measure="overlap",
    ),
    amortized("(b) Answer flip", "answer flip", (FOUR[0], FOUR[3]), collections="qa", measure="answer_flip", reader="first"),
    amortized("(c) Pair flip", "pair flip", (FOUR[0], FOUR[3]), collections="responses", measure="pair_flip"),
    Block(
        "Retained-set overlap at each row's own F1-tuned cutoff",
        THREE,
        (BUDGETS[0], BUDGETS[-1]),
        Fields(collections="reranking", measure="overlap", permutations=SHUFFLES, seeds=SEEDS),
        corner="K",
    ),
)


def _choice(setting: str, *values: str) -> tuple[Line, ...]:
    quality, instability, reference = "Quality, one permutation", "Order instability (M=10)", minus(placeholder="0")
    return (
        line("nDCG@10", quality, measure="ndcg@10", digits=4),
        line("Wins", quality, measure="ndcg@10", statistic="setting_leads", second=setting, rivals=values, form="of"),
        line("τ-PSI", instability, measure="tau_psi", digits=4),
        line("Lower", instability, measure="tau_psi", statistic="below", terms=reference, form="count"),
        line("Higher", instability, measure="tau_psi", statistic="above", terms=reference, form="count"),
    )


READOUT = panels(
    "readout",
    "Score-readout and answer-skeleton placeholder choices",
    "Off-the-shelf Qwen3-4B, 18 reranking collections; readouts are computed from the stored grade distributions of one run.",
    Block(
        "Score readout, quality only",
        (line("argmax grade", readout="argmax"), line("P(g ≥ 2)", readout="p2"), line("expected grade", readout="expected")),
        _choice("readout", "argmax", "p2", "expected"),
        Fields(system="off-the-shelf", collections="reranking"),
        corner="Choice",
        special={(row, column): DASH for row in range(3) for column in (2, 3, 4)},
    ),
    Block(
        "Answer skeleton placeholder",
        tuple(line(f"Grade: {grade}", placeholder=grade) for grade in ("0", "1", "2", "3")),
        _choice("placeholder", "0", "1", "2", "3"),
        Fields(system="off-the-shelf", collections="reranking"),
        corner="Choice",
        special={(0, 3): Fields(text="ref."), (0, 4): Fields(text="ref.")},
    ),
)

GRADED = "BM25 top {}; graded judgments"
_COLLECTIONS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Reranking: in-domain", GRADED, dict.fromkeys(("dl19", "dl20"), "web passage; TREC DL")),
    ("Reranking: in-domain", GRADED, dict.fromkeys(DEEP_LEARNING_V2, "web passage; TREC DL v2")),
    (
        "Reranking: public OOD",
        "BM25 top {}",
        {
            "nfcorpus": "biomedical", "fiqa": "financial QA", "touche2020": "argument retrieval",
            "arguana": "counterargument retrieval", "climate-fever": "climate fact-checking", "trec-covid": "biomedical",
            "dbpedia": "entity retrieval", "scifact": "scientific fact-checking", "signal1m": "tweet / news",
            "trec-news": "news", "robust04": "news",
        },
    ),
    ("Reranking: legal", "precomputed top {}", dict.fromkeys(PRIVATE, "legal")),
    ("Multi-doc QA", "{} passages; 2 supporting", {"hotpotqa": "multi-hop QA; in-domain"}),
    ("Multi-doc QA", "{} passages; 2 supporting", dict.fromkeys(("2wikimultihopqa", "musique"), "multi-hop QA; zero-shot")),
    ("Response ranking", "{} responses", {"rewardbench2": "response quality"}),
    ("Response ranking", "{} responses; 64 overlaps removed", {"nectar": "response preference"}),
    (
        "Response ranking",
        "{} responses",
        {"ppe-math": "math correctness", "ppe-mmlu-pro": "knowledge correctness", "rm-bench": "adversarial preference"},
    ),
)  # fmt: skip
PRIVATE_QUERIES = {"legal-a": 97, "legal-b": 175}
_EVALUATED = [(name, group, domain, pool) for group, pool, members in _COLLECTIONS for name, domain in members.items()]


def _described(name: str, domain: str, pool: str) -> tuple[str, str, str]:
    """What the paper says of a collection: its domain, its queries and its pools."""
    known = CATALOGUE.get(name)
    queries = f"{known.queries if known else PRIVATE_QUERIES[name]:,}"
    if known and known.verdicts not in (None, known.queries):
        queries += f" ({known.verdicts:,} with verdict labels)"
    return domain, queries, pool.format(known.pool if known else 100)


def _texts(*rows: Sequence[str]) -> dict[tuple[int, int], Fields]:
    """What cells say without being measured, row by row."""
    return {(r, c): Fields(text=text) for r, row in enumerate(rows) for c, text in enumerate(row)}


DATASETS = table(
    "datasets",
    "Evaluation collections across the three tasks",
    "Counts of the paper, which those of the catalogue are held against, and of what is on this machine or takes its place.",
    tuple(line(COLLECTIONS[name], group=group, collections=name) for name, group, _, _ in _EVALUATED),
    (
        *map(line, ("Domain / role", "Queries / prompts", "Candidate pool / protocol")),
        line("Here", statistic="size", form="count"),
    ),
    corner="Collection",
    special=_texts(*(_described(name, domain, pool) for name, _, domain, pool in _EVALUATED)),
)

_TASKS = tuple(TASKS[name] for name in TRAINING_DATA)
_TRAINED_ON = tuple(CATALOGUE[name] for name in TRAINING_DATA.values())
TASK_CONFIG = table(
    "taskconfig",
    "What differs between the three tasks",
    "Settings of this package: `tasks.py`, the catalogue and the shipped recipes. The weight is on the released code's scale.",
    map(line, ("Training data", "Training width", "Rubric", "Consistency weight", "Selection split", "Quality metric")),
    map(line, ("Passage reranking", "Multi-document QA", "Response ranking")),
    special=_texts(
        [f"{data.name}, {data.queries:,}" for data in _TRAINED_ON],
        [f"B={task.width}" for task in _TASKS],
        ["graded 0–3 relevance", "graded 0–3 support", "graded 0–3 quality"],
        [f"λ={task.weight:g}" for task in _TASKS],
        [f"held-out {data.parts['held-out']}" for data in _TRAINED_ON],
        [task.quality.replace("ndcg", "nDCG") for task in _TASKS],
    ),
)

MAIN = (PHENOMENON, REMEDIES, LEVELS, SPREAD, AMORT_CONSUMERS, READOUT, DATASETS, TASK_CONFIG)
