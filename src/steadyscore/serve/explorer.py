"""The explorer's files and its embedded examples. The page is static and sends requests to this server only."""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from ..collection import open_collection
from ..window.prompt import collapse

WEB = Path(__file__).resolve().parent / "web"
FILES = {
    "/": ("explorer.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
}
EXAMPLES = (("passages", 3), ("responses", 2), ("multidoc_qa", 2))
"""Embedded collections and how many of their queries are offered."""
POOL, CHARS = 8, 600


router = APIRouter(include_in_schema=False)


class Example(BaseModel):
    collection: str
    query: str
    documents: list[str]


@cache
def examples() -> list[Example]:
    """Queries of the embedded collections with their first candidates."""
    offered: list[Example] = []
    for name, count in EXAMPLES:
        for instance in islice(open_collection(name).instances(), count):
            texts = [collapse(f"{c.title}: {c.text}" if c.title else c.text)[:CHARS] for c in instance.pool[:POOL]]
            offered.append(Example(collection=name, query=collapse(instance.query), documents=texts))
    return offered


async def serve_file(request: Request) -> Response:
    name, kind = FILES[request.url.path]
    return Response((WEB / name).read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


for path in FILES:
    router.add_api_route(path, serve_file)


@router.get("/v1/examples")
def offer_examples() -> list[Example]:
    return examples()
