"""Typed questions about a state, answered by a served model: in the order given, averaged over orders, or without an order.

It knows nothing of HTTP. A state may hold a list (`$.candidates`), which is what can be reordered; a question is about one
member of it where the two have the same name. A question is one read of its label tokens behind a prompt, in the words of vLLM's
`/v1/systemone`, so that the same weights give the same answer here and there: the state, an empty line, the question with a label
before each answer (yes and no, A to Z, 0 to 9). The reply's first token is read at the labels and renormalised over them; the
label mass is what lay on them before.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..engines import Engine, prompts_behind
from ..errors import InputError, ModelError
from ..serve.batcher import Admission, batched_backend
from ..serve.service import Model, Presentations, Service
from ..terms import GRADES, Array, Instance, Prompt
from ..window.encoding import Encoder
from ..window.presentation import permutations
from ..window.readout import SlotLogits, grade_distribution
from .cases import list_at, member_keys, member_text, value_at, with_list
from .questions import Answer, Noul, Question, Request, Score, State
from .shape import DecisionOrder, DecisionOrderAnswer, QuestionStability


class AnsweredQuestion(NamedTuple):
    """A question under its presentations; None stands for one that is too long."""

    probabilities: Array
    """(P, outcomes)"""
    label_mass: float | None = None

    @property
    def mean(self) -> Answer:
        return Answer(tuple(self.probabilities.mean(axis=0).tolist()), self.label_mass)


def can_answer(model: Model) -> bool:
    """Whether a model can be read at the tokens of any label: it takes token ids and tells their probability exactly."""
    return isinstance(model.backend, Engine) and model.backend.capabilities.label_mass


class AskedQuestions:
    """The questions of a request to a served model, behind its state as `order` says that it is presented."""

    def __init__(self, service: Service, model: Model, request: Request, order: DecisionOrder):
        self.service, self.model, self.order = service, model, order
        self.request, self.state, self.questions = request, request.state, request.questions

    def count_windows(self) -> int:
        """Prompts that are needed; refused where the queue could never hold them."""
        order, most = self.order, self.service.limits.queue_windows
        if order.readout == "window":
            instance, _ = self.window
            return self.service.count_windows(self.model, len(instance.pool), order.permutations, order.width)
        needed = len(self.questions)  # alone: each behind the one state that holds its member
        if order.readout == "state" and order.permutations > 1 and len(self.members) > 1:
            needed *= order.permutations
        if needed > most:
            raise InputError(
                f"{len(self.questions):,} questions in {order.permutations:,} presentations are {needed:,} prompts, the server "
                f"takes {most:,}. Send fewer questions or permutations."
            )
        return needed

    def answer(self, admission: Admission, *, refuse_long: bool) -> list[AnsweredQuestion | None]:
        """The answers in the order of the questions. `refuse_long`: a question beyond the model's context is refused alone."""
        if self.order.readout == "window":
            return self._read_window(admission)
        engine = batched_backend(self.model.backend, self.service.batcher, admission)
        assert isinstance(engine, Engine)
        engine.context = min(engine.context, self.service.limits.window_tokens)
        asked: list[tuple[int, Prompt]] = []
        for content, numbers in self._states():
            admission.check()  # a state may be long, and its tokens are counted here
            questions = [self.questions[i] for i in numbers]
            prompts = _fitting_prompts(engine, replace(self.state, content=content), questions, refuse_long)
            asked += [(i, prompt) for i, prompt in zip(numbers, prompts, strict=True) if prompt is not None]
        if not asked:
            raise InputError(f"no question fits into {engine.context:,} tokens behind this state. Send a shorter state.")
        readings = engine.grade_logits([prompt for _, prompt in asked], label_mass=True)
        answers: list[list[Answer]] = [[] for _ in self.questions]
        for (i, _), reading in zip(asked, readings, strict=True):
            answers[i].append(answer_of(reading))
        return [_answered(each) if each else None for each in answers]

    def _read_window(self, admission: Admission) -> list[AnsweredQuestion | None]:
        """`score` questions answered by the grades of the shared window that the model was trained or prompted for."""
        (instance, about), order = self.window, self.order
        orders = Presentations(order.permutations, order.seed).orders(instance)
        graded = replace(self.model, first_stage=None)  # levels are the scorer's own: a rank in the state has none
        scored = self.service.score_orders(graded, admission, instance, orders, order.width)
        if scored.grades is None:
            raise InputError(f"{self.model.name} gives scores and no probabilities of levels. Ask with another readout.")
        return [AnsweredQuestion(scored.grades[:, member]) for member in about]

    def _states(self) -> Iterator[tuple[Any, Sequence[int]]]:
        """The states to ask behind, one per permutation or per member that a question names, and the questions to ask there."""
        every, order = range(len(self.questions)), self.order
        if order.readout == "state" and order.permutations == 1:
            yield self.state.content, every
        elif order.readout == "alone":
            about = members_asked_about(self.questions, self.members)
            for m in dict.fromkeys(about):
                yield self._with_members([m]), [i for i in every if about[i] == m]
        else:
            count = order.permutations if len(self.members) > 1 else 1
            for row in permutations(len(self.members), count, seed=order.seed, query_id="state"):
                yield self._with_members(row), every

    def _with_members(self, chosen: Iterable[int]) -> Any:
        """The state with these members in its list, as a text where it came as one."""
        changed = with_list(self._content, self.order.pool, [self.members[m] for m in chosen])
        return json.dumps(changed, ensure_ascii=False) if isinstance(self.state.content, str) else changed

    @cached_property
    def _content(self) -> Any:
        """The state as a JSON value; a text may hold one."""
        if not isinstance(self.state.content, str):
            return self.state.content
        try:
            return json.loads(self.state.content)
        except ValueError:
            raise InputError("the state is a text that is not JSON, so no list in it can be reordered. Send JSON.") from None

    @cached_property
    def members(self) -> list[Any]:
        """The list in the state, within the server's limit of documents."""
        members, most = list_at(self._content, self.order.pool), self.service.limits.candidates
        if len(members) > most:
            raise InputError(f"the list at {self.order.pool[:80]} has {len(members):,} members, the server takes {most:,}.")
        return members

    @cached_property
    def window(self) -> tuple[Instance, list[int]]:
        """Query and pool out of the state, and the member that each question is about."""
        members, query = list_at(self._content, self.order.pool), value_at(self._content, self.order.query)
        if not isinstance(query, str) or not query:
            raise InputError(f"the state has no text at {self.order.query[:80]}. Name the path of the query.")
        if any(not (isinstance(question, Score) and len(question.levels) == len(GRADES)) for question in self.questions):
            raise InputError(f"the window grades in {len(GRADES)} levels. Ask `score` questions of so many levels, lowest first.")
        texts, titles = zip(*map(member_text, members), strict=True)
        return self.service.read_pool(query, texts, titles), members_asked_about(self.questions, members)

    def order_answer(self, answered: Sequence[AnsweredQuestion | None]) -> DecisionOrderAnswer:
        """What is said about the answers under `order`."""
        order = self.order
        is_set = order.readout == "window" and self.model.scorer(width=order.width).capabilities.order_free
        return DecisionOrderAnswer(
            readout=order.readout,
            permutations=max(len(each.probabilities) for each in answered if each),
            order_free=order.readout == "alone" or is_set,
            questions=[stability_of(q, a, order.threshold) for q, a in zip(self.questions, answered, strict=True)],
        )


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


def stability_of(question: Question, answered: AnsweredQuestion | None, threshold: float | None) -> QuestionStability:
    """How often the presentations of a question decide as their mean does, and how far its value moves."""
    if answered is None:
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


# -- one question as the prompt of a causal language model


INSTRUCTIONS = "\ue000instructions\ue001"
"""Stands for the request's instructions while the chat template is rendered."""


def labels(question: Question) -> tuple[str, ...]:
    """What the model may reply, in the order of the question's outcomes."""
    if isinstance(question, Noul):
        return ("yes", "no")
    return tuple((string.digits if isinstance(question, Score) else string.ascii_uppercase)[: len(question.outcomes)])


def state_text(content: Any) -> str:
    """The state as the model reads it: a text as it is, anything else as JSON on one line."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def question_text(question: Question) -> str:
    """The question as the model reads it, after the state."""
    lead = [f"Question: {question.instructions}"] if question.instructions else []
    return "\n".join([*lead, *_answer_lines(question)])


def _answer_lines(question: Question) -> list[str]:
    """Each label with what it stands for, and what to reply."""
    if isinstance(question, Noul):
        sides = zip(labels(question), (question.yes, question.no), strict=True)
        return [*(f"{label}: {meaning}" if meaning else label for label, meaning in sides), "Answer with yes or no only."]
    if isinstance(question, Score):
        meanings, reply = question.outcomes, "the number of one level"
    else:
        meanings = tuple(f"{o.name} - {o.description}" if o.description else o.name for o in question.options)
        reply = "the letter of one option"
    lines = [f"{label}: {words}" for label, words in zip(labels(question), meanings, strict=True)]
    return [*lines, f"Answer with {reply} only."]


def question_prompts(encoder: Encoder, state: State, questions: Sequence[Question]) -> list[Prompt]:
    """One prompt per question. What all of them begin with, the state above all, is their prefix, which is computed once."""
    before, after = encoder.template(None if state.instructions is None else INSTRUCTIONS)
    head, marker, rest = before.partition(INSTRUCTIONS)
    opening = [*encoder.fixed(head), *(encoder.plain(state.instructions or "") if marker else ()), *encoder.fixed(rest)]
    shown, closing = state_text(state.content), encoder.fixed(after)
    whole = [(*opening, *encoder.plain(f"{shown}\n\n{question_text(question)}"), *closing) for question in questions]
    return prompts_behind(whole, [label_tokens(encoder, labels(question)) for question in questions])


def label_tokens(encoder: Encoder, names: Sequence[str]) -> tuple[int, ...]:
    """The first token of each label, which must tell the labels apart."""
    tokens = tuple(encoder.fixed(name)[0] for name in names)
    if len(set(tokens)) < len(tokens):
        raise ModelError(f"the labels {', '.join(names)} begin with the same token in the tokenizer of {encoder.name}.")
    return tokens


def answer_of(reading: SlotLogits) -> Answer:
    """What was read at a question's labels."""
    mass = None if reading.label_mass is None else float(reading.label_mass[0])
    return Answer(tuple(grade_distribution(reading.logits[0]).tolist()), mass)
