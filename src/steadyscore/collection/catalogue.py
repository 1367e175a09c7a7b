"""The paper's collections as data (§B.2; docs/protocol.md#collections): what each is, how to get it, and a collection's card.

Legal-A and Legal-B are private. Their row is anybody's own collection: a JSONL file, or `data build` with --format.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..tasks import TASKS
from ..terms import Array, Collection, Instance, TaskName

MS_MARCO = "MS MARCO: non-commercial research use"
BEIR = "https://github.com/beir-cellar/beir"
WEB = 1200  # characters kept on TREC-DL, QA and responses (§B.1)
OUT_OF_DOMAIN = 500  # on the BEIR collections


@dataclass(frozen=True, slots=True)
class Known:
    """One row of the paper's table."""

    name: str
    task: TaskName
    role: Literal["train", "evaluation"]
    queries: int
    """Queries or prompts in the paper's table; for training pools, all parts together."""
    pool: int
    chars: int
    format: str
    """Layout of the public files, as `data build --format` spells it."""
    licence: str
    source: str
    obtain: str
    """What to download by hand, and how to lay it out for `data build --from`."""
    filters: tuple[str, ...] = ()
    """What the paper leaves out, and why."""
    split: str = "test"
    files: tuple[str, ...] = ("*",)
    """Record layouts: names looked for in the folder; the first pattern with a match wins."""
    ir_datasets: str | None = None
    hub: tuple[str, str | None, str] | None = None
    """`datasets` id, configuration and split."""
    first_stage: str | None = None
    """First stage when none is asked for; None takes the list that ir_datasets has."""
    without_itself: bool = False
    limit: int | None = None
    """Only the first records that pass the filters, in source order."""
    sample: int | None = None
    """A seeded sample of this many."""
    apart_from: str | None = None
    """Prompts that also occur in this collection are removed."""
    parts: dict[str, int] = field(default_factory=dict)
    verdicts: int | None = None
    """Claims that carry a verdict."""
    reference_chars: int | None = None
    """Characters kept in the authors' released code, where it departs from the paper (docs/protocol.md#collections)."""

    @property
    def build_command(self) -> str:
        return f"steadyscore data build {self.name} --from FOLDER"


def _deep_learning(year: int, queries: int) -> Known:
    second = year >= 2021  # MS MARCO v2, with an official first-stage list of 100
    corpus = "msmarco-passage-v2" if second else "msmarco-passage"
    return Known(
        f"dl{year % 100}", "passage_reranking", "evaluation", queries, 100, WEB, "trec", MS_MARCO,
        f"https://trec.nist.gov/data/deep{year}.html",
        "put topics.tsv, qrels.txt, the passages as collection.tsv or corpus.jsonl, and a BM25 run as run.txt into one folder",
        ("queries without a judgement: NIST judged a subset of the topics",), ir_datasets=f"{corpus}/trec-dl-{year}/judged",
        first_stage=None if second else "bm25",
    )  # fmt: skip


def _beir(
    name: str, queries: int, licence: str, *, id: str | None = None, folder: str | None = None, obtain: str | None = None,
    filters: tuple[str, ...] = (), without_itself: bool = False, verdicts: int | None = None, source: str = BEIR,
) -> Known:  # fmt: skip
    unzip = f"download and unzip https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/{folder or name}.zip"
    return Known(
        name, "passage_reranking", "evaluation", queries, 100, OUT_OF_DOMAIN, "beir", licence, source, obtain or unzip, filters,
        ir_datasets=id, first_stage="bm25", without_itself=without_itself, verdicts=verdicts,
    )  # fmt: skip


def _qa(name: str, format: str, licence: str, source: str, hub: tuple[str, str | None, str], obtain: str, *more: str) -> Known:
    return Known(
        name, "multidoc_qa", "evaluation", 200, 10, WEB, format, licence, source, obtain,
        ("not exactly 10 passages", "not exactly 2 supporting passages", *more, "the first 200 that are left, in source order"),
        split="validation", files=("*dev*", "*validation*", "*"), hub=hub, limit=200, reference_chars=1600,
    )  # fmt: skip


def _responses(
    name: str, queries: int, pool: int, format: str, licence: str, hub: tuple[str, str | None, str], reference_chars: int,
    *filters: str, files: tuple[str, ...] = ("*",), sample: int | None = None, apart_from: str | None = None,
) -> Known:  # fmt: skip
    source = f"https://huggingface.co/datasets/{hub[0]}"
    return Known(
        name, "response_ranking", "evaluation", queries, pool, WEB, format, licence, source,
        f"download the files of {source} (JSON, JSON Lines or Parquet) into one folder", filters, split=hub[2], files=files,
        hub=hub, sample=sample, apart_from=apart_from, reference_chars=reference_chars,
    )  # fmt: skip


HOTPOTQA = "https://hotpotqa.github.io"
SHARED_ALIKE = "CC BY-SA 4.0"
_KNOWN = (
    *(_deep_learning(year, queries) for year, queries in {2019: 43, 2020: 54, 2021: 53, 2022: 76, 2023: 82}.items()),
    _beir(
        "nfcorpus", 308, "free for academic use", id="beir/nfcorpus/test",
        filters=("queries without a first-stage candidate: our reading of how the paper's 308 come from BEIR's 323",),
    ),
    _beir("fiqa", 648, "not stated by BEIR", id="beir/fiqa/test"),
    _beir("touche2020", 49, "CC BY 4.0", id="beir/webis-touche2020/v2", folder="webis-touche2020"),
    _beir(
        "arguana", 1406, "CC BY 4.0", id="beir/arguana", without_itself=True,
        filters=("candidates that are the query itself: every query is a document of the corpus",),
    ),
    _beir("climate-fever", 1535, "CC BY-SA 3.0 (Wikipedia text); claims: not stated", id="beir/climate-fever", verdicts=1381,
          filters=("DISPUTED claims carry no verdict (1,535 to 1,381); pass climate-fever.jsonl with --verdicts",)),
    _beir("trec-covid", 50, "CORD-19 licence", id="beir/trec-covid"),
    _beir("dbpedia", 400, "CC BY-SA 3.0", id="beir/dbpedia-entity/test", folder="dbpedia-entity"),
    _beir("scifact", 300, "claims CC BY 4.0, abstracts ODC-By 1.0", id="beir/scifact/test", verdicts=300,
          filters=("claims without evidence read NOT ENOUGH INFO; pass claims_dev.jsonl with --verdicts",)),
    _beir("signal1m", 97, "on request, research use", source="https://research.signal-ai.com/datasets/signal1m-tweetir.html",
          obtain="request the Signal-1M tweets from Signal AI, convert them with BEIR's script, and keep the BEIR folder"),
    _beir("trec-news", 57, "NIST agreement", source="https://trec.nist.gov/data/wapost/",
          obtain="sign NIST's agreement for the Washington Post articles, convert them with BEIR's script, keep the BEIR folder"),
    _beir("robust04", 249, "NIST agreement", source="https://trec.nist.gov/data/cd45/",
          obtain="sign NIST's agreement for TREC disks 4 and 5, convert them with BEIR's script, and keep the BEIR folder"),
    _qa("hotpotqa", "hotpotqa", SHARED_ALIKE, HOTPOTQA, ("hotpotqa/hotpot_qa", "distractor", "validation"),
        "download hotpot_dev_distractor_v1.json from hotpotqa.github.io"),
    _qa("2wikimultihopqa", "2wiki", "Apache-2.0", "https://github.com/Alab-NII/2wikimultihop",
        ("voidful/2WikiMultihopQA", None, "validation"),
        "download dev.json, and id_aliases.json for further answers, from github.com/Alab-NII/2wikimultihop"),
    _qa("musique", "musique", "CC BY 4.0", "https://github.com/StonyBrookNLP/musique", ("dgslibisey/MuSiQue", None, "validation"),
        "download musique_ans_v1.0_dev.jsonl from github.com/StonyBrookNLP/musique",
        "cut to the supports and the first distractors, in source order"),
    _responses("rewardbench2", 1763, 4, "rewardbench2", "ODC-BY 1.0", ("allenai/reward-bench-2", None, "test"), 2000,
               "not exactly 4 responses: the Ties subset has more", files=("*test*", "*")),
    _responses("nectar", 434, 7, "nectar", "Apache-2.0", ("berkeley-nest/Nectar", None, "train"), 1500,
               "a sample of 500 (seed 42)", "not exactly 7 ranked answers",
               "prompts that are also in UltraFeedback (64 in the paper)",
               sample=500, apart_from="ultrafeedback"),
    _responses("ppe-math", 512, 8, "ppe", "not stated", ("lmarena-ai/PPE-MATH-Best-of-K", None, "train"), 2500,
               "up to 4 correct and 4 wrong of 32 responses", "no correct or no wrong response"),
    _responses("ppe-mmlu-pro", 512, 8, "ppe", "not stated", ("lmarena-ai/PPE-MMLU-Pro-Best-of-K", None, "train"), 2500,
               "up to 4 correct and 4 wrong of 32 responses", "no correct or no wrong response"),
    _responses("rm-bench", 1327, 6, "rm-bench", "ODC-BY 1.0", ("THU-KEG/RM-Bench", None, "train"), 1500,
               "not exactly 6 responses", files=("total_dataset*", "*_filtered*", "*")),
    Known("msmarco", "passage_reranking", "train", 30_000, 100, WEB, "msmarco", MS_MARCO, "https://microsoft.github.io/msmarco/",
          "put collection.tsv, queries.train.tsv, qrels.train.tsv and a BM25 run (k1 0.82, b 0.68) as run.txt into one folder",
          ("queries without a judgement", "a sample of 30,000: sorted ids, Python's Random(42)"), split="train",
          ir_datasets="msmarco-passage/train", first_stage="bm25:msmarco", sample=30_000,
          parts={"train": 29_500, "held-out": 500}),
    Known("hotpotqa-train", "multidoc_qa", "train", 30_500, 10, WEB, "hotpotqa", SHARED_ALIKE, HOTPOTQA,
          "download hotpot_train_v1.1.json from hotpotqa.github.io",
          ("not exactly 10 passages", "not exactly 2 supporting passages", "the first 30,500 that are left, in source order"),
          split="train", files=("*train*", "*"), hub=("hotpotqa/hotpot_qa", "distractor", "train"), limit=30_500,
          parts={"train": 30_000, "held-out": 500}, reference_chars=1600),
    Known("ultrafeedback", "response_ranking", "train", 30_700, 4, WEB, "ultrafeedback", "MIT",
          "https://huggingface.co/datasets/openbmb/UltraFeedback",
          "download the JSON Lines files of huggingface.co/datasets/openbmb/UltraFeedback into one folder",
          ("not exactly 4 completions", "a completion without a finite overall score", "the first 30,700 that are left"),
          split="train", hub=("openbmb/UltraFeedback", None, "train"), limit=30_700,
          parts={"train": 30_000, "held-out": 500, "dev": 200}, reference_chars=2000),
)  # fmt: skip
CATALOGUE: dict[str, Known] = {known.name: known for known in _KNOWN}


def how_to_get(known: Known) -> str:
    """The command that downloads a collection, or what to do by hand."""
    is_free = known.ir_datasets or known.hub
    return f"steadyscore data get {known.name}" if is_free else f"{known.obtain}; {known.build_command}"


def count_mistake(name: str, queries: int, details: dict[str, Any], verdicts: int = 0) -> str | None:
    """Why a collection of the paper has another number of queries than its table, by the filters that made it; else None."""
    if (known := CATALOGUE.get(name)) is None:
        return None
    part = details.get("part")
    expected = known.parts.get(part, known.queries) if part else known.queries
    if queries == expected and verdicts not in (0, known.verdicts):
        return f"{name} has {verdicts:,} claims with a verdict, the paper {known.verdicts:,}: {'; '.join(known.filters)}."
    if queries == expected:
        return None
    dropped = [f"{what} ({count:,})" for what, count in (details.get("dropped") or {}).items()]
    by = f"its filters left out: {', '.join(dropped)}" if dropped else "no filter left anything out"
    rules = "; ".join(known.filters) or "all queries of the source"
    return f"{name} holds {queries:,} queries, the paper's table has {expected:,}: {by}. The paper's rule is: {rules}."


# -- the card of a collection


def collection_card(collection: Collection, instances: Iterable[Instance]) -> dict[str, object]:
    """What one pass says (sizes, golds, answers, verdicts, the chance level of response collections), and the header's own."""
    grades: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    characters = cut = answered = 0
    levels: list[float] = []
    for instance in instances:
        sizes[len(instance.pool)] += 1
        grades.update("unjudged" if each.relevance is None else str(each.relevance) for each in instance.pool)
        lengths = [len(" ".join(each.text.split())) for each in instance.pool]
        characters += sum(lengths)
        cut += sum(length > collection.chars for length in lengths) if collection.chars else 0
        answered += bool(instance.answers)
        verdicts.update([instance.verdict] if instance.verdict else [])
        levels.append(float(chance_level([each.relevance or 0 for each in instance.pool])))
    known, details = CATALOGUE.get(collection.name), collection.details or {}
    queries, candidates = len(levels), sum(size * count for size, count in sizes.items())
    above_0 = [level for level in levels if not math.isnan(level)]
    made: dict[str, object] = {
        "name": collection.name,
        "task": collection.task,
        "queries": queries,
        "queries_in_paper": known.parts.get(str(details.get("part")), known.queries) if known else None,
        "pool": {
            "smallest": min(sizes, default=0),
            "mean": candidates / queries if queries else None,
            "largest": max(sizes, default=0),
        },
        "chars_kept": collection.chars,
        "chars_kept_in_reference_code": known.reference_chars if known else None,
        "mean_chars": _mean(characters, candidates),
        "candidates_cut": cut,
        "relevance": dict(sorted(grades.items())),
        "queries_without_relevant_candidate": queries - len(above_0),
        "queries_with_answers": answered,
        "verdicts": dict(sorted(verdicts.items())),
    }
    if TASKS[collection.task].quality_cutoff == 1:
        made["chance_ndcg@1"] = _mean(sum(above_0), len(above_0))
    return made | {key: value for key, value in details.items() if key not in made}


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def chance_level(relevance: ArrayLike) -> Array:
    """nDCG@1 of a response drawn at random, (...): mean judgement / highest judgement of the pool; NaN without a positive one.

    0.25 on RewardBench-2, 0.5 on RM-Bench and PPE with four golds of eight: what the quality measure is to be read against.
    """
    judgement = np.maximum(np.nan_to_num(np.asarray(relevance, float)), 0)
    mean, best = judgement.mean(axis=-1), judgement.max(axis=-1)
    level: Array = np.divide(mean, best, out=np.full(best.shape, np.nan), where=best > 0)[()]
    return level
