"""One table in six forms: whatever its names hold, it compiles, is read with types, and obeys nothing."""

import csv
import io
import json
import re
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steadyscore.results.figure import Figure
from steadyscore.results.render import FORMATS, Printed, csv_text, latex, to_csv, to_html, to_json, to_latex, to_markdown, to_text
from steadyscore.results.table import Cell, Column, Note, Row, Table, table_of

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
    "\x1b[31mred",
)
FIGURE = Figure(0.8125, 0.79, 0.8349, 12)
names = st.text(min_size=1, max_size=12) | st.sampled_from(HOSTILE)


def some_table(labels=("a", "b"), title="t", notes=("n",)):
    """A table whose title, headings, rows and notes are the given labels."""
    columns = (Column("figure", labels[0], "higher", group=labels[1]), Column("word", labels[1]))
    rows = tuple(Row(name, (Cell(FIGURE, leads=not i), Cell(name, beside=name)), comment=name) for i, name in enumerate(labels))
    return Table(columns, rows, title, labels[-1], "name", tuple(map(Note, notes)))


def test_text_pads_columns_and_puts_numbers_on_the_right():
    table = table_of(["scorer", "level", "verdict"], [["a", 0.5, "ok"], ["long name", None, "FAILED"]], notes=["be careful."])
    assert to_text([table]) == (
        "scorer     level  verdict\n"
        "a          0.500  ok\n"
        "long name      -  FAILED\n"
        "\nbe careful."
    )  # fmt: skip


def test_several_tables_have_their_titles_and_say_a_note_once():
    text = to_text([some_table(title="first"), some_table(title="second")])
    assert re.findall("^(first|second|n)$", text, re.M) == ["first", "second", "n"]


def test_a_table_without_a_corner_has_its_title_there():
    table = Table((Column("x"),), (Row("a", (Cell(1),)),), title="my data")
    assert to_text([table]).splitlines() == ["my data  x", "a        1"]
    assert to_html([table]).startswith("<table><thead><tr><th>my data</th><th>x</th></tr>")


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (Column("x"), "0.812 [0.790, 0.835]"),
        (Column("x", has_intervals=False), "0.812"),
        (Column("x", sign="+"), "+0.812 [+0.790, +0.835]"),
    ],
)
def test_an_interval_is_printed_where_the_column_says_so_and_always_written(column, shown):
    table = Table((column,), (Row("a", (Cell(FIGURE),)),))
    assert to_text([table]).splitlines()[1] == f"a  {shown}"
    assert list(csv.DictReader(io.StringIO(to_csv([table])))) == [
        {"name": "a", "x": "0.8125", "x_low": "0.79", "x_high": "0.8349"}
    ]
    assert json.loads(to_json([table]))[0]["rows"][0]["x"] == {"value": 0.8125, "low": 0.79, "high": 0.8349, "queries": 12}


def test_a_csv_of_several_tables_has_the_columns_of_all():
    one, other = table_of(["run", "a"], [["x", 1.0]], title="one"), table_of(["run", "b"], [["y", None]], title="two")
    assert to_csv([one, other]) == "table,run,a,b\none,x,1.0,\ntwo,y,,\n"


def test_what_is_empty_stays_a_column_and_says_why_in_json():
    table = Table((Column("x"),), (Row("a", (Cell(reason="not scored yet."),)),))
    assert to_csv([table]) == "name,x\na,\n"
    assert json.loads(to_json([table]))[0]["rows"][0]["x"] == {"value": None, "reason": "not scored yet."}
    assert 'title="not scored yet."' in to_html([table])


def test_no_number_is_null_in_json():
    table = table_of(["run", "x"], [["a", float("nan")]])
    assert json.loads(to_json([table]))[0]["rows"][0]["x"] == {"value": None}
    assert to_csv([table]) == "run,x\na,\n"


@given(st.lists(names, min_size=2, max_size=4, unique=True))
@example(["a|b", "c\\|d", "`x`"])
def test_no_name_makes_a_cell_of_its_own_in_markdown(labels):
    lines = [line for line in to_markdown([some_table(labels, notes=labels)]).split("\n") if line.startswith("|")]
    assert len(lines) == len(labels) + 2
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines} == {4}


@given(st.lists(names, min_size=2, max_size=4, unique=True))
def test_no_name_is_obeyed_by_a_terminal_or_a_browser(labels):
    table = some_table(labels, notes=labels)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", to_text([table]))
    assert set(re.findall(r"<(/?\w+)", to_html([table]))) <= {
        "p", "/p", "table", "/table", "thead", "/thead", "tbody", "/tbody", "tr", "/tr", "th", "/th", "td", "/td", "b", "/b",
        "small", "/small",
    }  # fmt: skip


def bare(text):
    """LaTeX without comments, a letter for every escaped character."""
    return re.sub(r"\\[&%_#${}]", "x", re.sub(r"(?<!\\)%.*", "", text))


@given(st.lists(names, min_size=2, max_size=4, unique=True))
@example(["0", "&["])  # the bracket is behind an escaped character, not behind the end of the row before
@example(["0", "["])
@example(["*", "\u3000[1]"])
def test_any_name_leaves_latex_whole(labels):
    text = bare(to_latex([some_table(labels, labels[0], labels)]))
    assert "#" not in text
    assert text.count("{") == text.count("}")
    assert text.count("$") % 2 == 0
    ((spec, body),) = re.findall(r"\\begin\{tabular\}\{([lr]*)\}(.*?)\\end\{tabular\}", text, re.S)
    rows = re.sub(r"\\(toprule|midrule|bottomrule)|\\cmidrule\(lr\)\{[\d-]+\}", "", body).split(r"\\")[:-1]
    assert len(rows) == len(labels) + 2
    for row in rows:
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
@given(st.lists(names, min_size=2, max_size=4, unique=True))
def test_any_name_is_text_to_a_parser_of_latex(labels):
    """An independent parser, which refuses what is not balanced, meets no command but ours and the table as one tabular."""
    walker = pytest.importorskip("pylatexenc.latexwalker")
    text = to_latex([some_table(labels, labels[0], labels)], label="tab:x")
    nodes, _, _ = walker.LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    macros, environments = set(), []

    def visit(nodes):
        for node in nodes or []:
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


@pytest.mark.parametrize("wide", ["heading", "cell", "beside", "name"])
def test_only_a_table_that_may_be_wider_than_a_line_is_scaled_to_it(wide):
    def table(text):
        words = {"heading": "b", "cell": "c", "beside": "", "name": "a"} | {wide: text}
        return Table((Column("b", words["heading"]),), (Row(words["name"], (Cell(words["cell"], beside=words["beside"]),)),))

    narrow, both = to_latex([table("x" * 50)]), to_latex([table("x" * 50), table("x" * 90)], "caption")
    assert "resizebox" not in narrow
    assert both.count(r"\providecommand{\resizebox}[2]{}") == 1  # without graphicx the table is whole, and as wide as it is
    assert both.count("}{!}{\\begin{tabular}") == both.count("\\end{tabular}}") == 1
    assert both.count("{") == both.count("}")


def test_tables_under_one_caption_are_one_float():
    text = to_latex([some_table(title="one"), some_table(title="two")], "both", "tab:both", ["a remark"])
    assert text.count(r"\begin{table}") == 1
    assert text.count(r"\begin{tabular}") == 2
    assert r"\emph{two}" in text
    assert text.index("a remark") < text.index("footnotesize n\n")
    assert to_latex([some_table(title="one"), some_table(title="two")]).count(r"\caption") == 2


@pytest.mark.parametrize(
    ("text", "printed"),
    [("a_b & 5%", r"a\_b \& 5\%"), ("τ\n#1", r"$\tau$ \#1"), ("é", "é"), ("中", "U+4E2D"), ("\u202e", "U+202E"), ("<", "$<$")],
)
def test_latex_prints_the_characters_of_a_text(text, printed):
    assert latex(text) == printed


@given(st.text(max_size=20))
def test_no_text_of_a_csv_is_computed_by_a_spreadsheet(text):
    safe = csv_text(text)
    assert safe in (text, f"'{text}")
    assert not re.match(r"[=@\t\r]|[+-](?![\d.])..", safe) or safe.startswith("-\n")


@pytest.mark.parametrize("number", ["+0.047", "-0.5", "+0.019 [+0.01, +0.03]", "-", "−0.136", "+11.2%"])
def test_a_number_stays_a_number(number):
    assert csv_text(number) == number


def test_a_negative_number_has_a_minus_in_latex_and_a_name_its_hyphens():
    cells = (Cell(Figure(-0.176, -0.2, -0.1, 5)), Cell(-1.0), Cell("bm25-1"))
    text = to_latex([Table((Column("a"), Column("b"), Column("c")), (Row("run-2", cells),))])
    assert r"run-2 & $-$0.176 [$-$0.200, $-$0.100] & $-$1.000 & bm25-1 \\" in text


@pytest.mark.slow
def test_latex_compiles_in_a_document_of_four_lines(tmp_path):
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not here: apt-get install texlive-latex-base texlive-latex-recommended")
    (tmp_path / "table.tex").write_text(to_latex([some_table(HOSTILE, HOSTILE[4], HOSTILE)]), encoding="utf-8")
    document = ["\\documentclass{article}\\usepackage{booktabs}", "\\begin{document}", "\\input{table}", "\\end{document}"]
    (tmp_path / "main.tex").write_text("\n".join(document))
    made = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"], cwd=tmp_path, capture_output=True, check=False
    )
    assert made.returncode == 0, made.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / "main.pdf").stat().st_size > 1_000


class Result(Printed):
    def tables(self):
        return [some_table()]

    def to_json(self):
        return None


def test_a_printed_result_has_every_form():
    assert str(Result()) == to_text([some_table()]).rstrip("\n")
    assert Result()._repr_html_() == to_html([some_table()])
    assert all(Result().to_format(name) == write([some_table()]) for name, write in FORMATS.items())
