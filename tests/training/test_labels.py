from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.collection import open_collection
from steadyscore.commands import label as verb
from steadyscore.engines.python import PythonReranker
from steadyscore.errors import InputError
from steadyscore.runs.folder import Run
from steadyscore.scoring.config import AuditConfig, open_scorer, scorer_for
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from steadyscore.training import labels
from steadyscore.training.examples import examples
from steadyscore.training.labels import Label
from tests.helpers import tiny
from tests.helpers.pools import some_instances, write_collection


def labelled(vectors, query_id="q0") -> Label:
    vectors = np.asarray(vectors, float)
    return Label(query_id, tuple(f"d{i}" for i in range(vectors.shape[1])), vectors)


def run_verb(*words: str) -> int:
    import argparse

    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    args = parser.parse_args(words)
    args.command, args.quiet = list(words), False
    return verb.run(args)


def test_single_order_is_the_first_row_and_a_lower_t_needs_no_new_pass():
    label = labelled([[0, 3], [2, 1], [1, 2]])
    np.testing.assert_array_equal(labels.target(label, 1), [0, 3])
    np.testing.assert_array_equal(labels.target(label, 2), [1, 2])
    np.testing.assert_array_equal(labels.target(label), [1, 2])
    with pytest.raises(InputError, match=r"3 teacher orders, 4 were asked for"):
        labels.target(label, 4)


def test_labels_of_a_scorer_are_its_scores_on_the_grade_scale(tmp_path, collection_file):
    config = AuditConfig(permutations=3, settings=Settings(width=3))
    collection = open_collection(str(collection_file)).collection
    scorer = open_scorer("synthetic:slot", collection, config)
    made = labels.label_by_run(score_collection(scorer, str(collection_file), tmp_path / "labels", config), "rank")
    again = labels.read_labels(tmp_path / "labels")
    assert [label.query_id for label in made] == [label.query_id for label in again]
    for a, b in zip(made, again, strict=True):
        np.testing.assert_array_equal(a.vectors, b.vectors)
        assert a.vectors.shape == (3, 6)
        assert set(np.unique(a.vectors)) <= {0, 0.6, 1.2, 1.8, 2.4, 3.0} | set(np.arange(6) / 5 * 3)
    found = labels.label_quality(made, str(collection_file))
    assert found["queries"] == 4
    assert found["silver_beta"] > 0
    assert 0 < found["ndcg@10"] <= 1


def test_the_grade_distribution_has_the_label_as_its_mean(tmp_path, tiny_folder, collection_file):
    config = AuditConfig(permutations=2, settings=Settings(width=6, label_mass=False))
    scorer = open_scorer(f"hf:{tiny_folder}", open_collection(str(collection_file)).collection, config)
    for label in labels.label_by_run(score_collection(scorer, str(collection_file), tmp_path / "labels", config)):
        np.testing.assert_allclose(label.grades @ np.arange(4), labels.target(label), atol=1e-5)
    assert Run.open(tmp_path / "labels").is_complete
    identity = labels.labels_identity(str(tmp_path / "labels"))
    assert identity["teacher_orders"] == 2


def test_scores_on_another_scale_are_refused_with_the_way_out(tmp_path, collection_file):
    scored = labels.Scored("q", ("a", "b"), np.array([0]), np.array([[-4.0, 7.5]]))
    with pytest.raises(InputError, match=r"on another scale: -4 to 7.5 for query q.*--scale sigmoid"):
        labels.from_scored(scored)
    assert 0 < labels.from_scored(scored, "sigmoid").vectors.min() < labels.from_scored(scored, "sigmoid").vectors.max() < 3
    labels.write_labels(tmp_path, [labelled([[0, 90]])])
    with pytest.raises(InputError, match="on another scale: 0 to 90"):
        labels.read_labels(tmp_path)


def test_what_rounding_adds_to_a_score_is_clipped_and_the_labels_are_read_again(tmp_path):
    def barely_beyond(query, texts):
        return [1 + 9e-7, -9e-7, *([0.5] * (len(texts) - 2))]

    config = AuditConfig(permutations=2)
    file = str(write_collection(tmp_path / "pools.jsonl", some_instances()))
    scorer = scorer_for(PythonReranker(barely_beyond, "barely beyond"), open_collection(file).collection, config)
    made = labels.label_by_run(score_collection(scorer, file, tmp_path / "labels", config))
    for label, again in zip(made, labels.read_labels(tmp_path / "labels"), strict=True):
        assert (label.vectors.min(), label.vectors.max()) == (0, 3)
        np.testing.assert_array_equal(label.vectors, again.vectors)


def test_judgements_as_labels():
    instances = [*open_instances(tiny.instances(3, 10, 0))]
    label = labels.from_judgements(instances[0])
    judged = {c.id: c.relevance for c in instances[0].pool}
    assert labels.target(label).tolist() == [judged[i] for i in label.candidate_ids]
    with pytest.raises(InputError, match=r"above the top judgement 1.*--judged-top"):
        labels.from_judgements(instances[0], 1)


def open_instances(records):
    from steadyscore.collection.format import instance_from

    return map(instance_from, records)


@given(st.lists(st.floats(0, 3), min_size=1, max_size=8), st.data())
def test_recalibration_keeps_the_rank_order_and_the_references_values(values, data):
    other = data.draw(st.lists(st.floats(0, 3), min_size=len(values), max_size=len(values)))
    found = labels.recalibrate(labelled([values]), labelled([other])).vectors[0]
    assert sorted(found) == sorted(other)
    for i in range(len(values)):
        for j in range(len(values)):
            if values[i] < values[j]:
                assert found[i] <= found[j]


def test_recalibration_ranks_by_the_mean_over_all_orders_and_equal_ones_by_id():
    equal = labels.recalibrate(labelled([[1, 1, 0]]), labelled([[0.5, 2, 3]]))
    assert equal.vectors.tolist() == [[3, 2, 0.5]]
    several = labels.recalibrate(labelled([[2, 1, 0], [0, 3, 0]]), labelled([[0.5, 2, 3], [1, 1, 1]]))
    assert several.vectors.tolist() == [[2, 3, 0.5]]


def test_controls_lose_the_order_and_shuffling_keeps_the_values():
    label = labelled(np.arange(20)[None] / 10)
    shuffled, random = labels.replace_by_control(label, "shuffled", 0), labels.replace_by_control(label, "random", 0)
    assert sorted(shuffled.vectors[0]) == sorted(label.vectors[0])
    assert shuffled.vectors.tolist() != label.vectors.tolist()
    assert 0 <= random.vectors.min() <= random.vectors.max() <= 3
    assert labels.replace_by_control(label, "random", 0).vectors.tolist() == random.vectors.tolist()


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 3))
def test_smaller_subsets_are_inside_larger_ones(a, b, seed):
    twelve = [labelled([[0, 1]], f"q{i}") for i in range(12)]
    small, large = ({label.query_id for label in labels.nested_subset(twelve, n, seed)} for n in sorted((a, b)))
    assert len(small) == min(a, b)
    assert small <= large


def test_labels_that_do_not_cover_the_pool_are_all_named():
    instances = [*open_instances(tiny.instances(3, 4, 0))]
    by_query = {i.id: labels.from_judgements(i) for i in instances[:2]}
    by_query[instances[1].id] = Label(instances[1].id, ("d0",), np.zeros((1, 1)))
    with pytest.raises(InputError) as refusal:
        examples(instances, by_query, (2,), teacher_orders=1, seed=0)
    assert f"query {instances[1].id} has no label for 3 of 4 candidates" in str(refusal.value)
    assert f"query {instances[2].id} has no label" in str(refusal.value)


def test_the_verb_labels_and_derives(tmp_path, capsys):
    file = write_collection(tmp_path / "pools.jsonl", some_instances())
    assert (
        run_verb(
            "--scorer",
            "synthetic:slot",
            "--scale",
            "rank",
            "--data",
            str(file),
            "--teacher-orders",
            "4",
            "--width",
            "3",
            "--out",
            str(tmp_path / "a"),
        )
        == 0
    )
    assert (
        run_verb(
            "--from",
            str(tmp_path / "a"),
            "--data",
            str(file),
            "--teacher-orders",
            "2",
            "--subset",
            "2",
            "--out",
            str(tmp_path / "b"),
            "--json",
        )
        == 0
    )
    derived = labels.read_labels(tmp_path / "b")
    whole = {label.query_id: label for label in labels.read_labels(tmp_path / "a")}
    assert len(derived) == 2
    assert all(np.array_equal(label.vectors, whole[label.query_id].vectors[:2]) for label in derived)
    capsys.readouterr()
    assert run_verb("--scorer", "judgements", "--data", str(file), "--out", str(tmp_path / "c"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["ndcg@10"] == pytest.approx(1.0)


def test_equal_scores_get_equal_labels_by_rank():
    assert labels._unit(np.full((2, 5), 0.5), "rank", "t", "q").tolist() == [[0.5] * 5] * 2
    assert labels._unit(np.array([[3.0, 1.0, 3.0]]), "rank", "t", "q").tolist() == [[0.75, 0.0, 0.75]]


def test_a_subset_that_is_labelled_in_full_later_is_no_subset_any_more(tmp_path):
    labels.write_labels(tmp_path, [labelled([[0, 3]])], {"subset": 1})
    assert labels.is_subset(str(tmp_path))
    labels.write_labels(tmp_path, [labelled([[0, 3]])])
    assert not labels.is_subset(str(tmp_path))
