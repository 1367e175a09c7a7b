"""A decisions file: states with typed questions, what may be reordered in them, and gold where it is known.

JSONL with a state a line, or one JSON object whose `states` share the other fields (docs/decision-models.md). Every mistake of a
file is reported at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..collection.files import KeyTwice, keys_once
from ..errors import InputError
from ..machine.contents import read_whole
from .pool import Steps, parse_path, value_behind
from .questions import Choice, Noul, Question, State

EMBEDDED = {"tickets": Path(__file__).with_name("tickets.json")}
"""Files that ship: ten support tickets with help articles, written for this package."""


@dataclass(frozen=True, slots=True)
class Case:
    """A state with its questions: what is asked again and again in other presentations."""

    id: str
    state: State
    questions: tuple[Question, ...]
    path: Steps | None = None
    """Path of the list whose order may change; None where nothing is marked."""
    gold: tuple[int | None, ...] = ()
    """Per question the right outcome; None where it is not known."""
    cutoffs: tuple[float, ...] = ()
    """Per question where its decision turns: a probability of yes, an expected level; NaN for a choice, which has none."""
    fixed: frozenset[str] = frozenset()
    """Questions whose options or levels keep their order."""

    @property
    def candidates(self) -> list[Any]:
        """The list that may be reordered; empty where none is marked."""
        return [] if self.path is None else list(value_behind(self.state.content, self.path))


def find_file(file: str | Path) -> Path:
    """A decisions file by its path, or an embedded one by its name."""
    return EMBEDDED[str(file)] if str(file) in EMBEDDED and not Path(file).exists() else Path(file)


def read_rows(file: str | Path) -> list[dict[str, Any]]:
    """The states of a decisions file as objects that each hold all of their fields; all mistakes at once."""
    rows = _parse(find_file(file))
    mistakes: list[str] = []
    seen: set[str] = set()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            mistakes.append(f"{file}, state {number}: give an object.")
            continue
        row.setdefault("id", str(number))
        case, refused = _read(row)
        mistakes += [f"{file}, state {row['id']}: {mistake}" for mistake in refused]
        if case is not None and case.id in seen:
            mistakes.append(f"{file}, state {case.id}: the id stands more than once.")
        seen.add(str(row["id"]))
    if not rows:
        mistakes.append(f"{file} holds no state. Write one JSON object a line.")
    if mistakes:
        raise InputError(mistakes)
    return rows


def _parse(file: Path) -> list[Any]:
    try:
        text = read_whole(file).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as refusal:
        raise InputError(f"{file} cannot be read: {refusal}. Give a decisions file (JSONL or JSON).") from refusal
    try:
        whole = json.loads(text, object_pairs_hook=keys_once)
    except (ValueError, RecursionError):
        return _parse_lines(file, text)
    if isinstance(whole, dict) and "states" in whole:
        states = whole.pop("states")
        if not isinstance(states, list):
            raise InputError(f"{file}: states is not a list. Give a list of objects.")
        return [{**whole, **state} if isinstance(state, dict) else state for state in states]
    return whole if isinstance(whole, list) else [whole]


def _parse_lines(file: Path, text: str) -> list[Any]:
    rows, mistakes = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line, object_pairs_hook=keys_once))
            except KeyTwice as double:
                mistakes.append(f"{file}, line {number}: {double}.")
            except (ValueError, RecursionError) as odd:
                mistakes.append(f"{file}, line {number} is not JSON: {odd}.")
    if mistakes:
        raise InputError(mistakes[:20])
    return rows


def read_case(row: Mapping[str, Any]) -> Case:
    """One state with its questions; all mistakes at once."""
    case, mistakes = _read(row)
    if case is None or mistakes:
        raise InputError(mistakes)
    return case


def _read(row: Mapping[str, Any]) -> tuple[Case | None, list[str]]:
    from .case_shape import read_shape

    given, mistakes = read_shape(row)
    if given is None:
        return None, mistakes
    questions = tuple(shape.question(id) for id, shape in given.questions.items())
    gold, cutoffs, fixed = given.gold or {}, given.cutoffs or {}, given.fixed or []
    for name, ids in (("gold", gold), ("cutoffs", cutoffs), ("fixed", fixed)):
        if unknown := [id for id in ids if id not in given.questions]:
            mistakes.append(f"{name}: no question is called {', '.join(unknown)}.")
    path = None if given.candidates is None else _read_path(given.candidates, given.state, mistakes)
    golds = tuple(_read_gold(question, gold.get(question.id or ""), mistakes) for question in questions)
    lines = tuple(_read_cutoff(question, cutoffs.get(question.id or ""), mistakes) for question in questions)
    state = State(given.state, given.instructions)
    return Case(str(given.id), state, questions, path, golds, lines, frozenset(fixed)), mistakes


def _read_path(given: str, content: Any, mistakes: list[str]) -> Steps | None:
    """`$.candidates` as steps, which must lead to a list."""
    try:
        path = parse_path(given)
    except InputError:
        mistakes.append(f"candidates is {given!r}: give a path such as $.candidates.")
        return None
    if not isinstance(value_behind(content, path), list):
        mistakes.append(f"candidates: there is no list at {given} in the state.")
    return path


def _read_gold(question: Question, given: Any, mistakes: list[str]) -> int | None:
    """The place of the right outcome among the question's own."""
    if given is None:
        return None
    if isinstance(question, Noul):
        names: list[Any] = [True, False]
    elif isinstance(question, Choice):
        names = [option.value for option in question.options]
    elif isinstance(given, str):
        names = [level.label for level in question.levels]
    else:
        names = list(range(len(question.levels)))
    for place, name in enumerate(names):
        if type(name) is type(given) and name == given:
            return place
    mistakes.append(f"gold.{question.id} is {given!r}: give one of {', '.join(map(str, names))}.")
    return None


def _read_cutoff(question: Question, given: Any, mistakes: list[str]) -> float:
    """Half of the scale, unless the file says otherwise."""
    if isinstance(question, Choice):
        if given is not None:
            mistakes.append(f"cutoffs.{question.id}: a choice has none; leave it out.")
        return math.nan
    most = 1 if isinstance(question, Noul) else len(question.levels) - 1
    if given is None:
        return most / 2
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= most:
        mistakes.append(f"cutoffs.{question.id} is {given!r}: give a number from 0 to {most}.")
        return math.nan
    return float(given)
