from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.errors import InputError
from steadyscore.terms import Instance
from steadyscore.training.examples import Example, cut, examples, slot_counts, step_indices, training_data, views
from steadyscore.training.labelling import label
from steadyscore.training.labels import Label, from_judgements, write_labels
from steadyscore.training.recipe import TrainConfig
from tests.helpers import tiny
from tests.training.test_labels import open_instances


def some(count: int = 3, pool: int = 7, widths=(3,), **how) -> list[Example]:
    instances = [*open_instances(tiny.instances(count, pool, 0))]
    return examples(instances, {i.id: from_judgements(i) for i in instances}, widths, teacher_orders=1, seed=0, **how)


@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2))
def test_views_hold_the_same_candidates_and_align_back(count, seed, epoch):
    for example in some():
        for view in views(example, count, seed=seed, epoch=epoch, shuffled=True):
            assert sorted(view.window.candidates) == sorted(example.window.candidates)
            assert np.array(view.window.candidates)[view.columns].tolist() == list(example.window.candidates)


def test_two_views_of_a_window_differ_and_more_views_keep_the_first():
    for example in some():
        if len(example.window.candidates) > 1:
            first, second = views(example, 2, seed=0, epoch=0, shuffled=True)
            assert first.window != second.window
            assert views(example, 4, seed=0, epoch=0, shuffled=True)[:2][0].window == first.window


def test_unshuffled_views_are_the_first_stage_and_markers_differ():
    example = some()[0]
    plain = views(example, 1, seed=0, epoch=0, shuffled=False)[0]
    assert plain.window == example.window
    marked = views(example, 2, seed=0, epoch=0, shuffled=False, marked=True)
    assert marked[0].markers != marked[1].markers


def test_windows_cover_the_pool_in_first_stage_order_and_targets_follow():
    found = some(count=1)
    assert [i for e in found for i in e.window.candidates] == list(range(7))
    for e in found:
        assert e.target.tolist() == [e.instance.pool[i].relevance for i in e.window.candidates]
        assert e.slots.tolist() == list(range(len(e.window.candidates)))


def graded(teacher_orders: int) -> tuple[list[Instance], dict[str, Label]]:
    """Labels of several orders with the distribution averaged over all of them."""
    instances = [*open_instances(tiny.instances(3, 4, 0))]
    random = np.random.default_rng(0)
    distributions = random.dirichlet(np.ones(4), (3, teacher_orders, 4))
    ids = [tuple(sorted(c.id for c in i.pool)) for i in instances]
    return instances, {
        i.id: Label(i.id, ids[q], distributions[q] @ np.arange(4), distributions[q].mean(axis=0)) for q, i in enumerate(instances)
    }


def test_the_averaged_distribution_teaches_only_beside_the_averaged_target():
    instances, labels = graded(3)
    for used in (3, None):
        for e in examples(instances, labels, (2,), teacher_orders=used, seed=0):
            np.testing.assert_allclose(e.grades @ np.arange(4), e.target)
    assert all(e.grades is None for e in examples(instances, labels, (2,), teacher_orders=1, seed=0))


def test_a_grade_share_of_fewer_orders_than_were_stored_is_refused_with_the_way_out(tmp_path):
    data = tiny.write_collection(tmp_path / "pools.jsonl", 3, 4, 0)
    write_labels(tmp_path, graded(3)[1].values())
    config = TrainConfig(data=str(data), labels=str(tmp_path), objective="single_order", grade_share=0.5)
    with pytest.raises(InputError, match=r"averaged over all its orders\. Set teacher_orders to as many as were labelled"):
        training_data(config)
    assert training_data(replace(config, teacher_orders=3)).examples[0].grades is not None


def test_labels_of_one_order_are_not_called_averaged(tmp_path):
    data = tiny.write_collection(tmp_path / "pools.jsonl", 3, 4, 0)
    for orders in (1, 3):
        write_labels(tmp_path / str(orders), graded(orders)[1].values())
    config = TrainConfig(data=str(data), objective="order_averaged")
    for place in ("judgements", str(tmp_path / "1")):
        with pytest.raises(
            InputError, match=rf"labels of {place} are of one order, so order_averaged is single_order\. Name it so"
        ):
            training_data(replace(config, labels=place))
    assert training_data(replace(config, labels=str(tmp_path / "3"))).examples


def test_shuffled_pools_change_companions_and_keep_first_stage_slots():
    found = some(count=1, pool_views=2)
    assert len(found) == 6
    for e in found:
        assert e.slots.tolist() == [i % 3 for i in e.window.candidates]
    assert {e.window.candidates for e in found[:3]} != {e.window.candidates for e in found[3:]}


@given(st.integers(1, 40), st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_mixed_widths_cut_a_pool_whole(n, widths):
    found = cut(np.arange(n), widths, 0, "q")
    assert [i for w in found for i in w.candidates] == list(range(n))
    assert all(len(w.candidates) in widths for w in found[:-1])


@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 5))
def test_every_epoch_sees_every_window_once(total, batch, seed):
    seen = [place for step in range(2 * total) for place in step_indices(step, batch, total, seed)]
    for epoch in range(2):
        assert sorted(index for e, index in seen if e == epoch) == list(range(total))


def test_slot_counts_by_hand():
    found = some(count=1, pool=4, widths=(2,))
    ids = [c.id for c in found[0].instance.pool]
    assert slot_counts(found, {found[0].instance.id: {ids[0], ids[2], ids[3]}}).tolist() == [2, 1]


def test_labels_of_other_texts_are_remarked_on(tmp_path, caplog):
    data = tiny.write_collection(tmp_path / "pools.jsonl", 3, 4, seed=0)
    label(lambda query, texts: [0.5] * len(texts), str(data), tmp_path / "labels", quiet=True)
    config = TrainConfig(data=str(data), labels=str(tmp_path / "labels"), objective="single_order", widths=(4,))
    training_data(config)
    assert not caplog.records
    data.write_text(data.read_text().replace('"text"', '"title": "t", "text"'))
    training_data(config)
    assert "labels was made from pools with other contents than" in caplog.text
