"""Engine `vllm` in this process: three routes to the grades at the slots of a window, the best first.

`classifier_overrides`: the causal model is loaded as a four-way token classifier over the grade rows of its output matrix. Its
softmax at a slot is the renormalised grade distribution, and logits over the vocabulary are never made. `token-ids` and
`top-k` read log-probabilities of the model as it is. A running server is in `served.py`. vLLM is imported only when
an address asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from ..models.adapter import adapter_identity, card_for_base, card_of, split_address
from ..models.embedded import load_tokenizer, locate, weights_digest
from ..tasks import PASSAGE_RERANKING
from ..terms import GRADES, JsonObject, Prompt
from ..window.encoding import Encoder
from ..window.prompt import prompt_text
from ..window.readout import SlotLogits
from . import Backend, Engine, EngineOptions, Generator, Ids, Kind, Listing
from .answers import Malformed, slot_probabilities
from .http import Unusable
from .served import TOP, VLLM, slot_rows, slots_from_top_k, token_id_rows

RESCALED = ("logits_scaling", "logit_scale", "final_logit_softcapping")
"""What Granite, Cohere and Gemma 2 do to their logits after the output matrix: vLLM's classifier does not."""
ROUTES = {route.name: route for route in VLLM}
"""What each route can tell, and the room it wants: as the same route of a server."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What `max_lora_rank` may be."""


class Vllm(Backend):
    """vLLM's offline `LLM` with one model, which it has loaded either to classify or to generate."""

    encoder: Encoder

    def __init__(self, address: str, options: EngineOptions, how: Callable[[Any, Encoder], JsonObject]):
        """`<id|path>[+adapter]`; `how` is what it is loaded for."""
        import torch
        from vllm import LLM

        from .local.device import precision_of

        self.address, self.options = address, options
        base, adapter = split_address(address)
        source, local = locate(base)
        config = _config(source, options)
        self.encoder = Encoder(load_tokenizer(source, trust_remote_code=options.trust_remote_code), source)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = precision_of(options.dtype, device)
        self._identity = {
            "kind": "vllm",
            "model": base,
            "weights": weights_digest(Path(source)) if local else getattr(config, "_commit_hash", None),
            "dtype": dtype,
            "device": device,
        }
        lora: dict[str, object] = {}
        if adapter:
            lora = {"enable_lora": True, "max_lora_rank": _lora_rank(adapter)}
            card = card_for_base(adapter, self._identity, options.allow_base_mismatch)
            self._identity["adapter"] = adapter_identity(adapter, card)
        elif merged := card_of(address):
            self._identity["adapter"] = adapter_identity(Path(source), merged)
        self.llm = LLM(
            source,
            dtype=dtype,
            tensor_parallel_size=options.tensor_parallel,
            trust_remote_code=options.trust_remote_code,
            **how(config, self.encoder),
            **lora,
        )
        self._lora = _lora_request(adapter) if adapter else None

    @property
    def most_tokens(self) -> int:
        """Tokens of a prompt with what is written behind it."""
        return int(self.llm.llm_engine.model_config.max_model_len)

    def identity(self) -> JsonObject:
        return self._identity

    def _generate(self, rows: Sequence[Ids], sampling: Sequence[JsonObject]) -> list[Any]:
        from vllm import SamplingParams

        each = [SamplingParams(temperature=0, **asked) for asked in sampling]
        return list(self.llm.generate(_inputs(rows), each, lora_request=self._lora, use_tqdm=False))


class VllmEngine(Vllm, Engine):
    """Its grades, read by one route."""

    needs_parity = True

    def __init__(self, address: str, options: EngineOptions, route: str = ""):
        def how(config: Any, encoder: Encoder) -> dict[str, object]:
            classifies = route == "classifier" or (not route and not rescales_logits(config))
            return _pooling_options(config, encoder) if classifies else GENERATING

        super().__init__(address, options, how)
        self._route = route = route or _best_route(self.llm)
        self.name, self.reference = f"vllm+{route}:{address}", f"hf:{address}"
        self.context, self.capabilities = self.most_tokens - ROUTES[route].written, ROUTES[route].capabilities
        self._identity["route"] = route
        if route == "token-ids" and not _scores_token_ids(self.llm):
            raise ModelError(f"{self.name} needs vLLM's V2 model runner, which is not here. Use vllm: or vllm+top-k:.")
        if card := card_of(address):
            self.trained_settings = card.settings

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[SlotLogits]:
        read = {"classifier": self._classify, "token-ids": self._score_token_ids, "top-k": self._rank_tokens}[self._route]
        try:
            return read(prompts)
        except Malformed as odd:  # asking again would give the same
            raise Unusable(f"{self.name}: {odd}") from odd

    def _classify(self, prompts: Sequence[Prompt]) -> list[SlotLogits]:
        inputs = _inputs([prompt.ids for prompt in prompts])
        outputs = self.llm.encode(inputs, pooling_task="token_classify", lora_request=self._lora, use_tqdm=False)
        return [_four_way(prompt, output.outputs.data) for prompt, output in zip(prompts, outputs, strict=True)]

    def _score_token_ids(self, prompts: Sequence[Prompt]) -> list[SlotLogits]:
        outputs = self._write_one(prompts, [token_id_rows(prompt) for prompt in prompts])
        slots = [output.prompt_token_id_logprobs for output in outputs]
        if any(rows is None for rows in slots):  # a cached prefix passed the first slot
            raise ModelError("vLLM gave no log-probabilities of the grade tokens. Use vllm: or vllm+top-k:.")
        return [slot_rows(prompt, np.asarray(rows)) for prompt, rows in zip(prompts, slots, strict=True)]

    def _rank_tokens(self, prompts: Sequence[Prompt]) -> list[SlotLogits]:
        outputs = self._write_one(prompts, [{"prompt_logprobs": TOP} for _ in prompts])
        # Row i speaks of token i as its predecessor predicts it.
        rows = [
            [output.prompt_logprobs[slot + 1] for slot in prompt.slots] for prompt, output in zip(prompts, outputs, strict=True)
        ]
        logprobs = [[{token: entry.logprob for token, entry in row.items()} for row in window] for window in rows]
        return [slots_from_top_k(window, prompt) for prompt, window in zip(prompts, logprobs, strict=True)]

    def _write_one(self, prompts: Sequence[Prompt], sampling: Sequence[JsonObject]) -> list[Any]:
        """What is told of the prompts, where one token is written that nobody reads."""
        each = [{"max_tokens": 1, "detokenize": False, **asked} for asked in sampling]
        return self._generate([prompt.ids for prompt in prompts], each)


def _four_way(prompt: Prompt, rows: Any) -> SlotLogits:
    rows = np.asarray(rows.float().cpu() if hasattr(rows, "cpu") else rows, dtype=np.float64)
    if rows.shape != (len(prompt), len(GRADES)):
        # Rows of a cached prefix are left out of the answer; reading at the wrong row would look like an order effect.
        raise ModelError(f"vLLM gave {rows.shape} for {len(prompt)} tokens and {len(GRADES)} grades.")
    return slot_probabilities(rows[list(prompt.slots)])


def _inputs(rows: Sequence[Ids]) -> list[dict[str, object]]:
    return [{"prompt_token_ids": list(ids)} for ids in rows]


def _best_route(llm: Any) -> str:
    """The route of a model that was loaded without a name for it."""
    if llm.llm_engine.model_config.runner_type == "pooling":
        return "classifier"
    return "token-ids" if _scores_token_ids(llm) else "top-k"


def _scores_token_ids(llm: Any) -> bool:
    return bool(getattr(llm.llm_engine.vllm_config, "use_v2_model_runner", False))


def rescales_logits(config: Any) -> bool:
    """Whether the model's logits are more than a product with its output matrix: classifier rows would be other numbers."""
    text = config.get_text_config()
    return any(getattr(text, name, None) not in (None, 0, 1) for name in RESCALED)


# -- readers


class VllmReader(Vllm, Generator):
    """What it writes: a reader is loaded anew, to generate."""

    def __init__(self, address: str, options: EngineOptions):
        super().__init__(address, options, lambda config, encoder: GENERATING)
        self.name, self.context = f"vllm:{address}", self.most_tokens - 1  # vLLM always writes one token
        self.capabilities = ROUTES["top-k"].capabilities

    def generate(self, prompts: Sequence[Ids], most_tokens: int) -> list[str]:
        """Greedy continuations, until the model ends its turn."""
        outputs = self._generate(prompts, [{"max_tokens": most_tokens}] * len(prompts))
        return [output.outputs[0].text for output in outputs]

    def label_log_probabilities(self, prompts: Sequence[Ids], labels: Sequence[Ids]) -> np.ndarray:
        """(P, L) from the log-probabilities that vLLM gives of a prompt's own tokens."""
        rows = [[*ids, *label] for ids in prompts for label in labels]
        outputs = self._generate(rows, [{"max_tokens": 1, "prompt_logprobs": 0}] * len(rows))
        tails = zip((output.prompt_logprobs for output in outputs), [*labels] * len(prompts), strict=True)
        sums = [sum(rows[i - len(label)][token].logprob for i, token in enumerate(label)) for rows, label in tails]
        return np.array(sums).reshape(len(prompts), len(labels))


# -- loading

GENERATING = {"runner": "generate", "max_logprobs": TOP}


def _pooling_options(config: Any, encoder: Encoder) -> dict[str, object]:
    from vllm.config import PoolerConfig

    overrides, pooler = classifier_overrides(config.architectures[0], encoder), PoolerConfig(task="token_classify")
    return {"runner": "pooling", "convert": "classify", "hf_overrides": overrides, "pooler_config": pooler}


def classifier_overrides(architecture: str, encoder: Encoder) -> dict[str, object]:
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


def _config(source: str, options: EngineOptions) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=options.trust_remote_code)
    except (OSError, ValueError) as refusal:
        raise ModelError(f"model {source!r} could not be found. Give a folder or a hub id this machine reaches.") from refusal
    name = (config.architectures or [""])[0]
    if not name.endswith("ForCausalLM"):
        raise ModelError(f"{source} is {name or 'of no known class'}; the readout needs a causal language model.")
    return config


def _lora_request(adapter: Path) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(adapter.name, 1, str(adapter))


def _lora_rank(adapter: Path) -> int:
    """The smallest rank that vLLM accepts and this adapter fits in."""
    try:
        rank = int(json.loads((adapter / "adapter_config.json").read_text())["r"])
    except (OSError, ValueError, KeyError) as missing:
        raise ModelError(f"{adapter} is not an adapter folder: its adapter_config.json gives no rank.") from missing
    fitting = [allowed for allowed in RANKS if allowed >= rank]
    if not fitting:
        raise ModelError(f"{adapter} has rank {rank}; vLLM takes at most {RANKS[-1]}. Merge it: steadyscore adapter merge.")
    return fitting[0]


KINDS = (
    Kind(
        "vllm",
        lambda address, options: VllmEngine(address.rest, options, address.variant),
        takes="ids",
        listed=(Listing("vllm[+classifier|+token-ids|+top-k]:<id|folder>[+adapter]", "distribution"),),
        options=frozenset({"dtype", "tensor_parallel", "trust_remote_code", "allow_base_mismatch"}),
        needs=lambda rest: ("vllm", "transformers"),
        variants=tuple(ROUTES),
        reads=True,
        open_reader=lambda address, options: VllmReader(address.rest, options),
    ),
)
