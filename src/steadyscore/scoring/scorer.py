"""A scorer: an engine or reranker, a task and a presentation. `Scorer.score(instance, order)` is the paper's f_B(x, π)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ..engines import Backend, Capabilities, Engine, Grader, Recording, Reranker
from ..errors import InputError, ModelError, UnusableScorer, WindowTooLong
from ..machine.bounds import Positive, check_fields
from ..models.card import TrainedSettings
from ..runs.table import FIRST_STAGE, Scored
from ..tasks import Task
from ..terms import LARGEST_SCORE, Candidate, Instance, Markers, Partition, Placeholder, Presentation, Prompt, PromptStyle, Window
from ..window import readout
from ..window.presentation import align, places, windows
from ..window.prompt import CHARS_PER_TOKEN, PromptText, collapse, prompt_hash, prompt_text, shown, whole_text
from ..window.set_windows import reach


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


class NotShown(RuntimeError):
    """What a study changed in a text is not in what the scorer is shown of it: the query is named and left out."""


class WindowReading(NamedTuple):
    """What was read of a window."""

    scores: np.ndarray
    """(b,), one per line of the answer, in slot order."""
    grades: np.ndarray | None = None
    """(b, 4), where the backend gives a distribution."""
    label_mass: np.ndarray | None = None
    """(b,)"""


def align_readings(
    rows: Sequence[Sequence[WindowReading]], cuts: Sequence[Sequence[Window]], n: int
) -> dict[str, np.ndarray | None]:
    """Readings of the windows of each order, back to candidate identity: (P, n) scores and masses, (P, n, 4) grades."""

    def aligned(parts: list[list[np.ndarray | None]]) -> np.ndarray | None:
        if any(part is None for row in parts for part in row):
            return None
        return np.stack([align(row, cut, n) for row, cut in zip(parts, cuts, strict=True)])  # type: ignore[arg-type]

    return {name: aligned([[getattr(reading, name) for reading in row] for row in rows]) for name in WindowReading._fields}


class PoolScorer(ABC):
    """What scores the pool of a query under an order: a `Scorer`, or one under a mitigation (`mitigations.py`)."""

    backend: Backend
    task: Task
    settings: Settings
    mitigations: Sequence[str] = ()
    """Every mitigation between the model and the user, innermost first."""
    shrunk: list[tuple[str, int, int]]
    """(query id, window, characters kept) of every window that was cut to fit."""
    shows_one_by_one: bool = False
    """Whether every candidate has a prompt of its own, whatever the width."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens of every prompt so far; of scorers that take text, by its length."""

    @property
    @abstractmethod
    def width(self) -> int | None:
        """Candidates per prompt, B; None: the whole pool."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that determines a score besides the instance and the order."""

    @abstractmethod
    def with_settings(self, settings: Settings) -> PoolScorer:
        """The same scorer, which presents a pool in another way."""

    @abstractmethod
    def score(self, instance: Instance, order: Sequence[int] | None = None) -> np.ndarray:
        """f_B(x, π): scores (n,) in pool order. Without an order, the pool's own."""

    @abstractmethod
    def score_orders(self, instance: Instance, orders: np.ndarray, permutations: Sequence[int]) -> Scored:
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
        self.shrunk = []
        self._tokens = 0

    @property
    def name(self) -> str:
        return self.backend.called or self.backend.name

    @property
    def tokens(self) -> int:
        return self._tokens

    @property
    def width(self) -> int | None:
        if self.settings.width is not None:
            return self.settings.width
        if self.settings.prompt == "set":
            return None  # texts are read once each, whatever the pool: there is nothing to cut
        return self.task.width if isinstance(self.backend, Grader) else self.backend.width

    def identity(self) -> dict[str, Any]:
        identity = {
            "scorer": self.backend.identity(),
            "task": self.task.prompt_task,
            **asdict(self.settings),
            "width": self.width,
        }
        if self.settings.marker_seed is None:  # labels in slot order are what runs were before there was a seed
            del identity["marker_seed"]
        if isinstance(self.backend, Grader):
            system = self.task.compact if self.settings.prompt in ("compact", "isolated", "set") else self.task.system
            template = "\ue000".join(self.backend.encoder.template(system)) if isinstance(self.backend, Engine) else ""
            s = self.settings
            identity["prompt_hash"] = prompt_hash(self.task, s.markers, s.placeholder, s.prompt or "paper", template)
        return identity

    def with_settings(self, settings: Settings) -> Scorer:
        return Scorer(self.backend, self.task, settings)

    def score(self, instance: Instance, order: Sequence[int] | None = None) -> np.ndarray:
        presented = np.arange(len(instance.pool)) if order is None else np.asarray(order)
        if isinstance(self.backend, Recording):
            return self._recalled_row(instance, presented)
        rows = self._present(instance, self._cut(instance, presented[None]))["scores"]
        assert rows is not None
        scores: np.ndarray = rows[0]
        return scores

    def score_pools(self, instances: Sequence[Instance]) -> list[np.ndarray]:
        """(n,) scores of each pool as it stands; the windows of all go to the backend in one call."""
        cuts = [self._cut(instance, np.arange(len(instance.pool))[None])[0] for instance in instances]
        shown = [(instance, window) for instance, cut in zip(instances, cuts, strict=True) for window in cut]
        readings = iter(self.read_windows(shown))
        return [
            align([next(readings).scores for _ in cut], cut, len(instance.pool))
            for instance, cut in zip(instances, cuts, strict=True)
        ]

    def score_orders(self, instance: Instance, orders: np.ndarray, permutations: Sequence[int]) -> Scored:
        if isinstance(self.backend, Recording):
            return self._recalled(instance, permutations)
        cuts = self._cut(instance, np.asarray(orders))
        return self.as_scored(instance, cuts, self._present(instance, cuts), permutations)

    def _cut(self, instance: Instance, orders: np.ndarray) -> list[list[Window]]:
        cuts = [windows(order, self.width or len(instance.pool), self.settings.partition) for order in orders]
        if self.backend.capabilities.gives == "ranking" and any(len(cut) > 1 for cut in cuts):
            raise InputError(f"{self.name} gives an order, and orders of windows cannot be merged. Leave out --width.")
        return cuts

    def _present(self, instance: Instance, cuts: list[list[Window]]) -> dict[str, np.ndarray | None]:
        readings = iter(self.read_windows([(instance, window) for cut in cuts for window in cut]))
        return align_readings([[next(readings) for _ in cut] for cut in cuts], cuts, len(instance.pool))

    def as_scored(
        self,
        instance: Instance,
        cuts: Sequence[Sequence[Window]],
        found: dict[str, np.ndarray | None],
        permutations: Sequence[int],
    ) -> Scored:
        """What was read in pool order, (P, n, ...), as the arrays every measure takes: columns sorted by candidate id."""
        ids = [candidate.id for candidate in instance.pool]
        by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__))
        at = [places(cut, len(ids)) for cut in cuts]
        placed = {"slots": np.stack([s for s, _ in at]), "windows": np.stack([w for _, w in at]), **found}
        columns = {name: None if values is None else values[:, by_id] for name, values in placed.items()}
        sorted_ids = tuple(ids[i] for i in by_id)
        return Scored(
            query_id=instance.id,
            candidate_ids=sorted_ids,
            permutations=np.asarray(permutations, dtype=np.int64),
            relevance=instance.relevance(sorted_ids),
            ideal=ideal_gains(instance),
            partition=self.settings.partition,
            **columns,  # type: ignore[arg-type]
        )

    def _recalled(self, instance: Instance, permutations: Sequence[int]) -> Scored:
        """A recording's rows, judged by the collection."""
        assert isinstance(self.backend, Recording)
        found = self.backend.recall(instance, permutations)
        return replace(found, relevance=instance.relevance(found.candidate_ids), ideal=ideal_gains(instance))

    def _recalled_row(self, instance: Instance, order: np.ndarray) -> np.ndarray:
        """A recording's scores of the first-stage order, (n,) in pool order: of another order it knows only the number."""
        found = self._recalled(instance, [FIRST_STAGE])
        is_first_stage = bool((order == np.arange(len(instance.pool))).all())
        if not len(found.scores) or not (is_first_stage or self.capabilities.order_free):
            raise InputError(f"{self.name} holds no scores of this order of query {instance.id}, and cannot score anew.")
        return in_pool_order(found, instance)

    def read_windows(self, shown: Sequence[tuple[Instance, Window]]) -> list[WindowReading]:
        """What is read of some windows, of one query or of several, that go to the backend in one call."""
        for instance, window in shown:
            self._check_planted(instance, window, self.settings.chars)
        return self._read_grades(shown) if isinstance(self.backend, Grader) else self._read_scores(shown)

    # -- graders: grades at slots

    def _read_grades(self, shown: Sequence[tuple[Instance, Window]]) -> list[WindowReading]:
        grader: Grader = self.backend  # type: ignore[assignment]
        reads_mass = self.settings.label_mass and grader.capabilities.label_mass
        prompts = [self.prompt(instance, window) for instance, window in shown]
        # Two presentations may hold the same window (always at width 1): one prompt, one pass, one score.
        unique = list(dict.fromkeys(prompts))
        self._tokens += sum(map(token_count, {_unordered(prompt) for prompt in unique}))
        read = dict(zip(unique, grader.grade_logits(unique, label_mass=reads_mass), strict=True))
        # A grade that was written is a score; only what was read as a distribution is kept as one.
        is_kept = grader.capabilities.gives == "distribution"
        found = []
        for prompt in prompts:
            grades = readout.grade_distribution(read[prompt].logits)
            mass = np.asarray(read[prompt].label_mass) if reads_mass else None
            found.append(WindowReading(readout.score(grades), grades if is_kept else None, mass))
        return found

    def prompt(self, instance: Instance, window: Window) -> Prompt | PromptText:
        """A window as token ids that fit the model, or a refusal that names it; as text for a grader without a tokenizer."""
        if not isinstance(self.backend, Engine):
            return self._text(instance, window, self.settings.chars)
        engine: Engine = self.backend
        prompt = self._encoded(instance, window, self.settings.chars)
        if reach(prompt) <= engine.context:
            return prompt
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
        self.shrunk.append((instance.id, window.index, low))
        return self._encoded(instance, window, low)

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

    def _read_scores(self, shown: Sequence[tuple[Instance, Window]]) -> list[WindowReading]:
        known: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
        for instance, window in shown:
            if (key := (id(instance), window.candidates)) not in known:
                known[key] = self._rerank(instance, window)
        return [WindowReading(known[id(instance), window.candidates]) for instance, window in shown]

    def _rerank(self, instance: Instance, window: Window) -> np.ndarray:
        reranker: Reranker = self.backend  # type: ignore[assignment]
        texts = [self._shown(instance.pool[i], self.settings.chars) for i in window.candidates]
        self._tokens += round(sum(map(len, texts)) / CHARS_PER_TOKEN)
        found = as_numbers(reranker.score(instance.query, texts))
        if not isinstance(found, str) and found.shape != (len(texts),):
            found = f"{len(found)} scores" if found.ndim == 1 else f"an array of shape {found.shape}"
        if isinstance(found, str):
            raise UnusableScorer(
                f"{self.name} gave {found} for the {len(texts)} candidates of query {instance.id}. Return one number per "
                "candidate, in the order of the candidates."
            )
        if len(bad := np.flatnonzero(~(np.abs(found) <= LARGEST_SCORE))):  # NaN is not below anything
            candidate = instance.pool[window.candidates[bad[0]]].id
            raise UnusableScorer(
                f"{self.name} gave {found[bad[0]]} as the score of candidate {candidate} of query {instance.id}. "
                f"Return a finite number for every candidate, none beyond {LARGEST_SCORE:g}."
            )
        return found


def in_pool_order(found: Scored, instance: Instance) -> np.ndarray:
    """The first row of scores as the pool stands, (n,)."""
    column = {candidate: c for c, candidate in enumerate(found.candidate_ids)}
    scores: np.ndarray = found.scores[0]
    return scores[[column[candidate.id] for candidate in instance.pool]]


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
        found = np.asarray(values)
        each = np.asarray(values, object).ravel().tolist() if found.dtype.kind in "iufO" else []
        if found.dtype.kind not in "biufO" or any(isinstance(value, str | bytes) for value in each):  # digits in quotes, too
            return other
        if any(isinstance(value, int) and abs(value) > 2**53 for value in each):
            return "whole numbers beyond 2^53, of which neighbours become one"
        return found.astype(np.float64)
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
