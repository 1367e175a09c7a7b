"""The example notebooks run, and their stored outputs are what the code of today gives."""

from __future__ import annotations

import pytest

from steadyscore import Audits, Comparison
from tests.helpers.notebooks import code_cells, run_cell, stored_print, stored_value
from tests.helpers.paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_there_is_a_notebook_for_every_consumer():
    assert [file.stem for file in NOTEBOOKS] == ["preference", "reader", "threshold"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_gives_what_it_shows(notebook, monkeypatch):
    monkeypatch.setenv("WITH_MODEL", "0")
    names: dict[str, object] = {}
    for place, cell in enumerate(code_cells(notebook)):
        source = "".join(cell["source"])
        value, printed = run_cell(source, names, f"{notebook.name}, cell {place}")
        if "WITH_MODEL" not in source:
            assert printed == stored_print(cell)
        if isinstance(value, Audits | Comparison):
            assert repr(value) == stored_value(cell, "text/plain")
            assert value._repr_html_() == stored_value(cell, "text/html")
        elif value is not None:
            assert value._repr_html_()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_stored_as_it_was_executed_without_errors_or_warnings(notebook):
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert "Warning" not in "".join("".join(output.get("text", "")) for output in outputs)
    assert any("queries/s" in "".join(output.get("text", "")) for output in outputs)  # progress shows in a notebook
