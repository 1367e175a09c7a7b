"""openapi.json: what FastAPI knows of the routes, with the limits, the token and the refusals that come before a route."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from . import schemas
from .decision_schemas import DecisionOrder
from .middleware import PROBE_PATHS, open_paths
from .settings import Limits, ServerSettings
from .variants import Schema

ANYWHERE = {
    "400": "a head that can be read in two ways",
    "408": "the request did not arrive in time",
    "413": "the body is too large",
    "415": "the body is packed",
    "421": "a host that this server does not answer for",
    "500": "the server failed",
    "503": "shutting down, or every connection is at work",
}
"""Refusals that come before a route."""
PROBLEM = {"$ref": f"#/components/schemas/{schemas.Problem.__name__}"}
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LIMITED = {shape.__name__ for shape in (schemas.Order, schemas.Document, DecisionOrder)}
"""Parts of requests that the server's limits bound."""
QUERIES, TEXTS = ("query", "queries", "text_1"), ("documents", "texts", "text_2", "text")
"""Fields of requests that hold the one or the other."""


def cached_specification(app: FastAPI, settings: ServerSettings) -> Callable[[], Schema]:
    """The app's specification as a function, made when it is first called."""
    return cache(partial(specification, app, settings))


def specification(app: FastAPI, settings: ServerSettings) -> Schema:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _add_refusals(path, operation)
            if settings.keys and path not in open_paths(settings):
                operation["security"] = [{"token": []}]
    if settings.keys:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for name in components:
        if name.endswith("Request") or name in LIMITED:
            for variant in components[name].get("anyOf", [components[name]]):
                _add_limits(variant, settings.limits)
    for schema in _objects(document):
        _keep_whole_bounds(schema)
    return document


def _add_refusals(path: str, operation: Schema) -> None:
    """A status that the route itself gives keeps its own shape beside that of the refusal."""
    for status, words in ANYWHERE.items():
        if status == "421" and path in PROBE_PATHS:
            continue
        own = operation["responses"].get(status, {"description": words})
        schema = own.get("content", {}).get("application/json", {}).get("schema", PROBLEM)
        either = schema if schema == PROBLEM else {"anyOf": [schema, PROBLEM]}
        operation["responses"][status] = own | {"content": {"application/json": {"schema": either}}}


def _add_limits(shape: Schema, limits: Limits) -> None:
    """The bounds this server was started with; texts that are not required in a variant of a request are not read there.

    The bound of all windows together is one of a product of fields, which a schema cannot state.
    """
    if "permutations" in shape["properties"]:
        shape["properties"]["permutations"]["maximum"] = limits.permutations
    for name in {*QUERIES, *TEXTS} & set(shape.get("required", ())):
        for schema in _objects(shape["properties"][name]):
            if schema.get("type") == "string":
                schema["maxLength"] = limits.query_chars if name in QUERIES else limits.document_chars
            if schema.get("type") == "array":
                schema["maxItems"] = limits.candidates


def _keep_whole_bounds(schema: Schema) -> None:
    """FastAPI makes every bound a float, which 2**63 in decimal does not survive."""
    for name in BOUNDS:
        if isinstance(schema.get(name), float) and schema[name].is_integer():
            schema[name] = int(schema[name])


def _objects(value: Any) -> Iterator[Schema]:
    """Every object in a JSON value, itself included."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _objects(part)
