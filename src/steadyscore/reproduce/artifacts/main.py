"""The body of the paper and its setup: Figures 1 to 4, Tables 1 to 4."""

from __future__ import annotations

from ...collection.catalogue import CATALOGUE
from ...tasks import TASKS
from ..names import ALL, TRAINING_DATA
from ..recipe import Artifact, Block, Fields, Line, line, minus
from .common import ALL_SEEDS, DASH, FOUR, collection_line, measure_line, system_line

TRAINED = ("single-order", "order-averaged", "debias-first", "permutation-augmentation", "oc-sft")
SHUFFLES = 40

PHENOMENON = Artifact(
    "phenomenon",
    "fig:phenomenon",
    "Figure 1",
    "The same candidates reordered give the same nDCG@10 but a different decision",
    (
        Block(
            "(a) One query under two orders",
            (
                line("First order", system="single-order"),
                line("Second order", system="single-order"),
                line("Both", system="single-order"),
            ),
            (
                line("nDCG@10", second="first_quality"),
                line("Retained", second="first_kept", form="count"),
                line("Query", second="query_id"),
            ),
            Fields(collections="climate-fever", statistic="example"),
            special={
                (1, 0): Fields(second="second_quality"),
                (1, 1): Fields(second="second_kept"),
                (2, 0): DASH,
                (2, 1): Fields(second="kept_by_both"),
            },
        ),
        Block(
            "(b) Quality and overlap of five trained scorers",
            tuple(system_line(name) for name in TRAINED),
            (measure_line("nDCG@10", "ndcg@10"), measure_line("Overlap", "overlap")),
            Fields(collections="reranking", seeds=ALL_SEEDS),
            draw="points",
            axes=("nDCG@10", "retained-set overlap"),
        ),
    ),
    "Qwen3-4B, M = 10, three seeds. The query of (a) is ours: of all queries whose two orders have equal nDCG@10, the one whose "
    "retained sets overlap least.",
)

REMEDIES = Artifact(
    "remedies",
    "fig:remedies",
    "Figure 2",
    "Order dependence can be addressed at serving, in the labels, or once in training",
    is_diagram=True,
)


def _task(label: str, collections: str, quality: str, decision: str, measure: str, reader: str = "") -> list[Line]:
    return [
        line(quality, group=label, measure=quality.lower(), collections=collections),
        line("τ-PSI", group=label, measure="tau_psi", collections=collections),
        line(decision, group=label, measure=measure, collections=collections, reader=reader),
    ]


LEVELS = Artifact(
    "levels",
    "tab:levels",
    "Table 1",
    "Quality saturates on all three tasks; what the consumers decide does not",
    (
        Block(
            "",
            (
                system_line("off-the-shelf"),
                system_line("off-the-shelf", "CapCal", mitigation="capcal"),
                system_line("off-the-shelf", "Round-robin", partition="round_robin"),
                system_line("off-the-shelf", "BSC (×10)", permutations=SHUFFLES, serving=10),
                system_line("jina-b20", "jina-reranker-v3"),
                system_line("gpt-5.4"),
                *(system_line(name, is_rival=True, seeds=ALL_SEEDS) for name in TRAINED),
            ),
            (
                *_task("Passage reranking (18)", "reranking", "nDCG@10", "Jacc.", "overlap"),
                *_task("Multi-doc QA (3)", "qa", "nDCG@10", "Ans.", "answer_flip", "first"),
                *_task("Response ranking (5)", "responses", "nDCG@1", "Pair", "pair_flip"),
            ),
            corner="Variant",
            special={(5, column): DASH for column in (1, 4, 7)},
            bold="every_seed",
        ),
    ),
    "Qwen3-4B, M = 10 random permutations, trained rows three-seed means; BSC: four ensembles of ten from forty orders. Bold: "
    "ahead of every other trained row on every seed, and in the mean by more than the task's permutation range, which is the "
    "highest minus the lowest quality that one permutation gives, at the most unstable trained row.",
)

SPREAD = Artifact(
    "spread",
    "fig:spread",
    "Figure 3",
    "Ranking quality moves across permutations and barely with the method",
    (
        Block(
            "(a) nDCG@10 over permutations",
            (FOUR[0], *(system_line(name) for name in TRAINED)),
            (
                measure_line("Worst", "worst_ndcg@10"),
                measure_line("Mean", "mean_ndcg@10"),
                measure_line("Best", "best_ndcg@10"),
                measure_line("Spread", "order_spread@10"),
            ),
            Fields(collections="reranking"),
            draw="boxes",
            axes=("nDCG@10", "variant"),
        ),
        Block(
            "(b) Base and collection cells over 11 dense bases",
            FOUR[1:],
            (measure_line("nDCG@10", "ndcg@10"), measure_line("Overlap", "overlap")),
            Fields(collections="reranking", base="dense"),
            draw="points",
            axes=("nDCG@10", "retained-set overlap"),
        ),
    ),
    "(a) Qwen3-4B, M = 10, 18 collections. (b) 198 cells: 11 dense bases by 18 collections, pooled with equal weight.",
)

BUDGETS = tuple(line(str(k), serving=k, at=float(k)) for k in range(1, 11))
AMORT_CONSUMERS = Artifact(
    "amortconsumers",
    "fig:amortconsumers",
    "Figure 4",
    "OC-SFT at K=1 beats BSC at K=10 permutations on two of the three consumers",
    (
        Block(
            "(a) Retained-set overlap",
            (FOUR[0], system_line("oc-sft", matched_to="off-the-shelf")),
            BUDGETS,
            Fields(collections="reranking", measure="overlap", permutations=SHUFFLES),
            corner="K",
            draw="lines",
            axes=("K, permutations averaged", "overlap"),
        ),
        Block(
            "(b) Answer flip",
            (FOUR[0], FOUR[3]),
            BUDGETS,
            Fields(collections="qa", measure="answer_flip", reader="first", permutations=SHUFFLES),
            corner="K",
            draw="lines",
            axes=("K, permutations averaged", "answer flip"),
        ),
        Block(
            "(c) Pair flip",
            (FOUR[0], FOUR[3]),
            BUDGETS,
            Fields(collections="responses", measure="pair_flip", permutations=SHUFFLES),
            corner="K",
            draw="lines",
            axes=("K, permutations averaged", "pair flip"),
        ),
    ),
    "Qwen3-4B, ensembles of K from forty permutations. OC-SFT's cutoff keeps at each K the share that the off-the-shelf scorer's "
    "F1-tuned cutoff keeps on the half it was tuned on.",
)

READOUTS, PLACEHOLDERS = ("argmax", "p2", "expected"), ("0", "1", "2", "3")
QUALITY = "Quality, one permutation"
INSTABILITY = "Order instability (M=10)"
REFERENCE = minus(placeholder="0")


def _choice(setting: str, values: tuple[str, ...]) -> tuple[Line, ...]:
    return (
        line("nDCG@10", group=QUALITY, measure="ndcg@10", digits=4),
        line("Wins", group=QUALITY, measure="ndcg@10", statistic="setting_leads", second=setting, rivals=values, form="of"),
        line("τ-PSI", group=INSTABILITY, measure="tau_psi", digits=4),
        line("Lower", group=INSTABILITY, measure="tau_psi", statistic="below", terms=REFERENCE, form="count"),
        line("Higher", group=INSTABILITY, measure="tau_psi", statistic="above", terms=REFERENCE, form="count"),
    )


READOUT = Artifact(
    "readout",
    "tab:readout",
    "Table 2",
    "Score-readout and answer-skeleton placeholder choices",
    (
        Block(
            "Score readout, quality only",
            (
                line("argmax grade", readout="argmax"),
                line("P(g ≥ 2)", readout="p2"),
                line("expected grade", readout="expected"),
            ),
            _choice("readout", READOUTS),
            Fields(system="off-the-shelf", collections="reranking"),
            corner="Choice",
            special={(row, column): DASH for row in range(3) for column in (2, 3, 4)},
        ),
        Block(
            "Answer skeleton placeholder",
            tuple(line(f"Grade: {grade}", placeholder=grade) for grade in ("0", "1", "2", "3")),
            _choice("placeholder", PLACEHOLDERS),
            Fields(system="off-the-shelf", collections="reranking"),
            corner="Choice",
            special={(0, 3): Fields(text="ref."), (0, 4): Fields(text="ref.")},
        ),
    ),
    "Off-the-shelf Qwen3-4B, 18 reranking collections; readouts are computed from the stored grade distributions of one run.",
)

EVALUATED = tuple(name for name in ALL if name != "msmarco.held-out")


def _known(name: str) -> Fields:
    return Fields(text=f"{CATALOGUE[name].queries:,}" if name in CATALOGUE else "private")


DATASETS = Artifact(
    "datasets",
    "tab:datasets",
    "Table 3",
    "Evaluation collections across the three tasks",
    (
        Block(
            "",
            tuple(collection_line(name) for name in EVALUATED),
            (
                line("Queries / prompts"),
                line("Here", statistic="size", form="count"),
                line("Candidates"),
            ),
            corner="Collection",
            special={(row, 0): _known(name) for row, name in enumerate(EVALUATED)}
            | {
                (row, 2): Fields(text=str(CATALOGUE[name].pool) if name in CATALOGUE else "100")
                for row, name in enumerate(EVALUATED)
            },
        ),
    ),
    "Counts of the catalogue that the builders are held against, and of what is on this machine or takes its place.",
)

_TASKS = tuple(TASKS[name] for name in TRAINING_DATA)
_TRAINED_ON = tuple(CATALOGUE[name] for name in TRAINING_DATA.values())


def _texts(row: int, *texts: str) -> dict[tuple[int, int], Fields]:
    return {(row, column): Fields(text=text) for column, text in enumerate(texts)}


TASK_CONFIG = Artifact(
    "taskconfig",
    "tab:taskconfig",
    "Table 4",
    "What differs between the three tasks",
    (
        Block(
            "",
            tuple(
                line(label)
                for label in (
                    "Training data",
                    "Training width",
                    "Rubric",
                    "Consistency weight",
                    "Selection split",
                    "Quality metric",
                )
            ),
            (line("Passage reranking"), line("Multi-document QA"), line("Response ranking")),
            special=_texts(0, *(f"{data.name}, {data.queries:,}" for data in _TRAINED_ON))
            | _texts(1, *(f"B={task.width}" for task in _TASKS))
            | _texts(2, "graded 0–3 relevance", "graded 0–3 support", "graded 0–3 quality")
            | _texts(3, *(f"λ={task.weight:g}" for task in _TASKS))
            | _texts(4, *(f"held-out {data.parts['held-out']}" for data in _TRAINED_ON))
            | _texts(5, *(task.quality.replace("ndcg", "nDCG") for task in _TASKS)),
        ),
    ),
    "Settings of this package: `tasks.py`, the catalogue and the shipped recipes. The weight is on the released code's scale.",
)

MAIN = (PHENOMENON, REMEDIES, LEVELS, SPREAD, AMORT_CONSUMERS, READOUT, DATASETS, TASK_CONFIG)
