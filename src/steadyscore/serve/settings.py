"""What a server allows, and whom it answers."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError, UsageError


def cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Forward passes at the same time: two, or as many as OMP_NUM_THREADS leaves cores for.

    Two passes on half the cores each do more than one on all of them, and a lone window still has half the machine.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, cores() // int(threads)) if threads.isdigit() and int(threads) else min(2, cores())


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request and of all requests together."""

    body_bytes: int = 4 << 20
    candidates: int = 1000
    query_chars: int = 20_000
    document_chars: int = 100_000
    permutations: int = 64
    requests: int = 64
    """Requests in flight; the next one is answered 429."""
    queue_windows: int = 2048
    """Windows waiting or running, of all requests; a single request that needs more is refused for good."""
    batch_windows: int = 16
    """Windows handed to the engine at once."""
    workers: int = 1
    """Forward passes at the same time."""
    seconds: float = 60.0
    """From a whole request to its answer."""
    head_seconds: float = 10.0
    """From an open connection, or from its last answer, to the end of a request's head."""
    body_seconds: float = 30.0
    """From the head of a request to the end of its body; also how long a client may leave an answer unread."""
    connections: int = 512
    """Open connections; the next one takes the place of the one that has waited longest for its client."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 8000
    keys: tuple[str, ...] = ()
    """Bearer tokens; empty: no authentication."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which clients may call the server, besides its own address and this machine's."""
    insecure: bool = False
    """Bind a public address without a token."""
    monitor_share: float = 0.0
    """Share of requests that the stability monitor scores a second time."""
    aliases: tuple[tuple[str, str], ...] = ()
    """Further names that requests may give, each with the name of a served model."""
    any_model: bool = False
    """Answer for a model that is not served, too."""
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
    """The name or address in a Host header, without the port and the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


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
