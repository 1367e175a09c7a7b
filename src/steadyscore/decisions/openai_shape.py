"""Shape B, `POST /v1/decisions`: a list of questions, answered in its order (OpenAI, SGLang, Fireworks and others).

Written and read without HTTP. What this shape has no field for is written into the nearest text: a state that is neither a text
nor a list of messages as JSON, the criteria of a yes-or-no question behind its instructions.
"""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from .questions import (
    Answer,
    Choice,
    Level,
    Limits,
    Noul,
    Option,
    Question,
    Refusal,
    Request,
    Response,
    Score,
    State,
    UnusableAnswer,
    check_count,
    check_fields,
    read_decided,
    read_object,
    read_optional_text,
    read_probability,
    read_text,
    read_usage,
)

PATH = "/decisions"
"""Behind the base address, which ends in /v1."""
LIMITS = Limits(questions=400, options=255, levels=10)
"""What OpenAI takes."""
REQUEST_FIELDS = ("model", "input", "questions")
TYPES = {"noul": "predicate", "choice": "choice", "score": "score"}
"""This shape's word for each kind of question."""


def write_request(request: Request) -> dict[str, Any]:
    state = request.state
    shown = state.content if is_messages(state.content) and not state.instructions else state.text
    return {
        "model": request.model,
        "input": shown,
        "questions": [_write_question(question) for question in request.questions],
        **request.extras,
    }


def is_messages(content: Any) -> bool:
    """Whether a state is a conversation: a list of objects that each have a role and a content."""
    return (
        isinstance(content, list)
        and len(content) > 0
        and all(
            isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message for message in content
        )
    )


def _write_question(question: Question) -> dict[str, Any]:
    named = {} if question.id is None else {"name": question.id}
    written = {"type": TYPES[question.kind], **named, "instructions": question.instructions}
    if isinstance(question, Noul):
        return {**written, "instructions": question.text}
    if isinstance(question, Choice):
        return {**written, "choices": [_described("value", option.value, option.description) for option in question.options]}
    return {**written, "levels": [_described("label", level.label, level.description) for level in question.levels]}


def _described(field: str, value: Any, description: str | None) -> dict[str, Any]:
    return {field: value} if description is None else {field: value, "description": description}


def read_request(body: Any, limits: Limits = LIMITS) -> Request:
    """A request; all mistakes in it are reported at once."""
    mistakes: list[str] = []
    given = read_object(body, "the request", mistakes)
    if mistakes:
        raise InputError(mistakes)
    model = read_text(given.get("model"), "model", mistakes)
    content = given.get("input")
    if not isinstance(content, str) and not is_messages(content):
        mistakes.append("input: give a text, or a list of messages that each have a role and a content.")
    questions = given.get("questions")
    if not isinstance(questions, list):
        mistakes.append("questions: give a list.")
        raise InputError(mistakes)
    check_count(len(questions), 1, limits.questions, "questions", "questions", mistakes)
    asked = tuple(_read_question(i, question, limits, mistakes) for i, question in enumerate(questions))
    names = [question.id for question in asked if question.id is not None]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        mistakes.append(f"questions: the name {', '.join(twice)} stands more than once.")
    if mistakes:
        raise InputError(mistakes)
    return Request(model, State(content), asked, {name: value for name, value in given.items() if name not in REQUEST_FIELDS})


def _read_question(i: int, question: Any, limits: Limits, mistakes: list[str]) -> Question:
    where = f"questions.{i}"
    given = read_object(question, where, mistakes)
    if not isinstance(question, dict):
        return Noul("")
    instructions = read_text(given.get("instructions"), f"{where}.instructions", mistakes)
    name = read_optional_text(given.get("name"), f"{where}.name", mistakes)
    match given.get("type"):
        case "predicate":
            check_fields(given, ("type", "name", "instructions"), where, mistakes)
            return Noul(instructions, name)
        case "choice":
            check_fields(given, ("type", "name", "instructions", "choices"), where, mistakes)
            return Choice(instructions, _read_options(given.get("choices"), limits, f"{where}.choices", mistakes), name)
        case "score":
            check_fields(given, ("type", "name", "instructions", "levels"), where, mistakes)
            return Score(instructions, _read_levels(given.get("levels"), limits, f"{where}.levels", mistakes), name)
        case other:
            mistakes.append(f"{where}.type is {other!r}: give predicate, choice or score.")
            return Noul(instructions, name)


def _read_options(given: Any, limits: Limits, where: str, mistakes: list[str]) -> tuple[Option, ...]:
    options = []
    for i, entry in enumerate(_read_list(given, limits.options, "choices", where, mistakes)):
        described = read_object(entry, f"{where}.{i}", mistakes)
        check_fields(described, ("value", "description"), f"{where}.{i}", mistakes)
        value = described.get("value")
        if not isinstance(value, str | bool):
            mistakes.append(f"{where}.{i}.value: give a text, true or false.")
            value = ""
        options.append(Option(value, read_optional_text(described.get("description"), f"{where}.{i}.description", mistakes)))
    names = [option.name for option in options]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        mistakes.append(f"{where}: {', '.join(twice)} stands more than once.")
    return tuple(options)


def _read_levels(given: Any, limits: Limits, where: str, mistakes: list[str]) -> tuple[Level, ...]:
    levels = []
    for i, entry in enumerate(_read_list(given, limits.levels, "levels", where, mistakes)):
        described = read_object(entry, f"{where}.{i}", mistakes)
        check_fields(described, ("label", "description"), f"{where}.{i}", mistakes)
        label = read_text(described.get("label"), f"{where}.{i}.label", mistakes)
        levels.append(Level(label, read_optional_text(described.get("description"), f"{where}.{i}.description", mistakes)))
    return tuple(levels)


def _read_list(given: Any, most: int, what: str, where: str, mistakes: list[str]) -> list[Any]:
    if not isinstance(given, list):
        mistakes.append(f"{where}: give a list.")
        return []
    check_count(len(given), 2, most, what, where, mistakes)
    return given


# -- answers


def write_answers(questions: tuple[Question, ...], response: Response) -> dict[str, Any]:
    usage = response.usage
    return {
        "model": response.model,
        "answers": [_write_answer(question, answer) for question, answer in zip(questions, response.answers, strict=True)],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }


def _write_answer(question: Question, answer: Answer | Refusal) -> dict[str, Any]:
    if isinstance(answer, Refusal):
        return {"type": "refusal", "name": question.id}
    written = {"type": TYPES[question.kind], "name": question.id}
    if isinstance(question, Noul):
        return {**written, "probability": answer.probabilities[0]}
    if isinstance(question, Choice):
        probabilities = [
            {"value": option.value, "probability": p} for option, p in zip(question.options, answer.probabilities, strict=True)
        ]
        decided: dict[str, Any] = {"choice": question.options[answer.best].value}
    else:
        probabilities = [
            {"value": i, "label": level.label, "probability": p}
            for i, (level, p) in enumerate(zip(question.levels, answer.probabilities, strict=True))
        ]
        decided = {"score": answer.expected_level}
    return {**written, **decided, "probabilities": probabilities, "confidence": answer.confidence}


def read_answers(questions: tuple[Question, ...], body: Any) -> Response:
    """The answers to these questions; `UnusableAnswer` names whatever is missing or is not a distribution."""
    given = body.get("answers") if isinstance(body, dict) else None
    if not isinstance(given, list) or len(given) != len(questions):
        count = len(given) if isinstance(given, list) else "no"
        raise UnusableAnswer([f"{count} answers came back for {len(questions)} questions"])
    mistakes: list[str] = []
    named = {answer["name"]: answer for answer in given if isinstance(answer, dict) and isinstance(answer.get("name"), str)}
    asked = [q.id if len(given) > 1 else None for q in questions]  # one answer needs no name
    joined = [answer if name is None else named.get(name) for name, answer in zip(asked, given, strict=True)]
    read = tuple(_read_answer(i, q, a, mistakes) for i, (q, a) in enumerate(zip(questions, joined, strict=True), 1))
    if mistakes:
        raise UnusableAnswer(mistakes)
    model = body.get("model")
    return Response(model if isinstance(model, str) else "", read, read_usage(body.get("usage")))


def _read_answer(number: int, question: Question, given: Any, mistakes: list[str]) -> Answer | Refusal:
    what = f"question {question.id or number}"
    if not isinstance(given, dict):
        mistakes.append(f"{what} has no answer" if given is None else f"{what}: the answer is not an object")
        return Refusal()
    if given.get("name") not in (None, question.id):
        mistakes.append(f"{what}: the answer in its place is that of {given['name']!r}")
        return Refusal()
    if given.get("type") == "refusal":
        return Refusal()
    if given.get("type") != TYPES[question.kind]:
        mistakes.append(f"{what} is a {TYPES[question.kind]}, its answer a {given.get('type')!r}")
        return Refusal()
    if isinstance(question, Noul):
        yes = read_probability(given.get("probability"), f"{what}: the probability", mistakes)
        return Answer((yes, 1 - yes))
    names: list[Any] = (
        [option.value for option in question.options] if isinstance(question, Choice) else list(range(len(question.levels)))
    )
    labels = [level.label for level in question.levels] if isinstance(question, Score) else [None] * len(names)
    probabilities = _read_probabilities(given.get("probabilities"), names, labels)
    if probabilities is None:
        mistakes.append(f"{what}: the probabilities are not those of {', '.join(map(str, names))}")
        return Refusal()
    return read_decided(question, given, names, probabilities, what, mistakes)


def _read_probabilities(given: Any, names: list[Any], labels: list[Any]) -> list[Any] | None:
    """The probability of each outcome, each exactly once and in any order; None where they are not these outcomes."""
    if not isinstance(given, list) or len(given) != len(names):
        return None
    found: list[Any] = []
    for name, label in zip(names, labels, strict=True):  # True == 1 in Python: the type must be the same too
        entries = [e for e in given if isinstance(e, dict) and type(e.get("value")) is type(name) and e["value"] == name]
        if len(entries) != 1 or (label is not None and (entries[0].get("label") or label) != label):
            return None
        found.append(entries[0].get("probability"))
    return found
