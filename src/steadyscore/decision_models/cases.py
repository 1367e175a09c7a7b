"""A decisions file: states with typed questions, what may be reordered in them, and gold where it is known.

JSONL with a state a line, or one JSON object whose `states` share the other fields (docs/decision-models.md). Every mistake of a
file is reported at once. What may be reordered is the list at a path of the state, such as `$.candidates`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from ..collection.files import BYTE_ORDER_MARK, Unreadable, keys_once, parse_line
from ..errors import InputError
from ..machine.contents import read_whole
from ..machine.schemas import Closed, Json, Key, Words, mistakes_of
from ..terms import JsonObject
from .questions import Choice, Noul, Question, State, place_among
from .system_one import LevelsShape, NoulShape, OptionsShape

EMBEDDED = {"tickets": Path(__file__).with_name("tickets.json")}
"""Files that ship: ten support tickets with help articles, written for this package."""
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
    row: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """All of this as the file has it."""

    @property
    def candidates(self) -> list[Any]:
        """The list that may be reordered; empty where none is marked."""
        return [] if self.path is None else list(value_behind(self.state.content, self.path))


def find_file(file: str | Path) -> Path:
    """A decisions file by its path, or an embedded one by its name."""
    return EMBEDDED[str(file)] if str(file) in EMBEDDED and not Path(file).exists() else Path(file)


def read_cases(file: str | Path) -> list[Case]:
    """The states of a decisions file; all mistakes at once."""
    cases: dict[str, Case] = {}
    mistakes: list[str] = []
    for number, row in enumerate(_parse(find_file(file)), 1):
        if not isinstance(row, dict):
            mistakes.append(f"{file}, state {number}: give an object.")
            continue
        row.setdefault("id", str(number))
        case, refused = _read(row)
        mistakes += [f"{file}, state {row['id']}: {mistake}" for mistake in refused]
        if case is not None and cases.setdefault(case.id, case) is not case:
            mistakes.append(f"{file}, state {case.id}: the id stands more than once.")
    if not (cases or mistakes):
        mistakes.append(f"{file} holds no state. Write one JSON object a line.")
    if mistakes:
        raise InputError(mistakes)
    return list(cases.values())


def _parse(file: Path) -> list[Any]:
    try:
        content = read_whole(file).removeprefix(BYTE_ORDER_MARK)
    except OSError as refusal:
        raise InputError(f"{file} cannot be read: {refusal}. Give a decisions file (JSONL or JSON).") from refusal
    try:
        whole = json.loads(content.decode("utf-8"), object_pairs_hook=keys_once)
    except (ValueError, RecursionError):
        return _parse_lines(file, content)
    if isinstance(whole, dict) and "states" in whole:
        states = whole.pop("states")
        if not isinstance(states, list):
            raise InputError(f"{file}: states is not a list. Give a list of objects.")
        return [{**whole, **state} if isinstance(state, dict) else state for state in states]
    return whole if isinstance(whole, list) else [whole]


def _parse_lines(file: Path, content: bytes) -> list[Any]:
    numbered = [(number, parse_line(line)) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    if mistakes := [f"{file}, line {number}: {row}." for number, row in numbered if isinstance(row, Unreadable)]:
        raise InputError(mistakes[:20])
    return [row for _, row in numbered]


def read_case(row: Mapping[str, Any]) -> Case:
    """One state with its questions; all mistakes at once."""
    case, mistakes = _read(row)
    if case is None or mistakes:
        raise InputError(mistakes)
    return case


def _read(row: Mapping[str, Any]) -> tuple[Case | None, list[str]]:
    try:
        given = CaseShape.model_validate(row)
    except ValidationError as error:
        return None, [f"{mistake}." for mistake in mistakes_of(error, "the state")]
    questions = tuple(shape.question(id) for id, shape in given.questions.items())
    gold, cutoffs, fixed = given.gold or {}, given.cutoffs or {}, given.fixed or []
    mistakes = [
        f"{name}: no question is called {', '.join(unknown)}."
        for name, ids in (("gold", gold), ("cutoffs", cutoffs), ("fixed", fixed))
        if (unknown := [id for id in ids if id not in given.questions])
    ]
    path = None if given.candidates is None else _read_path(given.candidates, given.state, mistakes)
    golds = tuple(_read_gold(question, gold.get(question.id or ""), mistakes) for question in questions)
    lines = tuple(_read_cutoff(question, cutoffs.get(question.id or ""), mistakes) for question in questions)
    state = State(given.state, given.instructions)
    return Case(str(given.id), state, questions, path, golds, lines, frozenset(fixed), row), mistakes


def _read_path(given: str, content: Any, mistakes: list[str]) -> Steps | None:
    """`$.candidates` as steps, which must lead to a list."""
    try:
        path = parse_path(given)
    except InputError as refusal:
        mistakes.append(f"candidates: {refusal}")
        return None
    if not isinstance(value_behind(content, path), list):
        mistakes.append(f"candidates: there is no list at {given} in the state.")
    return path


def _read_gold(question: Question, given: Any, mistakes: list[str]) -> int | None:
    """The place of the right outcome among the question's own."""
    if given is None:
        return None
    names: Sequence[object]
    if isinstance(question, Noul):
        names = (True, False)
    elif isinstance(question, Choice):
        names = [option.value for option in question.options]
    else:
        names = [level.label for level in question.levels] if isinstance(given, str) else range(len(question.levels))
    place = place_among(given, names)
    if place is None:
        mistakes.append(f"gold.{question.id} is {given!r}: give one of {', '.join(map(str, names))}.")
    return place


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


# -- what a path of the state leads to


Steps = tuple[str | int, ...]
"""The keys and places that lead from the whole state to a value in it."""
STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\['([^']*)'\]")


def parse_path(path: str) -> Steps:
    """A path as steps; `$` is the state itself."""
    steps = list(STEP.finditer(path[1:]))
    if not path.startswith("$") or "".join(step[0] for step in steps) != path[1:]:
        raise InputError(f"{path[:80]!r} is not a path into the state. Write it as $.candidates or $.search.results[0].passages.")
    return tuple(int(step[2]) if step[2] else step[1] if step[1] is not None else step[3] for step in steps)


def value_behind(content: Any, steps: Steps) -> Any:
    """What a state holds behind these steps; None where they lead nowhere."""
    for step in steps:
        if isinstance(step, str):
            content = content.get(step) if isinstance(content, dict) else None
        else:
            content = content[step] if isinstance(content, list) and step < len(content) else None
    return content


def with_value(content: Any, steps: Steps, value: Any) -> Any:
    """A copy of a state with another value at a path; the state given is not changed."""
    if not steps:
        return value
    copy: Any = dict(content) if isinstance(content, dict) else list(content)
    copy[steps[0]] = with_value(content[steps[0]], steps[1:], value)
    return copy


def value_at(content: Any, path: str) -> Any:
    """The value at a path of the state."""
    value = value_behind(content, parse_path(path))
    if value is None:
        raise InputError(f"the state has nothing at {path[:80]}. Name the path of the list in it.")
    return value


def list_at(content: Any, path: str) -> list[Any]:
    value = value_at(content, path)
    if not isinstance(value, list) or not value:
        raise InputError(f"the state has no list at {path[:80]}. Name the path of the list in it.")
    return value


def with_list(content: Any, path: str, members: Sequence[Any]) -> Any:
    """The state with other members in its list."""
    return with_value(content, parse_path(path), list(members))


def member_keys(members: Sequence[Any]) -> list[str]:
    """What a question calls each member: its `id`; one without an id, or with null, its place, counted from 1."""
    ids = (member.get("id") if isinstance(member, dict) else None for member in members)
    return [str(place if id is None else id) for place, id in enumerate(ids, 1)]


def member_text(member: Any) -> tuple[str, str | None]:
    """Text and title of a member that is a text or an object with one."""
    if isinstance(member, str):
        return member, None
    text, title = (member.get("text"), member.get("title")) if isinstance(member, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(title, str | None):
        raise InputError("a member of the pool is neither a text nor an object with a text. Send texts, or objects with text.")
    return text, title
