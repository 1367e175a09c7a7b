"""Engine `vllm` offline, against a module that mimics the documented calls and computes with transformers.

`make test-vllm` runs the last part against the real thing, where it is installed.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from steadyscore.engines import Engine, EngineOptions
from steadyscore.engines.http import Unusable
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.checks import TOLERANCE, compare, compare_readout, probe_prompts
from steadyscore.errors import InputError, MissingExtra, ModelError
from steadyscore.models.embedded import model_path
from steadyscore.readers.reader import VERDICTS, Reader, build_question, encode_question, open_reader
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING, TASKS
from steadyscore.terms import Candidate, Instance, Window
from steadyscore.window.readout import grade_distribution, score
from tests.helpers.paths import ROOT
from tests.helpers.pools import a_card


class Row:
    """What vLLM tells of a position: its k likeliest tokens and the one that stands there, made when it is looked at."""

    def __init__(self, told, token, k):
        self.told, self.token, self.k = told, token, k

    def __getitem__(self, token):
        return SimpleNamespace(logprob=float(self.told[token]))

    def items(self):
        return [(token, self[token]) for token in {self.token, *self.told.topk(self.k).indices.tolist()}]


@pytest.fixture
def vllm(monkeypatch, tiny_engine):
    """`LLM(runner="pooling", convert="classify", hf_overrides=...).encode(..., pooling_task="token_classify")`."""
    calls = {}

    class LLM:
        def __init__(self, model, **options):
            calls.update(options, model=model)
            self.llm_engine = SimpleNamespace(
                model_config=SimpleNamespace(max_model_len=4096, runner_type=options["runner"]),
                vllm_config=SimpleNamespace(use_v2_model_runner=calls.get("v2", False)),
            )
            tokens = options.get("hf_overrides", {}).get("classifier_from_token", [])
            self.rows = tiny_engine.encoder.tokenizer.convert_tokens_to_ids(tokens)

        def encode(self, prompts, *, pooling_task, lora_request=None, use_tqdm=True):
            assert pooling_task == "token_classify"
            calls["lora"] = lora_request
            return [SimpleNamespace(outputs=SimpleNamespace(data=self.pool(p["prompt_token_ids"]))) for p in prompts]

        def pool(self, ids):
            with torch.inference_mode():
                logits = tiny_engine.model(torch.tensor([ids])).logits[0]
            return logits[:, self.rows].float().softmax(-1)[calls.get("cached", 0) :]

        def generate(self, prompts, sampling, *, lora_request=None, use_tqdm=True):
            calls["lora"] = lora_request
            each = sampling if isinstance(sampling, list) else [sampling] * len(prompts)
            return [self.continued(p["prompt_token_ids"], **s) for p, s in zip(prompts, each, strict=True)]

        def continued(self, ids, temperature, max_tokens, prompt_logprobs=None, detokenize=True, **scored):
            assert temperature == 0
            with torch.inference_mode():
                told = tiny_engine.model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
            return SimpleNamespace(
                outputs=[SimpleNamespace(text=tiny_engine.generate([ids], max_tokens)[0] if detokenize else "")],
                prompt_logprobs=[None, *(Row(told[i], token, prompt_logprobs or 0) for i, token in enumerate(ids[1:]))],
                prompt_token_id_logprobs=self.scored(ids, told, **scored) if scored and not calls.get("cached") else None,
            )

        def scored(self, ids, told, prompt_logprob_start, prompt_logprob_token_ids):
            assert len(prompt_logprob_token_ids) == len(ids) - 1 - prompt_logprob_start
            rows = enumerate(prompt_logprob_token_ids, prompt_logprob_start)
            return np.array([[float(told[i, token]) for token in wanted] for i, wanted in rows])

    modules = {name: ModuleType(name) for name in ("vllm", "vllm.config", "vllm.lora", "vllm.lora.request")}
    modules["vllm"].LLM = LLM
    modules["vllm"].SamplingParams = lambda **options: options
    modules["vllm.config"].PoolerConfig = lambda **options: options
    modules["vllm.lora.request"].LoRARequest = lambda name, number, path: (name, number, path)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_the_model_is_loaded_as_a_classifier_over_its_grade_tokens(vllm, tiny_folder):
    engine = open_engine(f"vllm:{tiny_folder}")
    assert isinstance(engine, Engine)
    assert vllm["hf_overrides"] == {
        "architectures": ["LlamaForSequenceClassification"],
        "classifier_from_token": ["0", "1", "2", "3"],
        "method": "no_post_processing",
        "num_labels": 4,
    }
    assert (vllm["runner"], vllm["convert"]) == ("pooling", "classify")
    assert "enable_lora" not in vllm


def test_a_reader_is_loaded_to_generate_and_reads_as_hf_does(vllm, tiny_engine, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    engine = open_reader(f"vllm:{tiny_folder}", None)
    assert vllm["runner"] == "generate"
    assert "hf_overrides" not in vllm
    pool = Instance("q1", "Is it so?", tuple(Candidate(f"d{i}", f"evidence {i}") for i in range(3)), answers=("yes",))
    for task in ("claim_verification", "multidoc_qa"):
        evidence = [[0, 1], [2, 0], [1]]
        assert Reader(engine, TASKS[task]).read(pool, evidence) == Reader(tiny_engine, TASKS[task]).read(pool, evidence)
    prompts = [
        encode_question(engine.encoder, build_question(TASKS["claim_verification"], c, pool.pool)) for c in ("a claim", "another")
    ]
    labels = [engine.encoder.plain(label) for label in VERDICTS]
    plain = tiny_engine.label_log_probabilities(prompts, labels)
    assert engine.label_log_probabilities(prompts, labels) == pytest.approx(plain, abs=1e-4)
    monkeypatch.setattr(engine, "context", 100)
    with pytest.raises(InputError, match="evidence of query q1 does not fit"):
        Reader(engine, TASKS["multidoc_qa"]).read(pool, [[0, 1, 2]])


def test_a_vllm_reader_without_vllm_is_told_what_to_install(tiny_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[vllm\]"):
        open_reader(f"vllm:{tiny_folder}", EngineOptions(concurrency=7))


def test_it_passes_the_parity_gate(vllm, tiny_folder, tiny_engine):
    found = compare(open_engine(f"vllm:{tiny_folder}"), tiny_engine)
    assert found.passed
    assert found.difference < 1e-5
    assert found.reference == f"hf:{tiny_folder}"
    assert np.isnan(found.label_mass)


# -- routes


@pytest.mark.parametrize("route", ["token-ids", "top-k"])
def test_log_probability_routes_read_what_hf_reads_with_the_label_mass(vllm, tiny_engine, tiny_folder, route, monkeypatch):
    monkeypatch.setattr("steadyscore.engines.vllm.TOP", 272)  # the whole vocabulary of the tiny model
    vllm["v2"] = True
    engine = open_engine(f"vllm+{route}:{tiny_folder}")
    assert vllm["runner"] == "generate"
    found = compare(engine, tiny_engine)
    assert found.difference < 1e-5
    assert found.label_mass == pytest.approx(compare_readout(tiny_engine).label_mass, abs=1e-5)
    assert engine.name == f"vllm+{route}:{tiny_folder}"
    assert engine.identity()["route"] == route
    assert engine.capabilities.distribution == ("exact" if route == "token-ids" else "top_k")
    assert engine.context == 4095  # one token is generated


def test_the_best_route_is_taken_where_none_is_named(vllm, tiny_folder, tmp_path):
    from tests.helpers.models import byte_tokenizer, tiny_causal

    assert open_engine(f"vllm:{tiny_folder}").identity()["route"] == "classifier"
    tiny_causal("granite").save_pretrained(tmp_path)  # divides its logits after the output matrix
    byte_tokenizer().save_pretrained(tmp_path)
    assert open_engine(f"vllm:{tmp_path}", check_parity=False).identity()["route"] == "top-k"
    vllm["v2"] = True
    assert open_engine(f"vllm:{tmp_path}", check_parity=False).identity()["route"] == "token-ids"


def test_a_grade_that_is_not_among_the_likeliest_is_an_error_with_slot_and_token(vllm, tiny_folder, monkeypatch):
    monkeypatch.setattr("steadyscore.engines.vllm.TOP", 1)
    engine = open_engine(f"vllm+top-k:{tiny_folder}", check_parity=False)
    prompts = probe_prompts(engine)
    with pytest.raises(Unusable, match=r"slot 1 of 3: grade token (\d+, )*\d+ is not among.*use route classifier or token-ids"):
        engine.grade_logits(prompts)


def test_a_named_route_that_the_runner_lacks_is_refused(vllm, tiny_folder):
    with pytest.raises(ModelError, match="needs vLLM's V2 model runner"):
        open_engine(f"vllm+token-ids:{tiny_folder}")
    with pytest.raises(InputError, match="Known: classifier, token-ids, top-k"):
        open_engine(f"vllm+fast:{tiny_folder}")


@pytest.mark.parametrize("route", ["classifier", "token-ids"])
def test_rows_that_a_prefix_cache_left_out_are_noticed(vllm, tiny_folder, route):
    vllm["v2"] = True
    engine = open_engine(f"vllm+{route}:{tiny_folder}")
    vllm["cached"] = 16
    with pytest.raises(ModelError, match="vLLM gave"):
        engine.grade_logits(probe_prompts(engine))


# -- adapters


@pytest.fixture
def adapter(tiny_engine, tmp_path):
    """An adapter folder as far as this side looks into it."""

    def written(weights="", rank=12):
        card = a_card(
            base={"model": "tiny", "weights": weights or tiny_engine.identity()["weights"]},
            settings={"prompt": "compact", "chars": 240},
            prompt_hash="0123",
            grade_tokens=[1, 2, 3, 4],
        )
        (tmp_path / "card.json").write_text(card)
        (tmp_path / "adapter_config.json").write_text(json.dumps({"r": rank}))
        (tmp_path / "adapter_model.safetensors").write_bytes(b"")
        return tmp_path

    return written


def test_an_adapter_is_passed_by_path_with_a_rank_that_vllm_takes(vllm, tiny_folder, adapter):
    folder = adapter(rank=12)
    engine = open_engine(f"vllm:{tiny_folder}+{folder}", check_parity=False)
    assert (vllm["enable_lora"], vllm["max_lora_rank"]) == (True, 16)
    engine.grade_logits(probe_prompts(engine)[:1])
    assert vllm["lora"] == (folder.name, 1, str(folder))
    assert engine.trained_settings == {"prompt": "compact", "chars": 240}
    assert engine.identity()["adapter"]["prompt_hash"] == "0123"  # what an audit compares with its own prompt
    with pytest.raises(ModelError, match="not an adapter folder"):
        open_engine(f"vllm:{tiny_folder}+{folder / 'none'}")
    with pytest.raises(ModelError, match="rank 600; vLLM takes at most 512"):
        open_engine(f"vllm:{tiny_folder}+{adapter(rank=600)}")


def test_an_adapter_of_another_base_is_refused_before_anything_is_loaded(vllm, tiny_folder, adapter):
    folder = adapter(weights="0123456")
    with pytest.raises(ModelError, match="trained for tiny @ 0123456"):
        open_engine(f"vllm:{tiny_folder}+{folder}")
    assert "model" not in vllm
    open_engine(f"vllm:{tiny_folder}+{folder}", EngineOptions(allow_base_mismatch=True), check_parity=False)


# -- the real vLLM: `make test-vllm`, with the third-party CPU build or on a GPU; nothing here depends on it

MODEL, TUNED = "smollm2-135m", ROOT / "lab" / "warm-start"
"""The embedded model, and an adapter of it that was trained behind the compact prompt."""
TEXTS = (
    "Short waves of light scatter more in air than long ones, so the daytime sky looks blue.",
    "The ferry leaves the harbour at nine and at noon.",
    "Blue paint was once made from a stone that had to be carried over mountains for months.",
    "Why is the sky blue: a book for children, with pictures.",
    "Clouds are white because drops of water scatter all colours alike.",
)


def windows(plain):
    """A pool of five for two queries in two orders, as the adapter wants it presented."""
    scorer = Scorer(plain, PASSAGE_RERANKING, Settings(**plain.trained_settings | {"width": len(TEXTS)}))
    pool = tuple(Candidate(f"d{i}", text) for i, text in enumerate(TEXTS))
    asked = [Instance("q", query, pool) for query in ("why is the sky blue", "when does the ferry leave")]
    return [scorer.prompt(instance, Window(0, order)) for instance in asked for order in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0))]


def agrees(engine, reference):
    """Scores within the gate's tolerance, and every ranking and every retained set as `hf` has them."""
    plain = open_engine(reference)
    prompts = windows(plain)
    mine, theirs = (np.array([score(grade_distribution(r.logits)) for r in e.grade_logits(prompts)]) for e in (engine, plain))
    difference = np.abs(mine - theirs).max()
    rankings = np.array_equal(np.argsort(-mine, kind="stable"), np.argsort(-theirs, kind="stable"))
    retained = np.array_equal(mine >= 0.5, theirs >= 0.5)
    print(f"\n{engine.name}: {difference:.1e} from {reference}; rankings equal {rankings}, retained sets equal {retained}")
    return difference <= TOLERANCE["float32"] and rankings and retained


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("address", [f"vllm:{MODEL}", f"vllm:{MODEL}+{TUNED}", f"vllm+token-ids:{MODEL}", f"vllm+top-k:{MODEL}"])
def test_the_real_vllm_decides_as_hf_does(address):
    pytest.importorskip("vllm")
    try:
        engine = open_engine(address, check_parity=False)
    except ModelError as refusal:
        pytest.skip(str(refusal))  # the CPU build has no V2 runner
    assert agrees(engine, engine.reference)


@pytest.fixture(scope="module")
def running():
    """`vllm serve` as docs/engines.md starts it, with the adapter under the name `tuned`; its address."""
    pytest.importorskip("vllm")
    from steadyscore.engines.served import load_encoder
    from steadyscore.engines.vllm import classifier_overrides

    folder, port = str(model_path(MODEL)), free_port()
    overrides = json.dumps(classifier_overrides("LlamaForCausalLM", load_encoder(folder, EngineOptions())))
    flags = "--runner pooling --convert classify --no-enable-prefix-caching --dtype float32 --enable-lora --max-lora-rank 8"
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", folder, "--served-model-name", MODEL, *flags.split()]
    command += ["--pooler-config", '{"task": "token_classify"}', "--hf-overrides", overrides]
    server = subprocess.Popen([*command, "--lora-modules", f"tuned={TUNED}", "--host", "127.0.0.1", "--port", str(port)])
    try:
        until_healthy(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def free_port():
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        return probe_socket.getsockname()[1]


def until_healthy(url, server, seconds=1800):
    for _ in range(seconds):
        assert server.poll() is None, "vllm serve ended"
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    raise AssertionError(f"{url} did not answer within {seconds} s")


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize(("model", "reference"), [(MODEL, f"hf:{MODEL}"), ("tuned", f"hf:{MODEL}+{TUNED}")])
def test_a_real_vllm_server_decides_as_hf_does(running, model, reference):
    engine = open_engine(f"vllm:{model}@{running}", EngineOptions(concurrency=2))
    assert engine.identity()["route"] == "classifier"
    assert agrees(engine, reference)
