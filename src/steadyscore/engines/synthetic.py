"""Scorers without a model: order effects of known size, scores that were given before, and the order of the first stage.

`synthetic:` is a reranker. A planted grader is shown the same windows as a language model, so width, partition, markers,
placeholder and pool act on it through the same code. It knows the judgements of the collection, which no real scorer does: its
tables show shapes, not results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..machine.disk import sha256
from ..runs.table import FIRST_STAGE, Scored, take_rows
from ..terms import Instance, JsonObject
from ..window.prompt import PromptText, collapse, shown
from ..window.readout import SlotLogits
from . import Address, Capabilities, EngineOptions, Generator, Grader, Kind, Listing, Recording, Reranker

EFFECTS = ("none", "slot", "companion", "ties")
ORDER_FREE = ("none", "ties")


class SyntheticReranker(Reranker):
    """Scores by word overlap with the query, plus a planted effect of `size`: `synthetic:<effect>[:<size>]`.

    none: a function of the candidate alone. slot: earlier slots gain. companion: a candidate gains from what stands
    beside it. ties: scores on a grid of four values, as a hosted model that writes integer grades would give.
    """

    def __init__(self, effect: str, size: float):
        self.effect, self.size = effect, size
        self.name = f"synthetic:{effect}:{size:g}"
        self.capabilities = Capabilities(gives="score", order_free=effect in ORDER_FREE, deterministic=True)

    def identity(self) -> JsonObject:
        return {"kind": "synthetic", "effect": self.effect, "size": self.size}

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        words, texts = set(query.lower().split()), [" ".join(text.split()) for text in texts]  # of words alone
        plain = [(len(words & set(t.lower().split())) / max(len(words), 1) + fixed_number(query, t)) / 2 for t in texts]
        if self.effect == "slot":
            span = max(len(texts) - 1, 1)
            return [p + self.size * (1 - slot / span) for slot, p in enumerate(plain)]
        if self.effect == "companion":
            beside = [texts[max(slot - 1, 0)] for slot in range(len(texts))]
            return [p + self.size * fixed_number(t, other) for p, t, other in zip(plain, texts, beside, strict=True)]
        if self.effect == "ties":
            return [round(3 * p) / 3 for p in plain]
        return plain


def open_synthetic(address: Address, options: EngineOptions) -> SyntheticReranker:
    rest = address.rest
    effect, _, size = rest.partition(":")
    if effect not in EFFECTS:
        raise InputError(f"unknown synthetic effect {effect!r}. Known: {', '.join(EFFECTS)}.")
    try:
        return SyntheticReranker(effect, float(size or 0.2))
    except ValueError:
        raise InputError(f"the size of synthetic:{rest} is not a number.") from None


def fixed_number(*key: str) -> float:
    """A number in [0, 1) that depends on the key alone."""
    return int.from_bytes(hashlib.blake2b("\x1f".join(key).encode(), digest_size=6).digest(), "big") / 2**48


# -- graders and readers of the paper's tiny scale

KEY = 120
"""Characters by which a shown text is recognised."""


@dataclass(frozen=True)
class Effects:
    """What moves a planted grader's scores, in score units."""

    signal: float = 0.7
    """Share of a score that is the judgement; the rest is a fixed number of query and text."""
    slot: float = 0.0
    """First slot minus last slot."""
    companion: float = 0.0
    """Scale of what the other candidates of a window add."""
    marker: float = 0.0
    """Scale of what a slot's marker adds."""
    placeholder: float = 0.0
    """What each grade of the placeholder takes from the signal."""
    width: float = 0.0
    """What other candidates of the query add to the judged and take from the others: the content of company."""
    length: float = 0.0
    """What other texts do so, whatever they say: the length of the prompt."""
    skeleton: float = 0.0
    """What an answer of several lines does so."""
    is_written: bool = False
    """Grades are written as whole numbers: ties, and no distribution."""
    salt: str = ""
    """Tells two fixed numbers of the same query and text apart: base and training seed."""


class PlantedGrader(Grader):
    """A grader whose scores are judgement, chance and planted effects."""

    def __init__(self, name: str, effects: Effects, gold: Mapping[tuple[str, str], float]):
        self.name, self.effects, self._gold = name, effects, gold
        self.reads_skeleton = not effects.is_written
        order_free = not (effects.slot or effects.companion or effects.marker)
        self.capabilities = (
            Capabilities(gives="score", order_free=order_free, deterministic=True)
            if effects.is_written
            else Capabilities(gives="distribution", distribution="exact", order_free=order_free, deterministic=True)
        )

    def identity(self) -> JsonObject:
        return {"kind": "planted", **asdict(self.effects)}

    def grade_logits(self, prompts: Sequence[PromptText], *, label_mass: bool = False) -> list[SlotLogits]:
        return [SlotLogits(self._logits(prompt).astype(np.float32)) for prompt in prompts]

    def _logits(self, prompt: PromptText) -> np.ndarray:
        texts = [piece.text.strip() for piece in prompt.body if not piece.trusted]
        scores = np.zeros(len(prompt.markers))
        scores[prompt.first : prompt.first + len(texts)] = self._scores(prompt.prefix[-1].text.strip(), texts, prompt)
        scores = np.clip(scores, 1e-6, 1 - 1e-6)[:, None]
        grades = np.arange(4)
        if self.effects.is_written:
            return np.where(grades == np.round(3 * scores), 100.0, 0.0)
        return np.log([1, 3, 3, 1]) + grades * np.log(scores) + (3 - grades) * np.log(1 - scores)  # E[g] is 3 scores

    def _scores(self, query: str, texts: Sequence[str], prompt: PromptText) -> np.ndarray:
        e, count, lines = self.effects, len(texts), len(prompt.markers)
        known = [self._gold.get((query, text[:KEY])) for text in texts]
        gold = np.array([value or 0.0 for value in known])
        chance = np.array([fixed_number(e.salt, query, text) for text in texts])
        signal = max(e.signal - e.placeholder * int(prompt.placeholder.replace("?", "0")), 0.0)
        scores = 0.15 + 0.7 * (signal * gold + (1 - signal) * chance)
        scores += (gold - 0.5) * (e.skeleton * (lines > 1) + e.length * (count > 1))
        if count > 1:
            is_own = np.array([value is not None for value in known])
            scores += e.slot * (0.5 - np.arange(count) / (count - 1))
            scores += e.width * (gold - 0.5) * (is_own.sum() - is_own > 0)  # a filler is of another query
            if e.companion:
                scores += e.companion * np.array([_company(e.salt, text, texts) for text in texts])
        if e.marker:
            scores += e.marker * np.array(
                [fixed_number(t, m) - 0.5 for t, m in zip(texts, prompt.markers[prompt.first :], strict=False)]
            )
        return np.asarray(scores)


def _company(salt: str, text: str, texts: Sequence[str]) -> float:
    """What the other candidates of a window add to one: a sum of fixed numbers around zero, as wide for any width."""
    others = [fixed_number(salt, text, other) - 0.5 for other in texts if other != text]
    return float(sum(others) / np.sqrt(max(len(others), 1)))


def judgements_by_text(instances: Iterable[Instance]) -> dict[tuple[str, str], float]:
    """Relevance on 0 to 1 by the query and the beginning of a candidate's text."""
    judgements: dict[tuple[str, str], float] = {}
    for instance in instances:
        highest = max([c.relevance or 0 for c in instance.pool], default=0) or 1
        judgements |= {(collapse(instance.query), shown(c, None)[:KEY]): (c.relevance or 0) / highest for c in instance.pool}
    return judgements


class PlantedReader(Generator):
    """Answers from the first two passages it is shown, and gives a verdict by the first one: evidence order moves both."""

    name = "planted reader"
    capabilities = Capabilities(gives="score", deterministic=True)

    def __init__(self, salt: str, instances: Iterable[Instance]):
        self._salt = salt
        self._known = {collapse(instance.query): instance for instance in instances}

    def identity(self) -> JsonObject:
        return {"kind": "planted", "reader": self._salt}

    def generate(self, prompts: Sequence[list[dict[str, str]]], most_tokens: int) -> list[str]:
        return [self._answer(*_asked(prompt)) for prompt in prompts]

    def _answer(self, passages: list[str], question: str) -> str:
        known = self._known.get(question)
        near = " ".join(passages[:2])
        right = next((answer for answer in (known.answers if known else ()) if answer in near), None)
        return right or " ".join(passages[0].split()[:2])

    def label_log_probabilities(self, prompts: Sequence[list[dict[str, str]]], labels: Sequence[str]) -> np.ndarray:
        return np.array([self._verdict(*_asked(prompt), labels) for prompt in prompts])

    def _verdict(self, passages: list[str], claim: str, labels: Sequence[str]) -> list[float]:
        known = self._known.get(claim)
        chance = [fixed_number(self._salt, claim, passages[0], label) for label in labels]
        return [c + (0.4 if known and label == known.verdict else 0.0) for c, label in zip(chance, labels, strict=True)]


def _asked(prompt: list[dict[str, str]]) -> tuple[list[str], str]:
    """The passages and the question or claim of a reader's prompt."""
    parts = prompt[-1]["content"].split("\n\n")
    return [part.partition("] ")[2] for part in parts[1:-1]], parts[-1].partition(": ")[2]


# -- what was given before: a score file or a finished run, and the order of the first stage

ADDRESS = "first-stage:"


class ScoreRecording(Recording):
    """Replays a score file or a finished run against a collection: `scores:<file or run folder>`.

    A score belongs to a query, a permutation and a candidate, so nothing is looked up by text, and a presentation that
    the file does not hold is refused. The first-stage row (permutation -1) may be absent.
    """

    def __init__(self, queries: Sequence[Scored], source: Path, digest: str):
        self.name = f"scores:{source}"
        self._digest = digest
        self._queries = {query.query_id: query for query in queries}
        distribution = all(query.grades is not None for query in queries)
        self.capabilities = Capabilities(
            gives="distribution" if distribution else "score",
            distribution="exact" if distribution else "none",
            deterministic=True,
        )

    def identity(self) -> JsonObject:
        return {"kind": "scores", "sha256": self._digest}

    def recall(self, instance: Instance, permutations: Sequence[int]) -> Scored:
        """The recorded rows of a query, columns sorted by candidate id; places as the file has them."""
        query = self._queries.get(instance.id)
        if query is None:
            raise InputError(f"{self.name} holds no query {instance.id}. Cut the collection with --queries, or record the rest.")
        shown = {candidate.id for candidate in instance.pool}
        if odd := sorted(shown.symmetric_difference(query.candidate_ids)):
            raise InputError(f"{self.name} and the collection differ in candidate {odd[0]} of query {instance.id}.")
        have = query.permutations.tolist()
        wanted = [p for p in permutations if p in have or p != FIRST_STAGE]
        if absent := [p for p in wanted if p not in have]:
            raise InputError(
                f"{self.name} holds no permutation {absent[0]} of query {instance.id}. Ask for the {max(have) + 1} it holds "
                "with --permutations."
            )
        return take_rows(query, np.array([have.index(p) for p in wanted], dtype=np.int64))


def open_scores(address: Address, options: EngineOptions) -> ScoreRecording:
    from ..runs.folder import find_run
    from ..runs.score_file import read_scores

    source = Path(address.rest)
    if source.is_dir():
        run = find_run(source)
        return ScoreRecording(run.read_queries(), source, run.digest()[:16])
    return ScoreRecording(read_scores([source]), source, sha256(source)[:16])


class FirstStage(Recording):
    """Ranks every pool as the first stage did, under whatever order it is shown: `first-stage:`.

    Its numbers are n - rank. The scores of a first stage mean nothing across queries, and not every collection has them.
    """

    name = ADDRESS
    capabilities = Capabilities(gives="ranking", order_free=True, deterministic=True)

    def identity(self) -> JsonObject:
        return {"kind": "first-stage"}

    def recall(self, instance: Instance, permutations: Sequence[int]) -> Scored:
        """The same row for every permutation; the candidates are shown nowhere, so they have no places."""
        n = len(instance.pool)
        value = {candidate.id: float(n - place) for place, candidate in enumerate(instance.pool)}
        ids = tuple(sorted(value))
        row = np.array([value[candidate_id] for candidate_id in ids])
        return Scored(instance.id, ids, np.array(permutations, dtype=np.int64), np.tile(row, (len(permutations), 1)))


def open_first_stage(address: Address, options: EngineOptions) -> FirstStage:
    if address.rest:
        raise InputError(f"{ADDRESS} takes nothing after its colon, and {address.rest!r} is more. Write {ADDRESS}")
    return FirstStage()


KINDS = (
    Kind(
        "synthetic",
        open_synthetic,
        takes="pool",
        listed=(Listing("synthetic:<none|slot|companion|ties>[:size]", "score"),),
        is_order_free=lambda rest: rest.partition(":")[0] in ORDER_FREE,
    ),
    Kind("scores", open_scores, takes="key", listed=(Listing("scores:<file|run folder>", "score"),)),
    Kind(
        "first-stage",
        open_first_stage,
        takes="key",
        listed=(Listing(ADDRESS, "ranking", "BM25, or whatever retrieved the pool"),),
    ),
)
