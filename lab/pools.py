"""The lab's pools from `../shared/data`: training pools without any text of an evaluation, tuning and evaluation pools.

    python lab/pools.py ../shared/data OUT

Writes OUT/{train,dev,dl19,dl21,scifact,climate,antique,hotpotqa,2wiki,rmb,rmbench,autoj}.jsonl, and for the long runs
OUT/long.jsonl (windows of ten to train on), OUT/tune.jsonl (pools that people graded, to choose teachers and settings by) and
OUT/watch.jsonl (a few of them, for the curve of a run); for responses OUT/{responses,tune-responses}.jsonl. In these five,
relevance stands on the scale of 0 to 3. A file that is there stays as it is. Nothing of it is part of the package.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from steadyscore.collection import read_instances, write
from steadyscore.terms import Candidate, Collection, Instance
from steadyscore.window.prompt import collapse

CHARS = 300
"""A training candidate is one or a few sentences: what the scorer will be shown of one."""


def rows(path: Path) -> list[Any]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def key(text: str) -> str:
    """Letters and digits of the beginning: two spellings of one passage are one passage."""
    return re.sub(r"\W+", " ", text.lower()).strip()[:110]


def excerpt(text: str, query: str, answers: Iterable[str] = ()) -> str:
    """The sentences of a paragraph that hold the answer, else those that share most words with the question."""
    parts: list[str] = [""]
    for sentence in re.split(r"(?<=[.!?])\s+", collapse(text)):
        if parts[-1] and len(parts[-1]) + len(sentence) + 1 > CHARS:
            parts.append("")
        parts[-1] = f"{parts[-1]} {sentence}".strip()[:CHARS]
    asked = set(re.findall(r"[a-z0-9]{3,}", query.lower()))
    with_answer = (part for part in parts if any(answer in part for answer in answers))
    return next(with_answer, None) or max(parts, key=lambda part: len(asked & set(re.findall(r"[a-z0-9]{3,}", part.lower()))))


def instance(id: str, query: str, candidates: Iterable[tuple[str, str, int | None]], **more: Any) -> Instance:
    return Instance(id, query, tuple(Candidate(i, collapse(text), relevance=r) for i, text, r in candidates), **more)


# -- evaluation


def deep_learning(data: Path, year: int) -> Iterator[Instance]:
    judged: dict[str, dict[str, int]] = {}
    for row in rows(data / f"trec-dl{year}/qrels.jsonl"):
        judged.setdefault(row["qid"], {})[row["docid"]] = row["grade"]
    for pool in rows(data / f"trec-dl{year}/pools_bm25_top100.jsonl"):
        grades = judged[pool["qid"]]
        shown = [(c["docid"], c["text"], grades.get(c["docid"])) for c in pool["candidates"]]
        outside = {i: g for i, g in grades.items() if i not in {c[0] for c in shown}}
        yield instance(pool["qid"], pool["query"], shown, judged=outside or None)


def scifact(data: Path) -> Iterator[Instance]:
    corpus = {row["docid"]: f"{row['title']}. {row['text']}" for row in rows(data / "scifact/corpus.jsonl")}
    ranked = {row["qid"]: row["docids"] for row in rows(data / "scifact/run_bm25_top100_test.jsonl")}
    for claim in rows(data / "scifact/claims_test.jsonl"):
        shown = [(i, corpus[i], int(i in claim["cited_doc_ids"])) for i in ranked[claim["claim_id"]]]
        outside = {i: 1 for i in claim["cited_doc_ids"] if i not in {c[0] for c in shown}}
        yield instance(claim["claim_id"], claim["claim"], shown, judged=outside or None)


def antique(data: Path) -> Iterator[Instance]:
    """All judged answers, gain = grade - 1; the file's order is no ranking."""
    for pool in rows(data / "antique/pools_judged.jsonl"):
        yield instance(pool["qid"], pool["query"], [(c["docid"], c["text"], c["grade"] - 1) for c in pool["candidates"]])


def multihop(file: Path, first: int, last: int | None = None) -> Iterator[Instance]:
    for row in rows(file)[first:last]:
        shown = [(str(p["idx"]), f"{p['title']}. {p['text']}", int(p["gold"])) for p in row["passages"]]
        yield instance(row["id"], row["question"], shown, answers=(row["answer"],))


VERDICTS = {"SUPPORTS": "SUPPORTED", "REFUTES": "REFUTED", "NOT_ENOUGH_INFO": "NOT ENOUGH INFO"}


def climate(data: Path) -> Iterator[Instance]:
    """Claims with a verdict and the first sentences of BM25; relevant is what supports or refutes. Without DISPUTED claims."""
    corpus = {row["docid"]: f"{row['title']}. {row['text']}" for row in rows(data / "climate-fever/corpus.jsonl")}
    ranked = {row["qid"]: row["docids"] for row in rows(data / "climate-fever/run_bm25_top100.jsonl")}
    for claim in rows(data / "climate-fever/claims.jsonl"):
        if claim["verdict"] == "DISPUTED":
            continue
        grades = {e["docid"]: int(e["label"] != "NOT_ENOUGH_INFO") for e in claim["evidence"]}
        shown = [(i, corpus[i], grades.get(i, 0)) for i in ranked[claim["claim_id"]]]
        outside = {i: g for i, g in grades.items() if i not in {c[0] for c in shown}}
        yield instance(claim["claim_id"], claim["claim"], shown, judged=outside or None, verdict=VERDICTS[claim["verdict"]])


def best_of_n(file: Path) -> Iterator[Instance]:
    """RMB: one best response."""
    for row in rows(file):
        shown = [(str(i), r["text"], int(r["gold"])) for i, r in enumerate(row["responses"]) if r["text"].strip()]
        yield instance(row["id"], row["conversation"][-1]["content"], shown)


def styled(data: Path) -> Iterator[Instance]:
    """RM-Bench: three good responses and three bad ones, in an order that a hash decides (its file has the good ones first)."""
    for row in rows(data / "rm-bench/responses6.jsonl"):
        shown = [(str(i), r["text"], int(r["gold"])) for i, r in enumerate(row["responses"])]
        yield instance(row["id"], row["prompt"], shuffled(row["id"], shown))


def shuffled(id: str, shown: list[Any]) -> list[Any]:
    from steadyscore.window.presentation import generator

    return [shown[i] for i in generator("lab", id).permutation(len(shown))]


# -- training and tuning


def squad(data: Path, split: str, questions: int) -> Iterator[Instance]:
    corpus = {row["docid"]: row["text"] for row in rows(data / f"squad/{split}_corpus.jsonl")}
    for row in rows(data / f"squad/{split}_questions.jsonl")[:questions]:
        gold, query = row["gold_docid"], row["text"]
        shown = [
            (i, excerpt(corpus[i], query, row["answers"] if i == gold else ()), int(i == gold)) for i in row["bm25_top20"][:10]
        ]
        yield instance(row["qid"], query, shown)


def wikiqa(data: Path, split: str) -> Iterator[Instance]:
    for pool in rows(data / f"wikiqa/pools_{split}.jsonl"):
        shown = [(str(i), c["text"], c["grade"]) for i, c in enumerate(pool["candidates"][:10])]
        yield instance(pool["qid"], pool["query"], shown)


def web(data: Path) -> Iterator[Instance]:
    """TREC DL22's queries with the first 40 of BM25 and of SPLADE, in tens: not judged."""
    corpus = {row["docid"]: row["text"] for row in rows(data / "trec-dl22/corpus.jsonl")}
    queries = {row["qid"]: row["text"] for row in rows(data / "trec-dl22/queries.jsonl")}
    for stage in ("bm25", "splade"):
        for row in rows(data / f"trec-dl22/run_{stage}_top100.jsonl"):
            for start in range(0, 40, 10):
                shown = [(i, corpus[i], None) for i in row["docids"][start : start + 10]]
                yield instance(f"{row['qid']}-{stage}-{start}", queries[row["qid"]], shown)


def training(data: Path, held_out: set[str]) -> Iterator[Instance]:
    """A hash of the query decides the order, so that a run of any length sees all sources."""

    hotpot = data / "hotpotqa"
    found = [
        *web(data),
        *squad(data, "train", 500),
        *[i for i in wikiqa(data, "train") if len(i.pool) >= 8][:300],
        *multihop(hotpot / "ten_passages_two_gold.jsonl", 0, 100),
        *multihop(hotpot / "train_sample.jsonl", 0),
    ]
    yield from apart("train", found, held_out)


def mixed(found: Iterable[Instance]) -> list[Instance]:
    """Each pool once, in an order that a hash of its id decides, so that a run of any length sees all sources."""
    from steadyscore.window.presentation import generator

    return sorted({i.id: i for i in found}.values(), key=lambda i: generator("lab", i.id).random())


def apart(name: str, found: Iterable[Instance], held_out: set[str]) -> Iterator[Instance]:
    """Pools without any text that is held out."""
    removed = 0
    for one in mixed(found):
        kept = tuple(c for c in one.pool if key(c.text) not in held_out)
        removed += len(one.pool) - len(kept)
        if key(one.query) in held_out or len(kept) < 5:
            removed += len(kept)
            continue
        yield instance(one.id, one.query, [(c.id, c.text, c.relevance) for c in kept])
    print(f"{name}: {removed} candidates left out because an evaluation collection has them or their query", file=sys.stderr)


# -- the long runs


def graded(source: str, pools: Iterable[Instance], count: int, *, top: int = 3, size: int = 10) -> list[Instance]:
    """The first pools of a source in which people tell candidates apart, cut to `size`, their grades stretched to 0 to 3."""
    found = []
    for one in pools:
        titled = [(c.id, f"{c.title}. {c.text}" if c.title else c.text, c.relevance or 0) for c in one.pool[:size]]
        shown = [(i, text, min(3, round(3 * r / top))) for i, text, r in titled]
        if len(shown) >= 5 and len({r for _, _, r in shown}) > 1:
            found.append(instance(f"{source}-{one.id}", one.query, shown))
        if len(found) == count:
            break
    return found


def abstracts(data: Path) -> Iterator[Instance]:
    """SciFact's training claims. Their abstracts stand in the pools of the test claims too: to choose by, not to train on."""
    corpus = {row["docid"]: f"{row['title']}. {row['text']}" for row in rows(data / "scifact/corpus.jsonl")}
    ranked = {row["qid"]: row["docids"] for row in rows(data / "scifact/run_bm25_top100_train.jsonl")}
    for claim in rows(data / "scifact/claims_train.jsonl"):
        shown = [(i, corpus[i], int(i in claim["cited_doc_ids"])) for i in ranked[claim["claim_id"]]]
        yield instance(claim["claim_id"], claim["claim"], shown)


def preferences(data: Path, held_out: set[str]) -> Iterator[Instance]:
    """Responses to train on: RMB's prompts with three responses, and Auto-J's pairs, the preferred one at grade 3."""
    files = [*best_of_n(data / "rmb-bon/helpfulness_en_3resp_sample.jsonl"), *read_instances(data / "auto-j/pairs_train.jsonl")]
    for one in mixed(files):
        if len(one.pool) > 1 and not any(key(text) in held_out for text in (one.query, *(c.text for c in one.pool))):
            yield preferred(one)


def preferred(one: Instance) -> Instance:
    return instance(one.id, one.query, shuffled(one.id, [(c.id, c.text, 3 * (c.relevance or 0)) for c in one.pool]))


def cranfield(data: Path) -> Iterator[Instance]:
    corpus = {row["docid"]: row["text"] for row in rows(data / "cranfield/corpus.jsonl")}
    queries = {row["qid"]: row["text"] for row in rows(data / "cranfield/queries.jsonl")}
    judged = {(row["qid"], row["docid"]): row["grade"] for row in rows(data / "cranfield/qrels.jsonl") if not row["source_doc"]}
    for row in rows(data / "cranfield/run_bm25_top100.jsonl"):
        shown = [(i, corpus[i], judged.get((row["qid"], i), 0)) for i in row["docids"]]
        yield instance(row["qid"], queries[row["qid"]], shown)


def long_runs(data: Path) -> list[Instance]:
    """A thousand windows of ten: two fifths web passages, the rest graded by people."""
    hotpot, forum = data / "hotpotqa", data / "semeval-cqa"
    multihops = [*multihop(hotpot / "ten_passages_two_gold.jsonl", 0, 100), *multihop(hotpot / "train_sample.jsonl", 0)]
    return [
        *[i for i in web(data) if not i.id.endswith("-30")],
        *graded("squad", squad(data, "train", 500), 180, top=1),
        *graded("wikiqa", (i for i in wikiqa(data, "train") if len(i.pool) >= 8), 140, top=1),
        *graded("hotpotqa", multihops, 120, top=1),
        *graded("comments", read_instances(forum / "comments_train.jsonl"), 80),
        *graded("related", read_instances(forum / "related_questions_train.jsonl"), 60),
        *graded("trecqa", read_instances(data / "trecqa/pools_train.jsonl"), 60, top=1),
    ]


def tuning(data: Path, count: int) -> list[Instance]:
    """The first pools of eight sources, `count` each: all for which people's grades may choose something."""
    forum = data / "semeval-cqa"
    return [
        *graded("squad", squad(data, "dev", 100), count, top=1),
        *graded("wikiqa", (i for i in wikiqa(data, "dev") if len(i.pool) == 10), count, top=1),
        *graded("hotpotqa", multihop(data / "hotpotqa/ten_passages_two_gold.jsonl", 600, 700), count, top=1),
        *graded("comments", read_instances(forum / "comments_dev.jsonl"), count),
        *graded("related", read_instances(forum / "related_questions_dev.jsonl"), count),  # it has 16
        *graded("trecqa", read_instances(data / "trecqa/pools_dev.jsonl"), count, top=1),
        *graded("scifact", abstracts(data), count, top=1, size=20),
        *graded("cranfield", cranfield(data), count, size=20),
    ]


def other_evaluations(data: Path) -> Iterator[Instance]:
    """Collections kept for evaluation that have no file here."""
    yield from wikiqa(data, "test")
    for name in ("comments", "related_questions", "comments_pool100"):
        yield from read_instances(data / f"semeval-cqa/{name}_test.jsonl")
    yield from read_instances(data / "trecqa/pools_test.jsonl")
    sentences = [(row["docid"], row["text"], None) for row in rows(data / "climate-fever/corpus.jsonl")]
    for claim in rows(data / "climate-fever/claims.jsonl"):
        yield instance(claim["claim_id"], claim["claim"], sentences if claim["claim_id"] == "0" else ())


def texts_of(found: Iterable[Instance]) -> set[str]:
    return {key(text) for i in found for text in (i.query, *(c.text for c in i.pool))}


def main() -> None:
    data, out = map(Path, sys.argv[1:])
    hotpot = data / "hotpotqa/ten_passages_two_gold.jsonl"
    evaluations = {
        "dl19": ("passage_reranking", list(deep_learning(data, 19))),
        "dl21": ("passage_reranking", list(deep_learning(data, 21))),
        "scifact": ("passage_reranking", list(scifact(data))),
        "climate": ("claim_verification", list(climate(data))),
        "antique": ("passage_reranking", list(antique(data))),
        "hotpotqa": ("multidoc_qa", list(multihop(hotpot, 700))),
        "2wiki": ("multidoc_qa", list(multihop(data / "2wikimultihopqa/ten_passages_two_gold.jsonl", 0))),
        "rmb": ("response_ranking", list(best_of_n(data / "rmb-bon/helpfulness_en_ge4.jsonl"))),
        "rmbench": ("response_ranking", list(styled(data))),
        "autoj": ("response_ranking", [preferred(one) for one in read_instances(data / "auto-j/pairs_test.jsonl")]),
    }
    tune_responses = [preferred(one) for one in read_instances(data / "auto-j/pairs_dev.jsonl")]
    dev = [*squad(data, "dev", 40), *(i for i in wikiqa(data, "dev") if len(i.pool) == 10)][:80]
    held_out = texts_of([*(i for _, found in evaluations.values() for i in found), *dev])
    tune = mixed(tuning(data, 24))
    watch = mixed(tuning(data, 2))
    kept_from_long = held_out | texts_of(tune) | texts_of(other_evaluations(data))
    made = evaluations | {
        "dev": ("passage_reranking", dev),
        "train": ("passage_reranking", training(data, held_out)),
        "long": ("passage_reranking", apart("long", long_runs(data), kept_from_long)),
        "tune": ("passage_reranking", tune),
        "watch": ("passage_reranking", watch),
        "responses": ("response_ranking", preferences(data, held_out | texts_of(tune_responses))),
        "tune-responses": ("response_ranking", tune_responses),
    }
    for name, (task, found) in made.items():
        if (out / f"{name}.jsonl").exists():
            continue
        count = write(out / f"{name}.jsonl", Collection(name, task, chars=CHARS), found)  # type: ignore[arg-type]
        print(name, count, "queries")


if __name__ == "__main__":
    main()
