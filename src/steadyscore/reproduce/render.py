"""A filled artifact as text, HTML, LaTeX (booktabs) or CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..audits.table import text_table
from ..machine.extras import check_installed
from ..report.templating import render
from .layout import NOTHING, Filled, Grid, basis_lines, column_key
from .sections import column_groups, heading, remarks, section_of, stands_on


class Shown(NamedTuple):
    """What stands beside our values."""

    paper: bool = False
    intervals: bool = False
    basis: bool = False


# -- text


def to_text(filled: Filled, shown: Shown) -> str:
    parts = [heading(filled)]
    for grid in filled.grids:
        parts.append("\n".join(filter(None, [grid.block.title, _text_grid(grid, shown), *basis_lines(grid)])))
    return "\n\n".join([*parts, "\n".join(remarks(filled))]).rstrip() + "\n"


def _text_grid(grid: Grid, shown: Shown) -> str:
    header = [grid.block.corner, *(column_key(grid.block, c) for c in range(len(grid.block.columns)))]
    rows = [
        [line.label, *(_text_cell(grid, r, c, shown) for c in range(len(grid.block.columns)))]
        for r, line in enumerate(grid.block.rows)
    ]
    return text_table(header, rows).rstrip("\n")


def _text_cell(grid: Grid, row: int, column: int, shown: Shown) -> str:
    text = grid.printed(row, column, intervals=shown.intervals) + ("*" if (row, column) in grid.bold else "")
    theirs = grid.paper.get((row, column))
    return f"{text} ({theirs})" if shown.paper and theirs else text


# -- HTML


def to_html(filled: Filled, shown: Shown) -> str:
    """One self-contained section: a figure where the artifact is one, tables with the basis of every cell, remarks."""
    check_installed("HTML", "jinja2")
    return render("section.html.jinja", s=section_of(filled), shown=shown)


# -- LaTeX

SYMBOLS = {
    "τ": r"$\tau$", "β": r"$\beta$", "α": r"$\alpha$", "λ": r"$\lambda$", "ψ": r"$\psi$", "μ": r"$\mu$", "Δ": r"$\Delta$",
    "≥": r"$\geq$", "×": r"$\times$", "→": r"$\to$", "↓": r"$\downarrow$", "∈": r"$\in$", "−": "$-$", "±": r"$\pm$", "–": "--",
    "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "|": r"$|$", "<": "$<$", ">": "$>$", "…": r"\ldots{}",
}  # fmt: skip
LAST_KNOWN = "\u017f"
"""The last character that every LaTeX prints without a package: accented Latin letters."""


def latex(text: str) -> str:
    """Text that LaTeX prints as it stands, on one line; a character that its fonts lack is named by its number."""
    return "".join(_latex_character(character) for character in " ".join(text.split()))


def _latex_character(character: str) -> str:
    if character in SYMBOLS:
        return SYMBOLS[character]
    return character if character.isprintable() and character <= LAST_KNOWN else f"U+{ord(character):04X}"


def to_latex(filled: Filled, shown: Shown) -> str:
    """A `table` of booktabs tabulars, one per block, for `\\input`; what each cell stands on is in comments behind its row."""
    lines = [r"\begin{table}[htbp]", r"\centering", r"\small", rf"\caption{{{latex(filled.artifact.title)}.}}"]
    lines.append(rf"\label{{{filled.artifact.label}}}")
    for grid in filled.grids:
        lines += [*_latex_grid(grid, shown), r"\par\vspace{4pt}"]
    lines += [rf"\par\footnotesize {latex(remark)}" for remark in remarks(filled)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_grid(grid: Grid, shown: Shown) -> list[str]:
    block, count = grid.block, len(grid.block.columns)
    lines = [rf"\begin{{tabular}}{{l{'r' * count}}}", r"\toprule"]
    if block.title:
        lines.append(rf"\multicolumn{{{count + 1}}}{{l}}{{\emph{{{latex(block.title)}}}}} \\")
    groups = column_groups(grid)
    if any(name for name, _ in groups):
        lines += _latex_groups(groups)
    lines.append(" & ".join([_latex_start(block.corner), *(latex(line.label) for line in block.columns)]) + r" \\")
    lines.append(r"\midrule")
    for r, line in enumerate(block.rows):
        cells = [_latex_start(line.label), *(_latex_cell(grid, r, c, shown) for c in range(count))]
        basis = "; ".join(stands_on(grid, r, c) for c in range(count) if not grid.values[r][c].text)
        lines.append(" & ".join(cells) + rf" \\ % {' '.join(basis.split())}")
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _latex_start(text: str) -> str:
    """The first cell of a row: a bracket or a star there would belong to the `\\\\` of the row before."""
    return f"{{}}{latex(text)}" if text.lstrip().startswith(("[", "*")) else latex(text)


def _latex_groups(groups: Sequence[tuple[str, int]]) -> list[str]:
    cells, rules, at = [""], [], 2
    for name, count in groups:
        cells.append(rf"\multicolumn{{{count}}}{{c}}{{{latex(name)}}}")
        rules += [rf"\cmidrule(lr){{{at}-{at + count - 1}}}"] if name else []
        at += count
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _latex_cell(grid: Grid, row: int, column: int, shown: Shown) -> str:
    text = latex(grid.printed(row, column, intervals=shown.intervals))
    text = rf"\textbf{{{text}}}" if (row, column) in grid.bold else text
    theirs = grid.paper.get((row, column))
    return rf"{text} {{\footnotesize({latex(theirs)})}}" if shown.paper and theirs else text


# -- CSV

COLUMNS = (
    "artifact", "block", "row", "column", "value", "low", "high", "seed_sd", "of", "queries", "collections", "seeds", "bases",
    "bold", "printed", "empty_because", "paper",
)  # fmt: skip


FORMULA = re.compile(r"[=+\-@\t\r]")
"""How a text begins that a spreadsheet would compute."""
SIGNED = re.compile(r"[+-][\d.,]+%?\*?( ± [\d.]+)?( \[[+−-]?[\d.]+, [+−-]?[\d.]+\])?")
"""A number as a table prints it, with its spread or interval."""


def csv_text(text: str) -> str:
    """Text that a spreadsheet shows instead of computing it: behind an apostrophe, unless it is a number."""
    return f"'{text}" if FORMULA.match(text) and text != NOTHING and not SIGNED.fullmatch(text) else text


def to_csv(filled: Filled, shown: Shown) -> str:
    """One row per cell: numbers at full precision, what they stand on, and why there is none."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for grid in filled.grids:
        for r, values in enumerate(grid.values):
            for c, value in enumerate(values):
                theirs = grid.paper.get((r, c), "") if shown.paper else ""
                writer.writerow(
                    [
                        *map(csv_text, (filled.artifact.name, grid.block.title, grid.block.rows[r].label)),
                        csv_text(column_key(grid.block, c)),
                        *("" if x is None else repr(float(x)) for x in (value.value, value.low, value.high, value.sd)),
                        "" if value.of is None else value.of, *value.basis, (r, c) in grid.bold,
                        *map(csv_text, ("" if value.reason else grid.printed(r, c), value.reason, theirs)),
                    ]
                )  # fmt: skip
    return stream.getvalue()


FORMATS: dict[str, Callable[[Filled, Shown], str]] = {"text": to_text, "html": to_html, "latex": to_latex, "csv": to_csv}
