"""What a run cannot give is refused in one sentence, and never made up."""

from dataclasses import replace

import pytest

from steadyscore.engines import Capabilities, EngineOptions
from steadyscore.engines.synthetic import PlantedGrader
from steadyscore.errors import InputError
from steadyscore.paper import work
from steadyscore.paper.artifacts import ARTIFACTS
from steadyscore.paper.jobs import Need, job_of, jobs_of, request_of, requests_of
from steadyscore.paper.layout import fill, paper_values
from steadyscore.paper.library import At, Library, MissingRun
from steadyscore.paper.recipe import Cell, Side
from steadyscore.paper.render import Shown, to_text
from steadyscore.paper.scale import SCALES, choices_from
from steadyscore.paper.statistics import value_of
from steadyscore.paper.work import Store


class RankingOnly(PlantedGrader):
    """A planted grader that says of itself that it gives no scores."""

    def __init__(self, *given):
        super().__init__(*given)
        self.capabilities = Capabilities(gives="ranking", deterministic=True)


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "PlantedGrader", RankingOnly)
    choices = choices_from("tiny")
    side = Side(system="rank-zephyr", collections="dl19", permutations=3, seeds=(0,))
    job = job_of(request_of(side, "qwen3-4b", 0, "dl19"), frozenset({Need(3)}), choices)
    work.Workshop(Store(tmp_path), choices, EngineOptions(), quiet=True).do(job, print)
    return Library(Store(tmp_path), choices), side


def test_a_system_that_only_ranks_has_no_overlap(library):
    shelf, side = library
    place = At(side, "qwen3-4b", 0, "dl19")
    assert shelf.observation(place, "tau_psi").values.size
    for name in ("overlap", "floor:overlap", "retention"):
        with pytest.raises(MissingRun, match=rf"^rank-zephyr on dl19 gives a ranking, and {name} needs scores"):
            shelf.observation(place, name)
    assert shelf.measured(place).cutoff.value is None


MARKERS = Cell("off-the-shelf", collections="markers", measure="ndcg@10", permutations=2)


@pytest.fixture
def without_legal(tmp_path):
    """Two of three collections of a group, scored at the paper's scale by planted graders; Legal-A is nobody's."""
    given = {"dl19": "passages", "nfcorpus": "passages"}
    choices = replace(choices_from("tiny", collections=given), scale=replace(SCALES["tiny"], name="paper", pool={}))
    for job in jobs_of(requests_of([MARKERS], choices), choices):
        work.Workshop(Store(tmp_path), choices, EngineOptions(), quiet=True).do(job, print)
    return Library(Store(tmp_path), choices)


def test_a_mean_over_collections_leaves_out_the_private_ones(without_legal):
    value = value_of(MARKERS, without_legal)
    assert (value.basis.collections, value.reason) == (2, "")
    alone = value_of(replace(MARKERS, collections="legal-a"), without_legal)
    assert alone.reason == "off-the-shelf of qwen3-4b on legal-a is not scored yet."


def test_the_caption_says_what_is_left_out_and_shows_what_the_paper_prints_for_the_rest(without_legal):
    levels = ARTIFACTS["levels"]
    quality = replace(levels.blocks[0], rows=levels.blocks[0].rows[:1], columns=levels.blocks[0].columns[:2], special={}, bold="")
    [grid] = (filled := fill(replace(levels, blocks=(quality,)), without_legal)).grids
    assert "leave out Legal-A and Legal-B, which are private: 16 of 18 are averaged" in to_text(filled, Shown())
    printed = paper_values()
    assert grid.paper == {
        (0, 0): printed["grids-ndcg"]["Qwen3-4B"]["Off the shelf"]["Public 16"],
        (0, 1): printed["public-full"]["τ-PSI, lower is better"]["Off the shelf"]["Public 16"],
    }


def test_a_file_of_ones_own_takes_the_place_of_a_private_collection():
    assert choices_from("paper").members("reranking") == choices_from("paper").members("public")
    assert len(choices_from("paper", collections={"legal-a": "mine.jsonl"}).members("reranking")) == 17
    assert len(choices_from("tiny").members("reranking")) == 18


def test_an_adapter_is_that_of_its_task(tmp_path):
    keys = ["oc-sft", "oc-sft/multidoc_qa", "oc-sft/multidoc_qa/qwen3-4b/43", "oc-sft/qwen3-4b/42"]
    for key in keys:
        (tmp_path / key.replace("/", "-")).mkdir()
    choices = choices_from("paper", adapters={key: str(tmp_path / key.replace("/", "-")) for key in keys})

    def named(task, seed):
        return choices.adapter("oc-sft", task, "qwen3-4b", seed).rpartition("/")[2]

    assert named("multidoc_qa", 43) == "oc-sft-multidoc_qa-qwen3-4b-43"
    assert named("multidoc_qa", 42) == "oc-sft-multidoc_qa"
    assert named("passage_reranking", 42) == "oc-sft-qwen3-4b-42"
    assert named("passage_reranking", 43) == "oc-sft"
    with pytest.raises(InputError, match=r"'oc-sft/reranking' is not SYSTEM\[/TASK\]\[/BASE\[/SEED\]\]"):
        choices_from("paper", adapters={"oc-sft/reranking": str(tmp_path)})
