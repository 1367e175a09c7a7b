"""`steadyscore serve`: rerank APIs that existing clients call, decisions, live stability."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.kinds import check_address
from ..machine.extras import SERVER, check_installed
from ..models.embedded import DEFAULT
from ..scoring.config import AuditConfig, check_use
from ..scoring.scorer import Settings
from ..serve.settings import Limits, ModelOptions, ServerSettings, default_workers, read_keys, require_token_on_public_host
from ..tasks import TASKS
from .flags import add_field, add_fields, from_flags, scorers_by_name
from .shared import add_engine, engine_options, examples, note, refuse

if TYPE_CHECKING:
    from ..serve.service import Model

LIMITS = (
    ("--max-documents", "candidates", "N"), ("--max-requests", "requests", "N"), ("--max-body", "body_bytes", "BYTES"),
    ("--queue-windows", "queue_windows", "N"), ("--window-tokens", "window_tokens", "N"),
    ("--batch-windows", "batch_windows", "N"), ("--request-timeout", "seconds", "SECONDS"),
    ("--head-timeout", "head_seconds", "SECONDS"), ("--body-timeout", "body_seconds", "SECONDS"),
    ("--max-connections", "connections", "N"),
)  # fmt: skip
"""Flag, field of `Limits`, unit."""


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
        "steadyscore serve rerank:https://api.cohere.com/v2/rerank --mitigation adaptive:10",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: give a number from 0 (any free one) to 65535")
    return int(text)


def add_server(parser: argparse.ArgumentParser) -> None:
    add_field(parser, ServerSettings, "host")
    add_field(parser, ServerSettings, "port", type=_port, metavar="PORT")
    tasks = [name for name, task in TASKS.items() if task.prompt_task == name]
    add_field(parser, ModelOptions, "task", choices=tasks)
    add_field(parser, ModelOptions, "width", metavar="B")
    add_fields(parser, ModelOptions, "chars prompt fit cutoff")
    add_field(parser, ModelOptions, "first_stage", metavar="P")
    add_field(parser, ModelOptions, "mitigation", metavar="NAME:K", type=str)
    repeated: dict[str, Any] = {"action": "append", "default": [], "type": str}
    add_field(parser, ServerSettings, "aliases", flag="--alias", dest="aliases", metavar="NAME=MODEL", **repeated)
    add_field(parser, ServerSettings, "any_model")
    access = parser.add_argument_group("access")
    access.add_argument("--api-key-file", type=Path, metavar="FILE", help="bearer tokens, one a line")
    add_field(access, ServerSettings, "allowed_hosts", flag="--allowed-host", dest="allowed_hosts", metavar="NAME", **repeated)
    add_fields(access, ServerSettings, "insecure open_metrics")
    limits = parser.add_argument_group("limits")
    for flag, field, unit in LIMITS:
        add_field(limits, Limits, field, flag=flag, dest=field, metavar=unit)
    add_field(limits, Limits, "workers", default=default_workers())
    add_field(limits, ServerSettings, "monitor_share", flag="--monitor", dest="monitor_share", metavar="SHARE")


def open_models(scorers: list[str], args: argparse.Namespace) -> dict[str, Model]:
    """Every model by the name requests give; adapters of one base share it."""
    from ..engines.local.shared import SharedBases
    from ..serve.batcher import check_wanted
    from ..serve.service import open_model

    # An answer from the cache would hide an endpoint that has changed since, or is gone.
    options = replace(engine_options(args), cache=False)
    bases, asked = SharedBases(args.workers, check_wanted), from_flags(ModelOptions, args)
    return {name: open_model(name, address, asked, options, bases) for name, address in scorers_by_name(scorers).items()}


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
    presented = from_flags(Settings, args, chars=Settings().chars)
    check_use(addresses, AuditConfig(settings=presented, chars=args.chars), engine_options(args))
    from ..decision_models.routes import router
    from ..serve.server import bind_socket, build_server, log_to_stderr, reload_on_hangup

    listener = bind_socket(settings.host, settings.port)
    note(f"opening {', '.join(addresses)}")
    server, service = build_server(partial(open_models, scorers, args), settings, [router])
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
