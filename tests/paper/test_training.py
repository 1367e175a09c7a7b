"""Students of the tables become training runs of the package: recipe, variant, scale, in the order they need each other."""

from dataclasses import fields
from pathlib import Path

import pytest

from steadyscore.paper.artifacts import ARTIFACTS
from steadyscore.paper.jobs import TrainingJob, jobs_of, requests_of, trainings_of
from steadyscore.paper.names import SYSTEMS
from steadyscore.paper.plan import training_size
from steadyscore.paper.scale import choices_from
from steadyscore.paper.work import Store, train_config
from steadyscore.training.objectives import PAPER_RAMP
from steadyscore.training.recipe import value_mistakes

STUDENTS = [name for name, system in SYSTEMS.items() if system.training]


def a_config(name, scale="laptop", task="passage_reranking", **given):
    choices = choices_from(scale, **given)
    job = TrainingJob(SYSTEMS[name].training, name, "qwen3-4b", task, 43, choices)
    return train_config(job, Path("labels"), Path("out"))


@pytest.mark.parametrize("scale", ["laptop", "paper"])
@pytest.mark.parametrize("name", STUDENTS)
def test_every_student_is_a_training_run_without_mistakes(name, scale):
    config = a_config(name, scale)
    assert value_mistakes({field.name: getattr(config, field.name) for field in fields(config)}) == {}
    assert config.objective == SYSTEMS[name].training.objective
    assert config.seed == 43


def test_the_papers_scale_trains_by_the_recipe_of_the_task():
    config = a_config("oc-sft", "paper", "multidoc_qa")
    assert (config.base, config.data, config.weight, config.weight_convention) == (
        "hf:Qwen/Qwen3-4B",
        "hotpotqa-train",
        3,
        "pairwise",
    )


def test_another_objective_does_not_take_the_weight_of_the_recipe():
    assert a_config("single-order", "paper").weight is None
    assert a_config("kl", "paper").weight == 0.05


def test_the_ramp_is_that_of_the_consistency_term_and_shorter_in_a_shorter_run(tmp_path):
    assert [a_config(name, "paper").ramp for name in ("oc-sft", "single-order", "ema", "kl")] == [500, None, None, None]
    assert a_config("oc-sft-300", "paper").ramp == PAPER_RAMP
    choices = choices_from("paper")
    jobs = trainings_of(jobs_of(requests_of(ARTIFACTS["sampleeff"].cells(), choices), choices))
    assert len(jobs) > 9
    assert all(training_size(job, Store(tmp_path)).steps for job in jobs)  # a run that would be refused has no size


def test_a_laptop_trains_windows_that_its_pools_hold():
    assert a_config("oc-sft").widths == (5,)
    assert a_config("pointwise").widths == (1,)


def test_a_teacher_is_trained_before_its_student():
    choices = choices_from("laptop")
    jobs = jobs_of(requests_of(ARTIFACTS["redistill"].cells(), choices), choices)
    systems = [training.system for training in trainings_of(jobs)]
    assert systems.index("oc-sft") < systems.index("redistilled-1") < systems.index("redistilled-2")


def test_variants_that_differ_only_in_the_student_share_their_labels():
    choices = choices_from("paper")
    jobs = jobs_of(requests_of(ARTIFACTS["variants"].cells(), choices), choices)
    labels = {training.system: training.labels.key for training in trainings_of(jobs)}
    assert labels["single-order"] == labels["oc-sft"] == labels["debias-first"]
    assert labels["order-averaged"] == labels["order-averaged-t5"] != labels["oc-sft"]


def test_an_adapter_of_the_user_is_not_trained_again(tmp_path):
    choices = choices_from("laptop", adapters={"oc-sft": str(tmp_path)})
    jobs = jobs_of(requests_of(ARTIFACTS["deploywidth"].cells(), choices), choices)
    assert trainings_of(jobs) == []
    assert {job.scoring.address for job in jobs} == {f"hf:smollm2-135m+{tmp_path}"}
