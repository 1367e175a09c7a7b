"""A synthetic relevance language, its tokenizer and tiny decoders: what the training tests run on.

A query is nine words; a document is ten words, some of which are the query's: its grade is how much of the query it
answers, a third of a point a word. The tokenizer knows these words, the markers and the prompt's own furniture, each as one
token, so that a window of five is some 100 tokens and a decoder of 60,000 weights can learn it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

WORDS = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u")]
FURNITURE = ["<u>", "<a>", "<ask>", "<docs>", "<rubric>", "<grades>", "<slot>", "Query", "\n", "?"]
MARKERS = [str(i) for i in range(21)] + [chr(ord("A") + i) for i in range(20)] + [f"Doc-{i}" for i in range(1, 21)]
TEMPLATE = "{% for m in messages %}{% if m['role'] == 'user' %}<u>{{ m['content'] }}<a>{% endif %}{% endfor %}"
LENGTH, QUERY = 10, 9


def tokenizer() -> Any:
    """A word-level tokenizer whose normaliser folds each fixed text of the prompt into one word."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[UNK]", "[PAD]", *FURNITURE, *MARKERS, *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    folds = [
        (r"\n\nEvaluate(.|\n)*", " <rubric> "),
        (r"\] Grade: ", " <slot> "),
        (r"Grades:\n", " <grades> "),
        (r"\n\n(Documents|Passages|Responses):", " <docs> "),
        (r"Instruction:", " <ask> "),
        (r"[\[\]:]", " "),
    ]
    inner.normalizer = normalizers.Sequence([normalizers.Replace(Regex(pattern), to) for pattern, to in folds])
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Split(Regex(" +"), "removed")]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]")  # unknown words stay ordinary text
    fast.chat_template = TEMPLATE
    return fast


def decoder(family: str = "llama", *, layers: int = 2, hidden: int = 32, seed: int = 0) -> Any:
    """A randomly initialised decoder of one of the paper's families; gemma4 also sees, as the published checkpoints do."""
    import torch
    from transformers import AutoModelForCausalLM, Gemma3TextConfig, GraniteConfig, LlamaConfig, Qwen3Config, Qwen3MoeConfig

    shape = {
        "vocab_size": len(FURNITURE) + len(MARKERS) + len(WORDS) + 2,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": hidden // 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 1,
    }
    experts = {"num_experts": 4, "moe_intermediate_size": hidden // 2}
    config = {
        "llama": lambda: LlamaConfig(**shape),
        "qwen3": lambda: Qwen3Config(**shape),
        "qwen3-moe": lambda: Qwen3MoeConfig(**shape, **experts, num_experts_per_tok=2),
        "gemma3": lambda: Gemma3TextConfig(**shape),
        "gemma4": lambda: gemma4(shape),
        "gemma4-moe": lambda: gemma4(shape | experts | {"enable_moe_block": True, "top_k_experts": 2}),
        "granite": lambda: GraniteConfig(**shape),
    }[family]()
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def gemma4(shape: dict[str, Any]) -> Any:
    """A language model, and a vision tower whose projections have the same names."""
    from transformers import Gemma4Config

    layers = shape["num_hidden_layers"]
    text = shape | {
        "global_head_dim": shape["head_dim"],
        "layer_types": ["sliding_attention"] * (layers - 1) + ["full_attention"],
        "vocab_size_per_layer_input": shape["vocab_size"],
        "hidden_size_per_layer_input": 8,
    }
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8}
    return Gemma4Config(text_config=text, vision_config=vision | {"num_key_value_heads": 2}, audio_config=None)


def save(folder: Path, model: Any) -> Path:
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def document(random: np.random.Generator, query: np.ndarray, others: np.ndarray, answered: int) -> str:
    """Ten words in any order, `answered` of them the query's."""
    words = [*random.choice(query, answered, replace=False), *random.choice(others, LENGTH - answered, replace=False)]
    return " ".join(WORDS[w] for w in random.permutation(words))


def instances(count: int, pool: int, seed: int, first_stage: float = 0.5) -> Iterator[dict[str, Any]]:
    """Queries with a graded pool. The first stage sorts by grade plus noise: the better, the smaller the noise."""
    random = np.random.default_rng(seed)
    for number in range(count):
        query = random.choice(len(WORDS), QUERY, replace=False)
        others = np.setdiff1d(np.arange(len(WORDS)), query)
        answered = random.permutation(np.arange(pool) % (QUERY + 1))
        answered = answered[np.argsort(-(answered * first_stage + random.normal(size=pool)), kind="stable")]
        texts = [document(random, query, others, count) for count in answered]
        names = random.permutation(pool)  # ids say nothing about the rank, so ties do not favour the first stage
        candidates = [
            {"id": f"d{names[i]}", "text": text, "relevance": int(count) // 3, "rank": i + 1}
            for i, (text, count) in enumerate(zip(texts, answered, strict=True))
        ]
        yield {"id": f"q{seed}-{number}", "query": " ".join(WORDS[w] for w in query), "candidates": candidates}


def write_collection(file: Path, count: int, pool: int, seed: int, **how: Any) -> Path:
    header = {"collection": {"name": file.stem, "task": "passage_reranking", "instruction": "?", "chars": 200}}
    lines = [header, *instances(count, pool, seed, **how)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def train_adapter(config: Any) -> Any:
    """The card of an adapter that this run makes, silently."""
    from steadyscore.training.check import checked_data
    from steadyscore.training.loop import train_adapter

    return train_adapter(checked_data(config), quiet=True)
