"""Both request shapes as public servers speak them, with all that ours never says: refusals, cached tokens, diagnostics."""

from steadyscore.decision_models import openai_shape, system_one
from steadyscore.decision_models.questions import Choice, Noul, Score

TOKENS, CACHED = 1000, 400
"""What every answer says it read."""


def answers_by_id(questions, answers, model="m"):
    """As `/v1/systemone` gives them."""
    pairs = list(zip(system_one.keys(questions), questions, answers, strict=True))
    diagnostics = {
        key: {"label_mass": answer.label_mass, "argmax_is_label": True}
        for key, _, answer in pairs
        if answer is not None and answer.label_mass is not None
    }
    return {
        "id": "d",
        "object": "structured_decision",
        "created": 1,
        "model": model,
        "answers": {key: answer_by_id(question, answer) for key, question, answer in pairs},
        "usage": {"input_tokens": TOKENS, "input_tokens_details": {"cached_tokens": CACHED}, "output_tokens": 0},
        **({"diagnostics": diagnostics} if diagnostics else {}),
    }


def answer_by_id(question, answer):
    if answer is None:
        return {"type": "refusal"}
    names = [str(level) for level in range(len(question.outcomes))] if isinstance(question, Score) else question.outcomes
    probabilities = dict(zip(names, answer.probabilities, strict=True))
    if isinstance(question, Noul):
        decided = {"noul": answer.probabilities[0]}
    elif isinstance(question, Choice):
        decided = {"choice": question.outcomes[answer.best]}
    else:
        decided = {"score": answer.expected_level, "legend": dict(zip(names, question.outcomes, strict=True))}
    return {"type": question.kind, **decided, "probabilities": probabilities, "confidence": answer.confidence}


def answers_in_order(questions, answers, model="m"):
    """As `/v1/decisions` gives them."""
    return {
        "model": model,
        "answers": [answer_in_order(question, answer) for question, answer in zip(questions, answers, strict=True)],
        "usage": {
            "input_tokens": TOKENS,
            "input_tokens_details": {"cached_tokens": CACHED, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": TOKENS,
        },
    }


def answer_in_order(question, answer):
    if answer is None:
        return {"type": "refusal", "name": question.id}
    written = {"type": openai_shape.SHAPE.kinds[question.kind], "name": question.id}
    if isinstance(question, Noul):
        return {**written, "probability": answer.probabilities[0]}
    if isinstance(question, Choice):
        probabilities = [
            {"value": option.value, "probability": p} for option, p in zip(question.options, answer.probabilities, strict=True)
        ]
        decided = {"choice": question.options[answer.best].value}
    else:
        probabilities = [
            {"value": i, "label": level.label, "probability": p}
            for i, (level, p) in enumerate(zip(question.levels, answer.probabilities, strict=True))
        ]
        decided = {"score": answer.expected_level}
    return {**written, **decided, "probabilities": probabilities, "confidence": answer.confidence}


REQUESTS = {"systemone": system_one.SystemOneRequest, "decisions": openai_shape.DecisionsRequest}
ANSWERS = {"systemone": answers_by_id, "decisions": answers_in_order}


def read_request(name, body):
    return REQUESTS[name].model_validate(body).asked(body["model"])
