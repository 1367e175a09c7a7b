"""A tiny base goes through all three stages for real: labels, students, the selected checkpoints, scores, a table."""

from dataclasses import replace

import pytest

from steadyscore.engines import EngineOptions
from steadyscore.machine.disk import read_json
from steadyscore.paper.artifacts.common import FOUR
from steadyscore.paper.gallery import describe_training
from steadyscore.paper.jobs import jobs_of, requests_of, trainings_of
from steadyscore.paper.layout import fill
from steadyscore.paper.library import Library
from steadyscore.paper.recipe import Artifact, Block, Fields, line
from steadyscore.paper.scale import choices_from
from steadyscore.paper.work import SELECTED, Store, Workshop, do_pieces, pieces_of, selection_words
from steadyscore.runs.folder import find_runs
from tests.helpers import tiny

TRAINING = {
    "queries": 4, "pool": 4, "chars": 60, "steps": 2, "batch": 1, "widths": (2,), "held_out": 2, "evaluate_every": 1,
    "held_out_permutations": 2, "ramp": 0.5, "weight_convention": "variance",
}  # fmt: skip
COLLECTIONS = {"passage_reranking": "dl19", "multidoc_qa": "hotpotqa", "response_ranking": "rewardbench2"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    model = tiny.decoder()
    model.config.max_position_embeddings = 8_192
    return tiny.save(tmp_path_factory.mktemp("base"), model)


def a_table(tasks):
    columns = tuple(line(f"{measure}, {task}", collections=COLLECTIONS[task], measure=measure) for task in tasks for measure in
                    ("ndcg@10", "tau_psi"))  # fmt: skip
    return Artifact("own", "Four variants", blocks=(Block("", FOUR, columns, Fields(permutations=3)),))


@pytest.mark.parametrize("tasks", [("passage_reranking",), pytest.param(tuple(COLLECTIONS), marks=pytest.mark.slow)])
def test_four_variants_go_from_labels_to_a_table(tasks, base, tmp_path):
    choices = choices_from("laptop", base=f"hf:{base}")
    scale = replace(choices.scale, queries=2, pool=dict.fromkeys(tasks, 4), permutations=3, training=TRAINING)
    choices = replace(choices, scale=scale, weights=(1.0, 4.0))
    artifact, store = a_table(tasks), Store(tmp_path)
    jobs = jobs_of(requests_of(artifact.cells(), choices), choices)
    pieces = pieces_of(jobs)
    for stage, count in (("labels", 2), ("train", 3), ("score", 4)):
        mine = [piece for piece in pieces if piece.stage == stage]
        assert len(mine) == count * len(tasks)
        assert do_pieces(mine, Workshop(store, choices, EngineOptions(), quiet=True, stage=stage), print) == []

    filled = fill(artifact, Library(store, choices))
    assert filled.reasons() == []
    for training in trainings_of(jobs):
        about = read_json(store.adapter_folder(training) / SELECTED)
        assert about["rule"] == "highest_quality"
        assert about["step"] in (1, 2)
        assert about["weight"] in ((1.0, 4.0) if training.system == "oc-sft" else (0.0, None))
        assert f"Scored: step {about['step']}" in describe_training(training) + selection_words(store, training)
    runs = find_runs([tmp_path / "runs"])
    assert sum(run.record.fingerprint.scorer.get("adapter") is None for run in runs) == len(tasks)
    assert len({run.digest() for run in runs}) == len(runs) == 4 * len(tasks)  # every training moved something
