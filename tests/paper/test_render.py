"""A table in LaTeX, CSV and HTML: whatever its names hold, it compiles, is read with types, and obeys nothing."""

import csv
import io
import re
import shutil
import subprocess

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steadyscore.paper.artifacts import ARTIFACTS
from steadyscore.paper.collate import Basis, Value
from steadyscore.paper.layout import Entry, Filled, Grid
from steadyscore.paper.recipe import Artifact, Block, Cell, Line
from steadyscore.paper.render import FORMATS, Shown, to_csv, to_html, to_latex, to_text

HOSTILE = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    r"50% & $x_1$ #2 {~^\}",
    "[5cm] star",
    "* star",
    "<script>x</script>",
    "中 \u202e",
)
MEASURED = Value(0.5, 0.4, 0.6, sd=0.01, basis=Basis(12, 2, 3, 1))
ALL = Shown(paper=True, intervals=True, basis=True)


def filled_with(labels, value=MEASURED, paper="+0.047"):
    """A table whose title, headings and rows are the given labels."""
    columns = tuple(Line(label, group=f"of {label}") for label in labels[:2])
    block = Block(labels[0], tuple(map(Line, labels)), columns, corner=labels[-1])
    grid = Grid(block, ((value,) * len(columns),) * len(labels), frozenset({(0, 0)}), {(0, 0): paper})
    return Filled(Artifact("name", labels[0], labels[1], (block,), number="Table 0"), (grid,), "tiny", True)


def bare(text):
    """LaTeX without comments, a letter for every escaped character."""
    return re.sub(r"\\[&%_#${}]", "x", re.sub(r"(?<!\\)%.*", "", text))


@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=4, unique=True))
@example(["0", "&["])  # the bracket stands behind an escaped character, not behind the end of the row before
@example(["0", "["])
@example(["*", "\u3000[1]"])
def test_any_name_leaves_latex_whole(labels):
    text = bare(to_latex(filled_with(labels), ALL))
    assert "#" not in text
    assert text.count("{") == text.count("}")
    assert text.count("$") % 2 == 0
    for spec, body in re.findall(r"\\begin\{tabular\}\{([lr]*)\}(.*?)\\end\{tabular\}", text, re.S):
        rows = re.sub(r"\\(toprule|midrule|bottomrule)|\\cmidrule\(lr\)\{[\d-]+\}", "", body).split(r"\\")[:-1]
        for row in rows[2:]:  # behind the title and the shared headings
            assert row.count("&") == len(spec) - 1
            assert not row.lstrip().startswith(("[", "*"))


MACROS = {
    "begin", "end", "centering", "small", "footnotesize", "par", "caption", "label", "vspace", "toprule", "midrule",
    "bottomrule", "cmidrule", "multicolumn", "emph", "textbf", "textasciitilde", "textasciicircum", "textbackslash", "ldots",
    "tau", "beta", "alpha", "lambda", "psi", "mu", "Delta", "geq", "times", "to", "downarrow", "in", "pm", "_", "%", "&",
    "#", "$", "{", "}", "\\",
    "providecommand", "resizebox", "ifdim", "else", "fi", "width", "linewidth",
}  # fmt: skip


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text(min_size=1, max_size=12) | st.sampled_from(HOSTILE), min_size=2, max_size=4, unique=True))
def test_any_name_is_text_to_a_parser_of_latex(labels):
    """An independent parser, which refuses what is not balanced, meets no command but ours and every block as one tabular."""
    walker = pytest.importorskip("pylatexenc.latexwalker")
    nodes, _, _ = walker.LatexWalker(to_latex(filled_with(labels), ALL), tolerant_parsing=False).get_latex_nodes()
    macros, environments = set(), []

    def visit(found):
        for node in found or []:
            if isinstance(node, walker.LatexMacroNode):
                macros.add(node.macroname)
                visit(node.nodeargd.argnlist if node.nodeargd else [])
            elif isinstance(node, walker.LatexEnvironmentNode):
                environments.append(node.environmentname)
                visit(node.nodelist)
            elif isinstance(node, walker.LatexGroupNode | walker.LatexMathNode):
                visit(node.nodelist)

    visit(nodes)
    assert macros <= MACROS
    assert environments == ["table", "tabular"]


def test_hostile_names_come_back_from_the_csv_as_text():
    frame = pd.read_csv(io.StringIO(to_csv(filled_with(HOSTILE), ALL)))
    assert frame["value"].dtype == frame["low"].dtype == float
    assert frame["queries"].dtype == int
    names = list(dict.fromkeys(frame["row"]))
    assert names[:4] == [f"'{name}" for name in HOSTILE[:4]]
    assert names[4:] == list(HOSTILE[4:])
    assert {len(row) for row in csv.reader(io.StringIO(to_csv(filled_with(HOSTILE), ALL)))} == {17}


def test_hostile_names_are_shown_in_html_and_not_obeyed():
    pytest.importorskip("jinja2")
    page = to_html(filled_with(HOSTILE), ALL)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\u202e" not in page
    assert "⟨U+202E⟩" in page


def test_html_has_scopes_a_caption_and_what_each_cell_is_made_from():
    pytest.importorskip("jinja2")
    page = to_html(filled_with(("one", "two")), ALL)
    assert len(re.findall(r'<th scope="row">', page)) == 2
    assert len(re.findall(r'scope="col"', page)) == 3
    assert len(re.findall(r'scope="colgroup"', page)) == 2
    assert "<caption>one</caption>" in page
    assert page.count("12 queries of 2 collections, 3 seeds, 95 % interval 0.4000 to 0.6000, seed SD 0.0100") == 4
    assert page.count("paper +0.047") == 1


def test_a_caption_says_how_the_intervals_were_made():
    assert (
        "95 % intervals resample collections, then queries within them, 20,000 bootstrap draws. SD is over training seeds."
        in (to_text(filled_with(("one", "two")), Shown()))
    )


def test_an_empty_cell_says_why_in_every_format():
    empty = filled_with(("one", "two"), Value(reason="oc-sft is not scored yet."))
    for name in FORMATS:
        if name != "html":
            assert "oc-sft is not scored yet." in FORMATS[name](empty, Shown())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hostile", *ARTIFACTS])
def test_latex_compiles_in_a_document_of_four_lines(name, tmp_path):
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not here: apt-get install texlive-latex-base texlive-latex-recommended")
    if name == "hostile":
        filled = filled_with(HOSTILE)
    else:
        blocks = ARTIFACTS[name].blocks
        value = Value(0.5, 0.4, 0.6, basis=Basis(12, 2, 3, 1), of=3)
        grids = [Grid(b, ((value,) * len(b.columns),) * len(b.rows), frozenset({(0, 0)}), {}) for b in blocks]
        filled = Filled(ARTIFACTS[name], tuple(grids), "tiny", True)
    (tmp_path / "table.tex").write_text(to_latex(filled, ALL), encoding="utf-8")
    document = ["\\documentclass{article}\\usepackage{booktabs}", "\\begin{document}", "\\input{table}", "\\end{document}"]
    (tmp_path / "main.tex").write_text("\n".join(document))
    made = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"], cwd=tmp_path, capture_output=True, check=False
    )
    assert made.returncode == 0, made.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / "main.pdf").stat().st_size > 1_000


def test_a_star_says_that_the_interval_excludes_zero():
    starred = Cell(form="starred", digits=2)
    ends = ((0.01, 0.09), (-0.01, 0.11), (-0.2, -0.1), (0.0, 0.1))
    shown = [Entry(starred, Value(0.05, low, high)).printed() for low, high in ends]
    assert shown == ["+0.05*", "+0.05", "+0.05*", "+0.05"]
    assert Entry(starred, Value(0.05)).printed() == "+0.05"
