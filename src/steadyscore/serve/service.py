"""Pools in, scores and decisions out: what the routes call. It knows nothing of HTTP."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..adapter import prompt_mistakes, read_card, refuse
from ..engines import Engine, EngineOptions, Grader, Reranker
from ..errors import InputError
from ..measurement import Threshold, measure
from ..metrics import Array
from ..presentation import permutations, windows
from ..scorer import Scorer, Settings
from ..scores import CANONICAL, Scored
from ..tasks import TASKS, Task
from ..terms import Candidate, Instance, PromptStyle
from .adapters import Bases, split
from .batcher import Batcher, Ticket, stand_in
from .decide import Decision, Stability, looks, stability
from .settings import Limits


@dataclass(frozen=True, slots=True)
class Model:
    """A scorer under the name that requests call it by."""

    name: str
    address: str
    backend: Engine | Grader | Reranker
    task: Task
    settings: Settings
    cutoff: float | None = None
    """The cutoff of a threshold decision that names none."""
    expected_overlap: float | None = None
    """Overlap of the sets this cutoff retains under reordering, as the adapter's card measured it."""
    opened: int = field(default_factory=lambda: int(time.time()))

    @property
    def own_width(self) -> int | None:
        """Documents per prompt; None: the whole pool."""
        return Scorer(self.backend, self.task, self.settings).width

    def width(self, n: int) -> int:
        return self.own_width or n

    def scorer(self, backend: Engine | Grader | Reranker, width: int | None = None) -> Scorer:
        return Scorer(backend, self.task, replace(self.settings, width=width) if width else self.settings)


def open_model(
    name: str,
    address: str,
    *,
    task: str | None = None,
    width: int | None = None,
    chars: int | None = None,
    prompt: PromptStyle | None = None,
    fit: Any = "refuse",
    cutoff: float | None = None,
    options: EngineOptions | None = None,
    bases: Bases | None = None,
) -> Model:
    """Open an address for serving. An adapter is presented as its card says it was trained; flags override the rest."""
    # Windows of different queries share a pass only where no prefix is computed apart from them.
    options = replace(options or EngineOptions(), share_prefix=False)
    backend = (bases or Bases()).open(address, options)
    if not isinstance(backend, Grader | Reranker):
        raise InputError(f"{address} holds scores that were given before; it cannot score what a request brings.")
    card = _card(address)
    known = {key: value for key, value in card.get("settings", {}).items() if key in Settings.__dataclass_fields__}
    given: dict[str, Any] = {"width": width, "chars": chars, "prompt": prompt}
    settings = Settings(**known | {"fit": fit, "label_mass": False} | {k: v for k, v in given.items() if v is not None})
    fitted = card.get("cutoff") or {}
    model = Model(
        name,
        address,
        backend,
        TASKS[task or card.get("task") or "passage_reranking"],
        settings,
        cutoff=cutoff if cutoff is not None else fitted.get("value"),
        expected_overlap=fitted.get("overlap") if cutoff is None else None,
    )
    if adapter := backend.identity().get("adapter"):
        scorer = model.scorer(backend)
        probe = scorer.prompt(instance_of("probe", ["probe"]), windows([0], 1)[0])
        refuse(prompt_mistakes(adapter, scorer.identity()["prompt_hash"], probe.grade_tokens), options.allow_base_mismatch)  # type: ignore[union-attr]
    return model


def _card(address: str) -> dict[str, Any]:
    folder = split(address)[1]
    return read_card(folder) if folder and (folder / "card.json").exists() else {}


class Decided(NamedTuple):
    """A decision's grounds."""

    scores: Array
    """(n,) mean over the presentations."""
    grades: Array | None
    """(n, 4)"""
    permutations: int
    stability: Stability | None
    stopped: str | None
    """settled, budget or order_free; None where stability was not asked for."""


class Service:
    """The models, the workers they share and what a request may ask of them."""

    def __init__(self, open_models: Callable[[], dict[str, Model]], limits: Limits, on_batch: Any = None):
        self.limits, self._open_models = limits, open_models
        self.models = open_models()
        extra = {} if on_batch is None else {"on_batch": on_batch}
        self.batcher = Batcher(
            batch_windows=limits.batch_windows,
            queue_windows=limits.queue_windows,
            requests=limits.requests,
            workers=limits.workers,
            **extra,
        )
        self.cold = dict.fromkeys(self.models, "")
        """Models that have not scored yet, each with the kind of fault its last try met."""
        self._reloading = threading.Lock()

    def model(self, name: str | None) -> Model | None:
        """The model of that name; without a name the first one."""
        return next(iter(self.models.values())) if not name else self.models.get(name)

    @property
    def warm(self) -> bool:
        return not self.cold

    def warm_up(self) -> dict[str, Exception]:
        """One small pool through every cold model, so that the first request does not pay for the first pass; what failed."""
        failed: dict[str, Exception] = {}
        for name in list(self.cold):
            try:
                with self.admitted(1, name) as ticket:
                    self.scored(self.models[name], ticket, instance_of("warm", ["a", "b"]), np.arange(2)[None])
                del self.cold[name]
            except Exception as fault:
                failed[name] = fault
                self.cold[name] = type(fault).__name__
        return failed

    def reload(self) -> None:
        """Open every address again and swap: requests in flight keep the model they began with."""
        with self._reloading:
            self.models = self._open_models()

    @contextmanager
    def admitted(self, windows: int, model: str) -> Iterator[Ticket]:
        with self.batcher.admitted(windows, self.limits.seconds, model) as ticket:
            yield ticket

    def windows_of(self, model: Model, n: int, presentations: int, width: int | None = None) -> int:
        """Windows that many presentations of n documents need; refused where no queue could ever hold them."""
        needed = presentations * -(-n // (width or model.width(n)))
        if needed > self.limits.queue_windows:
            raise InputError(
                f"{n:,} documents in {presentations:,} presentations are {needed:,} windows, the server takes "
                f"{self.limits.queue_windows:,}. Send fewer documents or permutations."
            )
        return needed

    def scored(
        self, model: Model, ticket: Ticket, instance: Instance, orders: Array, width: int | None = None, first: int = 0
    ) -> Scored:
        """Scores under several orders (P, n); columns stand in the order of the request."""
        scorer = model.scorer(stand_in(model.backend, self.batcher, ticket), width)
        return scorer.score_orders(instance, orders, range(first, first + len(orders)))

    def decided(
        self,
        model: Model,
        ticket: Ticket,
        instance: Instance,
        decision: Decision,
        count: int,
        *,
        adaptive: bool = True,
        seed: int = 0,
        width: int | None = None,
    ) -> Decided:
        """One presentation in the order given, or `count` random ones, adaptively: stop when every role is settled."""
        n = len(instance.pool)
        if count == 1:
            found = self.scored(model, ticket, instance, np.arange(n)[None], width)
            return Decided(found.scores[0], None if found.grades is None else found.grades[0], 1, None, None)
        orders = permutations(n, count, seed=seed, query_id=instance.query)
        if model.scorer(model.backend, width).capabilities.order_free:
            stops, verdict = [1], "order_free"
        else:
            stops, verdict = looks(count) if adaptive else [count], "budget"
        scores, grades, steady = np.empty((0, n)), None, None
        for stop in stops:
            more = self.scored(model, ticket, instance, orders[len(scores) : stop], width)
            scores = np.vstack([scores, more.scores])
            if more.grades is not None:
                grades = more.grades if grades is None else np.concatenate([grades, more.grades])
            steady = stability(scores, decision, len(stops))
            if adaptive and verdict == "budget" and steady.settled.all():
                verdict = "settled"
                break
        if verdict == "order_free":
            steady = steady._replace(settled=np.ones(n, bool))  # type: ignore[union-attr]
        return Decided(scores.mean(axis=0), None if grades is None else grades.mean(axis=0), len(scores), steady, verdict)

    def audited(
        self, model: Model, ticket: Ticket, instance: Instance, count: int, *, seed: int = 0, width: int | None = None,
        cutoff: float | None = None,
    ) -> tuple[Scored, dict[str, float], list[float]]:  # fmt: skip
        """One pool in the order given and under `count` permutations: the table, its measures, its slot profile."""
        n = len(instance.pool)
        orders = np.vstack([np.arange(n)[None], permutations(n, count, seed=seed, query_id=instance.query)])
        scored = self.scored(model, ticket, instance, orders, width, first=CANONICAL)
        measured = measure([scored], Threshold(cutoff=cutoff))
        values = {name: float(value[0]) for name, value in measured.values.items()} | measured.overall
        return scored, {name: value for name, value in values.items() if np.isfinite(value)}, measured.slot_profile

    def close(self) -> None:
        self.batcher.close()


def instance_of(query: str, texts: Sequence[str], titles: Sequence[str | None] | None = None) -> Instance:
    """A request as an instance. Ids sort as the request is ordered, so that ties go to the document named first."""
    titles = titles or [None] * len(texts)
    pool = tuple(Candidate(f"{i:06d}", text, title) for i, (text, title) in enumerate(zip(texts, titles, strict=True)))
    return Instance("request", query, pool)


def content_order(texts: Sequence[str]) -> Array:
    """An order that depends on the texts and not on how they came: run-to-run stability, not order invariance."""
    return np.array(sorted(range(len(texts)), key=lambda i: (hashlib.blake2b(texts[i].encode(), digest_size=16).digest(), i)))
