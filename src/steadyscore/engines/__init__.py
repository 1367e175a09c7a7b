"""The wall between core and world: four protocols and a door that opens each by its address.

A `Grader` reads grades of a window given as text; an `Engine` is a grader that takes token ids and reads at known
positions. A `Reranker` gives one score per text and nothing else: what lets users audit what they already run. A
`Recording` has scored before. Heavy imports happen behind the door.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from ..credentials import check_credentials
from ..encoding import Encoder
from ..errors import InputError
from ..extras import check_installed
from ..readout import Reading
from ..scores import Scored
from ..terms import Instance


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a scorer can tell; written into every run and printed in its report."""

    gives: Literal["distribution", "score", "ranking"]
    distribution: Literal["exact", "top_k", "none"] = "none"
    label_mass: bool = False
    order_free: bool = False
    """True where the order of the candidates cannot change a score by construction."""
    lora: bool = False
    deterministic: bool = False
    isolation: bool = False
    """Can keep the candidates of a window from seeing each other; a set window needs that too."""
    parity: str | None = None
    """What the parity gate found of an engine that is not `hf`, or why it could not look."""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@runtime_checkable
class Grader(Protocol):
    """A language model that grades the windows it is shown: `PromptText` for a grader, `Prompt` (token ids) for an engine."""

    name: str
    capabilities: Capabilities

    def identity(self) -> dict[str, Any]:
        """What must not change between the runs of one fingerprint: weights, precision, adapter."""
        ...

    def grade_logits(self, prompts: Sequence[Any], *, label_mass: bool = False) -> list[Reading]: ...


@runtime_checkable
class Engine(Protocol):
    """A grader that takes token ids and reads grades at the slots of a prompt."""

    name: str
    capabilities: Capabilities
    encoder: Encoder
    context: int
    """Tokens a prompt may have."""

    def identity(self) -> dict[str, Any]: ...

    def grade_logits(self, prompts: Sequence[Any], *, label_mass: bool = False) -> list[Reading]: ...


@runtime_checkable
class Reranker(Protocol):
    """Anything that gives a list of texts one score each, jointly or one by one.

    One that gives only an order has `gives="ranking"` and returns n - rank. A `width` attribute, where there is one, is
    the candidates it takes at once; without it, the whole pool.
    """

    name: str
    capabilities: Capabilities

    def identity(self) -> dict[str, Any]: ...

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]: ...


@runtime_checkable
class Recording(Protocol):
    """Scores that were given before: found by query, permutation and candidate id, never by text."""

    name: str
    capabilities: Capabilities

    def identity(self) -> dict[str, Any]: ...

    def recall(self, instance: Instance, permutations: Sequence[int]) -> Scored: ...


class ScorerFailed(RuntimeError):
    """Somebody's function or program gave no usable answer: its query is named in the coverage and left out."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What stands behind a scorer and may change while its fingerprint stays: written into a run at every start."""

    files: dict[str, str] = field(default_factory=dict)
    """Path -> the first 16 digits of its SHA-256."""
    unwatched: tuple[str, ...] = ()
    """A sentence for each part whose change would go unnoticed."""


class Price(NamedTuple):
    """What an endpoint charges, per million tokens, in whatever currency the user counts."""

    prompt: float
    completion: float


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine runs; each field is a command line flag."""

    device: str | None = None
    """cpu, cuda, cuda:1, ...; None takes CUDA where there is one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_tokens: int = 4096
    """Windows share a forward pass until their padded tokens reach this."""
    share_prefix: bool = True
    """Compute system, instruction and query once per query and reuse their KV cache. (Isolated candidates always are.)"""
    trust_remote_code: bool = False
    allow_base_mismatch: bool = False
    tokenizer: str | None = None
    """Folder or hub id of the tokenizer of a served model, where the server's name for the model is neither."""
    tensor_parallel: int = 1
    """GPUs that share one model (vLLM)."""
    concurrency: int = 8
    """Requests to an endpoint at the same time."""
    rate: float | None = None
    """Most requests a minute; None sends as fast as the endpoint answers."""
    retries: int = 5
    timeout: float = 300.0
    """Seconds until a request, or a question to a program, counts as failed."""
    price: Price | None = None
    cache: bool = True
    """Keep an endpoint's answers on disk, so that no question is paid for twice."""
    watch: tuple[str, ...] = ()
    """Files behind a `python:` or `command:` scorer that a run watches besides those it finds itself."""

    def __post_init__(self) -> None:
        least = {"batch_tokens": 1, "tensor_parallel": 1, "concurrency": 1, "retries": 0}
        mistakes = [
            f"{name} is {value!r}: give a whole number, {bound} or more."
            for name, bound in least.items()
            if not (type(value := getattr(self, name)) is int and value >= bound)
        ]
        mistakes += [
            f"{name} is {value!r}: give a number above 0."
            for name, value in (("timeout", self.timeout), ("rate", 1.0 if self.rate is None else self.rate))
            if not 0 < value < math.inf
        ]
        if self.price is not None and not all(0 <= each < math.inf for each in self.price):
            mistakes.append(f"price is {tuple(self.price)}: give two numbers, 0 or more.")
        if mistakes:
            raise InputError(mistakes)


Backend = Engine | Grader | Reranker | Recording


def spent(backend: Any, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """What an endpoint that charges was asked and what that cost, since it was opened or since `before`; of others nothing."""
    now = backend.spent() if hasattr(backend, "spent") else {}
    return {what: count - (before or {}).get(what, 0) for what, count in now.items()}


def watch_of(backend: Any) -> Watch:
    """What a scorer or a backend says of the files behind it; nothing where its identity holds all there is."""
    if hasattr(backend, "watch"):
        return backend.watch()
    if hasattr(backend, "endpoint"):
        return Watch(unwatched=("What answers at the endpoint is not watched: it may change while its address stays.",))
    return Watch()


def endpoint_of(backend: Any) -> str | None:
    """The base address of a scorer that is asked over HTTP, which carries no credentials; None of any other.

    No part of the identity, since a model may move to another server; a run notes it, so that another one is noticed.
    """
    endpoint = getattr(backend, "endpoint", None)
    return None if endpoint is None else endpoint.base


class Kind(NamedTuple):
    """Where the loader of an address's kind lives: `loader(rest, options, variant)` of a module beside this one."""

    module: str
    loader: str
    modules: tuple[str, ...] = ()
    """Libraries that it needs in this process."""
    served: tuple[str, ...] = ()
    """Those it needs instead for a server, as in `vllm:<model>@<base url>`."""
    variants: tuple[str, ...] = ()
    """What may follow the kind after a plus, as in `rerank+tei:`."""
    grades: bool = False
    """Whether it is a `Grader`, which takes windows of the task's width; a reranker takes the whole pool."""


HF, SERVED = ("torch", "transformers"), ("httpx", "transformers")
"""A local model; the tokenizer of a model behind a server."""

KINDS: dict[str, Kind] = {
    "hf": Kind("transformers", "TransformersEngine.open", HF, grades=True),
    "vllm": Kind("vllm", "open_vllm", ("vllm", "transformers"), SERVED, ("classifier", "token-ids", "top-k"), grades=True),
    "sglang": Kind("served", "open_sglang", SERVED, SERVED, grades=True),
    "openai": Kind("hosted", "open_openai", ("httpx",), ("httpx",), ("logprobs",), grades=True),
    "rerank": Kind("rerank", "open_rerank", ("httpx",), ("httpx",), ("cohere", "jina", "tei")),
    "llamacpp": Kind("llamacpp", "open_llamacpp", ("llama_cpp", "transformers", "gguf"), (*SERVED, "gguf"), grades=True),
    "system": Kind("systems", "open_system"),
    "python": Kind("python_scorer", "open_python"),
    "command": Kind("command_scorer", "open_command"),
    "scores": Kind("recorded", "open_scores"),
    "synthetic": Kind("recorded", "open_synthetic"),
}


class Address(NamedTuple):
    """A scorer address taken apart."""

    kind: str
    variant: str
    rest: str


def parse_address(address: str) -> Address:
    """`kind[+variant]:rest`, of a kind and a variant that there are; a bare name is an embedded model."""
    from ..models import embedded_scorers

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
        from ..models import shipped_adapters

        return (*kind.modules, "peft") if "+" in rest or rest in shipped_adapters() else kind.modules
    return kind.served if "@http" in rest else kind.modules


def open_engine(address: str, options: EngineOptions | None = None, *, gate: bool = True) -> Any:
    """Open a scorer address.

    An engine that has `hf` for a reference passes the parity gate on its first use with a model, or is refused.
    """
    name, variant, rest = parse_address(address)
    kind = KINDS[name]
    check_address(address)
    loader: Callable[..., Backend] = attrgetter(kind.loader)(importlib.import_module(f".{kind.module}", __name__))
    backend = loader(rest, options or EngineOptions(), *([variant] if kind.variants else []))
    if not gate or not hasattr(backend, "reference"):
        return backend
    from ..parity import gated

    return gated(backend, options or EngineOptions())
