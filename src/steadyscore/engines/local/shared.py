"""Several adapters on one copy of their base, chosen by model name: a worker switches between two of its passes.

On a CPU every worker has its own replica: the same tensors under modules of its own, so that two workers can run two
adapters, or the same one, at the same time.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...models.adapter import AdapterIdentity, adapter_identity, card_for_base, refuse_misfit, split_address
from ...models.card import scorer_address
from ...terms import JsonObject, Prompt
from ...window.readout import SlotLogits
from .. import Backend, Engine, EngineOptions
from ..kinds import open_engine, open_local_model

if TYPE_CHECKING:
    from .model import TransformersEngine


class SharedBases:
    """Opens addresses for so many workers. Local models of the same base share its weights.

    `before_layer` is called before each layer of a pass, and ends the pass where it raises.
    """

    def __init__(self, workers: int = 1, before_layer: Callable[..., None] = lambda *_: None) -> None:
        self.workers, self.before_layer = workers, before_layer
        self._bases: dict[str, SharedBase] = {}

    def open(self, address: str, options: EngineOptions) -> Backend:
        if ":" in address and not address.startswith("hf:"):
            backend: Backend = open_engine(address, options)
            return backend
        model, folder = split_address(address)
        base = scorer_address(model)
        if base not in self._bases:
            self._bases[base] = SharedBase(
                open_local_model(base, options), self.workers, self.before_layer, options.allow_base_mismatch
            )
        return self._bases[base].with_adapter(folder, address)


UNKNOWN = "?"
"""In place of an adapter's name until one was put in place."""


@dataclass(slots=True)
class Replica:
    """An engine, the PEFT model around its modules where there are adapters, and the adapter in place."""

    engine: TransformersEngine
    carrier: Any = None
    active: str | None = UNKNOWN

    def activate(self, adapter: str | None) -> None:
        """Put one adapter in place, or none. Only the worker that owns the replica calls it, between two passes."""
        if self.carrier is None or adapter == self.active:
            return
        if adapter is None:
            self.carrier.base_model.disable_adapter_layers()
        else:
            self.carrier.base_model.enable_adapter_layers()
            self.carrier.set_adapter(adapter)
        self.active = adapter

    def copy_modules(self) -> Replica:
        """The same tensors under other modules: what a pass changes in a module, no other worker sees."""
        model = self.carrier or self.engine.model
        copied = copy.deepcopy(model, {id(tensor): tensor for tensor in model.parameters()})
        engine = copy.copy(self.engine)
        engine.model = copied if self.carrier is None else copied.get_base_model()
        return Replica(engine, None if self.carrier is None else copied)


class SharedBase:
    """A local engine whose model carries any number of adapters, one of them active or none."""

    def __init__(
        self, engine: TransformersEngine, workers: int, before_layer: Callable[..., None], allow_base_mismatch: bool = False
    ):
        self.engine, self.workers, self.allow_base_mismatch = engine, workers, allow_base_mismatch
        self.exclusive_key = None if engine.model.device.type == "cpu" else id(self)
        """On a GPU passes run one after the other: a second one would only wait for the same multiprocessors."""
        self._first = Replica(engine)
        for name, module in engine.model.named_modules():
            if name.endswith("self_attn"):
                module.register_forward_pre_hook(before_layer)
        self._worker = threading.local()
        """Of each worker: its replica."""
        self._loaded: dict[Path, tuple[str, AdapterIdentity]] = {}

    def with_adapter(self, folder: Path | None, name: str) -> AdaptedEngine:
        if folder is None:
            return AdaptedEngine(self, None, name, self.engine.identity())
        if folder not in self._loaded:
            self._loaded[folder] = self._load(folder)
        adapter, facts = self._loaded[folder]
        return AdaptedEngine(self, adapter, name, self.engine.identity() | {"adapter": facts})

    def _load(self, folder: Path) -> tuple[str, AdapterIdentity]:
        from peft import PeftModel

        card = card_for_base(folder, self.engine.identity(), self.allow_base_mismatch)
        adapter, first = f"adapter{len(self._loaded)}", self._first
        with refuse_misfit(folder):
            if first.carrier is None:
                first.carrier = PeftModel.from_pretrained(self.engine.model, str(folder), adapter_name=adapter)
            else:
                first.carrier.load_adapter(str(folder), adapter_name=adapter)
        first.carrier.eval()
        first.active = UNKNOWN  # loading may have changed it
        return adapter, adapter_identity(folder, card)

    def engine_with(self, adapter: str | None) -> TransformersEngine:
        """The engine for a pass of the calling worker, with an adapter in place or none."""
        if self.exclusive_key is None and not hasattr(self._worker, "replica"):
            from .device import share_threads

            share_threads(self.workers)
            self._worker.replica = self._first.copy_modules()  # every adapter is loaded before the first pass
        replica: Replica = self._first if self.exclusive_key is not None else self._worker.replica
        replica.activate(adapter)
        return replica.engine


class AdaptedEngine(Engine):
    """One of the models on a shared base."""

    def __init__(self, base: SharedBase, adapter: str | None, name: str, identity: JsonObject):
        self.name, self._base, self._adapter, self._identity = name, base, adapter, identity
        self.encoder, self.context, self.capabilities = base.engine.encoder, base.engine.context, base.engine.capabilities

    @property
    def exclusive_key(self) -> int | None:
        return self._base.exclusive_key

    def identity(self) -> JsonObject:
        return dict(self._identity)

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[SlotLogits]:
        engine = self._base.engine_with(self._adapter)
        readings = engine.grade_logits(prompts, label_mass=label_mass)
        self._base.engine.sets_checked |= engine.sets_checked  # replicas that are made later need not examine the model again
        return readings
