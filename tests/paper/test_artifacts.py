"""The recipes are whole: every table and figure of the paper, every name known, every paper value beside a cell."""

import re
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from steadyscore.errors import InputError
from steadyscore.measures.registry import MEASURES
from steadyscore.paper.artifacts import ARTIFACTS, artifact_of
from steadyscore.paper.jobs import jobs_of, requests_of
from steadyscore.paper.layout import paper_values
from steadyscore.paper.library import PER_COLLECTION, PER_QUERY
from steadyscore.paper.names import BASES as KNOWN_BASES
from steadyscore.paper.names import COLLECTIONS, GROUPS, SYSTEMS, bases_in
from steadyscore.paper.recipe import Cell
from steadyscore.paper.scale import SCALES, choices_from
from steadyscore.paper.statistics import STATISTICS
from steadyscore.terms import Perturbation
from tests.helpers.paths import ROOT

MEASURED = [artifact for artifact in ARTIFACTS.values() if not artifact.is_diagram]


def test_all_47_are_there_in_the_order_of_the_paper():
    labels = [artifact.label for artifact in ARTIFACTS.values()]
    assert len(labels) == len(set(labels)) == 47
    assert sum(label.startswith("tab:") for label in labels) == 36
    for word in ("Table", "Figure"):
        numbers = [artifact.number for artifact in ARTIFACTS.values() if artifact.number.startswith(word)]
        assert numbers == [f"{word} {i}" for i in range(1, len(numbers) + 1)]


def test_one_of_them_is_a_diagram_and_says_so():
    assert [artifact.name for artifact in ARTIFACTS.values() if artifact.is_diagram] == ["remedies"]


@pytest.mark.parametrize("artifact", MEASURED, ids=lambda artifact: artifact.name)
def test_every_cell_names_things_that_exist(artifact):
    for cell in artifact.cells():
        assert cell.statistic in STATISTICS
        if cell.text or cell.statistic == "size":
            continue
        for side in [side for _, side in cell.sides()]:
            assert side.system in SYSTEMS
            assert side.collections in {*COLLECTIONS, *GROUPS}
            assert set(bases_in(side.base)) <= set(KNOWN_BASES)
        known = {*MEASURES, *PER_QUERY, *PER_COLLECTION, ""}
        assert cell.measure.removeprefix("floor:") in known


CHOICES = {name: get_args(hint) for name, hint in get_type_hints(Cell).items() if get_origin(hint) is Literal}
"""Fields of a cell that have one of a few values."""


@pytest.mark.parametrize("artifact", MEASURED, ids=lambda artifact: artifact.name)
def test_every_setting_of_a_cell_is_one_that_exists(artifact):
    for cell in artifact.cells():
        for said in (cell, *(side for _, side in cell.sides())):
            assert {
                name: getattr(said, name) for name, known in CHOICES.items() if getattr(said, name, known[0]) not in known
            } == {}
        assert {*cell.perturb} <= {*get_args(Perturbation)}


@pytest.mark.parametrize("artifact", MEASURED, ids=lambda artifact: artifact.name)
def test_rows_and_columns_of_a_block_have_names_of_their_own(artifact):
    assert len({block.title for block in artifact.blocks}) == len(artifact.blocks)
    for block in artifact.blocks:
        keys = [column.key for column in block.columns]
        assert len(set(keys)) == len(keys)
        assert len({row.label for row in block.rows}) == len(block.rows)


def test_every_value_of_the_paper_belongs_to_a_cell():
    for name, blocks in paper_values().items():
        titles = {block.title: block for block in ARTIFACTS[name].blocks}
        for title, rows in blocks.items():
            block = titles[title]
            assert set(rows) <= {row.label for row in block.rows}
            keys = {column.key for column in block.columns}
            assert all(set(columns) <= keys for columns in rows.values())


def test_every_table_of_the_paper_has_its_values():
    assert {artifact.name for artifact in ARTIFACTS.values() if artifact.label.startswith("tab:")} <= set(paper_values())
    assert sum(len(columns) for blocks in paper_values().values() for rows in blocks.values() for columns in rows.values()) > 4000


@pytest.mark.parametrize(
    ("name", "block", "row", "column", "printed"),
    [
        ("levels", "", "OC-SFT", "Passage reranking (18): Jacc.", "0.835"),
        ("levels", "", "GPT-5.4", "Response ranking (5): Pair", "0.489"),
        ("variants", "", "+ KL-to-base β=0.05", "% closed", "−17.5%"),
        ("decomp", "Averaged over K=10 serving permutations", "ArguAna", "Skeleton", "+0.1567*"),
        ("grids-tau", "Gemma-26B-A4B MoE", "OC-SFT (avg. labels)", "All 18", "0.085"),
        ("grids-ndcg", "Granite-30B", "Off the shelf", "DL19", "0.659"),
        ("batching-latency", "", "Public-16 median", "B=20 ↓", "45.4% [42.0, 51.7]"),
        ("firststage-perdataset", "", "Mean (13)", "SPLADE++ ED: OC-SFT: τ-PSI", "0.090"),
        ("pairrm", "", "RM-Bench", "OC-SFT − PairRM: 95% CI", "[+0.0543, +0.1176]"),
    ],
)
def test_values_of_the_paper_are_where_it_prints_them(name, block, row, column, printed):
    assert paper_values()[name][block][row][column] == printed


def test_nothing_that_computes_holds_a_value_of_the_paper():
    printed = {text for rows in paper_values()["levels"][""].values() for text in rows.values()} - {"---"}
    for file in (ROOT / "src/steadyscore/paper").rglob("*.py"):
        assert not printed & set(re.findall(r"0\.\d{3}\b", file.read_text())), file


@pytest.mark.parametrize("scale", SCALES)
def test_every_artifact_becomes_jobs_at_every_scale(scale):
    choices = choices_from(scale)
    for artifact in (ARTIFACTS[name] for name in ("levels", "mechanism-controls", "teacherclean", "copresence-level")):
        jobs = jobs_of(requests_of(artifact.cells(), choices), choices)
        assert len({job.content.key for job in jobs}) == len(jobs) > 0


def test_a_run_that_two_tables_need_is_one_job():
    choices = choices_from("paper")
    keys = [
        {job.content.key for job in jobs_of(requests_of(ARTIFACTS[name].cells(), choices), choices)}
        for name in ("rr-pairflip", "reportedscore")
    ]
    shared = keys[0] & keys[1]
    assert len(shared) == 5  # OC-SFT, seed 42, on the five collections


def test_an_artifact_is_found_by_its_name_and_by_the_papers_label():
    assert artifact_of("tab:levels") is artifact_of("levels")


def test_an_unknown_artifact_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"no table or figure 'level'\. Did you mean levels\?"):
        artifact_of("level")
