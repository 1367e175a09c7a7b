"""The four conditions: what changes from one to the next is what was planted, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steadyscore.collection import open_collection
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.synthetic import Effects, PlantedGrader, judgements_by_text
from steadyscore.errors import InputError
from steadyscore.measures.decomposition import width_decomposition
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.mitigations import mitigate
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.studies.width import CONDITIONS, Fillers, under_condition
from steadyscore.tasks import TASKS
from steadyscore.terms import Window
from steadyscore.window.prompt import prompt_text, shown, skeleton
from tests.helpers.pools import some_instances, write_collection

TASK = TASKS["passage_reranking"]


@pytest.fixture
def source(tmp_path):
    return open_collection(str(write_collection(tmp_path / "pools.jsonl", some_instances(queries=5, candidates=6))))


def scores_by_condition(source, backend, orders, **settings):
    scorer = Scorer(backend, TASK, Settings(**settings))
    found = {}
    for condition in CONDITIONS:
        arm = under_condition(scorer, condition, source)
        found[condition] = [arm.score_orders(instance, orders, range(len(orders))) for instance in source.instances()]
    return found


ORDERS = np.array([[0, 1, 2, 3, 4, 5], [5, 2, 0, 4, 1, 3]])


@pytest.mark.parametrize(
    ("effects", "content", "length", "answer"),
    [
        (Effects(), 0, 0, 0),
        (Effects(width=0.2), 0.2, 0, 0),
        (Effects(length=0.1), 0, 0.1, 0),
        (Effects(skeleton=-0.2), 0, 0, -0.2),
        (Effects(width=0.05, length=0.1, skeleton=0.02), 0.05, 0.1, 0.02),
    ],
)
@pytest.mark.parametrize("partition", ["contiguous", "round_robin"])
def test_every_planted_effect_comes_back_as_its_own_term(source, effects, content, length, answer, partition):
    grader = PlantedGrader("planted", effects, judgements_by_text(source.instances()))
    found = scores_by_condition(source, grader, ORDERS, width=3, partition=partition)
    for alone, comp, fill, skel in zip(*(found[c] for c in ("alone", "companions", "fillers", "skeleton")), strict=True):
        terms = width_decomposition(alone.scores, comp.scores, fill.scores, skel.scores)
        judged = alone.relevance / 3 - 0.5  # what the planted effects scale
        for term, planted in ((terms.content, content), (terms.length_slot, length), (terms.skeleton, answer)):
            assert term == pytest.approx(np.tile(planted * judged, (2, 1)), abs=1e-6)
        assert terms.width == pytest.approx(terms.content + terms.length_slot + terms.skeleton)


def test_a_slot_effect_is_length_and_slot_in_every_order(source):
    grader = PlantedGrader("planted", Effects(slot=0.2), judgements_by_text(source.instances()))
    found = scores_by_condition(source, grader, ORDERS, width=3)
    for fill, skel, comp in zip(found["fillers"], found["skeleton"], found["companions"], strict=True):
        assert fill.scores - skel.scores == pytest.approx(0.2 * (0.5 - fill.slots / 2), abs=1e-6)
        assert np.array_equal(fill.slots, comp.slots)
        assert fill.scores == pytest.approx(comp.scores, abs=1e-6)


def test_a_language_model_is_shown_exactly_the_four_prompts(source, tiny_folder):
    """Read one by one, the windows of a condition give what the condition's scorer gives at once."""
    engine = open_engine(f"hf:{tiny_folder}")
    scorer = Scorer(engine, TASK, Settings(width=3))
    instance = next(iter(source.instances()))
    found = under_condition(scorer, "skeleton", source).score(instance)
    alone = [scorer.read_windows([(instance, Window(0, (i,), first=i % 3, lines=3))]).windows[0].scores[i % 3] for i in range(6)]
    assert found == pytest.approx(alone, abs=1e-5)
    assert not np.allclose(found, under_condition(scorer, "alone", source).score(instance), atol=1e-6)
    assert not np.allclose(under_condition(scorer, "fillers", source).score(instance), scorer.score(instance), atol=1e-6)


def test_an_answer_may_have_more_lines_than_texts():
    text = prompt_text(TASK, "q", ["a text"], first=1, lines=3)
    assert "[2] a text" in "".join(piece.text for piece in text.body)
    assert skeleton(text).splitlines() == ["Grades:", "[1] Grade: 0", "[2] Grade: 0", "[3] Grade: 0"]
    compact = prompt_text(TASK, "q", ["a text"], first=2, lines=3, style="compact")
    assert [piece.text for piece in compact.body] == ["\n\n", "a text", "\n[3]\n"]


def test_fillers_are_of_other_queries_of_like_length_and_used_once(source):
    instances = list(source.instances())
    for instance in instances:
        fillers = Fillers(instances, None).fill(instance)
        texts = [candidate.text for candidate in fillers]
        assert len(set(texts)) == len(texts) == len(instance.pool)
        assert not set(texts) & {shown(candidate, None) for candidate in instance.pool}
        assert max(abs(len(shown(c, None)) - len(f.text)) for c, f in zip(instance.pool, fillers, strict=True)) <= 5
        assert fillers == Fillers(instances[::-1], None).fill(instance)


def test_what_a_cut_leaves_out_of_a_pool_is_not_a_filler_of_its_query(source):
    instances = list(source.instances())
    cut = replace(instances[0], pool=instances[0].pool[:3])
    own = {shown(candidate, None) for candidate in instances[0].pool}
    assert not own & {filler.text for filler in Fillers(instances, None).fill(cut)}


def test_a_collection_of_one_query_has_nothing_to_fill_with(tmp_path):
    source = open_collection(str(write_collection(tmp_path / "one.jsonl", some_instances(queries=1, candidates=6))))
    scorer = scorer_for(open_engine("synthetic:none"), source.collection, AuditConfig(settings=Settings(width=3)))
    arm = under_condition(scorer, "fillers", source)
    with pytest.raises(InputError, match="too few texts to fill the windows of query q0 with: 0 for a pool of 6"):
        arm.score(next(iter(source.instances())))


def test_a_scorer_without_a_fixed_answer_has_no_skeleton_effect(source):
    found = scores_by_condition(source, open_engine("synthetic:companion"), ORDERS, width=3)
    for alone, skel in zip(found["alone"], found["skeleton"], strict=True):
        assert np.array_equal(alone.scores, skel.scores)


def test_what_cannot_be_taken_apart_is_refused(source, tiny_folder):
    averaged = mitigate(Scorer(open_engine("synthetic:slot"), TASK, Settings(width=3)), ["self-consistency:2"])
    with pytest.raises(InputError, match="under a mitigation"):
        under_condition(averaged, "fillers", source)
    with pytest.raises(InputError, match="no answer that the candidates share"):
        under_condition(Scorer(open_engine(f"hf:{tiny_folder}"), TASK, Settings(prompt="set")), "fillers", source)
