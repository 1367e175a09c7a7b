"""`steadyscore serve`: rerank APIs that existing clients call, decisions, live stability."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ..engines.address import check_address
from ..machine.credentials import check_credentials
from ..machine.extras import SERVER, check_installed
from ..models.embedded import DEFAULT
from ..serve.settings import Limits, ServerSettings, default_workers, read_keys, require_token_on_public_host
from ..tasks import TASKS
from ..terms import PromptStyle
from . import add_engine, engine_options, examples, note, refuse
from .flags import above_zero, finite, from_flags, percentage, positive

if TYPE_CHECKING:
    from ..serve.service import Model

LIMITS = [
    ("--max-documents", "candidates", "N", "documents of one request"),
    ("--max-requests", "requests", "N", "requests in flight, then 429"),
    ("--max-body", "body_bytes", "BYTES", "size of a body"),
    ("--queue-windows", "queue_windows", "N", "windows waiting or running, then 429"),
    ("--batch-windows", "batch_windows", "N", "windows handed to the engine at once"),
    ("--request-timeout", "seconds", "SECONDS", "from a whole request to its answer"),
    ("--head-timeout", "head_seconds", "SECONDS", "for the head of a request, then 408"),
    ("--body-timeout", "body_seconds", "SECONDS", "for the body of a request, then 408; also for a client to read its answer"),
    ("--max-connections", "connections", "N", "open connections; beyond them the one that waits longest is closed"),
]
"""Flag, field of `Limits`, unit, help."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scorers", nargs="*", metavar="[NAME=]SCORER",
        help=f"what scores, under the name that requests give as model; the first is the default (default {DEFAULT})",
    )  # fmt: skip
    add_server(parser)
    add_engine(parser, keeps_answers=False)
    examples(
        parser,
        "steadyscore serve",
        "steadyscore serve rerank-v3.5=smollm2-135m --api-key-file key.txt --host 0.0.0.0",
        "steadyscore serve steady=smollm2-135m-oc --alias gpt-6-luna=steady --alias rerank-v3.5=steady",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: give a number from 0 (any free one) to 65535")
    return int(text)


def add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8000, help="port (default 8000)")
    parser.add_argument(
        "--task",
        choices=[name for name, task in TASKS.items() if task.prompt_task == name],
        help="rubric (default: the adapter's, else passages)",
    )
    parser.add_argument(
        "--width", type=positive, metavar="B", help="documents per prompt (default: the adapter's, else the task's)"
    )
    parser.add_argument(
        "--chars",
        type=positive,
        metavar="N",
        help="characters kept of each document (default: the adapter's, else 1200; all for a system)",
    )
    parser.add_argument(
        "--prompt",
        choices=get_args(PromptStyle),
        help="how a window is worded and read (default: the adapter's, else the paper's)",
    )
    parser.add_argument(
        "--fit",
        choices=["refuse", "shrink"],
        default="refuse",
        help="a window too long for the model: refuse it, or cut its documents further",
    )
    parser.add_argument(
        "--cutoff",
        type=finite,
        metavar="X",
        help="cutoff of a decision that names none (default: the adapter's)",
    )
    parser.add_argument(
        "--first-stage",
        type=percentage,
        metavar="P",
        help="percentage of each score that a document's place in the request makes up, where a first stage ranked them, "
        "for example 30 (default: none)",
    )
    parser.add_argument(
        "--alias",
        dest="aliases",
        action="append",
        default=[],
        metavar="NAME=MODEL",
        help="further name for a served model, for clients whose model name is fixed; can be repeated",
    )
    parser.add_argument("--any-model", action="store_true", help="answer to any model name; the server has one model")
    access = parser.add_argument_group("access")
    access.add_argument("--api-key-file", type=Path, metavar="FILE", help="bearer tokens, one a line")
    access.add_argument(
        "--allowed-host",
        dest="allowed_hosts",
        action="append",
        default=[],
        metavar="NAME",
        help="name that a Host header may hold, besides this machine's own; can be repeated (default: on a public address any)",
    )
    access.add_argument("--insecure", action="store_true", help="bind a public address without a token")
    limits = parser.add_argument_group("limits")
    for flag, field, unit, words in LIMITS:
        default = getattr(Limits(), field)
        kind = above_zero if isinstance(default, float) else positive
        limits.add_argument(flag, dest=field, type=kind, default=default, metavar=unit, help=f"{words} (default {default:,.0f})")
    limits.add_argument(
        "--workers",
        type=positive,
        default=default_workers(),
        metavar="N",
        help="forward passes at the same time on a CPU (default 2, or as many as OMP_NUM_THREADS leaves cores for)",
    )
    limits.add_argument(
        "--monitor",
        dest="monitor_share",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of requests scored again in idle time (default 0)",
    )


def open_models(scorers: list[str], args: argparse.Namespace) -> dict[str, Model]:
    """Every model by the name requests give; adapters of one base share it."""
    from ..serve.service import ModelOptions, open_model
    from ..serve.shared_base import SharedBases

    # An answer from the cache would stand for an endpoint that has changed since, or is gone.
    options = replace(engine_options(args), cache=False)
    bases, asked = SharedBases(args.workers), from_flags(ModelOptions, args)
    return {name: open_model(name, address, asked, options, bases) for name, address in scorers_by_name(scorers).items()}


def scorers_by_name(scorers: list[str]) -> dict[str, str]:
    """The addresses in `[NAME=]ADDRESS` by name; without one, the address is the name."""
    addresses: dict[str, str] = {}
    mistakes = []
    for scorer in scorers:
        check_credentials(scorer)  # names and addresses are printed, logged and sent to clients
        name, sign, address = scorer.partition("=")
        if not sign or ":" in name or "/" in name:  # an address that happens to hold the sign
            name, address = scorer, scorer
        if not (name and address):
            mistakes.append(f"{scorer!r} lacks a name or a scorer. Write NAME=SCORER, or the scorer alone.")
        elif name in addresses:
            mistakes.append(f"two scorers are called {name}. Name them: NAME=SCORER.")
        addresses[name] = address
    refuse(*mistakes)
    return addresses


def read_aliases(given: list[str], names: Collection[str], any_model: bool) -> tuple[tuple[str, str], ...]:
    """`NAME=MODEL` pairs, each of a served model; all mistakes at once."""
    aliases: dict[str, str] = {}
    mistakes = ["--any-model answers for one model, and several are served. Use --alias."] if any_model and len(names) > 1 else []
    for alias in given:
        name, _, model = alias.rpartition("=")
        if not (name and model):
            mistakes.append(f"--alias {alias!r} lacks a name or a model. Write NAME=MODEL.")
        elif model not in names:
            mistakes.append(f"--alias {alias}: {model} is not served. Models: {', '.join(names)}.")
        elif name in names or name in aliases:
            mistakes.append(f"--alias {alias}: two models would be called {name}. Choose another name.")
        aliases[name] = model
    refuse(*mistakes)
    return tuple(aliases.items())


def server_settings(args: argparse.Namespace, names: Collection[str]) -> ServerSettings:
    share = args.monitor_share
    refuse(*([] if 0 <= share <= 1 else [f"--monitor {share:g} is not a share. Give a number from 0 to 1."]))
    return from_flags(
        ServerSettings,
        args,
        keys=read_keys(args.api_key_file),
        limits=from_flags(Limits, args),
        allowed_hosts=tuple(args.allowed_hosts),
        aliases=read_aliases(args.aliases, names, args.any_model),
    )


def serve(scorers: list[str], args: argparse.Namespace, ready: Callable[[str], None] = lambda url: None) -> int:
    """Serve until the process is asked to end; `ready` is called with the address just before it listens."""
    addresses = scorers_by_name(scorers)
    settings = server_settings(args, addresses)
    require_token_on_public_host(settings)  # before a model is loaded for nothing
    check_installed("A server", *SERVER)
    for address in addresses.values():
        check_address(address)
    from ..serve.server import bind_socket, build_server, log_to_stderr, reload_on_hangup

    listener = bind_socket(settings.host, settings.port)
    note(f"opening {', '.join(addresses)}")
    server, service = build_server(partial(open_models, scorers, args), settings)
    log_to_stderr()
    reload_on_hangup(service)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    note(f"serving {', '.join(service.models)} at {url} (explorer at {url}/)")
    ready(url)
    with suppress(KeyboardInterrupt):  # requests in flight were finished
        server.run(sockets=[listener])
    return 0


def run(args: argparse.Namespace) -> int:
    return serve(args.scorers or [DEFAULT], args)
