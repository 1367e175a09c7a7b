"""Engine `hf`: a causal language model through transformers, on CPU or CUDA.

One forward pass reads all slots of a window: hidden states are gathered at the B slots and projected on the four grade
rows of the output matrix, so logits over the vocabulary are never made at every position. Windows of similar length
share a pass, and the prefix that all windows of a query share is computed once. Both can be switched off, to measure
what they save; neither changes a score by more than 1e-4 (tests/engines/test_hf.py). Where memory runs out, fewer windows
share a pass from then on (`device.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, wraps
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, GenerationConfig
from transformers.utils import logging as transformers_logging

from ...errors import ModelError
from ...models.adapter import adapter_identity, attach, card_of, split_address
from ...models.embedded import embedded_scorers, locate, weights_digest
from ...terms import JsonObject, Prompt
from ...window import set_windows
from ...window.encoding import Encoder
from ...window.readout import SlotLogits
from .. import Capabilities, EngineOptions, Ids, ReadingEngine
from . import checks, windows
from .device import (
    Passes,
    arithmetic,
    carry_float32,
    device_of,
    float32_product,
    in_precision,
    precision_of,
    share_threads,
)

Method = TypeVar("Method", bound=Callable[..., Any])


def scoring(method: Method) -> Method:
    """An engine's method runs without gradients, in the arithmetic of its model's precision."""

    @wraps(method)
    def run(engine: TransformersEngine, *given: Any, **named: Any) -> Any:
        with torch.inference_mode(), arithmetic(engine.model):
            return method(engine, *given, **named)

    return cast(Method, run)


class TransformersEngine(ReadingEngine):
    """Reads grades from a causal language model."""

    def __init__(self, model: Any, tokenizer: Any, name: str, options: EngineOptions, identity: JsonObject):
        self.name, self.options = name, options
        self.model = model.eval()
        if model.dtype != torch.float32:
            carry_float32(model)
        self.encoder = Encoder(tokenizer, name)
        self.context = int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 10**9)
        self.capabilities = Capabilities(
            gives="distribution",
            distribution="exact",
            label_mass=True,
            lora=True,
            deterministic=True,
            isolation=windows.is_possible(model.config.get_text_config()),
        )
        self._identity = identity
        self.sets_checked = False
        self._passes = Passes(options.batch_tokens)

    @classmethod
    def open(cls, address: str, options: EngineOptions) -> TransformersEngine:
        """`<embedded name | folder | file.gguf | hub id>[+adapter folder]`."""
        base, adapter = split_address(address)
        device = device_of(options.device)  # before anything is loaded for nothing
        if device == "cpu":
            share_threads()
        options = replace(options, dtype=precision_of(options.dtype, device))
        source, local = locate(base)
        transformers_logging.disable_progress_bar()  # a load takes seconds; our own bars are for what takes minutes
        try:
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=options.trust_remote_code)
            model = AutoModelForCausalLM.from_pretrained(
                source,
                # An adapter is folded into the weights as they are stored, before they are rounded.
                dtype="auto" if adapter and options.dtype != "float32" else getattr(torch, options.dtype),
                trust_remote_code=options.trust_remote_code,
                use_safetensors=True,  # pickled weights can run code
            )
        except (OSError, ValueError, KeyError) as refusal:
            raise ModelError(_why(base, refusal)) from refusal
        identity = {
            "kind": "hf",
            "model": base,
            "weights": weights_digest(Path(source)) if local else getattr(model.config, "_commit_hash", None),
            "dtype": options.dtype,
            "device": torch.device(device).type,
        }
        if adapter:
            model, identity["adapter"] = attach(model, adapter, identity, options.allow_base_mismatch)
        card = card_of(address)
        if card and not adapter:  # it was merged into the weights
            identity["adapter"] = adapter_identity(Path(source), card)
        engine = cls(in_precision(model, options.dtype).to(device), tokenizer, address, options, identity)
        engine.trained_settings = card.settings if card else {}
        return engine

    def identity(self) -> dict[str, object]:
        return dict(self._identity)

    @scoring
    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[SlotLogits]:
        readings: list[SlotLogits | None] = [None] * len(prompts)
        together: list[tuple[Sequence[int], list[int]]] = []
        alone: list[int] = []
        for prefix, members in _by_prefix(prompts):
            alike = [prompts[i] for i in members]
            if alike[0].segment:
                for i, reading in zip(members, self._read_sets(alike, label_mass), strict=True):
                    readings[i] = reading
            elif windows.recur(alike):
                for i, reading in zip(members, self._read_isolated(alike, label_mass), strict=True):
                    readings[i] = reading
            elif self.options.share_prefix or _is_mostly_prefix(alike):
                together.append((prefix, members))
            else:
                alone += members
        for prefix, members in [*together, *([((), alone)] if alone else [])]:
            read = partial(self._read_windows, prompts, members, prefix, label_mass)
            for i, reading in self._passes.fit(read, [len(prompts[i]) - len(prefix) for i in members]).items():
                readings[i] = reading
        return cast(list[SlotLogits], readings)

    @scoring
    def plain_logits(self, prompt: Prompt) -> SlotLogits:
        """The textbook way: one full forward, logits of every position, rows picked afterwards."""
        if prompt.segment:
            return SlotLogits(self.slot_logits([prompt])[0].cpu().numpy())
        options = windows.whole([prompt], len(prompt), self.model) if prompt.candidates else {}
        ids = self._tensor([prompt.ids])
        logits = self.model(input_ids=ids, use_cache=False, **options).logits[0].float()
        return SlotLogits(logits[list(prompt.slots)][:, list(prompt.grade_tokens)].cpu().numpy())

    def check_sets(self) -> None:
        """Refuse a model that cannot read a window as a set; examined once."""
        if not self.sets_checked:
            self.sets_checked = True  # the examination reads sets itself
            try:
                checks.check_sets(self, self.model)
            except BaseException:  # also where the user stopped it: an examination counts only when it ended
                self.sets_checked = False
                raise

    def slot_logits(self, prompts: Sequence[Prompt]) -> list[torch.Tensor]:
        """Grade logits (B, 4) of each prompt from one forward pass, with gradients: what training uses."""
        is_set = any(prompt.segment for prompt in prompts)  # training shows windows of one kind
        states = windows.whole_states(self.model, prompts) if is_set else self._slot_states(list(prompts), 0, None)
        return [self.project(rows, self._tensor(p.grade_tokens)) for rows, p in zip(states, prompts, strict=True)]

    @scoring
    def generate(self, prompts: Sequence[Ids], most_tokens: int) -> list[str]:
        """Greedy continuations, until the model ends its turn."""
        tokenizer, own = self.encoder.tokenizer, self.model.generation_config
        ends = own.eos_token_id if own is not None and own.eos_token_id is not None else []
        ends = {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None}
        greedy = GenerationConfig(
            do_sample=False, max_new_tokens=most_tokens, eos_token_id=sorted(ends), pad_token_id=tokenizer.pad_token_id or 0
        )
        texts = []
        for ids in prompts:
            prompt = self._tensor([ids])
            written = self.model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=greedy)
            texts.append(tokenizer.decode(written[0, len(ids) :], skip_special_tokens=True))
        return texts

    def _read_windows(
        self, prompts: Sequence[Prompt], members: list[int], prefix: Sequence[int], label_mass: bool, tokens: int
    ) -> dict[int, SlotLogits]:
        """Windows that begin alike, at most so many tokens in a pass."""
        cache, readings = self._prefix_cache(prefix) if prefix else None, dict[int, SlotLogits]()
        for batch in _batches(prompts, members, len(prefix), tokens):
            hidden = self._slot_states([prompts[i] for i in batch], len(prefix), cache)
            for i, states in zip(batch, hidden, strict=True):
                readings[i] = self._read(states, prompts[i].grade_tokens, label_mass)
        return readings

    def _read_isolated(self, prompts: Sequence[Prompt], label_mass: bool) -> list[SlotLogits]:
        """Windows of one query whose candidates are read once for all of them."""

        def read(tokens: int) -> list[SlotLogits]:
            states = windows.slot_states(self.model, prompts, tokens)
            return [self._read(rows, prompt.grade_tokens, label_mass) for rows, prompt in zip(states, prompts, strict=True)]

        return self._passes.fit(read, _text_lengths(prompts))

    def _prefix_cache(self, prefix: Sequence[int]) -> DynamicCache:
        cache = DynamicCache(config=self.model.config)
        self.model.base_model(input_ids=self._tensor([prefix]), past_key_values=cache, use_cache=True)
        return cache

    def _slot_states(self, batch: list[Prompt], shared: int, cache: DynamicCache | None) -> list[torch.Tensor]:
        """Last hidden states at the slots of each prompt, (B, hidden) each. A causal model does not see padding on the right."""
        rest = [p.ids[shared:] for p in batch]
        longest = max(map(len, rest))
        ids = self._tensor([(*row, *[0] * (longest - len(row))) for row in rest])
        options: dict[str, Any] = {"use_cache": False}
        if cache is not None:
            cache = copy.deepcopy(cache)
            cache.batch_repeat_interleave(len(batch))
            options = {"past_key_values": cache, "use_cache": True}
        if any(p.candidates for p in batch):
            options |= windows.whole(batch, shared + longest, self.model, shared)
        else:
            options["position_ids"] = torch.arange(shared, shared + longest, device=ids.device).unsqueeze(0)
        hidden = self.model.base_model(input_ids=ids, **options).last_hidden_state
        return [row[self._tensor(p.slots) - shared] for row, p in zip(hidden, batch, strict=True)]

    def _read_sets(self, prompts: Sequence[Prompt], label_mass: bool) -> Iterator[SlotLogits]:
        """Set windows: each distinct set is read once, in its own order of members, whatever orders were asked for."""
        self.check_sets()
        known: dict[Prompt, SlotLogits] = {}
        for prompt in prompts:
            unordered = replace(prompt, slots=())
            if unordered not in known:
                states = self._passes.fit(partial(windows.member_states, self.model, prompt), _text_lengths([prompt]))
                known[unordered] = self._read(states, prompt.grade_tokens, label_mass)
            yield _pick_rows(known[unordered], set_windows.members(prompt))

    def _read(self, states: torch.Tensor, grade_tokens: Sequence[int], label_mass: bool) -> SlotLogits:
        grades = self._tensor(grade_tokens)
        if not label_mass:
            return SlotLogits(self.project(states, grades).cpu().numpy())
        logits = self.project(states)
        mass = (torch.logsumexp(logits[:, grades], -1) - torch.logsumexp(logits, -1)).exp()
        return SlotLogits(logits[:, grades].cpu().numpy(), mass.cpu().numpy())

    def project(self, states: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states to float32 logits of some rows of the output matrix (all without `rows`), as the model itself would."""
        head = self.model.get_output_embeddings()
        bias = getattr(head, "bias", None)
        logits = float32_product(states, head.weight if rows is None else head.weight[rows])
        if bias is not None:
            logits = logits + (bias if rows is None else bias[rows])
        return final_scale(logits, self.model.config.get_text_config())

    def _tensor(self, ids: Sequence[Any]) -> torch.Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.model.device)


def _pick_rows(read: SlotLogits, rows: Sequence[int]) -> SlotLogits:
    """Some rows of what was read, in the order asked for."""
    return SlotLogits(read.logits[list(rows)], None if read.label_mass is None else read.label_mass[list(rows)])


def _text_lengths(prompts: Sequence[Prompt]) -> list[int]:
    """Tokens of each candidate, which is read by itself."""
    return [end - first for prompt in prompts for first, _, end in prompt.candidates]


def final_scale(logits: torch.Tensor, config: Any) -> torch.Tensor:
    """What some families do to their logits after the output matrix: Granite divides, Cohere multiplies, Gemma caps."""
    if scaling := getattr(config, "logits_scaling", None):
        logits = logits / scaling
    if scale := getattr(config, "logit_scale", None):
        logits = logits * scale
    if cap := getattr(config, "final_logit_softcapping", None):
        logits = cap * torch.tanh(logits / cap)
    return logits


def _by_prefix(prompts: Sequence[Prompt]) -> Iterator[tuple[Sequence[int], list[int]]]:
    """Windows of one query and one kind together."""
    order = sorted(range(len(prompts)), key=lambda i: (prompts[i].prefix, prompts[i].segment, i))
    for (prefix, _), members in groupby(order, key=lambda i: (prompts[i].prefix, prompts[i].segment)):
        yield prefix, list(members)


def _is_mostly_prefix(prompts: Sequence[Prompt]) -> bool:
    """Several questions about one long text: reading it once saves more than a pass shared with other windows."""
    return len(prompts) > 1 and len(prompts[0].prefix) > max(len(prompt.body) for prompt in prompts)


def _batches(prompts: Sequence[Prompt], members: list[int], shared: int, batch_tokens: int) -> Iterator[list[int]]:
    """Windows of similar length together, until their padded tokens reach `batch_tokens`. At least one each."""
    batch: list[int] = []
    for i in sorted(members, key=lambda i: (-len(prompts[i]), i)):  # longest first: memory peaks at once, not late
        if batch and (len(batch) + 1) * (len(prompts[batch[0]]) - shared) > batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _why(base: str, refusal: Exception) -> str:
    reason = " ".join(str(refusal).split())[:300]
    return (
        f"model {base!r} could not be loaded ({reason}). Give the name of an embedded model ({', '.join(embedded_scorers())}), "
        "a folder, a .gguf file, or a hub id that this machine can reach."
    )
