"""`--format` of the verbs that print results: one renderer, all forms, and nothing but the result on stdout."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys

import pytest
from markdown_it import MarkdownIt
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexWalker

import steadyscore
from steadyscore.cli import main
from tests.helpers.pools import some_instances

FORMS = ("table", "markdown", "latex", "csv", "json")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    scorers = {"steady_one": "synthetic:none", "50% & more": "synthetic:slot:0.4"}
    steadyscore.audit(scorers, some_instances(8), permutations=4, keep_first=2, out=folder, report=False, quiet=True)
    return str(folder)


def commands(runs):
    return {
        "compare": ["compare", runs],
        "gate": ["gate", runs, "--max", "tau_psi=1"],
        "report": ["report", runs],
        "report --all": ["report", runs, "--all"],
        "target": ["compare", f"{runs}/data/steady_one", "--target", "overlap=0.1"],
    }


VERBS = ("compare", "gate", "report", "report --all", "target")


@pytest.fixture
def printed(runs, capsys):
    def run(verb, form):
        assert main([*commands(runs)[verb], "--format", form]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("verb", VERBS)
def test_csv_and_json_are_read_by_their_parsers_and_hold_the_same_rows(printed, verb):
    rows = list(csv.reader(io.StringIO(printed(verb, "csv"))))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) > 1
    json.loads(printed(verb, "json"))


@pytest.mark.parametrize("verb", VERBS)
def test_markdown_is_a_table_in_a_reader_of_markdown(printed, verb):
    html = MarkdownIt("commonmark").enable("table").render(printed(verb, "markdown"))
    assert "<table>" in html
    assert not re.search(r"^\|", html, re.M)


@pytest.mark.parametrize("verb", VERBS)
def test_latex_parses_and_every_row_has_as_many_cells_as_the_tabular_has_columns(printed, verb):
    text = printed(verb, "latex")
    nodes, _, _ = LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    tables = [node for node in nodes if isinstance(node, LatexEnvironmentNode)]
    assert tables
    assert {node.environmentname for node in tables} == {"table"}
    assert (r"\linewidth\else\width\fi}{!}{\begin{tabular}" in text) is (verb != "gate")
    for columns, body in re.findall(r"(?s)\\begin\{tabular\}\{([lrc]+)\}(.*?)\\end\{tabular\}", text):
        assert body.count(r"\toprule") == body.count(r"\bottomrule") == 1
        rows = [row for row in re.split(r"\\\\", body) if "&" in row and r"\multicolumn" not in row]
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(columns)}
    assert not re.search(r"(?<!\\)[%#_](?!.*^)", re.sub(r"\$[^$]*\$", "", text)), "an unescaped special character"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not here; the parser of the test above is")
@pytest.mark.parametrize("verb", VERBS)
def test_latex_compiles_with_nothing_but_booktabs(printed, tmp_path, verb):
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + "\n" + printed(verb, "latex") + r"\end{document}"
    (tmp_path / "main.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    assert made.returncode == 0, made.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / "main.pdf").stat().st_size > 1_000


def test_the_numbers_of_all_forms_are_those_of_the_library(runs, printed):
    comparison = steadyscore.compare(runs)
    assert json.loads(printed("compare", "json")) == json.loads(json.dumps(comparison.to_json()))
    assert printed("compare", "csv") == comparison.to_format("csv")
    rows = csv.DictReader(io.StringIO(printed("compare", "csv")))
    assert [float(row["level"]) for row in rows] == [contrast.level for contrast in comparison.contrasts]


@pytest.mark.parametrize("form", FORMS)
def test_an_audit_prints_every_form_and_no_next_command_beside_it(tmp_path, capsys, form):
    file = tmp_path / "scores.csv"
    lines = [f"q{q},{p},d{c},{s}" for q in range(6) for p in range(2) for c, s in enumerate((0.9, 0.1 + p))]
    file.write_text("\n".join(["query_id,permutation,candidate_id,score", *lines, ""]))
    assert main(["audit", "--scores", str(file), "--cutoff", "0.5", "--format", form]) == 0
    said = capsys.readouterr()
    assert ("next:" in said.err) is (form == "table")
    if form == "json":
        assert main(["audit", "--scores", str(file), "--cutoff", "0.5", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(said.out)


def test_a_report_that_prints_needs_no_matplotlib_and_writes_no_page(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["report", runs, "--format", "markdown", "--all"]) == 0
    out = capsys.readouterr().out
    assert "**why decisions flip: data**" in out
    assert "| 50% & more |" in out


def test_flags_that_do_not_go_together_are_refused(runs, capsys):
    assert main(["report", runs, "--format", "csv", "--out", "page"]) == 2
    assert "--out is where the page goes" in capsys.readouterr().err
    assert main(["report", runs, "--all"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["gate", runs, "--max", "tau_psi=1", "--json", "--format", "csv"])
    assert "not allowed with argument" in capsys.readouterr().err
