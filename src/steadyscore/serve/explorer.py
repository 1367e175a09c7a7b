"""The explorer's files and its embedded examples. The page is static and sends requests to this server only."""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from ..collection import open_collection
from ..decisions.cases import read_rows
from ..tasks import TASKS
from ..window.prompt import collapse

WEB = Path(__file__).resolve().parent / "web"
FILES = {
    "/": ("explorer.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
    "/explorer.decisions.js": ("explorer.decisions.js", "text/javascript; charset=utf-8"),
}
EXAMPLES = (("passages", 3), ("responses", 2), ("multidoc_qa", 2))
"""Embedded collections and how many of their queries are offered."""
POOL, CHARS = 8, 600
MEMBERS, MEMBER_CHARS = 4, 300
"""Of the state that is made of a pool: every member is asked about."""


router = APIRouter(include_in_schema=False)


class Example(BaseModel):
    collection: str
    query: str
    documents: list[str]


class DecisionExample(BaseModel):
    """A state, where its list stands, and one question about it as `/v1/systemone` takes it."""

    name: str
    state: Any
    pool: str
    question: dict[str, Any]
    threshold: float | None = None


@cache
def examples() -> list[Example]:
    """Queries of the embedded collections with their first candidates."""
    offered: list[Example] = []
    for name, count in EXAMPLES:
        for instance in islice(open_collection(name).instances(), count):
            texts = [collapse(f"{c.title}: {c.text}" if c.title else c.text)[:CHARS] for c in instance.pool[:POOL]]
            offered.append(Example(collection=name, query=collapse(instance.query), documents=texts))
    return offered


@cache
def decision_examples() -> list[DecisionExample]:
    """Passages that are each graded, and the questions of one embedded ticket."""
    passages = next(iter(open_collection("passages").instances()))
    members = [{"id": f"p{i}", "text": collapse(c.text)[:MEMBER_CHARS]} for i, c in enumerate(passages.pool[:MEMBERS], 1)]
    graded = {
        "type": "score",
        "instructions": "How relevant to the query is passage {id}?",
        "criteria": list(TASKS["passage_reranking"].levels),
    }
    state = {"query": collapse(passages.query), "candidates": members}
    offered = [DecisionExample(name="passages: each graded", state=state, pool="$.candidates", question=graded, threshold=1.5)]
    ticket = read_rows("tickets")[0]
    for name, question in ticket["questions"].items():
        if question["type"] in ("choice", "score"):
            offered.append(
                DecisionExample(name=f"ticket: {name}", state=ticket["state"], pool=ticket["candidates"], question=question)
            )
    return offered


async def serve_file(request: Request) -> Response:
    name, kind = FILES[request.url.path]
    return Response((WEB / name).read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


for path in FILES:
    router.add_api_route(path, serve_file)


@router.get("/v1/examples")
def offer_examples() -> list[Example]:
    return examples()


@router.get("/v1/examples/decisions")
def offer_decision_examples() -> list[DecisionExample]:
    return decision_examples()
