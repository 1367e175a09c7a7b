"""What a run will cost, before anything is loaded: windows, tokens, and time from the last run of the scorer here."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .audit import AuditConfig, cut_instances
from .collection import open_collection
from .disk import cache_folder, write_json
from .prompt import prompt_text, shown
from .tasks import TASKS


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will cost."""

    queries: int
    windows: int
    tokens: int
    seconds: float | None
    """From the speed of this scorer's last run on this machine; None before its first."""


CHARS_PER_TOKEN = 4.2
"""English under the tokenizers of today; good enough for a plan."""


def estimate(address: str, source: str, config: AuditConfig) -> Estimate:
    """Windows, tokens and time of a run, without loading a model or a tokenizer."""
    collection, instances = open_collection(source)
    task = TASKS[collection.task]
    width = config.settings.width or task.width
    chars = config.chars if config.chars is not None else collection.chars
    passes = config.permutations + config.canonical
    queries = windows = 0
    characters = 0.0
    for instance in cut_instances(instances(), config.cut):
        count = -(-len(instance.pool) // width)
        fixed = prompt_text(task, instance.query, [], instruction=config.settings.instruction or collection.instruction)
        frame = sum(len(piece.text) for piece in (*fixed.prefix, *fixed.body)) + len(fixed.system)
        pool = sum(len(shown(candidate, chars)) for candidate in instance.pool)
        queries, windows = queries + 1, windows + passes * count
        characters += passes * (count * frame + pool + 20 * len(instance.pool))
    tokens = round(characters / CHARS_PER_TOKEN)
    rate = speeds().get(address)
    return Estimate(queries, windows, tokens, tokens / rate if rate else None)


def remember_speed(address: str, tokens: int, seconds: float) -> None:
    """Keep tokens per second of a scorer on this machine, for the next estimate."""
    if seconds > 1:
        file = cache_folder() / "speed.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, speeds() | {address: tokens / seconds})


def speeds() -> dict[str, float]:
    """Tokens per second of the scorers that ran on this machine, by address."""
    try:
        return json.loads((cache_folder() / "speed.json").read_text())
    except (OSError, json.JSONDecodeError):
        return {}
