"""Engine `vllm`: the causal model as a four-way token classifier over the grade rows of its output matrix (PEERS C1).

Its softmax over four classes at a slot is the renormalised grade distribution, and logits over the vocabulary are never
made. Offline here; a running server is in `served.py`. vLLM is imported only when an address asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..encoding import Encoder
from ..errors import ModelError
from ..prompt import prompt_text
from ..readout import Reading
from ..tasks import PASSAGE_RERANKING
from ..terms import GRADES, Prompt
from . import Capabilities, EngineOptions
from .served import load_encoder, served_vllm, slot_probabilities


def open_vllm(rest: str, options: EngineOptions) -> Any:
    """`<id|path>[+adapter]` in this process, or `<model>@<base url>`."""
    if "@http://" in rest or "@https://" in rest:
        return served_vllm(rest, options)
    return VllmEngine.open(rest, options)


class VllmEngine:
    """vLLM's offline `LLM`, pooling."""

    def __init__(self, llm: Any, encoder: Encoder, name: str, identity: dict[str, Any], lora: Any = None):
        self.llm, self.encoder, self.name, self._identity, self._lora = llm, encoder, name, identity, lora
        self.context = int(llm.llm_engine.model_config.max_model_len)
        self.capabilities = Capabilities(gives="distribution", distribution="exact", lora=True)
        self.reference = "hf:" + name.removeprefix("vllm:")
        """What the parity gate compares with."""

    @classmethod
    def open(cls, address: str, options: EngineOptions) -> VllmEngine:
        import torch
        from vllm import LLM
        from vllm.config import PoolerConfig

        base, _, adapter = (address, "", "") if Path(address).exists() else address.partition("+")
        encoder = load_encoder(base, options)
        llm = LLM(
            base,
            runner="pooling",
            convert="classify",
            dtype=options.dtype,
            tensor_parallel_size=options.tensor_parallel,
            trust_remote_code=options.trust_remote_code,
            hf_overrides=classifier(_architecture(base, options), encoder),
            pooler_config=PoolerConfig(task="token_classify"),
            **({"enable_lora": True, "max_lora_rank": _rank(Path(adapter))} if adapter else {}),
        )
        identity = {
            "kind": "vllm",
            "model": base,
            "adapter": adapter or None,
            "dtype": options.dtype,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
        }
        return cls(llm, encoder, f"vllm:{address}", identity, _lora(adapter) if adapter else None)

    def identity(self) -> dict[str, Any]:
        return dict(self._identity)

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[Reading]:
        inputs = [{"prompt_token_ids": [*p.prefix, *p.body]} for p in prompts]
        outputs = self.llm.encode(inputs, pooling_task="token_classify", lora_request=self._lora, use_tqdm=False)
        return [_reading(prompt, output.outputs.data) for prompt, output in zip(prompts, outputs, strict=True)]


def classifier(architecture: str, encoder: Encoder) -> dict[str, Any]:
    """What turns a causal model into a classifier over its own grade tokens: `hf_overrides`, also for `vllm serve`.

    vLLM looks tokens up by their spelling in the vocabulary, so they are given as the tokenizer spells them.
    """
    tokens = encoder.prompt(prompt_text(PASSAGE_RERANKING, "", [""])).grade_tokens
    return {
        "architectures": [architecture.replace("ForCausalLM", "ForSequenceClassification")],
        "classifier_from_token": encoder.tokenizer.convert_ids_to_tokens(list(tokens)),
        "method": "no_post_processing",
        "num_labels": len(GRADES),
    }


def _architecture(base: str, options: EngineOptions) -> str:
    from transformers import AutoConfig

    try:
        names = AutoConfig.from_pretrained(base, trust_remote_code=options.trust_remote_code).architectures or [""]
    except (OSError, ValueError) as refusal:
        raise ModelError(f"model {base!r} could not be found. Give a folder or a hub id this machine reaches.") from refusal
    if not names[0].endswith("ForCausalLM"):
        raise ModelError(f"{base} is {names[0] or 'of no known class'}; the readout needs a causal language model.")
    return names[0]


def _lora(adapter: str) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(Path(adapter).name, 1, adapter)


def _rank(adapter: Path) -> int:
    import json

    try:
        return int(json.loads((adapter / "adapter_config.json").read_text())["r"])
    except (OSError, ValueError, KeyError) as missing:
        raise ModelError(f"{adapter} is not an adapter folder: its adapter_config.json gives no rank.") from missing


def _reading(prompt: Prompt, rows: Any) -> Reading:
    rows = np.asarray(rows.float().cpu() if hasattr(rows, "cpu") else rows, dtype=np.float64)
    if rows.shape != (len(prompt), len(GRADES)):
        # Rows of a cached prefix are left out of the answer; reading at the wrong row would look like an order effect.
        raise ModelError(f"vLLM gave {rows.shape} for {len(prompt)} tokens and {len(GRADES)} grades.")
    return slot_probabilities(rows[list(prompt.slots)])
