"""What a reader of a run will cost, before anything is loaded."""

from __future__ import annotations

from ..collection import Data, open_collection
from ..engines import Price
from ..scoring.estimate import Estimate, is_hosted
from ..scoring.score import AuditConfig, cut_instances
from ..tasks import TASKS, reader_kind
from ..window.prompt import CHARS_PER_TOKEN
from .prompt import build_question, chat_messages


def estimate_reader(
    address: str, source: Data, config: AuditConfig, k: int, serving_permutations: int = 1, price: Price | None = None
) -> Estimate:
    """Prompts, tokens and cost of a reader of a run: at most one prompt per order served, fewer where evidence recurs."""
    opened = open_collection(source)
    task = TASKS[opened.collection.task]
    orders = config.permutations // serving_permutations
    queries, characters = 0, 0.0
    is_claims = reader_kind(task).writes == "verdict"
    has_verdicts = is_claims and any(instance.verdict for instance in cut_instances(opened.instances(), config.cut))
    for instance in cut_instances(opened.instances(), config.cut):
        if has_verdicts and instance.verdict is None:
            continue  # a claim that readers leave out
        some = instance.pool[:k]
        messages = chat_messages(build_question(task, instance.query, some))
        whole = sum(len(c.text) + len(c.title or "") for c in instance.pool) * len(some) / len(instance.pool)
        frame = sum(len(message["content"]) for message in messages) - sum(len(c.text) + len(c.title or "") for c in some)
        queries, characters = queries + 1, characters + orders * (frame + whole)
    tokens = round(characters / CHARS_PER_TOKEN)
    written = queries * orders * reader_kind(task).tokens
    money = price.of(tokens, written) if price and is_hosted(address) else None
    return Estimate(queries, queries * orders, tokens, None, money)
