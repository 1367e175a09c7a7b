"""Backends: what a scorer is made of. `Backend` declares everything that the rest of the code asks of one.

A `Grader` reads grades of a window given as text; an `Engine` is a grader that takes token ids and reads at known
positions. A `Reranker` gives one score per text and nothing else: what lets users audit what they already run. A
`Recording` has scored before. A `Generator` can read: it continues a prompt. Each kind is a `Kind` in the module that opens
it; `kinds.py` collects them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..machine.process import wait_passively
from ..models.card import TrainedSettings
from ..runs.records import Capabilities as Capabilities
from ..runs.table import Scored
from ..terms import Instance, JsonObject, Prompt
from ..window.encoding import Encoder
from ..window.readout import SlotLogits
from .options import Address as Address
from .options import EngineOptions as EngineOptions
from .options import Precision as Precision
from .options import Price as Price
from .options import ScorerFailed as ScorerFailed

if TYPE_CHECKING:
    from .http import Endpoint

wait_passively()  # before torch is loaded


class Backend(ABC):
    """Whatever scores: everything that the code asks of it, with what holds where a backend has nothing to say."""

    name: str
    """As messages call it: mostly its address."""
    called: str | None = None
    """What the user calls it in tables and reports, where that is not its own name."""
    capabilities: Capabilities
    options: EngineOptions = EngineOptions()
    trained_settings: TrainedSettings = TrainedSettings()
    """The presentation an adapter was trained with; empty without one."""
    width: int | None = None
    """Candidates that it takes at once by itself; None: the task's width for a grader, the whole pool for a reranker."""
    encoder: Encoder | None = None
    """Of a backend that takes token ids; None: it takes text."""
    endpoint: Endpoint | None = None
    """What it is asked over; None: it runs on this machine.

    Not a part of the identity, since a model may move to another server; a run notes its address at every start.
    """

    @abstractmethod
    def identity(self) -> JsonObject:
        """What must not change between the runs of one fingerprint: weights, precision, adapter."""

    @property
    def exclusive_key(self) -> int | None:
        """Calls to backends with the same key must not overlap; None: any number of calls at a time, as of an endpoint, which
        bounds them itself."""
        return id(self) if self.endpoint is None else None

    def watch(self) -> dict[str, str]:
        """The files behind it that may change while its identity stays: path -> the first 16 digits of its SHA-256."""
        return {}

    def spent(self) -> dict[str, float]:
        """What was asked of an endpoint since it was opened and what that cost; empty where there is none."""
        return {} if self.endpoint is None else self.endpoint.spent()

    def spent_since(self, before: dict[str, float]) -> dict[str, float]:
        """What was spent since `spent()` gave `before`."""
        return {what: count - before.get(what, 0) for what, count in self.spent().items()}


class Grader(Backend):
    """A language model that grades the windows it is shown: as `PromptText`, or as `Prompt` (token ids) for an `Engine`."""

    reads_skeleton: bool = False
    """Whether grades are read at the lines of a fixed answer, which may then have more lines than there are candidates."""

    @abstractmethod
    def grade_logits(self, prompts: Sequence[Any], *, label_mass: bool = False) -> list[SlotLogits]: ...


class Engine(Grader):
    """A grader that takes token ids and reads grades at the slots of a prompt."""

    reads_skeleton = True
    encoder: Encoder
    context: int
    """Tokens a prompt may have."""
    needs_parity: bool = False
    """Whether it is compared with `hf` on its first use with a model."""
    reference: str | None = None
    """The `hf` address of the same weights, for that comparison; None where it is not known."""

    def plain_logits(self, prompt: Prompt) -> SlotLogits | None:
        """The slots of a prompt from one plain forward over the whole vocabulary; None where the model is out of reach."""
        return None


class Reranker(Backend):
    """Anything that gives a list of texts one score each, jointly or one by one. It gets every text as it is, line breaks and
    all, unless a number of characters is asked for.

    One that gives only an order has `gives="ranking"` and returns n - rank.
    """

    @abstractmethod
    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]: ...

    def score_pools(self, pools: Sequence[tuple[str, Sequence[str]]]) -> list[Sequence[float]]:
        """Scores of several queries with their texts; one by one where it is asked no faster together."""
        return [self.score(query, texts) for query, texts in pools]


class Recording(Backend):
    """Scores that were given before: found by query, permutation and candidate id, never by text."""

    @abstractmethod
    def recall(self, instance: Instance, permutations: Sequence[int]) -> Scored: ...


# -- readers: what continues a prompt, and tells how likely each label is behind it (§F.3)

Ids = Sequence[int]


class Generator(Backend):
    """A backend that can read."""

    context: int = 10**9
    """Tokens that a prompt and what is written may have together; of a backend that takes text, only its endpoint knows."""

    @abstractmethod
    def generate(self, prompts: Sequence[Any], most_tokens: int) -> list[str]:
        """The greedy continuation of each prompt."""

    @abstractmethod
    def label_log_probabilities(self, prompts: Sequence[Any], labels: Sequence[Any]) -> np.ndarray:
        """(P, L) log P(label | prompt). Where a chat model writes its label: 0 for that one, -inf for the others."""


class ReadingEngine(Engine, Generator):
    """An engine that can read: it takes token ids, and tells the label mass."""

    def label_log_probabilities(self, prompts: Sequence[Ids], labels: Sequence[Ids]) -> np.ndarray:
        """(P, L) Σ_t log P(token t of the label | prompt, its tokens before t).

        A label's token is read as a grade is, from the position before it: the mass of that one token is its probability.
        """
        asked = [[[token_prompt(ids, label, t) for t in range(len(label))] for label in labels] for ids in prompts]
        flat = [prompt for row in asked for tokens in row for prompt in tokens]
        masses = iter([np.asarray(reading.label_mass).item() for reading in self.grade_logits(flat, label_mass=True)])
        with np.errstate(divide="ignore"):
            return np.array([[sum(np.log(next(masses)) for _ in tokens) for tokens in row] for row in asked])


def token_prompt(ids: Ids, label: Ids, t: int) -> Prompt:
    """The prompt that reads token t of a label. Up to its last id the prompt is a prefix that all its labels share."""
    return Prompt(tuple(ids[:-1]), (ids[-1], *label[: t + 1]), (len(ids) - 1 + t,), (label[t],))


def prompts_behind(rows: Sequence[Ids], tokens: Sequence[tuple[int, ...]]) -> list[Prompt]:
    """A prompt per row that reads some tokens behind its last id. What all rows begin with is their prefix, computed once."""
    alike = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))
    shared = min(alike, min(map(len, rows)) - 1) if len(rows) > 1 else 0
    ids = [tuple(row) for row in rows]
    return [Prompt(row[:shared], row[shared:], (len(row) - 1,), read) for row, read in zip(ids, tokens, strict=True)]


# -- what is known of a scorer before it is opened


class Listing(NamedTuple):
    """A row of `steadyscore list scorers`."""

    address: str
    """A pattern: what the user fills in stands in angle brackets."""
    gives: str
    system: str | None = None
    """The row of the paper's tables, where it has one."""
    flags: str = ""
    """What the command line adds to the address."""


Takes = Literal["ids", "text", "pool", "key"]
"""What a scorer is given: a prompt as token ids or as text, a query with its texts, or the key of scores given before."""
_POOL = frozenset({"width", "chars", "partition"})
_TEXT = _POOL | {"prompt", "markers", "marker_seed", "instruction"}
PRESENTS: dict[Takes, frozenset[str]] = {"ids": _TEXT | {"placeholder", "fit"}, "text": _TEXT, "pool": _POOL, "key": frozenset()}
"""Fields of `Settings` that say something to what takes so much."""

WEIGHTS = frozenset({"device", "dtype", "batch_tokens", "trust_remote_code"})
HTTP = frozenset({"concurrency", "rate", "retries", "timeout"})
PAID = HTTP | {"price", "cache"}
SERVED = HTTP | {"tokenizer", "trust_remote_code", "dtype"}
"""Fields of `EngineOptions` that say something to a local model, to an endpoint, to one that charges by the token, and to a
server of a model that takes token ids; the precision is that of its comparison with `hf`."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of scorer address. The module that opens it names it in its `KINDS`, and that is all there is to adding one."""

    prefix: str
    open: Callable[[Address, EngineOptions], Backend]
    """Imports its libraries when it is called."""
    takes: Takes
    listed: tuple[Listing, ...]
    options: frozenset[str] = frozenset()
    """Fields of `EngineOptions` that say something to it."""
    needs: Callable[[str], tuple[str, ...]] = lambda rest: ()
    """Modules of libraries that an address of it needs in this process."""
    variants: tuple[str, ...] = ()
    """What may follow the prefix after a plus, as in `rerank+tei:`."""
    is_server: bool = False
    """Whether it is asked over HTTP: of two kinds with one prefix, that with a base url, as in `vllm:<model>@<base url>`."""
    reads: bool = False
    """Whether it can be a reader."""
    open_reader: Callable[[Address, EngineOptions], Backend] | None = None
    """Opens it as a reader, where a model is loaded either to grade or to read."""
    width: Callable[[str], int | None] = lambda rest: None
    """Candidates that an address takes at once by itself."""
    is_order_free: Callable[[str], bool] = lambda rest: False
    """Whether the order of the candidates cannot change a score of an address, whatever it is shown."""

    @property
    def has_prompt(self) -> bool:
        return self.takes in ("ids", "text")

    @property
    def honours(self) -> frozenset[str]:
        """Fields of `Settings` and `EngineOptions` that say something to it."""
        return PRESENTS[self.takes] | self.options
