"""The explorer's files and its embedded examples. The page is static and asks nobody but this server."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response

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


@lru_cache(maxsize=1)
def examples() -> list[dict[str, Any]]:
    """Queries of the embedded collections with their first candidates."""
    found = []
    for name, count in EXAMPLES:
        instances = open_collection(name).instances
        for instance in islice(instances(), count):
            texts = [collapse(f"{c.title}: {c.text}" if c.title else c.text)[:CHARS] for c in instance.pool[:POOL]]
            found.append({"collection": name, "query": collapse(instance.query), "documents": texts})
    return found


def add_routes(app: FastAPI) -> None:
    def file_route(name: str, kind: str) -> Any:
        async def serve_file() -> Response:
            return Response((WEB / name).read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})

        return serve_file

    for path, (name, kind) in FILES.items():
        app.add_api_route(path, file_route(name, kind), include_in_schema=False)

    @app.get("/v1/examples", include_in_schema=False)
    def embedded() -> list[dict[str, Any]]:
        return examples()
