"""What order-free attention makes invariant, exactly, and what it cannot."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from steadyscore.engines import EngineOptions
from steadyscore.engines.local.model import TransformersEngine
from steadyscore.engines.local.pine import Layout, PineEngine, encode, order_free_states, with_documents
from steadyscore.errors import InputError, ModelError
from steadyscore.measures.instability import tau_psi
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance
from steadyscore.window.presentation import permutations
from steadyscore.window.prompt import messages, prompt_text
from tests.helpers.models import byte_tokenizer, tiny_causal

POOL = Instance("q1", "what is a thing", tuple(Candidate(f"d{i}", f"thing {i} " + "word " * (i + 1)) for i in range(5)))
ORDERS = permutations(5, 6, seed=0, query_id="q1")
FAMILIES = ("llama", "qwen3")


def engine_of(family, **shape):
    return TransformersEngine(tiny_causal(family, **shape), byte_tokenizer(), f"tiny {family}", EngineOptions(), {})


def windows(documents, order, random):
    """A prefix, some documents in an order, a suffix; the documents carry no marker."""
    prefix, suffix = random.integers(3, 250, 7), random.integers(3, 250, 9)
    shown = [documents[i] for i in order]
    return [*prefix, *np.concatenate(shown), *suffix], Layout(7, tuple(map(len, shown)))


@pytest.mark.parametrize("family", FAMILIES)
def test_documents_without_markers_are_the_same_in_every_order(family):
    """The claim: states of every document and of the suffix do not depend on the order, to the rounding of float32 norms."""
    model = tiny_causal(family).double().eval()
    rng = np.random.default_rng(0)
    documents = [rng.integers(3, 250, length) for length in (5, 3, 8, 5)]
    found, plain = [], []
    for order in permutations(4, 6, seed=1, query_id="x"):
        ids, layout = windows(documents, order, np.random.default_rng(7))
        with torch.inference_mode():
            states = order_free_states(model, ids, layout)
            natural = model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        for into, rows in ((found, states), (plain, natural)):
            by_document = [rows[first:past] for first, past in layout.bounds]
            into.append(torch.cat([*(by_document[list(order).index(d)] for d in range(4)), rows[layout.suffix :]]))
    assert max(float((other - found[0]).abs().max()) for other in found[1:]) < 1e-5
    assert max(float((other - plain[0]).abs().max()) for other in plain[1:]) > 0.1  # what the attention removes


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("style", ["paper", "compact"])
def test_one_document_is_the_model_itself(family, style):
    """With one document there is nothing to reorder, and virtual positions are the real ones."""
    engine = engine_of(family)
    settings = Settings(width=1, chars=30, prompt=style)
    plain = Scorer(engine, PASSAGE_RERANKING, settings).score_orders(POOL, ORDERS[:1], [0])
    pine = Scorer(PineEngine(engine), PASSAGE_RERANKING, settings).score_orders(POOL, ORDERS[:1], [0])
    assert np.allclose(pine.grades, plain.grades, atol=1e-5)
    assert engine.model.config._attn_implementation != "pine"


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("style", ["paper", "compact"])
def test_one_document_under_the_answer_of_a_whole_window_is_the_model_itself(style, first):
    """As the width study shows a candidate without its companions: the rubric behind it is no document."""
    engine = engine_of("llama")
    text = prompt_text(PASSAGE_RERANKING, "query", ["a text"], style=style, lines=5, first=first)
    (plain,) = engine.grade_logits([engine.encoder.prompt(text)])
    (pine,) = PineEngine(engine).grade_logits([text])
    assert np.allclose(pine.logits, plain.logits, atol=1e-4)


def test_markers_and_skeleton_keep_scores_dependent_on_order():
    """What is not invariant: slots have names, the skeleton asks for them in order."""
    engine = engine_of("llama")
    settings = Settings(width=5, chars=30)
    found = Scorer(PineEngine(engine), PASSAGE_RERANKING, settings).score_orders(POOL, ORDERS, range(6))
    assert tau_psi(found.scores) > 0
    assert np.allclose(found.grades.sum(-1), 1)


def test_only_the_marker_tells_a_slot_from_another():
    """Two documents that change places under one marker leave every state of the skeleton as it was."""
    engine = engine_of("qwen3")
    engine.model.double()
    texts = ["first thing", "a second thing", "third"]
    rows = []
    for order in ([0, 1, 2], [2, 0, 1]):
        text = prompt_text(PASSAGE_RERANKING, "query", [texts[i] for i in order])
        same = [piece.__class__(piece.text.replace("[2]", "[1]").replace("[3]", "[1]"), piece.trusted) for piece in text.body]
        read, layout = encode(engine.encoder, replace(text, body=tuple(same)))
        with torch.inference_mode():
            rows.append(order_free_states(engine.model, read.ids, layout)[list(read.slots)])
    assert float((rows[0] - rows[1]).abs().max()) < 1e-5


@pytest.mark.parametrize("style", ["paper", "compact"])
def test_the_prompt_stays_and_documents_differ_in_their_markers_only(style):
    text = prompt_text(PASSAGE_RERANKING, "query", ["same", "same", "same"], style=style)
    cut = with_documents(text)
    assert messages(cut) == messages(text)
    as_text = [cut.body[1 + 2 * i].text + cut.body[2 + 2 * i].text for i in range(3)]
    assert len({said.replace(f"[{i + 1}]", "[x]") for i, said in enumerate(as_text)}) == 1


def test_what_it_was_not_written_for_is_refused():
    with pytest.raises(ModelError, match="gemma3_text"):
        PineEngine(engine_of("gemma3"))
    engine = engine_of("llama", max_position_embeddings=300)
    with pytest.raises(InputError, match=r"needs [\d,]+ tokens, the model takes 300"):
        Scorer(PineEngine(engine), PASSAGE_RERANKING).score(POOL)
