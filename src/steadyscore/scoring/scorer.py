"""A scorer: an engine or reranker, a task and a presentation. `Scorer.score(instance, order)` is the paper's f_B(x, π)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from ..engines import Backend, Capabilities, Engine, Grader, Recording, Reranker
from ..errors import InputError, ModelError, UnusableScorer, WindowTooLong
from ..machine.bounds import Positive, check_fields
from ..models.card import TrainedSettings
from ..runs.records import Cost, ShrunkWindow
from ..runs.table import FIRST_STAGE
from ..tasks import Task
from ..terms import (
    LARGEST_SCORE,
    Candidate,
    Instance,
    Markers,
    Partition,
    Placeholder,
    Presentation,
    Prompt,
    PromptStyle,
    Window,
)
from ..window import readout
from ..window.presentation import align, places, windows
from ..window.prompt import CHARS_PER_TOKEN, PromptText, collapse, prompt_hash, prompt_text, shown, whole_text
from ..window.set_windows import reach
from .presented import Presented, Readings, WindowReading, align_readings, in_pool_order


@dataclass(frozen=True, slots=True)
class Settings:
    """How a pool is presented to the scorer; the order itself is given with each call."""

    width: Positive | None = None
    """Candidates per prompt, B (default: the adapter's, else the task's; the whole pool for a set or a reranker)."""
    chars: Positive | None = 1200
    """Characters kept of each candidate; None keeps all."""
    partition: Partition = "contiguous"
    """How an order is cut into windows."""
    markers: Markers = "numeric"
    """Labels of the slots."""
    marker_seed: int | None = None
    """Shuffle the labels over the slots by this seed, which draws the labels of random3 too (default: in slot order)."""
    placeholder: Placeholder = "0"
    """Grade that fills the answer skeleton."""
    prompt: PromptStyle | None = None
    """How a window is worded and read: in the printed words, in a compact layout that small models learn sooner, in that
    layout with candidates that do not see each other, or as a set without an order (default: the adapter's, else the paper's)."""
    instruction: str | None = None
    fit: Literal["refuse", "shrink"] = "refuse"
    """A window too long for the model: refuse it, or cut its candidates further."""
    label_mass: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    def width_or(self, usual: int | None) -> int | None:
        """The width that was asked for, else the usual one; None: the whole pool, as a set, of which there is nothing to cut."""
        return usual if self.width is None and self.prompt != "set" else self.width


class NotShown(RuntimeError):
    """What a study changed in a text is not in what the scorer is shown of it: the query is named and left out."""


class PoolScorer(ABC):
    """What scores the pool of a query under an order: a `Scorer`, or one under a mitigation (`mitigations.py`)."""

    backend: Backend
    task: Task
    settings: Settings
    mitigations: Sequence[str] = ()
    """Every mitigation between the model and the user, innermost first."""
    shows_one_by_one: bool = False
    """Whether every candidate has a prompt of its own, whatever the width."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def width(self) -> int | None:
        """Candidates per prompt, B; None: the whole pool."""

    @abstractmethod
    def identity(self) -> dict[str, object]:
        """Everything that determines a score besides the instance and the order."""

    @abstractmethod
    def with_settings(self, settings: Settings) -> PoolScorer:
        """The same scorer, which presents a pool in another way."""

    def score(self, instance: Instance, order: Sequence[int] | None = None) -> np.ndarray:
        """f_B(x, π): scores (n,) in pool order. Without an order, the pool's own."""
        presented = np.arange(len(instance.pool)) if order is None else np.asarray(order)
        return in_pool_order(self.score_orders(instance, presented[None], [0]), instance)

    @abstractmethod
    def score_orders(self, instance: Instance, orders: np.ndarray, permutations: Sequence[int]) -> Presented:
        """Scores under several orders, (P, n), as the arrays every measure takes: columns sorted by candidate id."""

    @property
    def capabilities(self) -> Capabilities:
        """What the backend can tell; order-free where it can read a set and is shown the whole pool as one."""
        known = self.backend.capabilities
        is_set = self.settings.prompt == "set" and self.width is None and known.isolation
        return replace(known, order_free=True) if is_set else known

    def presentation(self, order: Sequence[int] | np.ndarray) -> Presentation:
        """The setting of all four channels (§3) that this scorer shows an order in."""
        s = self.settings
        return Presentation(tuple(int(i) for i in order), s.partition, s.markers, s.placeholder, s.marker_seed)

    def score_presentation(self, instance: Instance, presentation: Presentation) -> np.ndarray:
        """Scores (n,) in pool order under any setting of the four channels, this scorer's own or another."""
        p = presentation
        channels = {"partition": p.partition, "markers": p.markers, "placeholder": p.placeholder, "marker_seed": p.marker_seed}
        settings = replace(self.settings, **channels)  # type: ignore[arg-type]
        return self.with_settings(settings).score(instance, p.order)


class WrappedScorer(PoolScorer):
    """A scorer that presents pools through another one, as a mitigation does; the rest is that of the one inside."""

    scorer: PoolScorer

    def __init__(self, scorer: PoolScorer):
        self.scorer = scorer
        self.backend, self.task, self.settings = scorer.backend, scorer.task, scorer.settings
        self.mitigations = scorer.mitigations

    @property
    def width(self) -> int | None:
        return self.scorer.width


class Scorer(PoolScorer):
    """f_B: scores a candidate set under an order, aligned back to candidate identity."""

    def __init__(self, backend: Backend, task: Task, settings: Settings | None = None):
        self.backend, self.task = backend, task
        self.settings = resolve_settings(settings or Settings(), backend.trained_settings)
        asked = self.settings.prompt
        if not isinstance(backend, Grader):
            self.settings = replace(self.settings, prompt="paper")  # there is no prompt
        elif asked in ("isolated", "set") and not backend.capabilities.isolation:
            raise ModelError(
                f"{backend.name} cannot keep candidates from seeing each other, which --prompt {asked} asks for. "
                "The hf engine can, for models with full attention and fixed rotary positions, without --mitigation pine."
            )

    @property
    def name(self) -> str:
        return self.backend.called or self.backend.name

    @property
    def width(self) -> int | None:
        return self.settings.width_or(self.task.width if isinstance(self.backend, Grader) else self.backend.width)

    def identity(self) -> dict[str, object]:
        identity = {
            "scorer": self.backend.identity(),
            "task": self.task.prompt_task,
            **asdict(self.settings),
            "width": self.width,
        }
        if self.settings.marker_seed is None:  # labels in slot order are what runs were before there was a seed
            del identity["marker_seed"]
        if isinstance(self.backend, Grader):
            identity["prompt_hash"] = self.prompt_hash
        return identity

    @property
    def prompt_hash(self) -> str:
        """The digest of all words around a query and its texts."""
        s, task = self.settings, self.task
        system = task.compact if s.prompt in ("compact", "isolated", "set") else task.system
        template = "\ue000".join(self.backend.encoder.template(system)) if isinstance(self.backend, Engine) else ""
        return prompt_hash(task, s.markers, s.placeholder, s.prompt or "paper", template)

    def with_settings(self, settings: Settings) -> Scorer:
        return Scorer(self.backend, self.task, settings)

    def score(self, instance: Instance, order: Sequence[int] | None = None) -> np.ndarray:
        presented = np.arange(len(instance.pool)) if order is None else np.asarray(order)
        if isinstance(self.backend, Recording):
            return self._recalled_row(instance, presented)
        return self._score_together([(instance, presented)])[0]

    def score_pools(self, instances: Sequence[Instance]) -> list[np.ndarray]:
        """(n,) scores of each pool as it stands; the windows of all go to the backend in one call."""
        return self._score_together([(instance, np.arange(len(instance.pool))) for instance in instances])

    def _score_together(self, shown: Sequence[tuple[Instance, np.ndarray]]) -> list[np.ndarray]:
        cuts = [(instance, self._cut(instance, order[None])[0]) for instance, order in shown]
        readings = iter(self.read_windows([(instance, window) for instance, cut in cuts for window in cut]).windows)
        return [align([next(readings).scores for _ in cut], cut, len(instance.pool)) for instance, cut in cuts]

    def score_orders(self, instance: Instance, orders: np.ndarray, permutations: Sequence[int]) -> Presented:
        if isinstance(self.backend, Recording):
            return self._recalled(instance, permutations)
        cuts = self._cut(instance, np.asarray(orders))
        read, cost = self.read_windows([(instance, window) for cut in cuts for window in cut])
        readings = iter(read)
        return self.present(instance, cuts, [[next(readings) for _ in cut] for cut in cuts], permutations, cost)

    def _cut(self, instance: Instance, orders: np.ndarray) -> list[list[Window]]:
        cuts = [windows(order, self.width or len(instance.pool), self.settings.partition) for order in orders]
        if self.backend.capabilities.gives == "ranking" and any(len(cut) > 1 for cut in cuts):
            raise InputError(f"{self.name} gives an order, and orders of windows cannot be merged. Leave out --width.")
        return cuts

    def present(
        self,
        instance: Instance,
        cuts: Sequence[Sequence[Window]],
        readings: Sequence[Sequence[WindowReading]],
        permutations: Sequence[int],
        cost: Cost,
    ) -> Presented:
        """What was read of the windows of each order, as the arrays every measure takes: columns sorted by candidate id."""
        ids = [candidate.id for candidate in instance.pool]
        by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__))
        at = [places(cut, len(ids)) for cut in cuts]
        read = align_readings(readings, cuts, len(ids))
        placed = {"slots": np.stack([s for s, _ in at]), "windows": np.stack([w for _, w in at]), **read}
        columns = {name: None if values is None else values[:, by_id] for name, values in placed.items()}
        sorted_ids = tuple(ids[i] for i in by_id)
        return Presented(
            query_id=instance.id,
            candidate_ids=sorted_ids,
            permutations=np.asarray(permutations, dtype=np.int64),
            relevance=instance.relevance(sorted_ids),
            ideal=ideal_gains(instance),
            partition=self.settings.partition,
            cost=cost,
            **columns,  # type: ignore[arg-type]
        )

    def _recalled(self, instance: Instance, permutations: Sequence[int]) -> Presented:
        """A recording's rows, judged by the collection."""
        assert isinstance(self.backend, Recording)
        known = self.backend.recall(instance, permutations)
        judged = replace(known, relevance=instance.relevance(known.candidate_ids), ideal=ideal_gains(instance))
        return Presented(**{field.name: getattr(judged, field.name) for field in fields(judged)})

    def _recalled_row(self, instance: Instance, order: np.ndarray) -> np.ndarray:
        """A recording's scores of the first-stage order, (n,) in pool order: of another order it knows only the number."""
        row = self._recalled(instance, [FIRST_STAGE])
        is_first_stage = bool((order == np.arange(len(instance.pool))).all())
        if not len(row.scores) or not (is_first_stage or self.capabilities.order_free):
            raise InputError(f"{self.name} holds no scores of this order of query {instance.id}, and cannot score anew.")
        return in_pool_order(row, instance)

    def read_windows(self, shown: Sequence[tuple[Instance, Window]]) -> Readings:
        """What is read of some windows, of one query or of several, that go to the backend in one call."""
        for instance, window in shown:
            self._check_planted(instance, window, self.settings.chars)
        return self._read_grades(shown) if isinstance(self.backend, Grader) else self._read_scores(shown)

    # -- graders: grades at slots

    def _read_grades(self, shown: Sequence[tuple[Instance, Window]]) -> Readings:
        grader: Grader = self.backend  # type: ignore[assignment]
        reads_mass = self.settings.label_mass and grader.capabilities.label_mass
        fitting = [self._fit(instance, window) for instance, window in shown]
        prompts = [prompt for prompt, _ in fitting]
        # Two presentations may hold the same window (always at width 1): one prompt, one pass, one score.
        unique = list(dict.fromkeys(prompts))
        tokens = sum(map(token_count, {_unordered(prompt) for prompt in unique}))
        read = dict(zip(unique, grader.grade_logits(unique, label_mass=reads_mass), strict=True))
        # A grade that was written is a score; only what was read as a distribution is kept as one.
        is_kept = grader.capabilities.gives == "distribution"
        readings = []
        for prompt in prompts:
            grades = readout.grade_distribution(read[prompt].logits)
            mass = np.asarray(read[prompt].label_mass) if reads_mass else None
            readings.append(WindowReading(readout.score(grades), grades if is_kept else None, mass))
        return Readings(readings, Cost(tokens, tuple(cut for _, cut in fitting if cut is not None)))

    def prompt(self, instance: Instance, window: Window) -> Prompt | PromptText:
        """A window as token ids that fit the model, or a refusal that names it; as text for a grader without a tokenizer."""
        return self._fit(instance, window)[0]

    def _fit(self, instance: Instance, window: Window) -> tuple[Prompt | PromptText, ShrunkWindow | None]:
        """The prompt of a window, and to what its texts were cut where they were."""
        if not isinstance(self.backend, Engine):
            return self._text(instance, window, self.settings.chars), None
        engine: Engine = self.backend
        prompt = self._encoded(instance, window, self.settings.chars)
        if reach(prompt) <= engine.context:
            return prompt, None
        size, is_set = len(window.candidates), bool(prompt.segment)
        refusal = WindowTooLong(size, window.index + 1, instance.id, reach(prompt), engine.context, is_set=is_set)
        if self.settings.fit == "refuse":
            raise refusal
        longest = max(len(shown(instance.pool[i], self.settings.chars)) for i in window.candidates)
        low, high = 0, longest  # low always fits, high never does
        if reach(self._encoded(instance, window, 0)) > engine.context:
            raise refusal
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if reach(self._encoded(instance, window, middle)) <= engine.context else (low, middle)
        self._check_planted(instance, window, low)
        members = tuple(instance.pool[i].id for i in window.candidates)
        cut = ShrunkWindow(query_id=instance.id, window=window.index + 1, chars=low, candidates=members)
        return self._encoded(instance, window, low), cut

    def surely_fits(self, instance: Instance, window: Window) -> bool:
        """Whether a window fits by its bytes alone, which tokens hardly ever outnumber; False says nothing."""
        engine: Engine = self.backend  # type: ignore[assignment]
        text = self._text(instance, window, self.settings.chars)
        pieces = (text.system, *(piece.text for piece in (*text.prefix, *text.body)))
        around = 512 + 32 * len(window.candidates)  # the chat template and the grades
        return sum(len(piece.encode()) for piece in pieces) + around <= engine.context

    def _encoded(self, instance: Instance, window: Window, chars: int | None) -> Prompt:
        engine: Engine = self.backend  # type: ignore[assignment]
        prompt = engine.encoder.prompt(self._text(instance, window, chars))
        if len(prompt.slots) != (count := window.lines or len(window.candidates)):
            raise InputError(
                f"window {window.index + 1} of query {instance.id} has {len(prompt.slots)} slots for {count} candidates."
            )
        return prompt

    def _text(self, instance: Instance, window: Window, chars: int | None) -> PromptText:
        return prompt_text(
            self.task,
            instance.query,
            [self._shown(instance.pool[i], chars) for i in window.candidates],
            instruction=self.settings.instruction,
            markers=self.settings.markers,
            placeholder=self.settings.placeholder,
            style=self._style,
            marker_seed=self.settings.marker_seed,
            first=window.first,
            lines=window.lines,
        )

    def _shown(self, candidate: Candidate, chars: int | None) -> str:
        """What the backend gets of a candidate: its text as it is for a reranker without a limit of characters."""
        return whole_text(candidate) if chars is None and isinstance(self.backend, Reranker) else shown(candidate, chars)

    def _check_planted(self, instance: Instance, window: Window, chars: int | None) -> None:
        for candidate in (instance.pool[i] for i in window.candidates if instance.pool[i].planted):
            if candidate.planted not in collapse(self._shown(candidate, chars)):
                end = shown(candidate, None).index(candidate.planted) + len(candidate.planted)
                where = f"they end at character {end:,} of title and text, and {chars:,} are shown"
                raise NotShown(f"the words do not reach the scorer ({where})")

    @property
    def _style(self) -> PromptStyle:
        """A set of one is the compact prompt of one candidate, token by token; as such it shares passes with others."""
        asked = self.settings.prompt or "paper"
        return "compact" if asked == "set" and self.width == 1 else asked

    # -- rerankers: scores only

    def _read_scores(self, shown: Sequence[tuple[Instance, Window]]) -> Readings:
        reranker: Reranker = self.backend  # type: ignore[assignment]
        unique = {(id(instance), window.candidates): (instance, window) for instance, window in shown}
        texts = [
            [self._shown(instance.pool[i], self.settings.chars) for i in window.candidates]
            for instance, window in unique.values()
        ]
        pools = [(instance.query, pool) for (instance, _), pool in zip(unique.values(), texts, strict=True)]
        answers = reranker.score_pools(pools)
        scores = {key: self._checked(*shown, answer) for (key, shown), answer in zip(unique.items(), answers, strict=True)}
        tokens = sum(round(sum(map(len, pool)) / CHARS_PER_TOKEN) for pool in texts)
        return Readings([WindowReading(scores[id(instance), window.candidates]) for instance, window in shown], Cost(tokens))

    def _checked(self, instance: Instance, window: Window, answer: Any) -> np.ndarray:
        """What a reranker answered for a window, as one finite number per candidate."""
        scores, n = as_numbers(answer), len(window.candidates)
        if not isinstance(scores, str) and scores.shape != (n,):
            scores = f"{len(scores)} scores" if scores.ndim == 1 else f"an array of shape {scores.shape}"
        if isinstance(scores, str):
            raise UnusableScorer(
                f"{self.name} gave {scores} for the {n} candidates of query {instance.id}. Return one number per "
                "candidate, in the order of the candidates."
            )
        if len(bad := np.flatnonzero(~(np.abs(scores) <= LARGEST_SCORE))):  # NaN is not below anything
            candidate = instance.pool[window.candidates[bad[0]]].id
            raise UnusableScorer(
                f"{self.name} gave {scores[bad[0]]} as the score of candidate {candidate} of query {instance.id}. "
                f"Return a finite number for every candidate, none beyond {LARGEST_SCORE:g}."
            )
        return scores


def as_numbers(answer: Any) -> np.ndarray | str:
    """A list, an array or a tensor as numbers, a series in the order of its index; or what it is instead, as one says it."""
    if answer is None:
        return "nothing"
    if hasattr(answer, "sort_index"):
        answer = answer.sort_index()
        if list(answer.index) != list(range(len(answer))):
            return "a series whose index is not 0, 1, 2 and so on"
    values = answer.tolist() if hasattr(answer, "tolist") else answer
    other = f"a {type(answer).__name__} that is not a list of numbers"
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return other
    try:
        numbers = np.asarray(values)
        each = np.asarray(values, object).ravel().tolist() if numbers.dtype.kind in "iufO" else []
        if numbers.dtype.kind not in "biufO" or any(isinstance(value, str | bytes) for value in each):  # digits in quotes, too
            return other
        if any(isinstance(value, int) and abs(value) > 2**53 for value in each):
            return "whole numbers beyond 2^53, of which neighbours become one"
        return numbers.astype(np.float64)
    except (TypeError, ValueError):  # rows of unequal length, or things that are not numbers
        return other


def _unordered(prompt: Prompt | PromptText) -> Prompt | PromptText:
    """What is read of a prompt: orders of a set differ in where their grades are found, and are read once."""
    return replace(prompt, slots=()) if isinstance(prompt, Prompt) and prompt.segment else prompt


def token_count(prompt: Prompt | PromptText) -> int:
    """Tokens of a prompt; of one that is text, by its length."""
    return len(prompt) if isinstance(prompt, Prompt) else round(prompt.characters / CHARS_PER_TOKEN)


def resolve_settings(settings: Settings, trained: TrainedSettings) -> Settings:
    """The prompt and the width that hold: those asked for, else those that the adapter was trained with."""
    return replace(
        settings, prompt=settings.prompt or trained.get("prompt") or "paper", width=settings.width or trained.get("width")
    )


def ideal_gains(instance: Instance) -> np.ndarray | None:
    """Relevance of every judged document of a query: what nDCG's ideal ranking may use (§5)."""
    judged = instance.judgements()
    return np.array(sorted(judged.values(), reverse=True), dtype=float) if judged else None
