"""Several adapters on one copy of their base, chosen by model name: the worker switches between two passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..adapter import adapter_identity, base_mistake, read_card, refuse, refuse_pickles
from ..engines import EngineOptions, open_engine
from ..errors import InputError, ModelError
from ..readout import Reading
from ..terms import Prompt


def split(address: str) -> tuple[str, Path | None]:
    """`base[+adapter folder]` of a local model."""
    if Path(address.removeprefix("hf:")).exists():  # a folder whose own name holds the sign
        return address, None
    base, _, folder = address.partition("+")
    return base, Path(folder) if folder else None


class Bases:
    """Opens addresses. Local models of the same base share its weights."""

    def __init__(self) -> None:
        self._bases: dict[str, SharedBase] = {}

    def open(self, address: str, options: EngineOptions) -> Any:
        if ":" in address and not address.startswith("hf:"):
            return open_engine(address, options)
        base, folder = split(address)
        if base not in self._bases:
            self._bases[base] = SharedBase(open_engine(base, options), options.allow_base_mismatch)
        return self._bases[base].with_adapter(folder, address)


class SharedBase:
    """A local engine whose model carries any number of adapters, one of them active or none."""

    def __init__(self, engine: Any, allow_base_mismatch: bool = False):
        self.engine, self.allow_base_mismatch = engine, allow_base_mismatch
        self._carrier: Any = None
        self._loaded: dict[Path, tuple[str, dict[str, Any]]] = {}
        self._active: str | None = None

    def with_adapter(self, folder: Path | None, name: str) -> AdaptedEngine:
        if folder is None:
            return AdaptedEngine(self, None, name, self.engine.identity())
        if folder not in self._loaded:
            self._loaded[folder] = self._load(folder)
        adapter, facts = self._loaded[folder]
        return AdaptedEngine(self, adapter, name, self.engine.identity() | {"adapter": facts})

    def _load(self, folder: Path) -> tuple[str, dict[str, Any]]:
        from peft import PeftModel

        if not (folder / "adapter_config.json").exists():
            raise InputError(f"{folder} is no adapter folder: it has no adapter_config.json.")
        refuse_pickles(folder)
        card, adapter = read_card(folder), f"adapter{len(self._loaded)}"
        mistake = base_mistake(card, self.engine.identity())
        refuse([mistake] if mistake else [], self.allow_base_mismatch)
        try:
            if self._carrier is None:
                self._carrier = PeftModel.from_pretrained(self.engine.model, str(folder), adapter_name=adapter)
            else:
                self._carrier.load_adapter(str(folder), adapter_name=adapter)
        except (ValueError, RuntimeError, OSError) as refusal:
            raise ModelError(f"adapter {folder} does not fit this base: {' '.join(str(refusal).split())[:300]}") from refusal
        self._carrier.eval()
        self._active = "?"  # loading may have moved it
        return adapter, adapter_identity(folder, card)

    def activate(self, adapter: str | None) -> None:
        """Put one adapter in place, or none. Only the worker thread calls it, between two passes."""
        if self._carrier is None or adapter == self._active:
            return
        if adapter is None:
            self._carrier.base_model.disable_adapter_layers()
        else:
            self._carrier.base_model.enable_adapter_layers()
            self._carrier.set_adapter(adapter)
        self._active = adapter


class AdaptedEngine:
    """One of the models on a shared base."""

    def __init__(self, base: SharedBase, adapter: str | None, name: str, identity: dict[str, Any]):
        self.name, self._base, self._adapter, self._identity = name, base, adapter, identity
        self.encoder, self.context, self.capabilities = base.engine.encoder, base.engine.context, base.engine.capabilities

    def identity(self) -> dict[str, Any]:
        return dict(self._identity)

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[Reading]:
        self._base.activate(self._adapter)
        return self._base.engine.grade_logits(prompts, label_mass=label_mass)
