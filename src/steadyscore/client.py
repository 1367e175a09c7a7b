"""A small typed client of `steadyscore serve`, on the standard library alone.

client = Client("http://127.0.0.1:8000", token="...")
client.rerank("what is the capital of portugal", documents, top_n=3)
client.decide("what is the capital of portugal", documents, threshold=0.5, permutations=8).kept
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from .errors import InputError, SteadyscoreError
from .machine.credentials import without_credentials
from .machine.waiting import LONGEST_ASKED, retry_after


class ServerError(SteadyscoreError):
    """A server that refused, failed or cannot be reached."""

    def __init__(self, status: int, message: str):
        self.status = status
        """0 where there was no answer."""
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Ranked:
    index: int
    """Place of the document in the request."""
    score: float


@dataclass(frozen=True, slots=True)
class DecidedDocument:
    index: int
    score: float
    role: Literal["kept", "dropped", "chosen", "rejected", "neither"]
    distance: float | None
    """From the cutoff, positive where kept."""
    grades: tuple[float, ...] | None
    """P(grade) for the grades 0 to 3."""
    agreement: float | None
    """Share of permutations that give this document the same role."""
    settled: bool | None


@dataclass(frozen=True, slots=True)
class Stability:
    permutations: int
    stopped: Literal["settled", "budget", "order_free"]
    agreement: float
    """Share of permutations that take the very same decision."""
    overlap: float | None
    unsettled: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecisionAnswer:
    kind: Literal["threshold", "top_k", "pair"]
    kept: tuple[int, ...]
    """Best first; of a pair, the chosen one."""
    rejected: int | None
    cutoff: float | None
    documents: tuple[DecidedDocument, ...]
    """Best first."""
    stability: Stability | None


class PresentationAnswer(TypedDict):
    """A pool under one order; lists are by index but for `order`, whose entries are indexes."""

    order: list[int]
    scores: list[float]
    slots: list[int]
    windows: list[int]


class AuditAnswer(TypedDict, total=False):
    """The answer of /v1/audit; without a cutoff it has no `threshold`."""

    model: str
    width: int
    threshold: float
    presentations: list[PresentationAnswer]
    """The first is the order given."""
    measures: dict[str, float]
    slot_profile: list[float]
    usage: dict[str, int]


@dataclass(frozen=True, slots=True)
class Client:
    url: str = "http://127.0.0.1:8000"
    token: str | None = None
    model: str | None = None
    """Name of the model; None takes the server's first."""
    timeout: float = 70.0
    retries: int = 3
    """How often a request is sent again to a server whose queue is full (429), after the time it asks for, at most a minute."""

    def rerank(self, query: str, documents: Sequence[str], *, top_n: int | None = None, permutations: int = 1) -> list[Ranked]:
        """Documents from best to worst; equal scores in the order of the request."""
        order = {"permutations": permutations} if permutations > 1 else None
        answer = self._post(
            "/v1/rerank", query=query, documents=list(documents), top_n=top_n, return_documents=False, order=order
        )
        return [Ranked(row["index"], row["relevance_score"]) for row in answer["results"]]

    def score(self, query: str, documents: Sequence[str]) -> list[float]:
        """Scores in the order of the documents."""
        return [row["score"] for row in self._post("/score", queries=query, documents=list(documents))["data"]]

    def decide(
        self,
        query: str,
        documents: Sequence[str],
        *,
        threshold: float | None = None,
        top_k: int | None = None,
        pair: bool = False,
        permutations: int = 1,
        adaptive: bool = True,
    ) -> DecisionAnswer:
        """One decision: what a cutoff retains, the first k, or the best and the worst. Without one, the model's own cutoff."""
        asked = {"threshold": threshold, "top_k": top_k, "pair": pair or None}
        decision = {name: value for name, value in asked.items() if value is not None}
        if len(decision) > 1:
            raise InputError("give one of threshold, top_k and pair, not several.")
        answer = self._post(
            "/v1/decide",
            query=query,
            documents=list(documents),
            decision=decision or None,
            permutations=permutations,
            adaptive=adaptive,
        )
        return _read_decision(answer)

    def audit(
        self, query: str, documents: Sequence[str], *, permutations: int = 10, threshold: float | None = None
    ) -> AuditAnswer:
        """One pool under M permutations: presentations, measures, slot profile."""
        answer: AuditAnswer = self._post(
            "/v1/audit", query=query, documents=list(documents), permutations=permutations, threshold=threshold
        )
        return answer

    def models(self) -> list[str]:
        return [model["id"] for model in self._send(urllib.request.Request(self.url.rstrip("/") + "/v1/models"))["data"]]

    def _post(self, path: str, **body: Any) -> Any:
        stated = {name: value for name, value in (body | {"model": self.model}).items() if value is not None}
        data = json.dumps(stated).encode()
        return self._send(urllib.request.Request(self.url.rstrip("/") + path, data, {"Content-Type": "application/json"}))

    def _send(self, request: urllib.request.Request) -> Any:
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        for attempt in range(self.retries + 1):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as refusal:
                with refusal:
                    if refusal.code != 429 or attempt == self.retries:
                        raise ServerError(refusal.code, _read_message(refusal.read(), refusal.code)) from None
                    time.sleep(min(retry_after(refusal.headers) or 1.0, LONGEST_ASKED))
            except (urllib.error.URLError, TimeoutError, ConnectionError) as fault:
                reason = getattr(fault, "reason", fault)
                raise ServerError(
                    0, f"{without_credentials(self.url)} cannot be reached: {reason}. Start it with steadyscore serve."
                ) from fault
        raise AssertionError  # the last attempt returned or raised


def _read_message(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {status}."


def _read_decision(answer: dict[str, Any]) -> DecisionAnswer:
    decision, steady = answer["decision"], answer.get("stability")
    return DecisionAnswer(
        kind=decision["kind"],
        kept=tuple(decision["kept"]) if "kept" in decision else (decision["chosen"],),
        rejected=decision.get("rejected"),
        cutoff=decision.get("cutoff"),
        documents=tuple(
            DecidedDocument(
                row["index"],
                row["score"],
                row["role"],
                row.get("distance"),
                tuple(row["grades"]) if "grades" in row else None,
                row.get("agreement"),
                row.get("settled"),
            )
            for row in answer["results"]
        ),
        stability=None
        if steady is None
        else Stability(
            steady["permutations"], steady["stopped"], steady["agreement"], steady.get("overlap"), tuple(steady["unsettled"])
        ),
    )
