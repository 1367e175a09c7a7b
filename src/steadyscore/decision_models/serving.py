"""Typed questions about a state, answered by a served model: in the order given, averaged over orders, or without an order.

It knows nothing of HTTP. A state may hold a list (`$.candidates`), which is what can be reordered; a question is about one
member of it where the two have the same name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..engines import Engine
from ..errors import InputError
from ..serve.batcher import Admission, batched_backend
from ..serve.service import Model, Service
from ..terms import GRADES, Array, Instance, Prompt
from ..window.presentation import permutations
from .local import answer_of, question_prompts, state_text
from .order import DecisionOrder, DecisionOrderAnswer, QuestionStability
from .pool import list_at, member_keys, member_text, value_at, with_list
from .questions import Answer, Noul, Question, Refusal, Request, Score, State


class AnsweredQuestion(NamedTuple):
    """A question under its presentations."""

    probabilities: Array
    """(P, outcomes)"""
    label_mass: float | None = None


@dataclass(frozen=True, slots=True)
class ServedPresentation:
    """One state, and which of the questions are asked behind it."""

    content: Any
    questions: tuple[int, ...]


def can_answer(model: Model) -> bool:
    """Whether a model can be read at the tokens of any label: it takes token ids and tells their probability exactly."""
    return isinstance(model.backend, Engine) and model.backend.capabilities.label_mass


def count_windows(service: Service, model: Model, request: Request, order: DecisionOrder) -> int:
    """Prompts that a request needs; refused where the queue could never hold them."""
    if order.readout == "window":
        instance, _ = window_request(service, request, order)
        return service.count_windows(model, len(instance.pool), order.permutations, order.width)
    needed = len(request.questions)  # alone: each behind the one state that holds its member
    if order.readout == "state" and order.permutations > 1 and len(find_members(service, request, order)) > 1:
        needed *= order.permutations
    if needed > service.limits.queue_windows:
        raise InputError(
            f"{len(request.questions):,} questions in {order.permutations:,} presentations are {needed:,} prompts, the server "
            f"takes {service.limits.queue_windows:,}. Send fewer questions or permutations."
        )
    return needed


def answer_request(
    service: Service, model: Model, admission: Admission, request: Request, order: DecisionOrder, *, refuse_long: bool
) -> list[AnsweredQuestion | Refusal]:
    """The answers in the order of the questions. `refuse_long`: a question beyond the model's context is refused alone."""
    if order.readout == "window":
        return _read_windows(service, model, admission, request, order)
    engine = batched_backend(model.backend, service.batcher, admission)
    assert isinstance(engine, Engine)
    engine.context = min(engine.context, service.limits.window_tokens)
    asked: list[tuple[int, Prompt]] = []
    for each in presented_states(service, request, order):
        admission.check()  # a state may be long, and its tokens are counted here
        questions = [request.questions[i] for i in each.questions]
        prompts = _fitting_prompts(engine, replace(request.state, content=each.content), questions, refuse_long)
        asked += [(i, prompt) for i, prompt in zip(each.questions, prompts, strict=True) if prompt is not None]
    if not asked:
        raise InputError(f"no question fits into {engine.context:,} tokens behind this state. Send a shorter state.")
    readings = engine.grade_logits([prompt for _, prompt in asked], label_mass=True)
    answers: list[list[Answer]] = [[] for _ in request.questions]
    for (i, _), reading in zip(asked, readings, strict=True):
        answers[i].append(answer_of(reading))
    return [_answered(each) if each else Refusal() for each in answers]


def _answered(answers: Sequence[Answer]) -> AnsweredQuestion:
    masses = [answer.label_mass for answer in answers if answer.label_mass is not None]
    return AnsweredQuestion(np.array([answer.probabilities for answer in answers]), float(np.mean(masses)) if masses else None)


def _fitting_prompts(engine: Engine, state: State, questions: Sequence[Question], refuse_long: bool) -> list[Prompt | None]:
    """Prompts of the questions, None for one that is too long; the state, which is in all of them, is tried alone before."""
    longest = len(engine.encoder.plain(state_text(state.content)))
    prompts: list[Prompt] = []
    if longest <= engine.context:
        prompts = question_prompts(engine.encoder, state, questions)
        longest = max(map(len, prompts))
    if longest > engine.context and not refuse_long:
        what = "a question behind this state" if prompts else "this state"
        raise InputError(f"{what} needs {longest:,} tokens, the server takes {engine.context:,}. Send a shorter state.")
    return [prompt if len(prompt) <= engine.context else None for prompt in prompts] or [None] * len(questions)


def find_members(service: Service, request: Request, order: DecisionOrder) -> list[Any]:
    """The list in the state, within the server's limit of documents."""
    members, most = list_at(_parsed(request.state.content), order.pool), service.limits.candidates
    if len(members) > most:
        raise InputError(f"the list at {order.pool[:80]} has {len(members):,} members, the server takes {most:,}.")
    return members


def presented_states(service: Service, request: Request, order: DecisionOrder) -> Iterator[ServedPresentation]:
    """The states to ask behind: one per permutation, or one per member that a question names."""
    every = tuple(range(len(request.questions)))
    if order.readout == "state" and order.permutations == 1:
        yield ServedPresentation(request.state.content, every)
        return
    content, members = _parsed(request.state.content), find_members(service, request, order)
    is_text = isinstance(request.state.content, str)

    def shown(chosen: Sequence[Any]) -> Any:
        changed = with_list(content, order.pool, chosen)
        return json.dumps(changed, ensure_ascii=False) if is_text else changed

    if order.readout == "alone":
        about = members_asked_about(request.questions, members)
        for m in dict.fromkeys(about):
            yield ServedPresentation(shown([members[m]]), tuple(i for i in every if about[i] == m))
        return
    orders = permutations(len(members), order.permutations if len(members) > 1 else 1, seed=order.seed, query_id="state")
    for row in orders:
        yield ServedPresentation(shown([members[m] for m in row]), every)


def members_asked_about(questions: Sequence[Question], members: Sequence[Any]) -> list[int]:
    """Which member each question is about: the one with the question's name."""
    keys = member_keys(members)
    count: Counter[str | None] = Counter(keys)
    unknown = [str(i) for i, question in enumerate(questions, 1) if count[question.id] == 0]
    unclear = [str(i) for i, question in enumerate(questions, 1) if count[question.id] > 1]
    mistakes = []
    if unknown:
        mistakes.append(
            f"question {', '.join(unknown[:5])} names no member of the pool, so it cannot be asked without the others. "
            "Call each question by the id of a member, or by its place counted from 1 where members have no id."
        )
    if unclear:
        mistakes.append(
            f"question {', '.join(unclear[:5])} names more than one member of the pool. Give each member an id of its own."
        )
    if mistakes:
        raise InputError(mistakes)
    places = {key: place for place, key in enumerate(keys)}
    return [places[str(question.id)] for question in questions]


def _parsed(content: Any) -> Any:
    """The state as a JSON value; a text may hold one."""
    if not isinstance(content, str):
        return content
    try:
        return json.loads(content)
    except ValueError:
        raise InputError("the state is a text that is not JSON, so no list in it can be reordered. Send JSON.") from None


# -- the model's own window


def _read_windows(
    service: Service, model: Model, admission: Admission, request: Request, order: DecisionOrder
) -> list[AnsweredQuestion | Refusal]:
    """`score` questions answered by the grades of the shared window that the model was trained or prompted for."""
    instance, about = window_request(service, request, order)
    n = len(instance.pool)
    orders = (
        permutations(n, order.permutations, seed=order.seed, query_id=instance.query)
        if order.permutations > 1
        else np.arange(n)[None]
    )
    graded = replace(model, first_stage=None)  # levels are the scorer's own: a rank in the state has none
    scored = service.score_orders(graded, admission, instance, orders, order.width)
    if scored.grades is None:
        raise InputError(f"{model.name} gives scores and no probabilities of levels. Ask with another readout.")
    return [AnsweredQuestion(scored.grades[:, member]) for member in about]


def window_request(service: Service, request: Request, order: DecisionOrder) -> tuple[Instance, list[int]]:
    """Query and pool out of the state, and the member that each question is about."""
    content = _parsed(request.state.content)
    members, query = list_at(content, order.pool), value_at(content, order.query)
    if not isinstance(query, str) or not query:
        raise InputError(f"the state has no text at {order.query[:80]}. Name the path of the query.")
    if any(not (isinstance(question, Score) and len(question.levels) == len(GRADES)) for question in request.questions):
        raise InputError(f"the window grades in {len(GRADES)} levels. Ask `score` questions of so many levels, lowest first.")
    texts, titles = zip(*map(member_text, members), strict=True)
    return service.read_pool(query, texts, titles), members_asked_about(request.questions, members)


# -- what is said about the answers


def mean_answers(answered: Sequence[AnsweredQuestion | Refusal]) -> tuple[Answer | Refusal, ...]:
    return tuple(
        each if isinstance(each, Refusal) else Answer(tuple(each.probabilities.mean(axis=0).tolist()), each.label_mass)
        for each in answered
    )


def order_answer(
    model: Model, questions: Sequence[Question], answered: Sequence[AnsweredQuestion | Refusal], order: DecisionOrder
) -> DecisionOrderAnswer:
    """What the answer says under `order`."""
    free = order.readout == "alone" or (order.readout == "window" and model.scorer(width=order.width).capabilities.order_free)
    counts = [len(each.probabilities) for each in answered if not isinstance(each, Refusal)]
    return DecisionOrderAnswer(
        readout=order.readout,
        permutations=max(counts),
        order_free=free,
        questions=[stability_of(q, a, order.threshold) for q, a in zip(questions, answered, strict=True)],
    )


def stability_of(question: Question, answered: AnsweredQuestion | Refusal, threshold: float | None) -> QuestionStability:
    """How often the presentations of a question decide as their mean does, and how far its value moves."""
    if isinstance(answered, Refusal):
        return QuestionStability(agreement=1.0)
    each, mean = answered.probabilities, answered.probabilities.mean(axis=0)
    values, value = each[:, mean.argmax()], mean.max()
    decided, decision = each.argmax(axis=1), mean.argmax()
    kept = None
    if isinstance(question, Score):
        levels = np.arange(each.shape[1])
        values, value = each @ levels, mean @ levels
        if threshold is not None:
            decided, decision = values >= threshold, value >= threshold
            kept = bool(decision)
    elif isinstance(question, Noul):
        values = each[:, 0]
    told = {
        "agreement": float((decided == decision).mean()),
        "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
        "kept": kept,
        "label_mass": answered.label_mass,
    }
    return QuestionStability.model_validate({name: value for name, value in told.items() if value is not None})
