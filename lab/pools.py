"""The lab's pools from `../shared/data`: training pools without any text of an evaluation, tuning and evaluation pools.

    python lab/pools.py ../shared/data OUT

Writes OUT/{train,dev,dl19,dl21,scifact,antique,hotpotqa,2wiki,rmb}.jsonl. Nothing of it is part of the package.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from steadyscore.collection import write
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


def responses(data: Path) -> Iterator[Instance]:
    for row in rows(data / "rmb-bon/helpfulness_en_ge4.jsonl"):
        shown = [(str(i), r["text"], int(r["gold"])) for i, r in enumerate(row["responses"]) if r["text"].strip()]
        yield instance(row["id"], row["conversation"][-1]["content"], shown)


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
    from steadyscore.window.presentation import generator

    hotpot = data / "hotpotqa"
    found = [
        *web(data),
        *squad(data, "train", 500),
        *[i for i in wikiqa(data, "train") if len(i.pool) >= 8][:300],
        *multihop(hotpot / "ten_passages_two_gold.jsonl", 0, 100),
        *multihop(hotpot / "train_sample.jsonl", 0),
    ]
    removed = 0
    for one in sorted({i.id: i for i in found}.values(), key=lambda i: generator("lab", i.id).random()):
        kept = tuple(c for c in one.pool if key(c.text) not in held_out)
        removed += len(one.pool) - len(kept)
        if key(one.query) in held_out or len(kept) < 5:
            removed += len(kept)
            continue
        yield instance(one.id, one.query, [(c.id, c.text, c.relevance) for c in kept])
    print(f"train: {removed} candidates left out because an evaluation collection has them or their query", file=sys.stderr)


def main() -> None:
    data, out = map(Path, sys.argv[1:])
    hotpot = data / "hotpotqa/ten_passages_two_gold.jsonl"
    evaluations = {
        "dl19": ("passage_reranking", list(deep_learning(data, 19))),
        "dl21": ("passage_reranking", list(deep_learning(data, 21))),
        "scifact": ("passage_reranking", list(scifact(data))),
        "antique": ("passage_reranking", list(antique(data))),
        "hotpotqa": ("multidoc_qa", list(multihop(hotpot, 700))),
        "2wiki": ("multidoc_qa", list(multihop(data / "2wikimultihopqa/ten_passages_two_gold.jsonl", 0))),
        "rmb": ("response_ranking", list(responses(data))),
    }
    dev = [*squad(data, "dev", 40), *(i for i in wikiqa(data, "dev") if len(i.pool) == 10)][:80]
    held_out = {
        key(t) for _, found in [*evaluations.values(), ("", dev)] for i in found for t in (i.query, *(c.text for c in i.pool))
    }
    made = evaluations | {"dev": ("passage_reranking", dev), "train": ("passage_reranking", training(data, held_out))}
    for name, (task, found) in made.items():
        count = write(out / f"{name}.jsonl", Collection(name, task, chars=CHARS), found)  # type: ignore[arg-type]
        print(name, count, "queries")


if __name__ == "__main__":
    main()
