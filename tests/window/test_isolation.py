from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.engines import EngineOptions, Grader
from steadyscore.engines.local import windows
from steadyscore.engines.local.model import TransformersEngine
from steadyscore.errors import ModelError
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import TASKS
from steadyscore.terms import Candidate, Instance, Window
from steadyscore.window.isolation import positions, visible
from tests.helpers.models import tiny_causal

TASK = TASKS["passage_reranking"]
POOL = Instance(
    "q", "what is a tide", tuple(Candidate(f"d{i}", f"text {i}" + " of water and the moon" * (i + 1)) for i in range(4))
)


@st.composite
def layouts(draw):
    first = draw(st.integers(1, 5))
    ends = np.cumsum([first, *draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))])
    bounds = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    return tuple((first, draw(st.integers(first, end)), end) for first, end in bounds), int(ends[-1]) + draw(st.integers(1, 5))


@given(layouts())
def test_a_candidate_sees_the_query_and_itself_and_the_skeleton_sees_all(layout):
    candidates, tokens = layout
    seen = visible(candidates, tokens)
    assert not np.triu(seen, 1).any()
    for first, _, end in candidates:
        for row in range(first, end):
            assert set(np.flatnonzero(seen[row])) == {*range(candidates[0][0]), *range(first, row + 1)}
    for row in range(candidates[-1][2], tokens):
        assert seen[row, : row + 1].all()


@given(layouts())
def test_every_candidate_begins_where_the_first_does_and_the_rest_keeps_its_place(layout):
    candidates, tokens = layout
    found = positions(candidates, tokens)
    assert {int(found[first]) for first, _, _ in candidates} == {candidates[0][0]}
    outside = [i for i in range(tokens) if not any(first <= i < end for first, _, end in candidates)]
    assert found[outside].tolist() == outside
    assert all((np.diff(found[first:end]) == 1).all() for first, _, end in candidates)


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(1, 1000), st.integers(0, 200))
def test_passes_hold_every_text_once_and_cost_no_more_than_filling_them_in_a_row(lengths, batch_tokens, pass_tokens):
    def cost(found):
        return sum(pass_tokens + len(batch) * lengths[batch[0]] for batch in found)

    found = windows.passes(lengths, batch_tokens, pass_tokens)
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    assert all(lengths[batch[0]] == max(lengths[i] for i in batch) for batch in found)
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= batch_tokens for batch in found)
    in_a_row, rest = [], sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while rest:
        count = max(1, batch_tokens // max(lengths[rest[0]], 1))
        in_a_row, rest = [*in_a_row, rest[:count]], rest[count:]
    assert cost(found) <= cost(in_a_row)


def test_texts_of_two_lengths_share_a_pass_only_where_padding_is_cheaper_than_a_pass():
    assert windows.passes([10, 50, 10, 50], 1000, 79) == [[1, 3], [0, 2]]
    assert windows.passes([10, 50, 10, 50], 1000, 81) == [[1, 3, 0, 2]]


def prompts(engine, style, orders):
    scorer = Scorer(engine, TASK, Settings(width=4, prompt=style))
    return [scorer.prompt(POOL, Window(0, tuple(order))) for order in orders]


def test_the_bounds_hold_each_candidate_s_text_and_closing_marker(tiny_engine):
    (prompt,) = prompts(tiny_engine, "isolated", [(2, 0, 3, 1)])
    ids = (*prompt.prefix, *prompt.body)
    for slot, (place, (first, closing, end)) in enumerate(zip((2, 0, 3, 1), prompt.candidates, strict=True), start=1):
        assert ids[first:closing] == tiny_engine.encoder.plain(POOL.pool[place].text)
        assert ids[closing:end] == tiny_engine.encoder.fixed(f"\n[{slot}]\n")
    assert prompts(tiny_engine, "compact", [(0, 1, 2, 3)])[0].candidates == ()


def at_text_ends(engine, style, order):
    """What the model would say at the last token of every text, in pool order: the slots moved there."""
    (prompt,) = prompts(engine, "isolated", [order])
    ends = [closing - 1 for _, closing, _ in prompt.candidates]
    bounds = prompt.candidates if style == "isolated" else ()
    (reading,) = engine.grade_logits([replace(prompt, slots=tuple(ends), candidates=bounds)])
    return reading.logits[np.argsort(order)]


def test_what_is_known_of_a_candidate_does_not_depend_on_order_or_companions(tiny_engine):
    orders = [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)]
    alone, causal = ([at_text_ends(tiny_engine, style, order) for order in orders] for style in ("isolated", "compact"))
    np.testing.assert_allclose(alone[1], alone[0], atol=1e-5)
    np.testing.assert_allclose(alone[2], alone[0], atol=1e-5)
    assert np.abs(causal[1] - causal[0]).max() > 1e-3


def shared(engine, share_prefix):
    options = EngineOptions(share_prefix=share_prefix)
    return TransformersEngine(engine.model, engine.encoder.tokenizer, "tiny", options, engine.identity())


def test_batches_shared_prefixes_and_the_training_pass_agree(tiny_engine):
    found = prompts(tiny_engine, "isolated", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0)])
    together = tiny_engine.grade_logits(found)
    for prompt, reading, trained in zip(found, together, tiny_engine.slot_logits(found), strict=True):
        (single,) = tiny_engine.grade_logits([prompt])
        np.testing.assert_allclose(reading.logits, single.logits, atol=1e-5)
        np.testing.assert_allclose(reading.logits, trained.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("share_prefix", [True, False])
def test_a_candidate_that_stands_in_several_windows_is_read_once(tiny_engine, share_prefix):
    """Also in a server, where windows of different queries share a pass and no prefix."""
    engine = shared(tiny_engine, share_prefix)
    twins = Instance("q", POOL.query, (*POOL.pool, Candidate("e", ""), Candidate("f", POOL.pool[1].text)))
    scorer = Scorer(tiny_engine, TASK, Settings(width=6, prompt="isolated"))
    orders = [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (2, 4, 0, 5, 3, 1)]
    found = [scorer.prompt(twins, Window(0, order)) for order in orders]
    read: list[int] = []
    hook = tiny_engine.model.base_model.register_forward_hook(
        lambda _, args, kwargs, out: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    together = engine.grade_logits(found)
    hook.remove()
    for reading, whole in zip(together, tiny_engine.slot_logits(found), strict=True):
        np.testing.assert_allclose(reading.logits, whole.detach().numpy(), atol=1e-5)
    assert sum(read) < 0.75 * sum(map(len, found))


def test_sharing_off_or_on_and_prompts_of_other_styles_beside_them_change_nothing(tiny_engine):
    found = prompts(tiny_engine, "isolated", [(0, 1, 2, 3), (3, 2, 1, 0)]) + prompts(tiny_engine, "compact", [(0, 1)])
    other = Instance("r", "what is a lake", POOL.pool)
    scorer = Scorer(tiny_engine, TASK, Settings(width=4, prompt="isolated"))
    found += [scorer.prompt(other, Window(0, order)) for order in [(0, 1, 2, 3), (1, 0, 3, 2)]]
    alone = shared(tiny_engine, False)
    for mine, whole, plain in zip(
        tiny_engine.grade_logits(found), alone.grade_logits(found), [alone.plain_logits(p) for p in found], strict=True
    ):
        np.testing.assert_allclose(mine.logits, whole.logits, atol=1e-5)
        np.testing.assert_allclose(mine.logits, plain.logits, atol=1e-5)


def test_a_pool_too_large_to_keep_is_read_in_whole_windows(tiny_engine, monkeypatch):
    found = prompts(tiny_engine, "isolated", [(0, 1, 2, 3), (3, 2, 1, 0)])
    assert windows.recur(found)
    assert not windows.recur(found[:1])
    monkeypatch.setattr(windows, "MOST_TOKENS", 10)
    assert not windows.recur(found)


@pytest.mark.parametrize(("family", "possible"), [("llama", True), ("qwen3", True), ("gemma3", False)])
def test_models_with_sliding_windows_cannot_isolate(family, possible):
    assert windows.is_possible(tiny_causal(family).config.get_text_config()) is possible


def test_one_candidate_alone_is_graded_as_in_the_compact_prompt(tiny_engine):
    alone = Instance("q", POOL.query, POOL.pool[:1])
    found = [Scorer(tiny_engine, TASK, Settings(width=1, prompt=style)).score(alone) for style in ("isolated", "compact")]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_the_prompt_hash_tells_isolated_from_compact_and_other_engines_refuse(tiny_engine):
    hashes = {Scorer(tiny_engine, TASK, Settings(prompt=style)).identity()["prompt_hash"] for style in ("isolated", "compact")}
    assert len(hashes) == 2

    class Blind(Grader):
        name, capabilities = "blind", replace(tiny_engine.capabilities, isolation=False)
        identity, grade_logits = tiny_engine.identity, tiny_engine.grade_logits

    with pytest.raises(ModelError, match="blind cannot keep candidates from seeing each other"):
        Scorer(Blind(), TASK, Settings(prompt="isolated"))
