"""A typed question as the prompt of a causal language model, and its answer: one read of the label tokens behind the prompt.

The words are those of vLLM's `/v1/systemone`, so that the same weights give the same answer here and there: the state, an empty
line, the question with a label before each answer (yes and no, A to Z, 0 to 9). The reply's first token is read at the labels
and renormalised over them; the label mass is what lay on them before.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from typing import Any

from ..engines import prompts_behind
from ..errors import ModelError
from ..terms import Prompt
from ..window.encoding import Encoder
from ..window.readout import SlotLogits, grade_distribution
from .questions import Answer, Choice, Noul, Question, Score, State

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
    return "\n".join([*lead, *_answer_lines(question), _reply_line(question)])


def _answer_lines(question: Question) -> list[str]:
    if isinstance(question, Noul):
        sides = zip(labels(question), (question.yes, question.no), strict=True)
        return [f"{label}: {meaning}" if meaning else label for label, meaning in sides]
    if isinstance(question, Score):
        return [f"{label}: {level.name}" for label, level in zip(labels(question), question.levels, strict=True)]
    described = [f"{option.name} - {option.description}" if option.description else option.name for option in question.options]
    return [f"{label}: {words}" for label, words in zip(labels(question), described, strict=True)]


def _reply_line(question: Question) -> str:
    if isinstance(question, Noul):
        return "Answer with yes or no only."
    if isinstance(question, Choice):
        return "Answer with the letter of one option only."
    return "Answer with the number of one level only."


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
