"""A filled artifact as text, HTML, LaTeX (booktabs) or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from ..audits.table import text_table
from .layout import Filled, Grid, basis_lines, basis_text, column_key

PLANTED = (
    "Planted graders on parts of the embedded collections, some of which stand for several of the paper's: this shows the shape "
    "of the table, not a result."
)


class Shown(NamedTuple):
    """What stands beside our values."""

    paper: bool = False
    intervals: bool = False


def remarks(filled: Filled) -> list[str]:
    """Basis of the artifact, scale, and why cells are empty."""
    done, cells = filled.counts()
    found = [filled.artifact.basis] if filled.artifact.basis else []
    found += [PLANTED] if filled.is_planted else []
    if done < cells:
        found.append(f"{cells - done} of {cells} cells are empty.")
        found += [f"{count} {'cell' if count == 1 else 'cells'}: {reason}" for reason, count in filled.reasons()[:8]]
    return found


def heading(filled: Filled) -> str:
    return f"{filled.artifact.number} ({filled.artifact.label}), scale {filled.scale}: {filled.artifact.title}."


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
    from .draw import drawing

    parts = [f'<section id="{escape(filled.artifact.name)}"><h2>{escape(heading(filled))}</h2>']
    for grid in filled.grids:
        parts.append(drawing(grid, filled) if grid.block.draw else "")
        parts.append(_html_grid(grid, shown))
    parts += [f"<p>{escape(remark)}</p>" for remark in remarks(filled)]
    return "\n".join(filter(None, parts)) + "\n</section>\n"


def _html_grid(grid: Grid, shown: Shown) -> str:
    block = grid.block
    caption = f"<caption>{escape(block.title)}</caption>" if block.title else ""
    groups = _groups(grid)
    top = ""
    if any(name for name, _ in groups):
        spans = "".join(f'<th scope="colgroup" colspan="{count}">{escape(name)}</th>' for name, count in groups)
        top = f"<tr><td></td>{spans}</tr>"
    head = f'<tr><th scope="col">{escape(block.corner)}</th>' + "".join(
        f'<th scope="col">{escape(line.label)}</th>' for line in block.columns
    )
    body = "".join(
        f'<tr><th scope="row">{escape(line.label)}</th>'
        + "".join(_html_cell(grid, r, c, shown) for c in range(len(block.columns)))
        + "</tr>"
        for r, line in enumerate(block.rows)
    )
    return f"<table>{caption}<thead>{top}{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_cell(grid: Grid, row: int, column: int, shown: Shown) -> str:
    value = grid.values[row][column]
    text = escape(grid.printed(row, column, intervals=shown.intervals))
    text = f"<strong>{text}</strong>" if (row, column) in grid.bold else text
    theirs = grid.paper.get((row, column))
    beside = f' <small class="paper">paper {escape(theirs)}</small>' if shown.paper and theirs else ""
    return (
        f'<td title="{escape(stands_on(grid, row, column))}">{text}{beside}</td>'
        if not value.text
        else f"<td>{text}{beside}</td>"
    )


def stands_on(grid: Grid, row: int, column: int) -> str:
    """One cell's basis and interval in words; or why it is empty."""
    value = grid.values[row][column]
    if value.reason:
        return f"empty: {value.reason}"
    parts = [basis_text(value.basis)]
    if value.low is not None and grid.cell(row, column).form != "range":
        parts.append(f"95 % interval {value.low:.4f} to {value.high:.4f}")
    if value.sd is not None:
        parts.append(f"seed SD {value.sd:.4f}")
    return ", ".join(parts)


def _groups(grid: Grid) -> list[tuple[str, int]]:
    """Headings that neighbouring columns share, with their number of columns."""
    found: list[tuple[str, int]] = []
    for line in grid.block.columns:
        if found and found[-1][0] == line.group:
            found[-1] = (line.group, found[-1][1] + 1)
        else:
            found.append((line.group, 1))
    return found


# -- LaTeX

SYMBOLS = {
    "τ": r"$\tau$", "β": r"$\beta$", "α": r"$\alpha$", "λ": r"$\lambda$", "ψ": r"$\psi$", "μ": r"$\mu$", "Δ": r"$\Delta$",
    "≥": r"$\geq$", "×": r"$\times$", "→": r"$\to$", "↓": r"$\downarrow$", "∈": r"$\in$", "−": "$-$", "±": r"$\pm$", "–": "--",
    "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "|": r"$|$", "…": r"\ldots{}",
}  # fmt: skip


def latex(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return "".join(SYMBOLS.get(character, character) for character in text)


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
    groups = _groups(grid)
    if any(name for name, _ in groups):
        lines += _latex_groups(groups)
    lines.append(" & ".join(latex(text) for text in [block.corner, *(line.label for line in block.columns)]) + r" \\")
    lines.append(r"\midrule")
    for r, line in enumerate(block.rows):
        cells = [latex(line.label), *(_latex_cell(grid, r, c, shown) for c in range(count))]
        basis = "; ".join(stands_on(grid, r, c) for c in range(count) if not grid.values[r][c].text)
        lines.append(" & ".join(cells) + rf" \\ % {basis}")
    return [*lines, r"\bottomrule", r"\end{tabular}"]


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
                        filled.artifact.name, grid.block.title, grid.block.rows[r].label, column_key(grid.block, c),
                        *("" if x is None else repr(float(x)) for x in (value.value, value.low, value.high, value.sd)),
                        "" if value.of is None else value.of, *value.basis, (r, c) in grid.bold,
                        "" if value.reason else grid.printed(r, c), value.reason, theirs,
                    ]
                )  # fmt: skip
    return stream.getvalue()


FORMATS: dict[str, Callable[[Filled, Shown], str]] = {"text": to_text, "html": to_html, "latex": to_latex, "csv": to_csv}
