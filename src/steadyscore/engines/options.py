"""A scorer address taken apart, and how what it names is run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..errors import InputError
from ..machine.bounds import AboveZero, NotNegative, Positive, field_mistakes


class Address(NamedTuple):
    """A scorer address taken apart: `kind[+variant]:rest`."""

    kind: str
    variant: str
    rest: str


Precision = Literal["auto", "float32", "bfloat16"]


class ScorerFailed(RuntimeError):
    """Somebody's function or program gave no usable answer: its query is named in the coverage and left out."""


class Price(NamedTuple):
    """What an endpoint charges, per million tokens, in whatever currency the user counts."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: float, written_tokens: float = 0) -> float:
        """What so many tokens cost."""
        return (prompt_tokens * self.prompt + written_tokens * self.completion) / 1e6


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine runs; each field is a command line flag."""

    device: str | None = None
    """cpu, cuda, cuda:1 (default: CUDA where there is one)."""
    dtype: Precision = "auto"
    """Precision of a local model; auto: bfloat16 where the device computes it natively, else float32."""
    batch_tokens: Positive = 4096
    """Padded tokens that share a forward pass."""
    share_prefix: bool = True
    """Compute system, instruction and query once per query and reuse their KV cache. (Isolated candidates always are.)"""
    trust_remote_code: bool = False
    """Let a model's repository run its own code."""
    allow_base_mismatch: bool = False
    """Score with an adapter on a base it was not trained for."""
    tokenizer: str | None = None
    """Folder or hub id of the tokenizer of a served model, where the server's name for the model is neither."""
    tensor_parallel: Positive = 1
    """GPUs that share one model (vLLM)."""
    concurrency: Positive = 8
    """Requests to an endpoint at the same time."""
    rate: AboveZero | None = None
    """Most requests a minute (default: no limit)."""
    retries: NotNegative = 5
    """Tries after a failed one."""
    timeout: AboveZero = 300.0
    """For a whole answer of an endpoint or a program."""
    price: Price | None = None
    """Cost of a million prompt and written tokens."""
    cache: bool = True
    """Keep an endpoint's answers on disk while a run is scored, so that going on with it pays for no question twice."""
    watch: tuple[str, ...] = ()
    """Files behind a `python:` or `command:` scorer that a run watches besides its module or program."""

    def __post_init__(self) -> None:
        mistakes = field_mistakes(self)
        if self.price is not None and not all(0 <= each < math.inf for each in self.price):
            mistakes.append(f"price is {tuple(self.price)}: give two numbers, 0 or more.")
        if mistakes:
            raise InputError(mistakes)
