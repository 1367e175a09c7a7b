"""`steadyscore.label`: labels from any scorer, from judgements, and from other labels."""

from __future__ import annotations

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.training.labels import labels_identity, read_labels


def by_length(query, texts):
    return [len(text) / 10_000 for text in texts]


def test_a_function_labels_a_collection_and_the_labels_are_kept(tmp_path):
    labelled = steadyscore.label(by_length, "passages", tmp_path / "labels", queries=2, pool=4, teacher_orders=3, quiet=True)
    assert [label.vectors.shape for label in labelled.labels] == [(3, 4)] * 2
    kept = read_labels(tmp_path / "labels")
    assert [label.query_id for label in kept] == [label.query_id for label in labelled.labels]
    np.testing.assert_allclose(kept[0].vectors, labelled.labels[0].vectors)
    found = labelled.to_json()
    assert (found["queries"], found["teacher_orders"], found["failed"]) == (2, 3, [])
    assert found["out"] == str(tmp_path / "labels")
    assert found["silver_beta"] == 0  # a function of each text alone


def test_labels_are_derived_from_judgements_and_from_labels(tmp_path):
    judged = steadyscore.label("judgements", "passages", tmp_path / "judged")
    assert judged.to_json()["ndcg@10"] == pytest.approx(1)
    subset = steadyscore.label(start=tmp_path / "judged", data="passages", out=tmp_path / "part", subset=3, control="random")
    assert len(subset.labels) == 3
    assert {label.query_id for label in subset.labels} <= {label.query_id for label in judged.labels}


def test_a_query_that_the_teacher_fails_on_is_named(tmp_path):
    def moody(query, texts):
        if not hasattr(moody, "query"):
            moody.query = query
        if query == moody.query:
            raise ValueError("not today")
        return [0.5] * len(texts)

    labelled = steadyscore.label(moody, "passages", tmp_path / "labels", queries=3, quiet=True)
    assert (labelled.queries, len(labelled.labels)) == (3, 2)
    assert [failure.reason for failure in labelled.failed] == ["ValueError: not today"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "passages", "out": "o"}, "label needs either a scorer or a label folder to start from"),
        ({"scorer": by_length, "start": "labels", "data": "passages", "out": "o"}, "either a scorer or a label folder"),
        ({"scorer": by_length, "data": "passages"}, "and the folder `out`"),
        ({"scorer": by_length, "data": "passages", "out": "o", "widht": 3}, "label has no setting widht. It has queries, pool"),
    ],
)
def test_what_is_missing_or_unknown_is_said(given, message):
    with pytest.raises(InputError, match=message):
        steadyscore.label(**given)


def test_the_command_offers_no_setting_that_labels_do_not_take(capsys):
    with pytest.raises(SystemExit):
        main(["label", "--scorer", "synthetic:slot", "--data", "passages", "--out", "o", "--set", "marker_seed=2"])
    assert "there is no setting 'marker_seed'" in capsys.readouterr().err


@pytest.fixture
def world(tmp_path):
    """Six queries, and judgements of all of them as labels."""
    from tests.helpers import tiny

    tiny.save(tmp_path / "base", tiny.decoder())
    data = tiny.write_collection(tmp_path / "pools.jsonl", 6, 5, seed=0)
    steadyscore.label("judgements", str(data), tmp_path / "all")
    return tmp_path


def run_of(world, labels, **changes):
    from steadyscore.training.recipe import TrainConfig

    return TrainConfig(
        base=f"hf:{world / 'base'}", data=str(world / "pools.jsonl"), labels=str(world / labels), out=str(world / "out"),
        widths=(5,), steps=2, batch=2, device="cpu", **changes,
    )  # fmt: skip


def test_a_subset_is_trained_on_and_the_plan_says_the_same(world):
    from steadyscore.training.cost import estimate
    from steadyscore.training.examples import training_data

    part = steadyscore.label(start=world / "all", data=str(world / "pools.jsonl"), out=world / "part", subset=4)
    again = steadyscore.label(start=world / "part", data=str(world / "pools.jsonl"), out=world / "again", control="shuffled")
    assert len(again.labels) == 4  # made from a subset, and still one
    for labels in ("part", "again"):
        config = run_of(world, labels)
        data = training_data(config)
        assert {example.instance.id for example in data.examples} == {label.query_id for label in part.labels}
        assert (estimate(data).queries, estimate(data).windows) == (data.queries, len(data.examples)) == (4, 4)
    trained = steadyscore.train(run_of(world, "part"))
    assert trained.card["data"]["queries"] == 4


def test_held_out_queries_are_cut_off_before_the_subset(world):
    from steadyscore.training.cost import estimate
    from steadyscore.training.examples import training_data
    from steadyscore.training.labels import write_labels

    steadyscore.label(start=world / "all", data=str(world / "pools.jsonl"), out=world / "part", subset=5)
    config = run_of(world, "part", held_out=2)
    data = training_data(config)
    assert len(data.held_out) == 2
    assert data.queries == estimate(data).queries
    assert 3 <= data.queries <= 4
    write_labels(world / "one", read_labels(world / "all")[5:], {"subset": 1})
    with pytest.raises(InputError, match=r"no training query of .* has a label in"):
        training_data(run_of(world, "one", held_out=5))


def test_labels_that_miss_a_query_are_refused(world):
    from steadyscore.training.cost import estimate
    from steadyscore.training.examples import training_data
    from steadyscore.training.labels import write_labels

    write_labels(world / "most", read_labels(world / "all")[:4])  # no subset: somebody's labels are not complete
    with pytest.raises(InputError, match="query q0-4 has no label") as refusal:
        training_data(run_of(world, "most"))
    assert "The labels do not cover the pool" in str(refusal.value)
    assert estimate(training_data(run_of(world, "most", held_out=2))).queries == 4  # what is held out needs none


def shapes(labels):
    return [(label.query_id, label.vectors.shape) for label in labels]


def test_derived_labels_are_those_of_the_part_that_is_asked_for(tmp_path):
    steadyscore.label(
        by_length, "passages", tmp_path / "all", queries=4, pool=5, teacher_orders=2, rank_first_stage=True, quiet=True
    )
    part = steadyscore.label(start=tmp_path / "all", data="passages", out=tmp_path / "part", queries=2, pool=3)
    asked = steadyscore.label(
        by_length, "passages", tmp_path / "asked", queries=2, pool=3, teacher_orders=2, rank_first_stage=True, quiet=True
    )
    assert shapes(part.labels) == shapes(asked.labels)
    for one, other in zip(part.labels, asked.labels, strict=True):
        assert one.candidate_ids == other.candidate_ids
        np.testing.assert_allclose(one.vectors, other.vectors)
        assert one.first.shape == (3,)
    whole = steadyscore.label(start=tmp_path / "all", data="passages", out=tmp_path / "whole")
    assert [shape for _, shape in shapes(whole.labels)] == [(2, 5)] * 4


def test_labels_of_other_data_are_refused(tmp_path):
    steadyscore.label("judgements", "passages", tmp_path / "all")
    others = [{"id": "elsewhere", "query": "why", "candidates": ["a", "b"]}]
    with pytest.raises(InputError, match=r"all has no label of data\. Name the data that it was made of with --data"):
        steadyscore.label(start=tmp_path / "all", data=others, out=tmp_path / "none")


@pytest.mark.parametrize(
    ("source", "settings", "flags"),
    [
        (
            {"start": "labels"},
            {"width": 3, "scale": "rank", "rank_first_stage": True, "judged_top": 1, "chars": 9},
            "--scale, --rank-first-stage, --width, --chars, --judged-top would change nothing of labels that are derived",
        ),
        ({"scorer": "judgements"}, {"teacher_orders": 5, "scale": "sigmoid"}, "--teacher-orders, --scale would change nothing"),
        ({"scorer": by_length}, {"judged_top": 1}, "--judged-top would change nothing of the labels of a scorer"),
    ],
)
def test_settings_that_would_change_nothing_are_refused(tmp_path, source, settings, flags):
    with pytest.raises(InputError, match=flags):
        steadyscore.label(data="passages", out=tmp_path / "labels", **source, **settings)
    assert not (tmp_path / "labels").exists()


def test_derived_labels_never_replace_what_a_teacher_said(tmp_path):
    steadyscore.label(by_length, "passages", tmp_path / "taught", queries=2, teacher_orders=3, quiet=True)
    steadyscore.label("judgements", "passages", tmp_path / "judged")
    before = (tmp_path / "taught" / "labels.parquet").read_bytes()
    with pytest.raises(InputError, match="taught would be replaced by what is derived from it"):
        steadyscore.label(start=tmp_path / "taught", data="passages", out=tmp_path / "judged" / ".." / "taught", control="random")
    for source in ({"scorer": "judgements"}, {"start": tmp_path / "judged"}):
        with pytest.raises(InputError, match=r"taught holds a run, .* Choose another --out"):
            steadyscore.label(data="passages", out=tmp_path / "taught", **source)
    assert (tmp_path / "taught" / "labels.parquet").read_bytes() == before


def test_a_card_says_what_its_labels_were_derived_from(tmp_path):
    taught = tmp_path / "taught"
    steadyscore.label(by_length, "passages", taught, queries=2, teacher_orders=3, quiet=True)
    assert labels_identity(str(taught))["teacher_orders"] == 3
    steadyscore.label(start=taught, data="passages", out=tmp_path / "control", control="random", teacher_orders=2)
    derived = labels_identity(str(tmp_path / "control"))
    assert {key: value for key, value in derived.items() if key != "sha256"} == {
        "source": "control", "from": "taught", "control": "random", "teacher_orders": 2,
    }  # fmt: skip
    (taught / "derived.json").write_bytes((tmp_path / "control" / "derived.json").read_bytes())
    (taught / "labels.parquet").write_bytes((tmp_path / "control" / "labels.parquet").read_bytes())
    mixed = labels_identity(str(taught))  # as versions before this one left it
    assert "teacher" not in mixed
    assert mixed["teacher_orders"] == 2
