"""Scorer addresses: `kind[+variant]:rest` taken apart, checked and opened.

The kinds are those that the modules of this folder name, and those of `ELSEWHERE`; none of them imports torch or an HTTP client
before it opens something.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, get_args

from ..errors import InputError
from ..machine.credentials import check_credentials
from ..machine.extras import check_installed
from ..machine.names import did_you_mean
from . import PRESENTS, Address, Backend, Engine, EngineOptions, Grader, Kind, Recording, Takes

if TYPE_CHECKING:
    from .local.model import TransformersEngine


ELSEWHERE = ("steadyscore.decision_models.engine",)
"""Modules of later packages that open kinds of scorers."""


def _kinds() -> Iterator[Kind]:
    here = (f"{__package__}.{module.name}" for module in iter_modules(sys.modules[__package__].__path__))
    for name in (*here, *ELSEWHERE):
        if name != __name__:
            yield from getattr(import_module(name), "KINDS", ())


KINDS = tuple(sorted(_kinds(), key=lambda kind: (get_args(Takes).index(kind.takes), kind.prefix, kind.is_server)))
"""Every kind, from those that are shown most to those that are shown nothing."""


def parse_address(address: str) -> Address:
    """`kind[+variant]:rest`, of a kind and a variant that there are; a bare name is an embedded model."""
    from ..models.embedded import embedded_scorers

    check_credentials(address)  # first: the sentences below repeat the address
    head, colon, rest = address.partition(":")
    if not colon:
        if address.partition("+")[0] not in embedded_scorers():
            raise InputError(
                f"unknown scorer {address!r}. Embedded: {', '.join(embedded_scorers())}; "
                "`steadyscore list scorers` prints every other kind of address."
            )
        return Address("hf", "", address)
    name, _, variant = head.partition("+")
    if not (same := [kind for kind in KINDS if kind.prefix == name]):
        kinds = dict.fromkeys(kind.prefix for kind in KINDS)
        near = did_you_mean(name, kinds, f"Known kinds: {', '.join(kinds)}.")
        if name in ("http", "https"):
            near = f"write rerank:{address} for a rerank endpoint, openai:MODEL@{address} for a chat model."
        raise InputError(f"unknown kind of scorer {name!r} in {address!r}. {near[0].upper()}{near[1:]}")
    if variant and variant not in same[0].variants:
        known = f"Known: {', '.join(same[0].variants)}" if same[0].variants else f"{name}: has none"
        raise InputError(f"unknown variant {variant!r} in {address!r}. {known}.")
    return Address(name, variant, rest)


def kind_of(address: str | Address) -> Kind:
    """What is known of an address before it is opened."""
    name, _, rest = parse_address(address) if isinstance(address, str) else address
    same = [kind for kind in KINDS if kind.prefix == name]
    return next((kind for kind in same if kind.is_server == ("@http" in rest)), same[0])


def check_address(address: str) -> None:
    """Refuse an address of an unknown kind, or whose libraries are not installed, before anything is opened."""
    parsed = parse_address(address)
    check_installed(address, *kind_of(parsed).needs(parsed.rest))


def honoured(scorer: Any) -> frozenset[str]:
    """Fields of `Settings` and `EngineOptions` that say something to an address, an opened backend or a Python value."""
    if isinstance(scorer, str):
        return kind_of(scorer).honours
    if isinstance(scorer, Grader):
        return PRESENTS["ids" if isinstance(scorer, Engine) else "text"] | ({"placeholder"} if scorer.reads_skeleton else set())
    return PRESENTS["key" if isinstance(scorer, Recording) else "pool"]


def refuse_unhonoured(asked: Iterable[str], scorers: Mapping[str, Any]) -> None:
    """Refuse fields (also `perturb markers`) that say nothing to any scorer; where one says something to some, name the rest."""
    flags = {name: name.split()[-1].split("-")[-1] for name in asked}
    fields = {name: honoured(scorer) for name, scorer in scorers.items()}
    if idle := [flag for flag, field in flags.items() if not any(field in of for of in fields.values())]:
        it = "it" if len(idle) == 1 else "them"
        raise InputError(f"{', '.join(idle)} would change nothing of {', '.join(scorers)}. Leave {it} out.")
    for name, of in fields.items():
        if idle := [flag for flag, field in flags.items() if field not in of]:
            print(f"{', '.join(idle)}: nothing changes for {name}.", file=sys.stderr)


def check_reader(address: str) -> None:
    """Refuse an address that cannot read, as far as the address tells."""
    if not kind_of(address).reads:
        raise cannot_read(address)


def cannot_read(name: str) -> InputError:
    *others, last = dict.fromkeys(f"{kind.prefix}:" for kind in KINDS if kind.reads)
    return InputError(f"{name} cannot read: it writes no text. Choose {', '.join(others)} or {last}.")


def open_engine(address: str, options: EngineOptions | None = None, *, check_parity: bool = True) -> Backend:
    """Open a scorer address.

    An engine that has `hf` for a reference is compared with it on its first use with a model, or refused (`local/checks.py`).
    """
    check_address(address)
    parsed, options = parse_address(address), options or EngineOptions()
    backend = kind_of(parsed).open(parsed, options)
    if check_parity and isinstance(backend, Engine) and backend.needs_parity:
        from .local.checks import admit

        return admit(backend, options, open_local_model)
    return backend


def open_local_model(address: str, options: EngineOptions | None = None) -> TransformersEngine:
    """Open a model whose modules are in this process, for those who change them: training, adapters, serving."""
    if parse_address(address).kind != "hf":
        raise InputError(f"{address} is not a model in this process. Give an embedded name, or hf:<folder, file or hub id>.")
    from .local.model import TransformersEngine

    engine = open_engine(address, options)
    assert isinstance(engine, TransformersEngine)
    return engine
