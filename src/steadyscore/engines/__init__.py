"""The wall between core and world: two protocols and a door that opens either by its address.

An `Engine` reads grade logits at known positions of token prompts; it knows nothing of queries. A `Reranker` gives one
score per text and nothing else: what lets users audit what they already run. Heavy imports happen behind the door.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from ..encoding import Encoder
from ..errors import InputError
from ..readout import Reading
from ..terms import Prompt


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a scorer can tell; written into every run and printed in its report."""

    gives: Literal["distribution", "score", "ranking"]
    distribution: Literal["exact", "top_k", "none"] = "none"
    label_mass: bool = False
    order_free: bool = False
    """True where a candidate's score cannot depend on the others by construction."""
    lora: bool = False
    deterministic: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@runtime_checkable
class Engine(Protocol):
    """A language model that reads grades at the slots of a prompt."""

    name: str
    capabilities: Capabilities
    encoder: Encoder
    context: int
    """Tokens a prompt may have."""

    def identity(self) -> dict[str, Any]:
        """What must not change between the runs of one fingerprint: weights, precision, adapter."""
        ...

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[Reading]: ...


@runtime_checkable
class Reranker(Protocol):
    """Anything that gives a list of texts one score each, jointly or one by one."""

    name: str
    capabilities: Capabilities

    def identity(self) -> dict[str, Any]: ...

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]: ...


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a local engine runs; each field is a command line flag."""

    device: str | None = None
    """cpu, cuda, cuda:1, ...; None takes CUDA where there is one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_tokens: int = 4096
    """Windows share a forward pass until their padded tokens reach this."""
    share_prefix: bool = True
    """Compute system, instruction and query once per query and reuse their KV cache."""
    trust_remote_code: bool = False
    allow_base_mismatch: bool = False


def open_engine(address: str, options: EngineOptions | None = None) -> Engine | Reranker:
    """Open a scorer address, `kind:rest`; a bare name is an embedded model."""
    from ..models import EMBEDDED

    options = options or EngineOptions()
    kind, found, rest = address.partition(":")
    if not found:
        if address.partition("+")[0] not in EMBEDDED:
            raise InputError(
                f"unknown scorer {address!r}. Embedded: {', '.join(EMBEDDED)}; "
                "others are addressed as hf:<id or path>, python:<module>:<function> or synthetic:<effect>."
            )
        kind, rest = "hf", address
    if kind == "hf":
        from .transformers import TransformersEngine

        return TransformersEngine.open(rest, options)
    if kind == "python":
        from .rerankers import PythonReranker

        return PythonReranker.open(rest)
    if kind == "synthetic":
        from .recorded import SyntheticReranker

        return SyntheticReranker.open(rest)
    raise InputError(f"unknown kind of scorer {kind!r} in {address!r}. Known kinds: hf, python, synthetic.")
