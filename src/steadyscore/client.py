"""A small typed client of `steadyscore serve`, on the standard library alone.

client = Client("http://127.0.0.1:8000", token="...")
client.rerank("what is the capital of portugal", documents, top_n=3)
client.decide("what is the capital of portugal", documents, threshold=0.5, permutations=8).kept
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, cast

from .errors import InputError, SteadyscoreError
from .machine.bounds import LONGEST_ASKED, retry_after
from .machine.credentials import without_credentials

T = TypeVar("T")


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
    distance: float | None = None
    """From the cutoff, positive where kept."""
    grades: tuple[float, ...] | None = None
    """P(grade) for the grades 0 to 3."""
    agreement: float | None = None
    """Share of permutations that give this document the same role."""
    settled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    permutations: int
    stopped: Literal["settled", "budget", "order_free"]
    agreement: float
    """Share of permutations that take the very same decision."""
    overlap: float | None = None
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
        return self._post(
            "/v1/rerank", _read_ranking, query=query, documents=list(documents), top_n=top_n, return_documents=False, order=order
        )

    def score(self, query: str, documents: Sequence[str]) -> list[float]:
        """Scores in the order of the documents."""
        return self._post("/score", _read_scores, queries=query, documents=list(documents))

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
        return self._post(
            "/v1/decide",
            _read_decision,
            query=query,
            documents=list(documents),
            decision=decision or None,
            permutations=permutations,
            adaptive=adaptive,
        )

    def audit(
        self, query: str, documents: Sequence[str], *, permutations: int = 10, threshold: float | None = None
    ) -> AuditAnswer:
        """One pool under M permutations: presentations, measures, slot profile."""
        return self._post(
            "/v1/audit", _read_audit, query=query, documents=list(documents), permutations=permutations, threshold=threshold
        )

    def models(self) -> list[str]:
        return self._send("/v1/models", None, _read_names)

    def _post(self, path: str, read: Callable[[Any], T], **body: Any) -> T:
        stated = {name: value for name, value in (body | {"model": self.model}).items() if value is not None}
        return self._send(path, json.dumps(stated).encode(), read)

    def _send(self, path: str, data: bytes | None, read: Callable[[Any], T]) -> T:
        """Send a body, or ask for a page where there is none, and return `read(answer)`."""
        for attempt in range(self.retries + 1):
            answer = self._exchange(path, data)
            if answer.status != 429 or attempt == self.retries:
                break
            time.sleep(min(retry_after(answer.headers) or 1.0, LONGEST_ASKED))
        if 300 <= answer.status < 400:  # followed, it would take the token along, to any host
            raise ServerError(
                answer.status, f"{self._name} answered {answer.status}, a redirect. Give the client the address that it leads to."
            )
        if answer.status >= 400:
            raise ServerError(answer.status, _read_message(answer.content, answer.status))
        try:
            return read(json.loads(answer.content))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as odd:
            raise ServerError(
                answer.status,
                f"{self._name} answered what steadyscore serve does not ({type(odd).__name__}: {odd}). Check the address.",
            ) from odd

    def _exchange(self, path: str, data: bytes | None) -> _Answer:
        """One request and its whole answer, whatever its status."""
        try:
            request = urllib.request.Request(self.url.rstrip("/") + path, data, {"Content-Type": "application/json"})
            if self.token:
                request.add_header("Authorization", f"Bearer {self.token}")
            with _OPENER.open(request, timeout=self.timeout) as answer:
                return _Answer(answer.status, answer.headers, answer.read())
        except OSError as fault:
            reason = getattr(fault, "reason", fault)
            raise ServerError(0, f"{self._name} cannot be reached: {reason}. Start it with steadyscore serve.") from fault
        except (http.client.InvalidURL, ValueError):  # which may repeat the token
            raise ServerError(
                0, f"{self._name} cannot be asked: a request cannot carry this address or token. Write http://127.0.0.1:8000."
            ) from None
        except http.client.HTTPException as fault:
            raise ServerError(0, f"{self._name} gave no whole answer ({fault!r}). Ask again.") from fault

    @property
    def _name(self) -> str:
        return without_credentials(self.url)


class _Answer(NamedTuple):
    status: int
    headers: Any
    content: bytes


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Gives every answer as the server sent it: no redirect is followed."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response

    https_response = http_response


_OPENER = urllib.request.build_opener(_AnyStatus)


def _read_message(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {status}."


def _read_names(answer: Any) -> list[str]:
    return [model["id"] for model in answer["data"]]


def _read_ranking(answer: Any) -> list[Ranked]:
    return [Ranked(row["index"], row["relevance_score"]) for row in answer["results"]]


def _read_scores(answer: Any) -> list[float]:
    return [row["score"] for row in answer["data"]]


def _read_audit(answer: Any) -> AuditAnswer:
    audit: AuditAnswer = answer
    if missing := {"presentations", "measures"} - audit.keys():
        raise KeyError(*missing)
    return audit


def _read_decision(answer: dict[str, Any]) -> DecisionAnswer:
    decision, steady = answer["decision"], answer.get("stability")
    return DecisionAnswer(
        kind=decision["kind"],
        kept=tuple(decision["kept"]) if "kept" in decision else (decision["chosen"],),
        rejected=decision.get("rejected"),
        cutoff=decision.get("cutoff"),
        documents=tuple(_value_of(DecidedDocument, row) for row in answer["results"]),
        stability=None if steady is None else _value_of(Stability, steady),
    )


def _value_of(kind: Callable[..., T], row: dict[str, Any]) -> T:
    """A value of a class by the fields that an answer has of it; lists as tuples."""
    known = {field.name: row[field.name] for field in fields(cast(Any, kind)) if field.name in row}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})
