"""Pools in, scores and decisions out: what the routes call. It knows nothing of HTTP."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ..engines import EngineOptions, Grader, Reranker
from ..engines.local.shared import SharedBases
from ..errors import InputError
from ..measures.decomposition import slot_profile
from ..measures.measurement import measure
from ..measures.ranking import ranking
from ..measures.registry import MEASURES
from ..measures.settling import DecisionRule, Stability, stability
from ..measures.threshold import Threshold
from ..models.adapter import adapter_of, card_of, prompt_mistakes, refuse_mismatches
from ..models.card import CardCutoff, TrainedSettings
from ..models.embedded import DEFAULT, FIRST_STAGE_SHARE
from ..runs.table import FIRST_STAGE, Scored
from ..scoring.mitigations import (
    USUAL_RULE,
    Named,
    Stopped,
    for_pool,
    mitigate,
    parse_mitigation,
    parse_rule,
    places_of,
    present_until_decided,
)
from ..scoring.presented import Presented
from ..scoring.scorer import PoolScorer, Scorer, Settings
from ..tasks import TASKS, Task
from ..terms import Array, Candidate, Instance, Prompt
from ..window.presentation import permutations, window_places, windows
from .batcher import Admission, Batcher, batched_backend
from .settings import Limits, ModelOptions


@dataclass(frozen=True)
class Model:
    """A scorer under the name that requests call it by."""

    name: str
    backend: Grader | Reranker
    task: Task
    settings: Settings
    cutoff: float | None = None
    """The cutoff of a threshold decision that names none."""
    expected_overlap: float | None = None
    """Overlap of the sets this cutoff retains under reordering, as the adapter's card measured it."""
    first_stage: int | None = None
    """Percentage of a score that a document's rank makes up, or where it carries none its place in the request."""
    mitigation: Named | None = None
    """How often it presents a pool where a request does not say; None: once."""
    ranked: Model | None = None
    """What answers requests whose documents carry ranks; None: this model."""
    opened: int = field(default_factory=lambda: int(time.time()))

    @cached_property
    def default_width(self) -> int | None:
        """Documents per prompt where a request names no width; None: the whole pool."""
        return self.scorer().width

    def width_for(self, n: int) -> int:
        return self.default_width or n

    def is_order_free(self, width: int | None = None) -> bool:
        """Whether no order of the documents can move a score: not where their place in it may be their rank."""
        return self.first_stage is None and self.scorer(width=width).capabilities.order_free

    def asked(self, instruction: str | None, rank: int | None) -> Model:
        """The model as it answers a request with this instruction, and with a rank of its first document or none."""
        model = self.ranked if rank and self.ranked else self
        if not instruction:
            return model
        if not isinstance(self.backend, Grader) or self.scorer().settings.prompt != "paper":
            raise InputError(f"{self.name} is told nothing but the query and the documents. Leave out instruction.")
        return replace(model, settings=replace(model.settings, instruction=instruction))

    def presentations(self, asked: Presentations, is_stated: bool) -> Presentations:
        """What a request asks for, where it states how often; else what the model does by itself."""
        if is_stated or self.mitigation is None:
            return asked
        served = self.mitigation
        return replace(asked, count=served.number, canonical=True, adaptive=served.mitigation.decides)

    def decision(self, asked: Presentations, stated: DecisionRule | None, n: int) -> DecisionRule | None:
        """What n documents are presented to decide, of a request that states a decision or none; None: nothing."""
        if not asked.adaptive:
            return None
        return stated or for_pool(parse_rule(USUAL_RULE) if self.mitigation is None else self.mitigation.rule, n)

    def scorer(self, backend: Grader | Reranker | None = None, width: int | None = None) -> Scorer:
        """A scorer that presents pools as this model does, on its own backend or on one that stands for it."""
        return Scorer(backend or self.backend, self.task, replace(self.settings, width=width) if width else self.settings)


def open_model(
    name: str,
    address: str,
    asked: ModelOptions | None = None,
    options: EngineOptions | None = None,
    bases: SharedBases | None = None,
) -> Model:
    """Open an address for serving. An adapter is presented as its card says it was trained; what is asked for overrides it."""
    asked = asked or ModelOptions()
    served = None if asked.mitigation is None else served_mitigation(asked.mitigation)
    # Windows of different queries share a pass only where no prefix is computed apart from them.
    options = replace(options or EngineOptions(), share_prefix=False)
    backend = (bases or SharedBases()).open(address, options)
    if not isinstance(backend, Grader | Reranker):
        raise InputError(f"{address} replays stored scores and cannot score the documents of a request. Serve another scorer.")
    adapter = adapter_of(backend.identity())
    card = card_of(address) if adapter else None
    fitted = (card and card.cutoff) or CardCutoff()
    model = Model(
        name,
        backend,
        TASKS[asked.task or (card.task if card else "passage_reranking")],
        _settings(asked, card.settings if card else {}, is_whole=isinstance(backend, Reranker)),
        cutoff=fitted.value if asked.cutoff is None else asked.cutoff,
        expected_overlap=fitted.overlap if asked.cutoff is None else None,
        mitigation=served,
    )
    # a card's cutoff was fitted on the adapter's own scores
    mixed = replace(model, first_stage=asked.first_stage or FIRST_STAGE_SHARE, cutoff=asked.cutoff, expected_overlap=None)
    by_rank = mixed if asked.first_stage is None and address == DEFAULT else None
    model = mixed if asked.first_stage else replace(model, ranked=by_rank)
    if adapter:
        scorer = model.scorer()
        probe = scorer.prompt(instance_of("probe", ["probe"]), windows([0], 1)[0])
        assert isinstance(probe, Prompt)  # adapters are on engines
        refuse_mismatches(prompt_mistakes(adapter, scorer.prompt_hash, probe.grade_tokens), options.allow_base_mismatch)
    return model


def served_mitigation(name: str) -> Named:
    """A mitigation that a server offers: the mean of some presentations, and no more of them than a request may ask for."""
    served, most = parse_mitigation(name), Limits().permutations
    if served.label.partition(":")[0] not in ("adaptive", "self-consistency"):
        raise InputError(f"a server does not offer {name}. Give adaptive:K or self-consistency:K.")
    if served.number > most:
        raise InputError(f"{name} presents a pool {served.number:,} times, the server takes {most:,}.")
    return served


def _settings(asked: ModelOptions, trained: TrainedSettings, *, is_whole: bool) -> Settings:
    known: dict[str, Any] = {"chars": None} if is_whole else {}
    known |= {key: value for key, value in trained.items() if key in Settings.__dataclass_fields__}
    named = (("width", asked.width), ("chars", asked.chars), ("prompt", asked.prompt))
    stated = {key: value for key, value in named if value is not None}
    return Settings(**known | {"fit": asked.fit, "label_mass": False} | stated)


@dataclass(frozen=True, slots=True)
class Presentations:
    """How a request asks for its pool to be presented."""

    count: int = 1
    """1: once, in the order given. More: random orders, whose mean counts."""
    seed: int = 0
    width: int | None = None
    canonical: bool = False
    """In orders that depend on the documents alone, however they came."""
    adaptive: bool = False
    """Only until the decision is taken."""

    @property
    def ties_by_content(self) -> bool:
        """Whether equal scores too are put in an order that depends on the documents alone."""
        return self.canonical and self.count > 1

    def orders(self, instance: Instance) -> Array:
        """(P, n)"""
        n = len(instance.pool)
        first = content_order(instance) if self.canonical else np.arange(n)
        drawn = permutations(n, self.count, seed=self.seed, query_id=instance.query) if self.count > 1 else np.arange(n)[None]
        return np.asarray(first[drawn])


class ScoredPool(NamedTuple):
    """A pool under the presentations that were made of it."""

    model: Model
    instance: Instance
    asked: Presentations
    scored: Scored
    tokens: int

    @property
    def scores(self) -> Array:
        """(n,) mean over the presentations."""
        mean: Array = self.scored.scores.mean(axis=0)
        return mean

    @property
    def ties(self) -> Array:
        """(n,) the documents as equal ones follow each other."""
        return content_order(self.instance) if self.asked.ties_by_content else np.arange(len(self.instance.pool))

    @property
    def ranked(self) -> list[int]:
        """Documents, best first."""
        best: list[int] = self.ties[ranking(self.scores[self.ties])].tolist()
        return best

    @property
    def grades(self) -> Array | None:
        """(n, 4) mean over the presentations, where the scorer gives a distribution."""
        return None if self.scored.grades is None else self.scored.grades.mean(axis=0)

    @property
    def stopped(self) -> Stopped:
        """Why no further presentation was made."""
        if self.model.is_order_free(self.asked.width):
            return "order_free"
        return "settled" if len(self.scored.scores) < self.asked.count else "budget"

    def stability(self, rule: DecisionRule) -> Stability | None:
        """How settled a decision is; None where one presentation was asked for."""
        if self.asked.count == 1:
            return None
        steady = stability(self.scored.scores, rule)
        return steady._replace(settled=np.ones(len(self.scores), bool)) if self.stopped == "order_free" else steady


class PoolAudit(NamedTuple):
    """One pool in the order given, then under its permutations."""

    scored: Scored
    measures: dict[str, float]
    slot_profile: list[float]


class Service:
    """The models, the workers they share and what a request may ask of them."""

    def __init__(
        self,
        open_models: Callable[[], dict[str, Model]],
        limits: Limits,
        on_batch: Callable[[int, int, float], None] = lambda windows, requests, seconds: None,
    ):
        self.limits, self._open_models = limits, open_models
        self.models = open_models()
        self.batcher = Batcher(limits, on_batch)
        self.cold = dict.fromkeys(self.models, "")
        """Models that have not scored yet, each with the kind of fault of its last attempt."""
        self._reloading = threading.Lock()

    @property
    def warm(self) -> bool:
        return not self.cold

    def warm_up(self) -> dict[str, Exception]:
        """Score one small pool with every cold model, so that the first request is not slower; the faults by model."""
        failed: dict[str, Exception] = {}
        for name in list(self.cold):
            try:
                with self.batcher.admit(1, self.limits.seconds, name) as admission:
                    self.score_orders(self.models[name], admission, instance_of("warm", ["a", "b"]), np.arange(2)[None])
                del self.cold[name]
            except Exception as fault:
                failed[name] = fault
                self.cold[name] = type(fault).__name__
        return failed

    def reload(self) -> None:
        """Open every address again and swap: requests in flight keep the model they began with."""
        with self._reloading:
            self.models = self._open_models()

    def read_pool(
        self, query: str, texts: Sequence[str], titles: Sequence[str | None], ranks: Sequence[int | None] = ()
    ) -> Instance:
        """The pool of a request, or every limit that it exceeds, at once."""
        limits, mistakes = self.limits, []
        if len(texts) > limits.candidates:
            mistakes.append(f"{len(texts):,} documents were sent, the server takes {limits.candidates:,}.")
        if len(query) > limits.query_chars:
            mistakes.append(f"the query has {len(query):,} characters, the server takes {limits.query_chars:,}.")
        if long := [i for i, text in enumerate(texts) if len(text) > limits.document_chars]:
            size = len(texts[long[0]])
            mistakes.append(f"document {long[0]} has {size:,} characters, the server takes {limits.document_chars:,}.")
        if any(ranks) and len(set(ranks) - {None}) < len(ranks):
            mistakes.append("some documents have no rank, or that of another. Give each its own, or none to any.")
        if mistakes:
            raise InputError(mistakes)
        return instance_of(query, texts, titles, ranks)

    def count_windows(self, model: Model, n: int, presentations: int, width: int | None = None) -> int:
        """Windows that so many presentations of n documents need; refused where the queue could never hold them."""
        needed = presentations * -(-n // (width or model.width_for(n)))
        if needed > self.limits.queue_windows:
            raise InputError(
                f"{n:,} documents in {presentations:,} presentations are {needed:,} windows, the server takes "
                f"{self.limits.queue_windows:,}. Send fewer documents or permutations."
            )
        return needed

    def score_orders(
        self, model: Model, admission: Admission, instance: Instance, orders: Array, width: int | None = None, first: int = 0
    ) -> Presented:
        """Scores under several orders (P, n); columns stand in the order of the request."""
        scorer: PoolScorer = model.scorer(batched_backend(model.backend, self.batcher, admission), width)
        if model.first_stage:
            scorer = mitigate(scorer, [f"first-stage:{model.first_stage}"])
            if instance.pool[0].rank:
                instance, orders = sort_by_rank(instance, orders)
        return scorer.score_orders(instance, orders, range(first, first + len(orders)))

    def score_pools(self, model: Model, admission: Admission, instances: Sequence[Instance]) -> list[Array]:
        """Scores of several pools, each once in the order given; their windows are queued together."""
        return model.scorer(batched_backend(model.backend, self.batcher, admission)).score_pools(instances)

    def present(
        self,
        model: Model,
        admission: Admission,
        instance: Instance,
        orders: Array,
        asked: Presentations,
        decision: DecisionRule | None = None,
    ) -> Scored:
        """A pool under these orders; where a decision is to be taken, no further than it and the scorer need."""

        def score(rows: Array, first: int) -> Presented:
            return self.score_orders(model, admission, instance, rows, asked.width, first)

        if decision is not None and model.is_order_free(asked.width):
            return score(orders[:1], 0)
        if decision is None or not asked.adaptive:
            return score(orders, 0)
        by_position = window_places(len(instance.pool), asked.width or model.default_width, model.settings.partition)
        return present_until_decided(score, orders[None], decision, places_of(instance, orders[None], by_position)).scored

    def audit_pool(
        self,
        model: Model,
        admission: Admission,
        instance: Instance,
        count: int,
        *,
        seed: int = 0,
        width: int | None = None,
        cutoff: float | None = None,
    ) -> PoolAudit:
        """One pool in the order given and under `count` permutations: the table, its measures, its slot profile.

        The measures are those of single queries: variance shares are a collection's, and take 20 s for a window of 1,000.
        """
        n = len(instance.pool)
        drawn = permutations(n, count, seed=seed, query_id=instance.query, scheme="distinct")
        orders = np.vstack([np.arange(n)[None], drawn])
        scored = self.score_orders(model, admission, instance, orders, width, first=FIRST_STAGE)
        admission.check()
        measured = measure([scored], Threshold(cutoff=cutoff), only=MEASURES)
        slots = slot_profile([scored])
        values = {name: float(value[0]) for name, value in measured.values.items()} | {"slot_rms": slots.rms}
        return PoolAudit(scored, {name: value for name, value in values.items() if np.isfinite(value)}, slots.profile.tolist())

    def close(self) -> None:
        self.batcher.close()


def instance_of(
    query: str, texts: Sequence[str], titles: Sequence[str | None] = (), ranks: Sequence[int | None] = ()
) -> Instance:
    """A request as an instance. Ids sort as the request is ordered, so that ties go to the document named first."""
    facts = zip_longest(texts, titles, ranks)
    return Instance("request", query, tuple(Candidate(f"{i:06d}", *each[:2], rank=each[2]) for i, each in enumerate(facts)))


def sort_by_rank(instance: Instance, orders: Array) -> tuple[Instance, Array]:
    """The pool as its ranks say, which is how a first stage's share reads it, and the same orders of it."""
    ranked = np.argsort([candidate.rank or 0 for candidate in instance.pool])
    return replace(instance, pool=tuple(instance.pool[i] for i in ranked)), np.argsort(ranked)[orders]


def content_order(instance: Instance) -> Array:
    """An order that depends on titles and texts and not on how they came: run-to-run stability, not order invariance."""

    def key(i: int) -> tuple[bytes, int]:
        candidate = instance.pool[i]
        return hashlib.blake2b(f"{candidate.title or ''}\x1f{candidate.text}".encode(), digest_size=16).digest(), i

    return np.array(sorted(range(len(instance.pool)), key=key))
