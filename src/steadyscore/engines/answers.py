"""What an answer of somebody's server or program holds: read strictly, so that what is odd is an error and never a score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..terms import JsonObject, Prompt
from ..window.readout import SlotLogits

SLACK = 1e-2
"""How far probabilities may be from their sum: servers round them to the precision they compute in."""
ANSWERED, WARNED = "answered by: ", "warned: "


class Malformed(Exception):
    """An answer that arrived and cannot be used. Raised by the function that reads it; the request is tried again."""


def number(value: Any, what: str) -> float:
    """A finite number, or `Malformed`: JSON lets NaN and null through, a score does not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise Malformed(f"{what} is {value!r}, not a finite number")
    if isinstance(value, int) and abs(value) > 2**53:
        raise Malformed(f"{what} is a whole number beyond 2^53, of which neighbours become one")
    return float(value)


def field(answer: Any, *path: str | int) -> Any:
    """A value inside an answer, or `Malformed` with where it should have been."""
    inside = answer
    for step in path:
        try:
            inside = inside[step]
        except (KeyError, IndexError, TypeError):
            raise Malformed(f"the answer has no {'.'.join(map(str, path))}") from None
    return inside


def rows_of(value: Any, count: int, what: str) -> list[Any]:
    """A list of so many rows, or `Malformed` with how many came."""
    if not isinstance(value, list) or len(value) != count:
        raise Malformed(f"{len(value) if isinstance(value, list) else 'no'} rows came back for {count} {what}")
    return value


def text_of(answer: Any, *path: str | int) -> str:
    """What a model wrote."""
    if not isinstance(text := field(answer, *path), str):
        raise Malformed("the answer holds no text")
    return text


def as_object(value: object) -> JsonObject:
    """A JSON object, empty where a server gave anything else."""
    return value if isinstance(value, dict) else {}


def token_counts(**given: object) -> dict[str, int]:
    """Tokens by what they were used for; 0 where a server gives no count of them."""
    return {what: count if type(count) is int and count > 0 else 0 for what, count in given.items()}


def said_of_itself(answer: Any) -> list[str]:
    """Which model gave an answer, often a version of the one that was asked for, and the warnings that came with it."""
    given = as_object(answer)
    warnings = as_object(given.get("meta")).get("warnings")
    said = [(ANSWERED, given.get("model")), *((WARNED, each) for each in (warnings if isinstance(warnings, list) else []))]
    return [kind + "".join(filter(str.isprintable, text))[:200] for kind, text in said if isinstance(text, str)]


# -- grades at slots


def slot_probabilities(rows: np.ndarray) -> SlotLogits:
    """(B, 4) probabilities as logits; anything that is not a distribution is refused."""
    if not ((rows >= 0).all() and (np.abs(rows.sum(axis=1) - 1) <= SLACK).all()):
        raise Malformed("rows are not distributions over the four grades: start the server as the documentation of engines says")
    with np.errstate(divide="ignore"):
        return SlotLogits(np.log(rows))


def slot_log_probabilities(rows: Any) -> SlotLogits:
    """(B, 4) log-probabilities over the vocabulary as logits with their label mass."""
    logits = np.asarray(rows, dtype=np.float64)
    mass = np.exp(logits).sum(axis=1)
    if not (np.isfinite(logits.max(axis=1)).all() and (mass <= 1 + SLACK).all()):
        raise Malformed(f"rows are not log-probabilities: the grade tokens of a slot have probability {mass.max():.3g} together")
    return SlotLogits(logits, mass)


def grade_logprobs(logprobs: Mapping[int, Any], prompt: Prompt, slot: int, advice: str = "") -> list[float]:
    """Log-probabilities of the grade tokens among those given for a slot. A missing one is an error, never a small constant."""
    if absent := [token for token in prompt.grade_tokens if token not in logprobs]:
        raise Malformed(
            f"slot {slot + 1} of {len(prompt.slots)}: grade token {', '.join(map(str, absent))} is not among the "
            f"{len(logprobs)} that came back{advice}"
        )
    return [number(logprobs[token], "a log-probability") for token in prompt.grade_tokens]
