"""The paper's comparison systems against the libraries that own them, on tiny random models of the very classes.

sentence-transformers is in the test environment; rank_llm and llm-blender are not, and their tests say so.
"""

import json
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from steadyscore.engines import EngineOptions, prompted, systems
from steadyscore.engines.kinds import open_engine
from tests.engines.test_systems import TEXTS, causal_folder, classifier_folder, lighton_folder, pairrm_folder
from tests.helpers.models import byte_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")
QUERY = "why is the sky blue"
PLAIN = [text.replace("<|im_end|> ", "") for text in TEXTS]


def largest_difference(first, second):
    difference = float(np.abs(np.array(first) - np.array(second)).max())
    print(f"largest difference {difference:.3g}")
    return difference


@pytest.mark.parametrize(("name", "family"), [("qwen3-reranker-4b", "qwen3"), ("mxbai-rerank-base-v2", "qwen2")])
def test_a_pointwise_reranker_scores_as_sentence_transformers_with_the_same_prompt(tmp_path, name, family):
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules.transformer import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    causal_folder(tmp_path, family)
    how = prompted.QWEN3 if family == "qwen3" else prompted.MXBAI
    between = "".join(how.pieces("{{ messages[0]['content'] }}", "{{ messages[1]['content'] }}"))
    head, tail = (f"{{{{ {json.dumps(text)} }}}}" for text in (how.before, "".join(how.after)))  # jinja drops a last line break
    byte_tokenizer(head + between + tail).save_pretrained(tmp_path)
    model = Transformer(str(tmp_path), transformer_task="text-generation")
    no, yes = (model.tokenizer.encode(word, add_special_tokens=False)[0] for word in how.words)
    end = torch.nn.Sigmoid() if family == "qwen3" else torch.nn.Identity()
    theirs = CrossEncoder(modules=[model, LogitScore(yes, no)], activation_fn=end, device="cpu")
    ours = open_engine(f"system:{name}@{tmp_path}").score(QUERY, PLAIN)
    assert largest_difference(ours, theirs.predict([(QUERY, text) for text in PLAIN], show_progress_bar=False)) < 1e-4


def test_a_cross_encoder_is_sentence_transformers_own(tmp_path):
    from sentence_transformers import CrossEncoder

    classifier_folder(tmp_path, "bert")
    ours = open_engine(f"system:cross-encoder@{tmp_path}").score(QUERY, PLAIN)
    assert ours == CrossEncoder(str(tmp_path)).predict([(QUERY, text) for text in PLAIN]).astype(float).tolist()


def test_pairrm_prefers_as_llm_blender(tmp_path):
    from transformers import AutoConfig, AutoTokenizer

    if (package := find_spec("llm_blender")) is None:
        pytest.skip("llm-blender is not installed")
    spec = spec_from_file_location("pairrm", f"{package.submodule_search_locations[0]}/pair_ranker/pairrm.py")
    library = module_from_spec(spec)  # alone: the rest of llm-blender 0.0.2 needs transformers 4
    spec.loader.exec_module(library)
    pairrm_folder(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    markers = ("source_prefix_id", systems.SOURCE), ("cand1_prefix_id", systems.FIRST), ("cand2_prefix_id", systems.SECOND)
    known = {name: tokenizer.convert_tokens_to_ids(marker) for name, marker in markers}
    config = AutoConfig.from_pretrained(tmp_path)
    config.update({"n_tasks": 1, "drop_out": 0.0, "cand_prefix_id": -1, "sep_token_id": -1} | known)
    theirs = library.DebertaV2PairRM.from_pretrained(tmp_path, config=config).eval()
    margins = np.zeros((len(PLAIN), len(PLAIN)))
    for i, j in np.argwhere(~np.eye(len(PLAIN), dtype=bool)):
        ids = torch.tensor([systems._encode_pair(tokenizer, QUERY, PLAIN[i], PLAIN[j])])
        margins[i, j] = theirs(ids, torch.ones_like(ids), return_dict=True).logits.item()
    ours = open_engine(f"system:pairrm@{tmp_path}").score(QUERY, PLAIN)
    assert largest_difference(ours, systems.copeland(margins)) < 1e-4


def test_lighton_writes_as_the_class_its_card_names(tmp_path):
    from transformers import AutoModelForImageTextToText

    lighton_folder(tmp_path)
    engine = prompted.open_causal(str(tmp_path), None, EngineOptions(dtype="float32"))
    ids = engine.encoder.tokenizer.encode(prompted.lighton_prompt(QUERY, PLAIN[:4]), add_special_tokens=False)
    card = AutoModelForImageTextToText.from_pretrained(tmp_path).eval()
    written = card.generate(torch.tensor([ids]), max_new_tokens=30, do_sample=False, pad_token_id=0)[0, len(ids) :]
    assert engine.generate([ids], 30) == [engine.encoder.tokenizer.decode(written, skip_special_tokens=True)]


# -- rank_llm, whose local models run on vLLM: here on a stand-in that computes with transformers


@pytest.fixture
def rank_llm(monkeypatch):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    class LLM:
        def __init__(self, model, **options):
            self.model, self.tokenizer = AutoModelForCausalLM.from_pretrained(model).eval(), AutoTokenizer.from_pretrained(model)

        def get_tokenizer(self):
            return self.tokenizer

        def generate(self, prompts, sampling):
            """The alternatives behind an opened bracket, which FIRST writes before a letter."""
            return [SimpleNamespace(outputs=[SimpleNamespace(logprobs=[None, self.alternatives(prompt)])]) for prompt in prompts]

        @torch.inference_mode()
        def alternatives(self, prompt):
            ids = self.tokenizer.encode(prompt + "[", add_special_tokens=False)
            found = self.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1).tolist()
            return {i: SimpleNamespace(logprob=p, decoded_token=self.tokenizer.decode([i])) for i, p in enumerate(found)}

    modules = {name: ModuleType(name) for name in ("vllm", "vllm.outputs")}
    modules["vllm"].LLM, modules["vllm"].SamplingParams = LLM, lambda **options: options
    modules["vllm"].RequestOutput = modules["vllm.outputs"].RequestOutput = SimpleNamespace
    lit5 = [f"rank_llm.rerank.listwise.lit5.{name}" for name in ("model", "modeling_t5")]  # which need transformers 4
    modules |= {name: MagicMock() for name in lit5}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return pytest.importorskip("rank_llm.rerank.listwise", reason="rank_llm is not installed")


def request(texts):
    from rank_llm.data import Candidate, Query, Request

    candidates = [Candidate(str(i), 1.0, {"text": text}) for i, text in enumerate(texts)]
    return Request(Query(QUERY, "q"), candidates)


def test_rank_zephyr_is_asked_as_rank_llm_asks(rank_llm, tmp_path):
    causal_folder(tmp_path, "mistral")
    theirs = rank_llm.RankListwiseOSLLM(str(tmp_path), device="cpu", variable_passages=True)
    prompt, _ = theirs.create_prompt(request(PLAIN), 0, len(PLAIN))
    engine = prompted.open_causal(str(tmp_path), None, EngineOptions(dtype="float32"))
    ids = prompted.fit_window(engine, prompted.single_turn_prompt, QUERY, PLAIN)
    assert engine.encoder.tokenizer.decode(ids) == prompt


def test_rankgpt_is_asked_as_rank_llm_asks(rank_llm):
    from rank_llm.rerank.listwise.multiturn_listwise_inference_handler import MultiTurnListwiseInferenceHandler
    from rank_llm.rerank.listwise.rank_listwise_os_llm import TEMPLATES
    from yaml import safe_load

    handler = MultiTurnListwiseInferenceHandler(safe_load((TEMPLATES / "rank_gpt_template.yaml").read_text()))
    theirs = handler.generate_prompt(request(PLAIN), rank_start=0, rank_end=len(PLAIN), max_length=300)
    assert prompted.conversation_prompt(QUERY, PLAIN) == theirs


def test_first_orders_as_rank_llm_does(rank_llm, tmp_path):
    causal_folder(tmp_path, "mistral")
    texts = [f"{PLAIN[i % len(PLAIN)]} {i}" for i in range(32)]
    theirs = rank_llm.RankListwiseOSLLM(str(tmp_path), device="cpu", variable_passages=True, use_logits=True, use_alpha=True)
    [ranked] = theirs.rerank_batch([request(texts)])
    scores = open_engine(f"system:first@{tmp_path}").score(QUERY, texts)
    assert np.argsort(-np.array(scores)).tolist() == [int(candidate.docid) for candidate in ranked.candidates]
    assert scores != sorted(scores, reverse=True)


def test_an_answer_is_read_as_rank_llm_reads_it(rank_llm, tmp_path):
    causal_folder(tmp_path, "mistral")
    theirs = rank_llm.RankListwiseOSLLM(str(tmp_path), device="cpu", variable_passages=True)
    for answer in ("[2] > [1] > [5] > [4] > [3]", "[3] > [3] > [9] > [1]", "4 > 2", "", "[2][1] and so on"):
        ranked = theirs.receive_permutation(request(PLAIN), answer, 0, len(PLAIN))
        ours = prompted.complete_order(prompted.parse_order(answer, len(PLAIN)), len(PLAIN))
        assert ours == [int(candidate.docid) for candidate in ranked.candidates], answer
