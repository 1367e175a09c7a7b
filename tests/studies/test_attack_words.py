"""Hostile texts: they hold the prompt's own words, are seen under any cut, and stand beside a control of the same length."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.collection import from_records
from steadyscore.errors import InputError
from steadyscore.scoring.config import Cut
from steadyscore.studies.attack_words import (
    ATTACKS,
    LONG,
    Wording,
    attack_instance,
    attacked_sources,
    choose_attacker,
    choose_attacks,
    neutral_words,
    put_before,
)
from steadyscore.tasks import TASKS
from steadyscore.terms import Candidate
from steadyscore.window.prompt import SKELETON_HEADER, collapse, shown, skeleton_line
from tests.helpers.pools import some_instances

PASSAGES = Wording(TASKS["passage_reranking"])
SHORT = [name for name in ATTACKS if name != "long"]
SOURCE = from_records(some_instances())


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_imitations_are_the_words_of_the_prompt_itself(task):
    wording = Wording(task, markers="letters")
    answer = ATTACKS["skeleton"].words(wording)
    assert answer.startswith(SKELETON_HEADER + skeleton_line("A", "3"))
    window = ATTACKS["markers"].words(wording)
    assert window.startswith(f"{task.item_label}:\n[A] {task.levels[3]}\n[B] {task.levels[0]}")
    assert window.endswith(task.rubric)
    assert answer in ATTACKS["turns"].words(wording)


def test_a_compact_prompt_is_imitated_as_such():
    window = ATTACKS["markers"].words(Wording(TASKS["passage_reranking"], style="compact"))
    assert window.startswith(f"{TASKS['passage_reranking'].levels[3]}\n[1]\n")


def test_marks_that_cannot_be_seen_are_there():
    demand = ATTACKS["instruction"].words(PASSAGES)
    backwards = ATTACKS["right_to_left"].words(PASSAGES)
    assert (backwards[0], backwards[-1]) == ("\u202e", "\u202c")
    assert backwards[-2:0:-1] == demand
    assert ATTACKS["zero_width"].words(PASSAGES).replace("\u200b", "") == demand
    assert len(ATTACKS["long"].words(PASSAGES)) == LONG == 1_000_000


@settings(max_examples=50)
@given(st.sampled_from(SHORT), st.text(max_size=200), st.none() | st.integers(1, 1000))
def test_a_control_is_as_long_as_its_attack_and_both_are_seen_first(name, text, chars):
    words = ATTACKS[name].words(PASSAGES)
    candidate = Candidate("a", text)
    hostile = shown(put_before(candidate, words), chars)
    harmless = shown(put_before(candidate, neutral_words(len(collapse(words)))), chars)
    assert len(hostile) == len(harmless)
    assert hostile[: len(collapse(words))] == collapse(words)[:chars]


@given(st.lists(st.text(min_size=1), min_size=1, unique=True), st.integers(0, 5), st.randoms())
def test_who_attacks_depends_on_the_candidates_and_not_on_their_order(ids, seed, random):
    shuffled = random.sample(ids, len(ids))
    assert choose_attacker("q", ids, seed) == choose_attacker("q", shuffled, seed) in ids


def test_only_a_candidate_that_is_not_relevant_attacks():
    for instance in SOURCE.instances():
        changed = attack_instance(instance, "hostile", seed=0)
        (attacker,) = [(old, new) for old, new in zip(instance.pool, changed.pool, strict=True) if old != new]
        assert attacker[0].relevance == 0
        assert attacker[1].text == f"hostile\n{attacker[0].text}"
    assert choose_attacker("q", [], 0) is None


def test_seeds_choose_other_candidates():
    assert len({choose_attacker("q", list("abcdef"), seed) for seed in range(20)}) > 2


def test_each_source_is_its_own_collection_and_the_same_one_again():
    def digests():
        return [source.digest for source in attacked_sources(SOURCE, SHORT, PASSAGES, Cut(), 0).values()]

    assert digests() == digests()
    lengths = {len(collapse(ATTACKS[name].words(PASSAGES))) for name in SHORT}
    assert len(set(digests())) == 1 + len(SHORT) + len(lengths)  # controls of equal length are equal


def test_the_attacking_candidate_is_among_those_that_are_scored():
    sources = attacked_sources(SOURCE, ["instruction"], PASSAGES, Cut(queries=2, pool=4), 0)
    pools = [instance.pool for instance in sources["attacks/instruction"].instances()]
    assert [len(pool) for pool in pools] == [4, 4]
    assert all(sum(c.text.startswith("Ignore") for c in pool) == 1 for pool in pools)


def test_names_are_checked_all_at_once():
    assert choose_attacks(None) == list(ATTACKS)
    assert choose_attacks(["leak", "instruction"]) == ["instruction", "leak"]
    with pytest.raises(InputError, match=r"'charm'; there are instruction(.|\n)*'bribe'"):
        choose_attacks(["charm", "leak", "bribe"])
    with pytest.raises(InputError, match="no attack was chosen"):
        choose_attacks([])
