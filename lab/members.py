"""What can grade a candidate without seeing the others: two encoders, a small cross-encoder, and BM25's score.

Each is a function of a query and texts, of raw scores (n,). Places come from the environment:

    MINILM, MPNET    folders of all-MiniLM-L6-v2 and all-mpnet-base-v2, as transformers reads them
    CROSS            folder of the small cross-encoder: model.onnx, tokenizer.json (needs onnxruntime)
    BM25_TEXTS       a collection whose words are counted for BM25's inverse document frequencies
    MEMBERS_CACHE    a file where encodings and cross-encoder scores are kept; without it nothing is kept

`python members.py NAME FILE...` fills the cache for every text of some collections (cut to 300 characters), and can be stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

CHARS = 300
K1, B = 0.9, 0.4


@lru_cache(maxsize=2)
def _encoder(variable: str):
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    return AutoTokenizer.from_pretrained(os.environ[variable]), AutoModel.from_pretrained(os.environ[variable]).eval()


def embeddings(texts: list[str], variable: str = "MINILM") -> np.ndarray:
    """(n, d) unit vectors: mean over tokens, as both encoders were trained."""
    import torch

    tokenizer, model = _encoder(variable)
    with torch.inference_mode():
        batch = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
        hidden, mask = model(**batch).last_hidden_state, batch.attention_mask.unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1).numpy()


@lru_cache(maxsize=1)
def _cross_encoder():
    import onnxruntime
    from tokenizers import Tokenizer

    folder = Path(os.environ["CROSS"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    return tokenizer, onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])


def cross_scores(pairs: list[tuple[str, str]]) -> np.ndarray:
    """(n, 1) log odds of "relevant"."""
    tokenizer, session = _cross_encoder()
    found = tokenizer.encode_batch(pairs)
    names = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    logits = session.run(None, {name: np.array([getattr(e, field) for e in found]) for name, field in names.items()})[0]
    return (logits[:, 1:] - logits[:, :1]).astype(np.float32)


# -- what was computed before


@lru_cache(maxsize=1)
def _store() -> sqlite3.Connection:
    store = sqlite3.connect(os.environ.get("MEMBERS_CACHE", ":memory:"), timeout=60)
    store.execute("CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB)")
    return store


def cached(name: str, items: list, compute: Callable[[list], np.ndarray], batch: int = 16) -> np.ndarray:
    """One row for each item, computed once per name and item; items of like length share a batch."""
    keys = [hashlib.sha256(json.dumps([name, item]).encode()).digest()[:16] for item in items]
    known: dict[bytes, bytes] = {}
    for at in range(0, len(keys), 500):
        some = keys[at : at + 500]
        known |= dict(_store().execute(f"SELECT key, value FROM kept WHERE key IN ({','.join('?' * len(some))})", some))
    missing = {key: item for key, item in zip(keys, items, strict=True) if key not in known}
    todo, start = sorted(missing.items(), key=lambda pair: len(str(pair[1]))), time.time()
    for at in range(0, len(todo), batch):
        part = todo[at : at + batch]
        found = {key: row.astype(np.float32).tobytes() for (key, _), row in zip(part, compute([i for _, i in part]), strict=True)}
        _store().executemany("INSERT OR IGNORE INTO kept VALUES (?, ?)", found.items())
        _store().commit()
        known |= found
        if len(todo) > 500 and at // batch % 20 == 0:
            print(f"{name}: {at + len(part)} of {len(todo)}, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
    return np.stack([np.frombuffer(known[key], np.float32) for key in keys])


# -- the members


def _cosine(variable: str, query: str, texts: list[str]) -> np.ndarray:
    found = cached(variable, [query, *texts], lambda some: embeddings(some, variable))
    return found[1:] @ found[0]


def minilm(query: str, texts: list[str]) -> np.ndarray:
    return _cosine("MINILM", query, texts)


def mpnet(query: str, texts: list[str]) -> np.ndarray:
    return _cosine("MPNET", query, texts)


def cross(query: str, texts: list[str]) -> np.ndarray:
    return cached("CROSS", [(query, text) for text in texts], cross_scores)[:, 0]


@lru_cache(maxsize=1)
def _stemmer():
    import Stemmer

    return Stemmer.Stemmer("english")


def words(text: str) -> list[str]:
    return _stemmer().stemWords(re.findall(r"\w+", text.lower()))


@lru_cache(maxsize=1)
def _frequencies() -> tuple[Counter[str], int, float]:
    """Document frequencies, number of documents, mean length."""
    found = [words(text) for text in collection_texts(Path(os.environ["BM25_TEXTS"]))[1]]
    return Counter(w for one in found for w in set(one)), len(found), float(np.mean([len(one) for one in found]))


def bm25(query: str, texts: list[str]) -> np.ndarray:
    """BM25's score as a share of the most that the query's words could give, so that long queries do not score higher."""
    frequency, documents, mean_length = _frequencies()
    asked = {w: np.log(1 + (documents - frequency[w] + 0.5) / (frequency[w] + 0.5)) for w in set(words(query))}
    found = []
    for text in texts:
        shown = Counter(words(text))
        norm = K1 * (1 - B + B * sum(shown.values()) / mean_length)
        found.append(sum(idf * shown[w] / (shown[w] + norm) for w, idf in asked.items()) / max(1e-9, sum(asked.values())))
    return np.array(found)


MEMBERS: dict[str, Callable[[str, list[str]], np.ndarray]] = {"minilm": minilm, "mpnet": mpnet, "cross": cross, "bm25": bm25}


# -- filling the cache


def pools(path: Path) -> list[dict]:
    with path.open(encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if "candidates" in row]


def collection_texts(path: Path) -> tuple[list[str], list[str]]:
    """(queries, candidates' texts), each once, in the order of the file."""
    found = pools(path)
    return list({p["query"]: 0 for p in found}), list({c["text"][:CHARS]: 0 for p in found for c in p["candidates"]})


def main() -> None:
    name, *files = sys.argv[1:]
    for file in map(Path, files):
        if name == "cross":
            cached("CROSS", [(p["query"], c["text"][:CHARS]) for p in pools(file) for c in p["candidates"]], cross_scores)
        else:
            asked, texts = collection_texts(file)
            cached(name.upper(), [*asked, *texts], lambda some: embeddings(some, name.upper()))


if __name__ == "__main__":
    main()
