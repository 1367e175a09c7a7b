"""Small collections, and the card of a shipped adapter."""

from __future__ import annotations

import json
from pathlib import Path


def a_card(**facts) -> str:
    """card.json of the shipped adapter, with other facts."""
    from steadyscore.models.embedded import shipped_adapters

    return json.dumps(json.loads((shipped_adapters()["smollm2-135m-oc"] / "card.json").read_text()) | facts)


def write_collection(file: Path, instances: list[dict], **header) -> Path:
    lines = [{"collection": {"name": file.stem, "task": "passage_reranking", **header}}, *instances]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def some_claims(folder: Path, queries: int = 3, candidates: int = 6) -> str:
    """A collection of claims, one of each verdict in turn."""
    rows = [
        {
            "id": f"c{q}",
            "query": f"thing {q} is blue",
            "verdict": ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")[q % 3],
            "candidates": [
                {"id": f"d{c}", "text": f"thing {q} note {c} " + "word " * c, "relevance": c % 2} for c in range(candidates)
            ],
        }
        for q in range(queries)
    ]
    return str(write_collection(folder / "claims.jsonl", rows, task="claim_verification"))


def some_instances(queries: int = 4, candidates: int = 6) -> list[dict]:
    """Small graded pools with distinct texts."""
    return [
        {
            "id": f"q{q}",
            "query": f"what is thing {q}",
            "candidates": [
                {"id": f"d{c}", "text": f"thing {q} number {c} " + "word " * (c + 1), "relevance": (c + q) % 4}
                for c in range(candidates)
            ],
        }
        for q in range(queries)
    ]
