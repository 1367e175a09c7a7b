"""Rules between two fields of a request, stated in its JSON schema as a choice of variants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
NULL = {"type": "null"}
Change = Callable[[Schema], Schema]
"""From the schema of a field to its schema in one variant of a request."""


def keep_kinds(keep: Callable[[Schema], bool]) -> Change:
    """Only some of the kinds of value that a field takes."""

    def change(field: Schema) -> Schema:
        kinds = [kind for kind in field["anyOf"] if keep(kind)]
        rest = {key: value for key, value in field.items() if key not in ("anyOf", "default")}
        return rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})

    return change


a_value, null = keep_kinds(lambda kind: kind != NULL), keep_kinds(lambda kind: kind == NULL)


def state_variants(schema: Schema, *variants: dict[str, Change]) -> None:
    """Make a request's schema a choice of variants, for rules between two fields that no single field can state.

    A field that must have a value in a variant is required there.
    """
    about = {key: schema.pop(key) for key in ("title", "description", "examples") if key in schema}
    shape, stated = dict(schema), []
    for changes in variants:
        changed = {name: change(shape["properties"][name]) for name, change in changes.items()}
        needed = [name for name, field in changed.items() if NULL not in (field.get("anyOf") or [{"type": field.get("type")}])]
        required = list(dict.fromkeys([*shape.get("required", []), *needed]))
        stated.append(shape | {"properties": shape["properties"] | changed, "required": required})
    schema.clear()
    schema.update(about | {"anyOf": stated})


def newer_or_older(newer: str, older: str) -> list[dict[str, Change]]:
    """A field under two names; the older one is read where the newer one has no value."""
    return [{newer: a_value}, {newer: null, older: a_value}]
