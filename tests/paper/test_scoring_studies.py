"""Studies that score: single cells of the recipes, run at the tiny scale, give back what the planted graders do."""

from __future__ import annotations

import pytest

from steadyscore.engines import EngineOptions
from steadyscore.paper.artifacts.tasks import CONTENT, LENGTH, MATCHED, SKELETON, between
from steadyscore.paper.jobs import jobs_of, requests_of
from steadyscore.paper.library import At, Library
from steadyscore.paper.recipe import Cell, Term
from steadyscore.paper.scale import choices_from
from steadyscore.paper.statistics import value_of
from steadyscore.paper.work import READS, Store, Workshop, do_pieces, pieces_of

TINY = choices_from("tiny")
OC = {"system": "oc-sft", "collections": "dl19", "permutations": 4, "measure": "ndcg@10"}
ORDER_AVERAGED = (Term(1, {"serving": 4}), Term(-1, {"width": 1}))
REREAD = tuple(Term(term.sign, {**term.change, "serving": 4} if term.sign > 0 else term.change) for term in MATCHED)
CELLS = {
    **{f"{a} - {b}": Cell(**OC, terms=between(a, b, 4)) for a, b in (CONTENT, LENGTH, SKELETON, ("companions", "alone"))},
    "original": Cell(**OC, terms=ORDER_AVERAGED),
    "reread": Cell(**OC, terms=REREAD),
    "floor": Cell(**OC | {"measure": "floor:overlap"}, noise=True),
    "seconds at 1": Cell(**OC, statistic="latency", timed=(1, 20), second="1"),
    "reduction": Cell(**OC, statistic="latency_reduction", timed=(1, 20), second="20"),
    "held-out markers": Cell(
        system="off-the-shelf",
        collections="dl19",
        permutations=1,
        measure="held_out_marker_tau_psi",
        perturb=("held-out-markers",),
    ),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    jobs = jobs_of(requests_of(CELLS.values(), TINY), TINY)
    assert do_pieces(pieces_of(jobs), Workshop(store, TINY, EngineOptions(), quiet=True), print) == []
    return Library(store, TINY)


def test_every_cell_has_a_number(library):
    found = {name: value_of(cell, library) for name, cell in CELLS.items()}
    assert {name: value.reason for name, value in found.items() if value.value is None} == {}
    assert all(value.basis.queries for value in found.values())


def test_content_length_and_skeleton_add_up_to_the_width_effect(library):
    value = {name: value_of(cell, library).value for name, cell in CELLS.items()}
    parts = value["companions - fillers"] + value["fillers - skeleton"] + value["skeleton - alone"]
    assert value["companions - alone"] == pytest.approx(parts)
    assert value["companions - alone"] == pytest.approx(value["original"])


def test_ten_reads_of_a_scorer_that_batching_does_not_move_change_nothing(library):
    assert value_of(CELLS["reread"], library).value == pytest.approx(value_of(CELLS["original"], library).value)
    assert value_of(CELLS["floor"], library).value == 1
    runs = [library.run(At(side, "qwen3-4b", 42, "dl19")) for side in (library.side(s) for _, s in CELLS["reread"].sides())]
    assert [len(query.scores) for query in runs[1].read_noise()] == [READS] * len(runs[1].read_noise())


def test_a_query_takes_time_and_the_reduction_is_what_the_medians_say(library):
    seconds = value_of(CELLS["seconds at 1"], library)
    assert seconds.value > 0
    assert seconds.low <= seconds.value <= seconds.high
    assert value_of(CELLS["reduction"], library).value < 1


def test_a_planted_marker_effect_is_found_by_markers_that_are_held_out(library):
    assert value_of(CELLS["held-out markers"], library).value > 0


def test_what_was_not_timed_says_so(library):
    other = Cell(**OC, statistic="latency", timed=(10,), second="10")
    assert value_of(other, library).reason == "oc-sft of qwen3-4b, seed 42, on dl19 was not timed yet."
