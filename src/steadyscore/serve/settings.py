"""What a server allows, whom it answers, and how its models present what they score."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..errors import InputError, UsageError
from ..machine.bounds import AboveZero, Percentage, Positive, Share
from ..machine.process import cores
from ..terms import PromptStyle


def default_workers() -> int:
    """Forward passes at the same time: two, or as many as OMP_NUM_THREADS leaves cores for.

    Two passes on half the cores each do more than one on all of them, and a lone window still has half the machine.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, cores() // int(threads)) if threads.isdigit() and int(threads) else min(2, cores())


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request and of all requests together."""

    body_bytes: Positive = 4 << 20
    """Size of a body."""
    candidates: Positive = 1000
    """Documents of one request."""
    query_chars: int = 20_000
    document_chars: int = 100_000
    permutations: int = 64
    requests: Positive = 64
    """Requests in flight, then 429."""
    queue_windows: Positive = 2048
    """Windows waiting or running, then 429; a single request that needs more is refused for good."""
    batch_windows: Positive = 16
    """Windows handed to the engine at once."""
    window_tokens: Positive = 8192
    """Tokens of a window, then 422, and of the windows handed to the engine at once; 32 times as many may wait."""
    workers: Positive = 1
    """Forward passes at the same time on a CPU (default: 2, or as many as OMP_NUM_THREADS leaves cores for)."""
    seconds: AboveZero = 60.0
    """From a whole request to its answer."""
    head_seconds: AboveZero = 10.0
    """From an open connection, or from its last answer, to the end of a request's head, then 408."""
    body_seconds: AboveZero = 30.0
    """From the head of a request to the end of its body, then 408; also how long a client may leave an answer unread."""
    connections: Positive = 512
    """Open connections; the next one takes the place of the one that has waited longest for its client."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How every model presents what it scores; None: as its adapter was trained, else as the task says."""

    task: str | None = None
    """Rubric (default: the adapter's, else passages)."""
    width: Positive | None = None
    """Documents per prompt (default: the adapter's, else the task's)."""
    chars: Positive | None = None
    """Characters kept of each document (default: the adapter's, else 1200; all for a system)."""
    prompt: PromptStyle | None = None
    """How a window is worded and read (default: the adapter's, else the paper's)."""
    fit: Literal["refuse", "shrink"] = "refuse"
    """A window too long for the model: refuse it, or cut its documents further."""
    cutoff: float | None = None
    """Cutoff of a decision that names none (default: the adapter's)."""
    first_stage: Percentage | None = None
    """Percentage of each score that a document's `rank` in the request makes up, or where it carries none its place there; 0:
    never (default: 30 by `rank` for smollm2-135m-set, else 0)."""
    mitigation: str | None = None
    """Present every pool several times, in orders that depend on its documents alone: self-consistency:K, or adaptive:K until
    the decision is taken that the request states, else adaptive:K:cutoff=0.5, top=3, share=0.3 or pair (default: once)."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    """Address to bind."""
    port: int = 8000
    """Port."""
    keys: tuple[str, ...] = ()
    """Bearer tokens; empty: no authentication."""
    allowed_hosts: tuple[str, ...] = ()
    """Name that a Host header may hold, besides this machine's own; can be repeated (default: on a public address any)."""
    insecure: bool = False
    """Bind a public address without a token."""
    open_metrics: bool = False
    """Answer /metrics without a token, for a Prometheus that has none."""
    monitor_share: Share = 0.0
    """Share of requests scored again in idle time."""
    aliases: tuple[tuple[str, str], ...] = ()
    """Further name for a served model, for clients whose model name is fixed; can be repeated."""
    any_model: bool = False
    """Answer to any model name; the server has one model."""
    limits: Limits = field(default_factory=Limits)


LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: where it leads is not known here
        return False


def known_hosts(settings: ServerSettings) -> frozenset[str] | None:
    """Names that a request's Host header may hold; None: any.

    A page elsewhere can point its own name at 127.0.0.1 and so read what listens there, and a browser then sends that name.
    A public address has its token against this, and names of its own that are not known here.
    """
    if not (settings.allowed_hosts or is_loopback(settings.host)):
        return None
    return frozenset(name.lower() for name in (settings.host, *LOCAL_NAMES, *settings.allowed_hosts))


def host_name(header: str) -> str:
    """The name or address in a Host header, without the port and the brackets of an IPv6 address; what is not a host, whole."""
    host = re.fullmatch(r"(?:\[([0-9a-f:.]*)\]|([^\s:@/?#\[\]]*))(?::\d*)?", header.lower())
    return (host[1] or host[2] or "") if host else header


def require_token_on_public_host(settings: ServerSettings) -> None:
    """A public address without a token would let anybody use the model."""
    if not (settings.keys or settings.insecure or is_loopback(settings.host)):
        raise UsageError(
            f"{settings.host} can be reached from other machines and no token is set. "
            "Pass --api-key-file FILE, bind 127.0.0.1, or pass --insecure if something in front checks who asks."
        )


def read_keys(file: Path | None) -> tuple[str, ...]:
    """One token a line, so that a new one can be added before the old one goes."""
    if file is None:
        return ()
    try:
        keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    except OSError as refusal:
        raise InputError(f"{file} cannot be read: {refusal.strerror}.") from refusal
    except UnicodeDecodeError:  # its words quote the file
        raise InputError(f"{file} is not a text in UTF-8. Write one token a line.") from None
    if not keys:
        raise InputError(f"{file} holds no token. Write one token a line.")
    if any(not key.isascii() for key in keys):
        raise InputError(f"{file} holds a token with characters that no HTTP header carries. Use ASCII.")
    return keys
