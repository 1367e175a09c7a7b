"""A tiny chat model of each family, with random weights over bytes."""

from __future__ import annotations

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(chat_template: str | None = CHAT, **extra_tokens: str):
    """A byte-level tokenizer with ChatML markup: every digit is one token, any text can be encoded."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")])
    inner.add_tokens([AddedToken(t, special=False, normalized=False) for t in ("<think>", "</think>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<|endoftext|>", eos_token="<|im_end|>")
    fast.chat_template = chat_template
    return fast


def tiny_causal(family: str = "llama", seed: int = 0, **shape):
    """A randomly initialised decoder over the byte vocabulary."""
    import torch
    from transformers import (
        AutoModelForCausalLM,
        Gemma2Config,
        Gemma3TextConfig,
        GraniteConfig,
        LlamaConfig,
        Qwen3Config,
    )

    kinds = {
        "llama": LlamaConfig,
        "qwen3": Qwen3Config,
        "gemma2": Gemma2Config,
        "gemma3": Gemma3TextConfig,
        "granite": GraniteConfig,
    }
    extra = {"granite": {"logits_scaling": 4.0}, "gemma2": {"final_logit_softcapping": 5.0, "query_pre_attn_scalar": 8}}
    config = kinds[family](
        **{
            "vocab_size": 272,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 4096,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": 0,
            "initializer_range": 0.3,
            **extra.get(family, {}),
            **shape,
        }
    )
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)
