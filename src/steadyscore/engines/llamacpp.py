"""Engine `llamacpp`: a GGUF file in this process through llama-cpp-python, with logits made at the slots only.

The tokenizer is read from the same file through transformers, so prompts are the same ids as for `hf`. Tokens that two
prompts in a row begin with stay in the KV cache. llama.cpp rounds activations where it multiplies quantised weights, so
it differs from `hf` on the same file by a quantisation error, which `steadyscore doctor` prints.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, ModelError
from ..machine.disk import sha256
from ..machine.process import cores
from ..models.embedded import EMBEDDED, is_present
from ..models.weights import gguf_tokenizer
from ..terms import JsonObject, Prompt
from ..window.encoding import Encoder
from ..window.readout import SlotLogits
from . import Address, Capabilities, EngineOptions, Kind, Listing
from .generator import Ids, ReadingEngine

BATCH = 512
"""Tokens per call of `llama_decode`."""
CONTEXT = 8192
"""Most tokens of a prompt: the KV cache is allocated for all of them at once, and models of today claim far more."""


class LlamaCppEngine(ReadingEngine):
    """llama.cpp's C interface, as llama-cpp-python binds it."""

    needs_parity = True

    def __init__(self, library: Any, llama: Any, encoder: Encoder, file: Path):
        self._library, self._llama, self.encoder = library, llama, encoder
        digest = sha256(file)
        self.name, self.reference = f"llamacpp:{file}", f"hf:{_embedded_name(digest) or file}"
        self.context = min(int(llama.n_ctx()), _trained_context(llama.metadata))
        self.capabilities = Capabilities(gives="distribution", distribution="exact", label_mass=True, deterministic=True)
        self._identity = {"kind": "llamacpp", "model": file.name, "weights": digest[:16]}
        self._cached: list[int] = []

    def identity(self) -> JsonObject:
        return dict(self._identity)

    def grade_logits(self, prompts: Sequence[Prompt], *, label_mass: bool = False) -> list[SlotLogits]:
        # Neighbours in sorted order share the longest prefixes.
        order = sorted(range(len(prompts)), key=lambda i: (prompts[i].prefix, prompts[i].body))
        read = {i: self._read(prompts[i], label_mass) for i in order}
        return [read[i] for i in range(len(prompts))]

    def generate(self, prompts: Sequence[Ids], most_tokens: int) -> list[str]:
        """Greedy continuations, until the model ends its turn."""
        return [self._continue(ids, most_tokens) for ids in prompts]

    def _continue(self, ids: Ids, most_tokens: int) -> str:
        tokenizer = self.encoder.tokenizer
        written: list[int] = []
        ends = {tokenizer.eos_token_id, self._llama.token_eos()}
        while len(written) < most_tokens:
            token = int(self._logits([*ids, *written], [len(ids) + len(written) - 1]).argmax())
            if token in ends:
                break
            written.append(token)
        return str(tokenizer.decode(written, skip_special_tokens=True))

    def _logits(self, ids: list[int], slots: Sequence[int]) -> np.ndarray:
        """(B, V) at the slots; tokens after the last one are not evaluated."""
        ids = ids[: slots[-1] + 1]
        start = min(_common_length(ids, self._cached), slots[0])
        self._library.llama_memory_seq_rm(self._library.llama_get_memory(self._llama.ctx), 0, start, -1)
        self._cached = ids[:start]
        at, rows = frozenset(slots), []
        for begin in range(start, len(ids), BATCH):
            rows += self._decode(ids[begin : begin + BATCH], begin, at)
        self._cached = ids
        return np.array(rows, dtype=np.float64)

    def _read(self, prompt: Prompt, label_mass: bool) -> SlotLogits:
        logits = self._logits([*prompt.prefix, *prompt.body], prompt.slots)
        grades = logits[:, list(prompt.grade_tokens)]
        if not label_mass:
            return SlotLogits(grades)
        top = logits.max(axis=1, keepdims=True)
        return SlotLogits(grades, np.exp(grades - top).sum(axis=1) / np.exp(logits - top).sum(axis=1))

    def _decode(self, ids: list[int], begin: int, slots: frozenset[int]) -> list[np.ndarray]:
        """Run some tokens through the model; logits of those that stand at a slot, each (V,)."""
        batch = self._library.llama_batch_init(len(ids), 0, 1)
        try:
            batch.n_tokens = len(ids)
            for i, token in enumerate(ids):
                batch.token[i], batch.pos[i] = token, begin + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = begin + i in slots
            if code := self._library.llama_decode(self._llama.ctx, batch):
                raise ModelError(f"llama.cpp could not evaluate {len(ids)} tokens at position {begin}: llama_decode gave {code}.")
            size = self._llama.n_vocab()
            at = [i for i in range(len(ids)) if begin + i in slots]
            logits = [self._library.llama_get_logits_ith(self._llama.ctx, i) for i in at]
            return [np.array(np.ctypeslib.as_array(row, shape=(size,))) for row in logits]  # copies: the buffer is reused
        finally:
            self._library.llama_batch_free(batch)


def open_llamacpp(address: Address, options: EngineOptions) -> LlamaCppEngine:
    """`<file.gguf>` in this process."""
    import llama_cpp

    file = Path(address.rest)
    if not file.is_file():
        raise InputError(f"file {address.rest} does not exist.")
    layers = 0 if options.device == "cpu" else -1  # -1: all of them, where this build has a GPU
    threads = int(os.environ.get("OMP_NUM_THREADS") or cores())  # as torch counts them, so that both are alike
    pace = {"n_threads": threads, "n_threads_batch": threads}
    llama = llama_cpp.Llama(str(file), n_ctx=CONTEXT, n_batch=BATCH, n_gpu_layers=layers, verbose=False, **pace)
    return LlamaCppEngine(llama_cpp, llama, Encoder(gguf_tokenizer(file), file.name), file)


def _embedded_name(digest: str) -> str | None:
    """The embedded model of this content that `hf` has on this disk already."""
    return next((m.name for m in EMBEDDED.values() if m.gguf_sha256 == digest and is_present(m)), None)


def _trained_context(metadata: dict[str, str]) -> int:
    return int(metadata.get(f"{metadata.get('general.architecture')}.context_length", CONTEXT))


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


KINDS = (
    Kind(
        "llamacpp",
        open_llamacpp,
        takes="ids",
        listed=(Listing("llamacpp:<file.gguf>", "distribution"),),
        options=frozenset({"device"}),
        needs=lambda rest: ("llama_cpp", "transformers", "gguf"),
        reads="answers",
    ),
)
