"""Set windows: no order changes a grade, before anything is sorted, and every grade is given in sight of the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions, Grader
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local import windows as local_windows
from steadyscore.engines.local.checks import compare_readout, turn_mistake
from steadyscore.engines.local.model import TransformersEngine
from steadyscore.engines.local.shared import SharedBases
from steadyscore.errors import ModelError, WindowTooLong
from steadyscore.integrations import Ranker
from steadyscore.scoring.mitigations import mitigate
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.serve.service import ModelOptions, open_model
from steadyscore.serve.settings import Limits
from steadyscore.tasks import TASKS
from steadyscore.terms import Candidate, Instance, Window
from steadyscore.training.check import config_mistakes
from steadyscore.training.recipe import TrainConfig
from steadyscore.window import set_windows
from steadyscore.window.presentation import generator, permutations
from steadyscore.window.prompt import prompt_hash
from steadyscore.window.readout import grade_distribution, score
from tests.helpers.models import byte_tokenizer, tiny_causal
from tests.helpers.serving import app_of, listening
from tests.helpers.tiny import train_adapter

TASK = TASKS["passage_reranking"]
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "granite", "olmo2", "phi3", "cohere")
SHAPES = {"phi3": {"pad_token_id": 0}, "mistral": {"sliding_window": None}, "granite": {"logits_scaling": 4.0}}


def tiny_model(family: str, seed: int = 0, **shape):
    """A randomly initialised decoder of a family over the byte vocabulary."""
    plain = {
        "vocab_size": 272,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
        "initializer_range": 0.3,
    }
    config = AutoConfig.for_model(family, **plain | SHAPES.get(family, {}) | shape)
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def engine_of(model, **options) -> TransformersEngine:
    identity = {"kind": "hf", "model": "tiny", "weights": None}
    return TransformersEngine(model, byte_tokenizer(), "tiny", EngineOptions(**options), identity)


@pytest.fixture(scope="module")
def engines():
    return {family: engine_of(tiny_model(family)) for family in FAMILIES}


def pool_of(*texts: str) -> Instance:
    return Instance("q", "what is a tide", tuple(Candidate(f"d{i}", text) for i, text in enumerate(texts)))


POOL = pool_of(*(f"text {i}" + " of water and the moon" * (i + 1) for i in range(4)))
words = st.text(st.characters(min_codepoint=32, max_codepoint=1000), max_size=60).map(lambda text: " ".join(text.split()))
pools = st.lists(st.one_of(words, st.sampled_from(["the same text", "", "moon " * 40])), min_size=1, max_size=8)


def unsorted(engine, instance, order):
    """Grade logits in pool order of a window whose blocks stand in the order given."""
    scorer = Scorer(engine, TASK, Settings(prompt="set"))
    prompt = engine.encoder.set_prompt(scorer._text(instance, Window(0, tuple(order)), 1200), is_sorted=False)
    return prompt, np.argsort(order)


def scores_of(logits):
    return score(grade_distribution(logits))


def orders_of(n: int, count: int = 3):
    return [np.arange(n), *permutations(n, count, seed=1, query_id="q")]


# -- the layout


def windows_of_bytes(texts, is_sorted=True):
    ids = [tuple(1 + b for b in text.encode()) for text in texts]
    return set_windows.lay_out((7, 7, 7), ids, (8, 8), (9, 9, 9), (0, 1, 2, 3), is_sorted=is_sorted)


@given(pools)
def test_a_segment_sees_its_own_block_as_read_and_the_others_texts_earlier_and_nothing_else_sees_another(texts):
    prompt = windows_of_bytes(texts)
    tokens = len(prompt)
    own, earlier = set_windows.visible_alone(prompt, tokens), set_windows.visible_earlier(prompt, tokens)
    columns = set_windows.text_tokens(prompt)
    for first, closing, end in prompt.candidates:
        for row in range(first, end):
            assert set(np.flatnonzero(own[row])) == {0, 1, 2, *range(first, row + 1)}
            others = {int(c) for c in columns if not first <= c < closing} if row >= end - 3 else set()
            assert {int(c) for c in columns[earlier[row]]} == others
    assert not earlier[:3].any()


@given(pools)
def test_blocks_begin_at_one_position_and_equal_texts_are_one_member(texts):
    prompt = windows_of_bytes(texts)
    placed = set_windows.positions(prompt, len(prompt))
    assert {int(placed[first]) for first, _, _ in prompt.candidates} == {3}
    assert len(prompt.candidates) == len(set(texts))
    place = set_windows.members(prompt)
    assert all((place[i] == place[j]) == (texts[i] == texts[j]) for i in range(len(texts)) for j in range(len(texts)))


@given(pools, st.integers(0, 99))
def test_any_order_of_the_same_texts_is_the_same_prompt_but_for_its_slots(texts, seed):
    shuffled = [texts[i] for i in generator("shuffle", seed).permutation(len(texts))]
    mine, other = windows_of_bytes(texts), windows_of_bytes(shuffled)
    assert replace(mine, slots=()) == replace(other, slots=())
    assert dict(zip(texts, mine.slots, strict=True)) == dict(zip(shuffled, other.slots, strict=True))


def test_a_set_takes_the_context_of_its_longest_candidate_and_not_of_the_pool(tiny_engine):
    scorer = Scorer(tiny_engine, TASK, Settings(prompt="set"))
    many = pool_of(*(f"number {i} " + "word " * 20 for i in range(60)))
    prompt = scorer.prompt(many, Window(0, tuple(range(60))))
    assert len(prompt) > tiny_engine.context > set_windows.reach(prompt)
    long = pool_of("word " * 2000, "b")
    refusal = r"the longest candidate of query q needs [\d,]+ tokens, the model takes 4,096\. Lower --chars, or"
    with pytest.raises(WindowTooLong, match=refusal):
        Scorer(tiny_engine, TASK, Settings(prompt="set", chars=None)).prompt(long, Window(0, (0, 1)))
    with pytest.raises(WindowTooLong, match=r"the model takes 4,096\. Lower --chars, or"):
        Scorer(tiny_engine, TASK, Settings(prompt="set", chars=None, width=1)).prompt(long, Window(0, (0,)))


# -- order


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=pools)
def test_with_nothing_sorted_every_order_gives_the_same_grades_by_both_ways(engines, family, texts):
    engine, instance = engines[family], pool_of(*texts)
    found = []
    for order in orders_of(len(texts)):
        prompt, back = unsorted(engine, instance, order)
        (fast,), (whole,) = engine.grade_logits([prompt]), engine.slot_logits([prompt])
        np.testing.assert_allclose(scores_of(fast.logits), scores_of(whole.detach().numpy()), atol=1e-5)
        found.append(scores_of(fast.logits)[back])
    assert np.ptp(np.stack(found), axis=0).max() <= 1e-5


@pytest.mark.parametrize("family", [FAMILIES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:])])
def test_a_hundred_candidates_of_very_different_length_agree_in_any_order_and_bit_for_bit_once_sorted(engines, family):
    lengths = generator("lengths", family).geometric(0.15, 100)
    instance = pool_of(*(f"{i} " + "tide " * int(length) for i, length in enumerate(lengths)), "2 ")
    engine, (first, other) = engines[family], orders_of(101, 1)
    windows = [unsorted(engine, instance, order) for order in (first, other)]
    loose = [scores_of(engine.grade_logits([prompt])[0].logits)[back] for prompt, back in windows]
    np.testing.assert_allclose(loose[0], loose[1], atol=1e-5)
    scored = Scorer(engine, TASK, Settings(prompt="set")).score_orders(instance, np.stack([first, other]), [0, 1])
    assert np.array_equal(scored.scores[0], scored.scores[1])
    assert np.array_equal(scored.label_mass[0], scored.label_mass[1])


def test_orders_asked_for_one_by_one_give_the_same_bits_and_equal_texts_equal_grades(tiny_engine):
    instance = pool_of("a tide", "the moon", "a tide", "", "the moon and the sea " * 5)
    scorer = Scorer(tiny_engine, TASK, Settings(prompt="set"))
    found = np.stack([scorer.score(instance, order) for order in orders_of(5, 5)])
    assert (found == found[0]).all()
    assert found[0, 0] == found[0, 2]
    without = scorer.score(pool_of("a tide", "the moon", "", "the moon and the sea " * 5))
    assert np.array_equal(without, found[0, [0, 1, 3, 4]]), "a repeated text changes nobody's grade"


def test_grades_do_not_depend_on_how_texts_and_segments_share_passes(monkeypatch):
    model = tiny_causal()
    instance = pool_of(*(f"{i} " + "moon " * (i * 3) for i in range(9)))
    usual = Scorer(engine_of(model), TASK, Settings(prompt="set")).score(instance)
    for tokens, segments in ((1, 32), (64, 2), (100_000, 1)):
        monkeypatch.setattr(local_windows, "SEGMENTS", segments)
        engine = engine_of(model, batch_tokens=tokens)
        np.testing.assert_allclose(Scorer(engine, TASK, Settings(prompt="set")).score(instance), usual, atol=1e-6)


def test_a_model_that_was_saved_and_loaded_gives_the_same_bits(tiny_folder, tmp_path):
    first = open_engine(f"hf:{tiny_folder}")
    first.model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    both = [Scorer(engine, TASK, Settings(prompt="set")) for engine in (first, open_engine(f"hf:{tmp_path}"))]
    assert np.array_equal(both[0].score(POOL, (0, 1, 2, 3)), both[1].score(POOL, (3, 1, 0, 2)))


def test_sets_and_other_windows_in_one_call_do_not_disturb_each_other(tiny_engine):
    kinds = [Scorer(tiny_engine, TASK, Settings(prompt=style, width=4)) for style in ("set", "isolated", "compact", "set")]
    found = [scorer.prompt(POOL, Window(0, order)) for scorer in kinds for order in ((0, 1, 2, 3), (2, 0, 3, 1))]
    together = tiny_engine.grade_logits(found, label_mass=True)
    for prompt, reading in zip(found, together, strict=True):
        np.testing.assert_allclose(reading.logits, tiny_engine.plain_logits(prompt).logits, atol=1e-5)


# -- sight


def test_a_grade_is_given_in_sight_of_the_others_and_a_set_of_one_is_the_plain_prompt(tiny_engine):
    scorer = Scorer(tiny_engine, TASK, Settings(prompt="set"))
    together, changed = scorer.score(POOL), scorer.score(pool_of(*(c.text for c in POOL.pool[:3]), "another text"))
    assert np.abs(together[:3] - changed[:3]).min() > 1e-4
    alone = np.concatenate([scorer.score(pool_of(candidate.text)) for candidate in POOL.pool])
    plain = Scorer(tiny_engine, TASK, Settings(prompt="compact", width=1)).score(POOL)
    np.testing.assert_allclose(alone, plain, atol=1e-6)
    assert np.abs(together - alone).min() > 1e-4


def test_a_pool_cut_into_sets_of_one_is_read_as_plain_prompts_which_share_passes(tiny_engine):
    cut, plain = (Scorer(tiny_engine, TASK, Settings(prompt=style, width=1)) for style in ("set", "compact"))
    assert [cut.prompt(POOL, Window(0, (i,))) for i in range(4)] == [plain.prompt(POOL, Window(0, (i,))) for i in range(4)]
    assert np.array_equal(cut.score(POOL), plain.score(POOL))


@pytest.mark.parametrize("style", ["compact", "isolated"])
def test_the_same_control_fails_for_windows_that_are_not_sets(tiny_engine, style):
    """Sorting would hide it; that is why invariance is asked for before anything is sorted."""
    scorer = Scorer(tiny_engine, TASK, Settings(prompt=style, width=4))
    found = [scorer.score(POOL, order) for order in ((0, 1, 2, 3), (3, 1, 0, 2))]
    assert np.abs(found[0] - found[1]).max() > 1e-3


@pytest.mark.parametrize(("style", "is_steady"), [("set", True), ("compact", False), ("isolated", False)])
def test_what_sorting_cannot_do(tiny_engine, style, is_steady):
    """`canonical-order` hides an order from every shuffle, not from another sorting, nor from a repetition that is dropped."""
    scorer = mitigate(Scorer(tiny_engine, TASK, Settings(prompt=style, width=None if style == "set" else 6)), ["canonical-order"])
    texts = [f"text {i} of water" for i in range(5)]
    whole = pool_of(*texts, texts[2])
    shuffled = replace(whole, pool=tuple(whole.pool[i] for i in (3, 5, 0, 4, 1, 2)))
    assert np.array_equal(scorer.score(whole)[[3, 5, 0, 4, 1, 2]], scorer.score(shuffled))
    other_ids = replace(whole, pool=tuple(Candidate(f"e{i}", candidate.text) for i, candidate in enumerate(whole.pool)))
    dropped = replace(whole, pool=whole.pool[:5])
    for changed in (other_ids, dropped):
        moved = np.abs(scorer.score(whole)[:5] - scorer.score(changed)[:5]).max()
        assert moved == 0 if is_steady else moved > 1e-3


def test_the_others_stand_where_the_constant_says(tiny_engine):
    """What a segment sees is a key that was turned: the same as a key read that much earlier."""
    with torch.inference_mode():
        assert turn_mistake(tiny_engine, tiny_engine.model) is None
    prompt, _ = unsorted(tiny_engine, POOL, (0, 1, 2, 3))
    (as_it_is,) = tiny_engine.slot_logits([prompt])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(set_windows, "EARLIER", 300)
        (nearer,) = tiny_engine.slot_logits([prompt])
    assert (as_it_is - nearer).abs().max() > 1e-4


# -- models that cannot


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("gemma3", {}),
        ("mistral", {"sliding_window": 16}),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}),
    ],
)
def test_sliding_windows_and_rotations_that_follow_the_length_are_refused(family, shape):
    engine = engine_of(tiny_causal(family) if family == "gemma3" else tiny_model(family, **shape))
    with pytest.raises(ModelError, match="cannot keep candidates from seeing each other, which --prompt set asks for"):
        Scorer(engine, TASK, Settings(prompt="set"))


def test_a_model_whose_layers_do_not_all_rotate_is_refused_at_first_use():
    engine = engine_of(tiny_model("smollm3", no_rope_layers=[1, 0], head_dim=8))
    with pytest.raises(ModelError, match="keys that are turned to another position differ"):
        Scorer(engine, TASK, Settings(prompt="set")).score(POOL)


def test_a_layout_that_were_causal_is_refused_at_first_use(monkeypatch):
    def in_a_row(prompt, tokens):
        return np.arange(tokens)

    monkeypatch.setattr(set_windows, "positions", in_a_row)
    with pytest.raises(ModelError, match="a shuffled window changes a score"):
        Scorer(engine_of(tiny_causal()), TASK, Settings(prompt="set")).score(POOL)


def test_other_engines_refuse(tiny_engine):
    class Blind(Grader):
        name, capabilities = "blind", replace(tiny_engine.capabilities, isolation=False)
        identity, grade_logits = tiny_engine.identity, tiny_engine.grade_logits

    with pytest.raises(ModelError, match="blind cannot keep candidates from seeing each other, which --prompt set"):
        Scorer(Blind(), TASK, Settings(prompt="set"))


# -- what is declared


def test_a_whole_pool_is_order_free_and_a_cut_one_is_not(tiny_engine):
    assert Scorer(tiny_engine, TASK, Settings(prompt="set")).capabilities.order_free
    assert Scorer(tiny_engine, TASK, Settings(prompt="set")).width is None
    assert not Scorer(tiny_engine, TASK, Settings(prompt="set", width=2)).capabilities.order_free
    assert not Scorer(tiny_engine, TASK, Settings(prompt="isolated")).capabilities.order_free


def test_orders_of_a_set_are_read_once_and_counted_once(tiny_engine):
    scorer = Scorer(tiny_engine, TASK, Settings(prompt="set"))
    cost = scorer.score_orders(POOL, np.stack(orders_of(4, 5)), range(6)).cost
    assert cost.tokens == len(scorer.prompt(POOL, Window(0, (0, 1, 2, 3))))


def test_the_readout_gate_holds_for_set_windows(tiny_engine):
    tiny_engine.trained_settings = {"prompt": "set"}
    try:
        assert compare_readout(tiny_engine).passed
    finally:
        tiny_engine.trained_settings = {}


def test_the_prompt_hash_is_its_own():
    assert len({prompt_hash(TASK, "numeric", "0", style) for style in ("paper", "compact", "isolated", "set")}) == 4


def test_objectives_that_compare_orders_are_refused():
    config = TrainConfig(base="smollm2-135m", data="passages", labels="judgements", out="x", prompt="set", objective="oc_sft")
    assert any("a set has one" in mistake for mistake in config_mistakes(config))
    assert not any("a set has one" in mistake for mistake in config_mistakes(replace(config, objective="single_order")))


def test_a_ranker_of_the_integrations_takes_the_prompt(tiny_folder):
    texts = [candidate.text for candidate in POOL.pool]
    ranker = Ranker(f"hf:{tiny_folder}", prompt="set")
    assert ranker.scores("what is a tide", texts) == ranker.scores("what is a tide", texts[::-1])[::-1]


# -- trained and served


def test_training_reads_sets_and_its_adapter_scores_whole_pools(tiny_folder, collection_file, tmp_path):
    config = TrainConfig(
        base=f"hf:{tiny_folder}", data=str(collection_file), labels="judgements", out=str(tmp_path / "out"),
        objective="single_order", prompt="set", widths=(3,), steps=2, batch=2, microbatch=2, learning_rate=1e-2, rank=4,
        device="cpu", held_out=2, held_out_permutations=2,
    )  # fmt: skip
    card = train_adapter(config)
    assert (card["settings"]["prompt"], card["settings"]["width"], card["widths"]) == ("set", None, [3])
    assert card["held_out"][-1]["tau_psi"] == 0
    engine = open_engine(f"hf:{tiny_folder}+{tmp_path / 'out'}")
    scorer = Scorer(engine, TASK)
    assert scorer.capabilities.order_free
    assert np.array_equal(scorer.score(POOL, (0, 1, 2, 3)), scorer.score(POOL, (2, 3, 1, 0)))
    plain = Scorer(open_engine(f"hf:{tiny_folder}"), TASK, Settings(prompt="set"))
    assert np.abs(scorer.score(POOL) - plain.score(POOL)).max() > 1e-6


def test_gradient_checkpointing_trains_the_same_adapter_on_sets(tiny_folder, collection_file, tmp_path):
    config = TrainConfig(
        base=f"hf:{tiny_folder}", data=str(collection_file), labels="judgements", objective="single_order", prompt="set",
        widths=(5,), steps=2, batch=8, learning_rate=1e-2, rank=4, dropout=0.0, device="cpu",
    )  # fmt: skip
    found = []
    for name, is_checkpointed in (("kept", False), ("computed again", True)):
        train_adapter(replace(config, out=str(tmp_path / name), gradient_checkpointing=is_checkpointed))
        found.append(load_file(tmp_path / name / "adapter_model.safetensors"))
    assert any(weight.abs().max() > 0 for name, weight in found[0].items() if "lora_B" in name)
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=0)


def test_gradients_reach_what_a_segment_sees_of_the_others(tiny_engine):
    prompt, _ = unsorted(tiny_engine, POOL, (0, 1, 2, 3))
    first, closing, _ = prompt.candidates[3]
    table = tiny_engine.model.get_input_embeddings()
    seen: list[torch.Tensor] = []
    hook = table.register_forward_hook(lambda _, ids, out: seen.append(out.requires_grad_(True)) or out.retain_grad())
    try:
        tiny_engine.slot_logits([prompt])[0][0].sum().backward()
    finally:
        hook.remove()
        tiny_engine.model.zero_grad()
    assert seen[0].grad[0, first:closing].abs().max() > 0


def test_concurrent_requests_in_any_order_get_the_same_bits(tiny_folder):
    model = open_model("m", f"hf:{tiny_folder}", ModelOptions(prompt="set"), bases=SharedBases(2))
    app = app_of(model, limits=Limits(workers=2))
    documents = [f"document {i} " + "of the sea " * (i % 4) for i in range(12)] + ["document 3 of the sea of the sea of the sea "]
    orders = orders_of(13, 11)

    def asked(client, number, order):
        body = {"query": f"what is a tide {number % 2}", "documents": [documents[i] for i in order]}
        rows = client.post("/v1/rerank", json=body).json()["results"]
        found = {int(order[row["index"]]): row["relevance_score"] for row in rows}
        return [found[i] for i in range(13)]

    with listening(app) as url, httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda pair: asked(client, *pair), enumerate(orders)))
        declared = client.get("/v1/models").json()["data"][0]["order"]
    assert found[0::2] == [found[0]] * 6
    assert found[1::2] == [found[1]] * 6
    assert found[0] != found[1]
    assert declared["capabilities"]["order_free"]
    assert declared["width"] is None


def test_the_shipped_set_adapter_does_not_move_under_reordering(smollm2):
    pool = next(iter(open_collection("passages").instances()))
    instance = replace(pool, pool=pool.pool[:6])
    scorer = Scorer(open_engine("smollm2-135m-set"), TASK)
    assert scorer.settings.prompt == "set"
    assert scorer.capabilities.order_free
    found = np.stack([scorer.score(instance, order) for order in orders_of(6, 2)])
    assert (found == found[0]).all()
    assert found[0].std() > 0.01
