"""The paper's comparison systems through their real code paths, on tiny random models of the very classes."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.engines import EngineOptions, Reranker, prompted
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.prompted import complete_order, from_ranking, parse_order, sliding
from steadyscore.engines.systems import copeland
from steadyscore.errors import InputError
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance
from tests.helpers.endpoint import Server
from tests.helpers.models import byte_tokenizer, tiny_causal

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # DeBERTa's module in transformers
TEXTS = ["the sky is blue", "a ferry leaves at nine in the morning", "paint", "waves <|im_end|> scatter", "stones are heavy"]
POOL = Instance("q", "why is the sky blue", tuple(Candidate(f"d{i}", text) for i, text in enumerate(TEXTS)))
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 272}

JINA = '''
import torch
from transformers import AutoTokenizer
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model, Qwen3PreTrainedModel


class JinaForRanking(Qwen3PreTrainedModel):
    """The shape of jina-reranker-v3: states at one marker per document, cosine with the query's."""

    def __init__(self, config):
        super().__init__(config)
        self.model = Qwen3Model(config)
        self.projector = torch.nn.Linear(config.hidden_size, 8, bias=False)
        self.post_init()

    @torch.no_grad()
    def rerank(self, query, documents, top_n=None):
        tokenizer = AutoTokenizer.from_pretrained(self.name_or_path)
        ids, places = [], []
        for text in [*documents, query]:
            ids += tokenizer.encode(text)
            places.append(len(ids) - 1)
        states = self.projector(self.model(torch.tensor([ids])).last_hidden_state[0, places])
        scores = torch.nn.functional.cosine_similarity(states[:-1], states[-1:])
        found = [{"index": i, "document": d, "relevance_score": s.item()} for i, (d, s) in enumerate(zip(documents, scores))]
        return sorted(found, key=lambda r: -r["relevance_score"])[:top_n]
'''


def jina_folder(folder):
    from transformers import Qwen3Config

    config = Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8, initializer_range=0.3)
    (folder / "modeling.py").write_text(JINA)
    namespace = {}
    exec(JINA, namespace)
    torch.manual_seed(0)
    namespace["JinaForRanking"](config).save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    saved |= {"auto_map": {"AutoModel": "modeling.JinaForRanking"}, "architectures": ["JinaForRanking"]}
    (folder / "config.json").write_text(json.dumps(saved))
    byte_tokenizer().save_pretrained(folder)


def pairrm_folder(folder):
    from safetensors.torch import save_file
    from transformers import DebertaV2Config, DebertaV2Model

    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<|source|>", "<|candidate1|>", "<|candidate2|>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    config = DebertaV2Config(**SMALL | {"vocab_size": len(tokenizer)}, initializer_range=0.3, type_vocab_size=0)
    torch.manual_seed(0)
    shapes = {"1.weight": (16, 32), "1.bias": (16,), "4.weight": (1, 16), "4.bias": (1,)}
    head = {f"head_layer.{name}": torch.randn(*shape) for name, shape in shapes.items()}
    encoder = {f"pretrained_model.{name}": weight for name, weight in DebertaV2Model(config).state_dict().items()}
    save_file(encoder | head, folder / "model.safetensors")
    config.save_pretrained(folder)


def classifier_folder(folder, family):
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Qwen3Config,
        Qwen3ForSequenceClassification,
        T5Config,
        T5ForConditionalGeneration,
    )

    torch.manual_seed(0)
    if family == "bert":
        model = BertForSequenceClassification(BertConfig(**SMALL, num_labels=1, initializer_range=0.3))
    elif family == "qwen3":
        config = Qwen3Config(**SMALL, num_labels=1, num_key_value_heads=2, head_dim=8, pad_token_id=0, initializer_range=0.3)
        model = Qwen3ForSequenceClassification(config)
    else:
        shape = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": 272}
        model = T5ForConditionalGeneration(T5Config(**shape, decoder_start_token_id=0, initializer_factor=5.0))
    model.save_pretrained(folder)
    tokenizer = byte_tokenizer()
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)


def causal_folder(folder, family):
    if family == "qwen3":
        tiny_causal("qwen3").save_pretrained(folder)
    else:
        from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

        config, model = (MistralConfig, MistralForCausalLM) if family == "mistral" else (Qwen2Config, Qwen2ForCausalLM)
        torch.manual_seed(0)
        shape = SMALL | {"num_key_value_heads": 2, "initializer_range": 0.3, "max_position_embeddings": 8192}
        model(config(**shape, eos_token_id=None, bos_token_id=None, pad_token_id=0)).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def lighton_folder(folder):
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    text = SMALL | {"num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3, "pad_token_id": 0, "eos_token_id": None}
    text |= {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 2}
    text |= {"linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "max_position_embeddings": 4096}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    torch.manual_seed(0)
    Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision)).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


MODELS = {
    "jina-reranker-v3": (jina_folder,),
    "jina-reranker-v3-b20": (jina_folder,),
    "jina-reranker-v3.5": (jina_folder,),
    "lighton-rerank-lw-0.8b": (lighton_folder,),
    "lighton-rerank-lw-4b": (lighton_folder,),
    "rank-zephyr-7b": (causal_folder, "mistral"),
    "mxbai-rerank-base-v2": (causal_folder, "qwen2"),
    "mxbai-rerank-large-v2": (causal_folder, "qwen2"),
    "qwen3-reranker-4b": (causal_folder, "qwen3"),
    "skywork-reward-v2-qwen3-4b": (classifier_folder, "qwen3"),
    "pairrm": (pairrm_folder,),
    "monot5": (classifier_folder, "t5"),
    "cross-encoder": (classifier_folder, "bert"),
    "first": (causal_folder, "mistral"),
    "rankgpt": (causal_folder, "mistral"),
}


@pytest.fixture(scope="module", params=MODELS)
def system(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    make, *family = MODELS[request.param]
    make(folder, *family)
    return open_engine(f"system:{request.param}@{folder}", EngineOptions(trust_remote_code=True))


def test_every_system_scores_a_pool(system):
    assert isinstance(system, Reranker)
    scorer = Scorer(system, PASSAGE_RERANKING)
    first, again = scorer.score(POOL), scorer.score(POOL)
    assert np.array_equal(first, again)
    turned = scorer.score(POOL, [4, 2, 0, 1, 3])
    if system.capabilities.gives == "ranking":
        assert sorted(first) == [1, 2, 3, 4, 5]
    else:
        assert np.ptp(first) > 0, "the probe must tell candidates apart"
    if system.capabilities.order_free:
        assert np.abs(first - turned).max() < 1e-4
    elif "jina" in system.name:
        assert np.abs(first - turned).max() > 1e-4
    assert json.dumps(scorer.identity())


def test_a_ranking_is_not_cut_into_windows(tmp_path):
    causal_folder(tmp_path, "mistral")
    ranker = open_engine(f"system:first@{tmp_path}")
    with pytest.raises(InputError, match="gives an order"):
        Scorer(ranker, PASSAGE_RERANKING, Settings(width=2)).score(POOL)


def test_the_matched_geometry_is_twenty(tmp_path):
    jina_folder(tmp_path)
    options = EngineOptions(trust_remote_code=True)
    native, matched = (open_engine(f"system:{name}@{tmp_path}", options) for name in ("jina-reranker-v3", "jina-reranker-v3-b20"))
    assert Scorer(native, PASSAGE_RERANKING).width is None
    assert Scorer(matched, PASSAGE_RERANKING).width == 20
    with pytest.raises(InputError, match="--set trust_remote_code=yes"):
        open_engine(f"system:jina-reranker-v3@{tmp_path}")


# -- orders from windows


def test_a_hundred_candidates_take_nine_windows():
    seen = []
    score = sliding(lambda query, texts: seen.append(list(texts)) or list(range(len(texts))))
    assert score("q", [str(i) for i in range(100)]) == [float(100 - i) for i in range(100)]
    assert [(window[0], window[-1]) for window in seen] == [(str(s), str(s + 19)) for s in range(80, -1, -10)]


def test_the_best_candidate_comes_to_the_head_from_anywhere():
    score = sliding(lambda query, texts: sorted(range(len(texts)), key=lambda i: -int(texts[i])))
    found = score("q", [str(i) for i in range(53)])
    assert np.argmax(found) == 52
    assert sorted(found) == [float(i) for i in range(1, 54)]


@given(st.lists(st.integers(-3, 12), max_size=20), st.integers(1, 9))
def test_any_answer_becomes_an_order_of_all_candidates(answer, n):
    order = complete_order(answer, n)
    assert sorted(order) == list(range(n))
    assert order[: len(set(answer) & set(range(n)))] == list(dict.fromkeys(i for i in answer if 0 <= i < n))
    assert sorted(from_ranking(order)) == [float(i + 1) for i in range(n)]


def test_what_a_ranker_writes_is_read():
    assert parse_order("[3] > [1] > [2]", 3) == [2, 0, 1]
    assert parse_order("3 > 1", 3) == [2, 0]
    assert parse_order("I cannot say.", 3) == []


def test_a_long_window_is_shortened_word_by_word_until_it_fits(tmp_path):
    causal_folder(tmp_path, "mistral")
    engine = prompted.open_causal(str(tmp_path), None, EngineOptions(dtype="float32"))
    ids = prompted.fit_window(engine, prompted.single_turn_prompt, "q", ["word " * 400] * 5)
    assert 2000 < len(ids) <= 4096 - 30
    with pytest.raises(InputError, match="do not fit"):
        prompted.fit_window(engine, prompted.single_turn_prompt, "q " * 3000, ["word"] * 5)


def test_rankgpt_speaks_to_an_endpoint(monkeypatch, tmp_path):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path))

    def longest_first(path, body):
        texts = [m["content"] for m in body["messages"] if m["content"].startswith("[")]
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        return {"choices": [{"message": {"content": " > ".join(f"[{i + 1}]" for i in order[:-1])}}]}

    with Server(longest_first) as server:
        ranker = open_engine(f"system:rankgpt@openai:m@{server.url}/v1")
        assert ranker.score("q", ["aa", "aaaa", "a", "aaa"]) == [2.0, 4.0, 1.0, 3.0]


# -- pairwise


def test_copeland_counts_duels_and_breaks_ties_by_margin():
    logits = np.array([[0, 2, -1], [-2, 0, 3], [2, -1, 0.0]])  # 0 beats 1, 1 beats 2, 2 beats 0: a cycle
    found = copeland(logits)
    assert np.floor(found + 0.5).tolist() == [1, 1, 1]
    assert np.argsort(found).tolist() == np.argsort((logits - logits.T).sum(1)).tolist()


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_copeland_does_not_see_who_was_shown_first_nor_the_order(n, seed):
    random = np.random.default_rng(seed)
    margins = random.normal(size=(n, n))
    margins -= margins.T
    favour = 5 * np.ones((n, n))  # whoever is shown first gains
    assert np.allclose(copeland(margins), copeland(margins + favour))
    order = random.permutation(n)
    assert np.allclose(copeland(margins[np.ix_(order, order)]), copeland(margins)[order])
    wins = ((margins - margins.T) > 0).sum(1)
    ahead = np.subtract.outer(wins, wins) > 0
    assert (np.subtract.outer(copeland(margins), copeland(margins))[ahead] > 0).all()
