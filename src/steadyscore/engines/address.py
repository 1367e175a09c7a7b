"""Scorer addresses: `kind[+variant]:rest` taken apart, checked and opened. Heavy imports happen behind `open_engine`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from ..machine.credentials import check_credentials
from ..machine.extras import check_installed
from . import Backend, Engine, EngineOptions, Grader, Recording

if TYPE_CHECKING:
    from .hf import TransformersEngine


class Kind(NamedTuple):
    """Where the loader of an address's kind lives: `loader(rest, options, variant)` of a module beside this one."""

    module: str
    loader: str
    modules: tuple[str, ...] = ()
    """Libraries that it needs in this process."""
    server_modules: tuple[str, ...] = ()
    """Those it needs instead for a server, as in `vllm:<model>@<base url>`."""
    variants: tuple[str, ...] = ()
    """What may follow the kind after a plus, as in `rerank+tei:`."""
    honours: frozenset[str] = frozenset()
    """Fields of `Settings` and `EngineOptions` that say something to it; `prompt` to a `Grader`, a reranker has none."""
    server_honours: frozenset[str] = frozenset()
    """Those of its server, where they are others."""


HF, SERVED, GGUF = ("torch", "transformers"), ("httpx", "transformers"), ("llama_cpp", "transformers", "gguf")
"""A local model; the tokenizer of a model behind a server; a local file."""
POOL = frozenset({"width", "chars", "partition"})
TEXT = POOL | {"prompt", "markers", "marker_seed", "instruction"}
IDS = TEXT | {"placeholder", "fit"}
"""What is shown to a reranker; to a grader as text; to one that takes token ids."""
WEIGHTS = frozenset({"device", "dtype", "batch_tokens", "trust_remote_code"})
VLLM = IDS | {"dtype", "tensor_parallel", "trust_remote_code", "allow_base_mismatch"}
HTTP = frozenset({"concurrency", "rate", "retries", "timeout"})
PAID = HTTP | {"price", "cache"}
TOKENS = IDS | HTTP | {"tokenizer", "trust_remote_code", "dtype"}
"""Of a server that takes token ids; the precision is that of its comparison with `hf`."""

KINDS: dict[str, Kind] = {
    "hf": Kind("hf", "TransformersEngine.open", HF, honours=IDS | WEIGHTS | {"allow_base_mismatch"}),
    "vllm": Kind("vllm", "open_vllm", ("vllm", "transformers"), SERVED, ("classifier", "token-ids", "top-k"), VLLM, TOKENS),
    "sglang": Kind("token_server", "open_sglang", SERVED, SERVED, honours=TOKENS),
    "openai": Kind("chat", "open_openai", ("httpx",), ("httpx",), ("logprobs",), TEXT | PAID),
    "systemone": Kind("decision_model", "open_systemone", ("httpx",), ("httpx",), honours=TEXT | PAID),
    "decisions": Kind("decision_model", "open_decisions", ("httpx",), ("httpx",), honours=TEXT | PAID),
    "rerank": Kind("rerank_endpoint", "open_rerank", ("httpx",), ("httpx",), ("cohere", "jina", "tei"), POOL | HTTP),
    "llamacpp": Kind("llamacpp", "open_llamacpp", GGUF, (*SERVED, "gguf"), (), IDS | {"device"}, TOKENS),
    "system": Kind("systems", "open_system", honours=POOL | WEIGHTS, server_honours=POOL | PAID),
    "python": Kind("python_scorer", "open_python", honours=POOL | {"watch"}),
    "command": Kind("command_scorer", "open_command", honours=POOL | {"watch", "timeout"}),
    "scores": Kind("replay", "open_scores"),
    "first-stage": Kind("first_stage", "open_first_stage"),
    "synthetic": Kind("synthetic", "open_synthetic", honours=POOL),
}


class Address(NamedTuple):
    """A scorer address taken apart."""

    kind: str
    variant: str
    rest: str


def parse_address(address: str) -> Address:
    """`kind[+variant]:rest`, of a kind and a variant that there are; a bare name is an embedded model."""
    from ..models.embedded import embedded_scorers

    check_credentials(address)  # first: the sentences below repeat the address
    head, found, rest = address.partition(":")
    if not found:
        if address.partition("+")[0] not in embedded_scorers():
            raise InputError(
                f"unknown scorer {address!r}. Embedded: {', '.join(embedded_scorers())}; "
                "`steadyscore scorers list` prints every other kind of address."
            )
        return Address("hf", "", address)
    name, _, variant = head.partition("+")
    kind = KINDS.get(name)
    if kind is None:
        raise InputError(f"unknown kind of scorer {name!r} in {address!r}. Known kinds: {', '.join(KINDS)}.")
    if variant and variant not in kind.variants:
        known = f"Known: {', '.join(kind.variants)}" if kind.variants else f"{name}: has none"
        raise InputError(f"unknown variant {variant!r} in {address!r}. {known}.")
    return Address(name, variant, rest)


def check_address(address: str) -> None:
    """Refuse an address of an unknown kind, or whose libraries are not installed, before anything is opened."""
    check_installed(address, *needed_modules(parse_address(address)))


def needed_modules(address: Address) -> tuple[str, ...]:
    kind, rest = KINDS[address.kind], address.rest
    if address.kind == "system":
        from .systems import SYSTEMS

        return SYSTEMS[name].needs if (name := rest.partition("@")[0]) in SYSTEMS else ()
    if address.kind == "hf":
        from ..models.embedded import shipped_adapters

        return (*kind.modules, "peft") if "+" in rest or rest in shipped_adapters() else kind.modules
    return kind.server_modules if "@http" in rest else kind.modules


def honoured(scorer: Any) -> frozenset[str]:
    """Fields of `Settings` and `EngineOptions` that say something to an address, an opened backend or a Python value."""
    if isinstance(scorer, str):
        name, _, rest = parse_address(scorer)
        return ("@http" in rest and KINDS[name].server_honours) or KINDS[name].honours
    if isinstance(scorer, Grader):
        return IDS if isinstance(scorer, Engine) else TEXT | ({"placeholder"} if scorer.reads_skeleton else set())
    return frozenset() if isinstance(scorer, Recording) else POOL


def refuse_unhonoured(asked: Iterable[str], scorers: Mapping[str, Any]) -> None:
    """Refuse fields (also `perturb markers`) that say nothing to any scorer; where one says something to some, name the rest."""
    flags = {f"--{'no-' * (name == 'cache')}{name.replace('_', '-')}": name.split()[-1].split("-")[-1] for name in asked}
    fields = {name: honoured(scorer) for name, scorer in scorers.items()}
    if idle := [flag for flag, field in flags.items() if not any(field in of for of in fields.values())]:
        it = "it" if len(idle) == 1 else "them"
        raise InputError(f"{', '.join(idle)} would change nothing of {', '.join(scorers)}. Leave {it} out.")
    for name, of in fields.items():
        if idle := [flag for flag, field in flags.items() if field not in of]:
            print(f"{', '.join(idle)}: nothing changes for {name}.", file=sys.stderr)


def open_engine(address: str, options: EngineOptions | None = None, *, check_parity: bool = True) -> Backend:
    """Open a scorer address.

    An engine that has `hf` for a reference is compared with it on its first use with a model, or refused (`parity.py`).
    """
    name, variant, rest = parse_address(address)
    kind = KINDS[name]
    check_address(address)
    options = options or EngineOptions()
    loader: Callable[..., Backend] = attrgetter(kind.loader)(importlib.import_module(f".{kind.module}", __package__))
    backend = loader(rest, options, *([variant] if kind.variants else []))
    if check_parity and isinstance(backend, Engine) and backend.needs_parity:
        from .parity import admit

        return admit(backend, options)
    return backend


def open_local_model(address: str, options: EngineOptions | None = None) -> TransformersEngine:
    """Open a model whose modules are in this process, for those who change them: training, adapters, serving."""
    if parse_address(address).kind != "hf":
        raise InputError(f"{address} is not a model in this process. Give an embedded name, or hf:<folder, file or hub id>.")
    from .hf import TransformersEngine

    engine = open_engine(address, options)
    assert isinstance(engine, TransformersEngine)
    return engine
