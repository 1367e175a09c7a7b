"""What several test files share: a tiny chat model, a real one, runs made by a synthetic scorer."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell put in the background: Ctrl-C is tested too
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("shared") and not SHARED.is_dir():
        pytest.skip("../shared/data is not here: it is for development, not part of the product")


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


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny chat model on disk, as `hf:<folder>` opens it."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny_causal().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_engine(tiny_folder: Path):
    from steadyscore.engines import open_engine

    return open_engine(f"hf:{tiny_folder}")


@pytest.fixture(scope="session")
def smollm2():
    """The embedded model, for the few tests that need a real one."""
    from steadyscore.engines import open_engine
    from steadyscore.models.embedded import EMBEDDED, is_present

    if not is_present(EMBEDDED["smollm2-135m"]):
        pytest.skip("the embedded model is not in the cache; `make setup` fetches it")
    return open_engine("smollm2-135m")


def a_card(**facts) -> str:
    """card.json of the shipped adapter, with other facts."""
    from steadyscore.models.embedded import shipped_adapters

    return json.dumps(json.loads((shipped_adapters()["smollm2-135m-oc"] / "card.json").read_text()) | facts)


def write_collection(file: Path, instances: list[dict], **header) -> Path:
    lines = [{"collection": {"name": file.stem, "task": "passage_reranking", **header}}, *instances]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def some_claims(folder: Path, queries: int = 3, candidates: int = 6) -> str:
    """A collection of claims, one of each verdict in turn."""
    rows = [
        {
            "id": f"c{q}",
            "query": f"thing {q} is blue",
            "verdict": ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")[q % 3],
            "candidates": [
                {"id": f"d{c}", "text": f"thing {q} note {c} " + "word " * c, "relevance": c % 2} for c in range(candidates)
            ],
        }
        for q in range(queries)
    ]
    return str(write_collection(folder / "claims.jsonl", rows, task="claim_verification"))


def some_instances(queries: int = 4, candidates: int = 6) -> list[dict]:
    """Small graded pools with distinct texts."""
    return [
        {
            "id": f"q{q}",
            "query": f"what is thing {q}",
            "candidates": [
                {"id": f"d{c}", "text": f"thing {q} number {c} " + "word " * (c + 1), "relevance": (c + q) % 4}
                for c in range(candidates)
            ],
        }
        for q in range(queries)
    ]


@pytest.fixture
def collection_file(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "pools.jsonl", some_instances())


CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
QUIET = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


def open_chromium(profile: Path):
    """Debian's chromium without a network of its own, with console and requests logged; skips where it is absent."""
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium and chromedriver are not here: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*QUIET, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))
