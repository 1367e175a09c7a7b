"""One state of a decisions file as JSON. pydantic is imported here, so a file's reader imports this when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from ..machine.schemas import Closed, Json, Key, Words, mistakes_of
from ..terms import JsonObject
from .system_one import LevelsShape, NoulShape, OptionsShape

MOST_OPTIONS = 255
"""The most that any known server takes."""


class NoulOfFile(NoulShape):
    instructions: Words


class OptionsOfFile(OptionsShape):
    instructions: Words
    criteria: Annotated[dict[Key, Words | None], Field(min_length=2, max_length=MOST_OPTIONS)]


class LevelsOfFile(LevelsShape):
    instructions: Words


class CaseShape(Closed):
    """A state as a file holds it; what its fields say of each other is checked afterwards."""

    id: str | int
    state: Json
    instructions: Words | None = None
    candidates: str | None = None
    questions: Annotated[
        dict[Key, Annotated[NoulOfFile | OptionsOfFile | LevelsOfFile, Field(discriminator="type")]], Field(min_length=1)
    ]
    gold: JsonObject | None = None
    cutoffs: JsonObject | None = None
    fixed: list[str] | None = None


def read_shape(row: Mapping[str, Any]) -> tuple[CaseShape | None, list[str]]:
    """A row with its fields checked, or every mistake in them."""
    try:
        return CaseShape.model_validate(row), []
    except ValidationError as error:
        return None, [f"{mistake}." for mistake in mistakes_of(error, "the state")]
