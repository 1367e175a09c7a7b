"""Panels are drawn from values, and say in words what they show."""

import re

import pytest

from steadyscore.paper.artifacts import ARTIFACTS
from steadyscore.paper.collate import Value
from steadyscore.paper.layout import Filled, Grid
from steadyscore.paper.render import drawing

pytest.importorskip("matplotlib")


def a_panel(name, number, value=lambda r, c: Value(0.1 * (r + 1) + 0.01 * c, parts=(0.1, 0.2 + 0.01 * r, 0.3))):
    artifact = ARTIFACTS[name]
    block = artifact.blocks[number]
    values = tuple(tuple(value(r, c) for c in range(len(block.columns))) for r in range(len(block.rows)))
    grid = Grid(block, values, frozenset(), {})
    return drawing(grid, Filled(artifact, (grid,), "tiny", True))


@pytest.mark.parametrize(
    ("name", "number"), [("amort", 0), ("phenomenon", 1), ("taupsibox", 1), ("sizefam", 0), ("sampleeff", 1)]
)
def test_a_panel_is_an_svg_that_names_itself(name, number):
    svg = a_panel(name, number)
    assert svg.startswith("<svg")
    assert 'role="img"' in svg
    assert ARTIFACTS[name].number in re.search(r"<title[^>]*>([^<]*)", svg)[1]
    assert ": 0.100" in re.search(r"<desc[^>]*>([^<]*)", svg)[1]


def test_chips_are_drawn_for_every_document_and_facts_are_told_in_words():
    def value(row, column):
        if column == 3:
            return Value(text="●○" if row else "●●", parts=(1.0, float(not row)))
        return Value(0.25 + row) if column < 2 else Value(text=("SUPPORTS", "REFUTED")[row] if column == 2 else "q7")

    svg = a_panel("phenomenon", 0, value)
    for fact in ("nDCG@10 0.250", "Verdict SUPPORTS", "Verdict REFUTED", "Query q7"):
        assert fact in re.search(r"<desc[^>]*>([^<]*)", svg)[1]
    assert "●" not in svg
    assert len(re.findall(r"stroke-dasharray", svg)) == 1  # the one document that one order leaves out


def test_a_panel_without_a_value_is_not_drawn():
    assert a_panel("amort", 0, lambda r, c: Value(reason="not scored yet")) == ""


def test_a_panel_with_gaps_draws_what_is_there():
    assert a_panel("amort", 0, lambda r, c: Value(0.5) if c % 2 else Value(reason="gap")).startswith("<svg")


def test_every_figure_of_the_paper_has_a_panel_to_draw():
    figures = [artifact for artifact in ARTIFACTS.values() if artifact.is_figure and not artifact.is_diagram]
    assert [artifact.name for artifact in figures if not any(block.draw for block in artifact.blocks)] == []


def test_an_axis_of_large_numbers_is_logarithmic_with_the_numbers_of_the_columns():
    svg = a_panel("sampleeff", 0)
    assert re.findall(r">(300|1,000|3,000|10,000|30,000)<", svg) == ["300", "1,000", "3,000", "10,000", "30,000"]
    assert "mathdefault" not in svg


def test_a_figure_of_planted_graders_says_so_in_the_drawing_and_in_its_description():
    svg = a_panel("amort", 0)
    assert ">planted graders: the shape, not a result<" in svg
    assert "Planted graders: the shape, not a result." in re.search(r"<desc[^>]*>([^<]*)", svg)[1]


def test_an_interval_is_drawn_as_a_bar():
    plain = a_panel("amort", 0, lambda r, c: Value(0.5))
    assert len(a_panel("amort", 0, lambda r, c: Value(0.5, 0.4, 0.7))) > len(plain)
