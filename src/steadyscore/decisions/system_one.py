"""Shape A, `POST /v1/systemone`: a map of questions by id, criteria by type (TypeSafe Jev, vLLM, llama.cpp and others).

Written and read without HTTP. A level's description stands in its name, since this shape has no field for it.
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

PATH = "/systemone"
"""Behind the base address, which ends in /v1."""
LIMITS = Limits(questions=64, options=26, levels=10)
"""What vLLM 0.32 takes."""
REQUEST_FIELDS = ("model", "state", "questions", "instructions")
QUESTION_FIELDS = ("type", "instructions", "criteria")


def write_request(request: Request) -> dict[str, Any]:
    instructions = {} if request.state.instructions is None else {"instructions": request.state.instructions}
    questions = {key: _write_question(question) for key, question in zip(keys(request.questions), request.questions, strict=True)}
    return {"model": request.model, "state": request.state.content, **instructions, "questions": questions, **request.extras}


def keys(questions: tuple[Question, ...]) -> list[str]:
    """The ids under which questions are asked; one without a name gets its number."""
    return [question.id if question.id is not None else f"question_{i}" for i, question in enumerate(questions, 1)]


def _write_question(question: Question) -> dict[str, Any]:
    return {"type": question.kind, "instructions": question.instructions, "criteria": _write_criteria(question)}


def _write_criteria(question: Question) -> Any:
    if isinstance(question, Choice):
        return {option.name: option.description for option in question.options}
    if isinstance(question, Score):
        return [level.name for level in question.levels]
    return {name: text for name, text in (("true", question.yes), ("false", question.no)) if text is not None} or None


def read_request(body: Any, limits: Limits = LIMITS) -> Request:
    """A request; all mistakes in it are reported at once."""
    mistakes: list[str] = []
    given = read_object(body, "the request", mistakes)
    if mistakes:
        raise InputError(mistakes)
    model = read_text(given.get("model"), "model", mistakes)
    if "state" not in given:
        mistakes.append("state is missing: give a text or any JSON value.")
    state = State(given.get("state"), read_optional_text(given.get("instructions"), "instructions", mistakes))
    questions = read_object(given.get("questions"), "questions", mistakes)
    if isinstance(given.get("questions"), dict):
        check_count(len(questions), 1, limits.questions, "questions", "questions", mistakes)
    asked = tuple(read_question(id, question, limits, mistakes) for id, question in questions.items())
    if mistakes:
        raise InputError(mistakes)
    return Request(model, state, asked, {name: value for name, value in given.items() if name not in REQUEST_FIELDS})


def read_question(id: str, question: Any, limits: Limits, mistakes: list[str]) -> Question:
    where = f"questions.{id}"
    given = read_object(question, where, mistakes)
    if not isinstance(question, dict):
        return Noul("", id)
    check_fields(given, QUESTION_FIELDS, where, mistakes)
    instructions = read_text(given.get("instructions"), f"{where}.instructions", mistakes)
    criteria, where_criteria = given.get("criteria"), f"{where}.criteria"
    match given.get("type"):
        case "noul":
            return _read_noul(id, instructions, criteria, where_criteria, mistakes)
        case "choice":
            return Choice(instructions, _read_options(criteria, limits, where_criteria, mistakes), id)
        case "score":
            return Score(instructions, _read_levels(criteria, limits, where_criteria, mistakes), id)
        case other:
            mistakes.append(f"{where}.type is {other!r}: give noul, choice or score.")
            return Noul(instructions, id)


def _read_options(given: Any, limits: Limits, where: str, mistakes: list[str]) -> tuple[Option, ...]:
    options = read_object(given, where, mistakes)
    if isinstance(given, dict):
        check_count(len(options), 2, limits.options, "options", where, mistakes)
    return tuple(Option(name, read_optional_text(text, f"{where}.{name}", mistakes)) for name, text in options.items())


def _read_levels(given: Any, limits: Limits, where: str, mistakes: list[str]) -> tuple[Level, ...]:
    if not isinstance(given, list):
        mistakes.append(f"{where}: give a list of level names, the lowest first.")
        return ()
    check_count(len(given), 2, limits.levels, "levels", where, mistakes)
    return tuple(Level(read_text(name, f"{where}.{i}", mistakes)) for i, name in enumerate(given))


def _read_noul(id: str, instructions: str, criteria: Any, where: str, mistakes: list[str]) -> Noul:
    if criteria is None:
        return Noul(instructions, id)
    given = read_object(criteria, where, mistakes)
    check_fields(given, ("true", "false"), where, mistakes)
    yes, no = (read_optional_text(given.get(name), f"{where}.{name}", mistakes) for name in ("true", "false"))
    return Noul(instructions, id, yes, no)


# -- answers


def write_answers(questions: tuple[Question, ...], response: Response, id: str, created: int) -> dict[str, Any]:
    """The answer to a request; `id` and `created` (seconds since 1970) are the server's."""
    pairs = list(zip(keys(questions), questions, response.answers, strict=True))
    diagnostics = {
        key: {
            name: value
            for name, value in (("label_mass", answer.label_mass), ("argmax_is_label", answer.argmax_is_label))
            if value is not None
        }
        for key, _, answer in pairs
        if isinstance(answer, Answer) and (answer.label_mass is not None or answer.argmax_is_label is not None)
    }
    usage = response.usage
    cached = {"input_tokens_details": {"cached_tokens": usage.cached_tokens}} if usage.cached_tokens else {}
    return {
        "id": id,
        "object": "structured_decision",
        "created": created,
        "model": response.model,
        "answers": {key: _write_answer(question, answer) for key, question, answer in pairs},
        "usage": {"input_tokens": usage.input_tokens, **cached, "output_tokens": usage.output_tokens},
        **({"diagnostics": diagnostics} if diagnostics else {}),
    }


def _write_answer(question: Question, answer: Answer | Refusal) -> dict[str, Any]:
    if isinstance(answer, Refusal):
        return {"type": "refusal"}
    names = [str(level) for level in range(len(question.outcomes))] if isinstance(question, Score) else question.outcomes
    probabilities = dict(zip(names, answer.probabilities, strict=True))
    decided: dict[str, Any]
    if isinstance(question, Noul):
        decided = {"noul": answer.probabilities[0]}
    elif isinstance(question, Choice):
        decided = {"choice": question.outcomes[answer.best]}
    else:
        decided = {"score": answer.expected_level, "legend": dict(zip(names, question.outcomes, strict=True))}
    return {"type": question.kind, **decided, "probabilities": probabilities, "confidence": answer.confidence}


def read_answers(questions: tuple[Question, ...], body: Any) -> Response:
    """The answers to these questions; `UnusableAnswer` names whatever is missing or is not a distribution."""
    mistakes: list[str] = []
    given = body.get("answers") if isinstance(body, dict) else None
    if not isinstance(given, dict):
        raise UnusableAnswer(["the answer has no map of answers"])
    diagnostics = body.get("diagnostics")
    read = []
    for key, question in zip(keys(questions), questions, strict=True):
        if key not in given:
            mistakes.append(f"question {key} was not answered")
            continue
        found = _read_answer(key, question, given[key], mistakes)
        about = diagnostics.get(key) if isinstance(diagnostics, dict) else None
        read.append(found if isinstance(found, Refusal) else _with_diagnostics(found, key, about, mistakes))
    if mistakes:
        raise UnusableAnswer(mistakes)
    model = body.get("model")
    return Response(model if isinstance(model, str) else "", tuple(read), read_usage(body.get("usage")))


def _read_answer(key: str, question: Question, given: Any, mistakes: list[str]) -> Answer | Refusal:
    if not isinstance(given, dict):
        mistakes.append(f"question {key}: the answer is not an object")
        return Refusal()
    if given.get("type") == "refusal":
        return Refusal()
    if given.get("type", question.kind) != question.kind:
        mistakes.append(f"question {key} is a {question.kind}, its answer a {given['type']!r}")
        return Refusal()
    what = f"question {key}"
    names = [str(level) for level in range(len(question.outcomes))] if isinstance(question, Score) else list(question.outcomes)
    probabilities = given.get("probabilities")
    if isinstance(question, Noul) and probabilities is None:
        yes = read_probability(given.get("noul"), f"{what}: noul", mistakes)
        return Answer((yes, 1 - yes))
    if not isinstance(probabilities, dict) or sorted(probabilities) != sorted(names):
        mistakes.append(f"{what}: the probabilities are not those of {', '.join(names)}")
        return Refusal()
    if isinstance(question, Score) and given.get("legend") not in (None, dict(zip(names, question.outcomes, strict=True))):
        mistakes.append(f"{what}: the legend is not that of the levels asked about")
    return read_decided(question, given, names, [probabilities[name] for name in names], what, mistakes)


def _with_diagnostics(answer: Answer, key: str, given: Any, mistakes: list[str]) -> Answer:
    if not isinstance(given, dict):
        return answer
    mass, is_label = given.get("label_mass"), given.get("argmax_is_label")
    return Answer(
        answer.probabilities,
        None if mass is None else read_probability(mass, f"question {key}: label_mass", mistakes),
        is_label if isinstance(is_label, bool) else None,
        answer.named,
    )
