"""Tables as LaTeX: booktabs, whatever their names hold."""

from __future__ import annotations

from collections.abc import Sequence

from .table import Cell, Table, notes_of

SYMBOLS = {
    "τ": r"$\tau$", "β": r"$\beta$", "α": r"$\alpha$", "λ": r"$\lambda$", "ψ": r"$\psi$", "μ": r"$\mu$", "Δ": r"$\Delta$",
    "≥": r"$\geq$", "×": r"$\times$", "→": r"$\to$", "↓": r"$\downarrow$", "∈": r"$\in$", "−": "$-$", "±": r"$\pm$", "–": "--",
    "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "|": r"$|$", "<": "$<$", ">": "$>$", "…": r"\ldots{}",
    "●": r"$\bullet$", "○": r"$\circ$", "ᵃ": r"\textsuperscript{a}", "ᵇ": r"\textsuperscript{b}",
}  # fmt: skip
LAST_KNOWN = "\u017f"
"""The last character that every LaTeX prints without a package: accented Latin letters."""


def latex(text: str) -> str:
    """Text that LaTeX prints as it is, on one line; a character that its fonts lack is named by its number."""
    return "".join(_latex_character(character) for character in " ".join(text.split()))


def _latex_character(character: str) -> str:
    if character in SYMBOLS:
        return SYMBOLS[character]
    return character if character.isprintable() and character <= LAST_KNOWN else f"U+{ord(character):04X}"


def to_latex(tables: Sequence[Table], caption: str = "", label: str = "", remarks: Sequence[str] = ()) -> str:
    """`table` environments of booktabs tabulars for `\\input`: one for each table; where a caption is given, one for all.

    remarks  sentences below the tabulars, before the notes of the tables
    """
    if not caption:
        return "\n".join(_environment([table], table.title, label, remarks) for table in tables)
    return _environment(tables, caption, label, remarks)


def _environment(tables: Sequence[Table], caption: str, label: str, remarks: Sequence[str]) -> str:
    lines = [r"\begin{table}[htbp]", r"\centering", r"\small"]
    lines += [rf"\caption{{{latex(caption)}}}"] if caption else []
    lines += [rf"\label{{{label}}}"] if label else []
    for table in tables:
        lines += [*_tabular(table, "" if table.title == caption else table.title), r"\par\vspace{4pt}"]
    lines += [rf"\par\footnotesize {latex(remark)}" for remark in (*remarks, *notes_of(tables))]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _tabular(table: Table, title: str) -> list[str]:
    count = len(table.columns)
    sides = "".join("r" if table.is_numeric(c) or not table.rows else "l" for c in range(count))
    lines = [rf"\begin{{tabular}}{{l{sides}}}", r"\toprule"]
    if title:
        lines.append(rf"\multicolumn{{{count + 1}}}{{l}}{{\emph{{{latex(title)}}}}} \\")
    if any(name for name, _ in table.groups()):
        lines += _groups(table.groups())
    lines.append(" & ".join([_start(table.corner), *(latex(column.heading) for column in table.columns)]) + r" \\")
    lines.append(r"\midrule")
    group = ""
    for row, (name, *shown) in zip(table.rows, table.shown_rows(), strict=True):
        if row.group and row.group != group:
            lines += [r"\addlinespace"] if group else []
            lines.append(rf"\multicolumn{{{count + 1}}}{{l}}{{\textbf{{{latex(row.group)}}}}} \\")
        group, comment = row.group, " ".join(row.comment.split())
        lines.append(" & ".join([_start(name), *map(_cell, row.cells, shown)]) + r" \\" + (f" % {comment}" if comment else ""))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _start(text: str) -> str:
    """The first cell of a row: a bracket or a star there would belong to the `\\\\` of the row before."""
    return f"{{}}{latex(text)}" if text.lstrip().startswith(("[", "*")) else latex(text)


def _groups(groups: Sequence[tuple[str, int]]) -> list[str]:
    cells, rules, at = [""], [], 2
    for name, count in groups:
        cells.append(rf"\multicolumn{{{count}}}{{c}}{{{latex(name)}}}")
        rules += [rf"\cmidrule(lr){{{at}-{at + count - 1}}}"] if name else []
        at += count
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _cell(cell: Cell, text: str) -> str:
    shown = rf"\textbf{{{latex(text)}}}" if cell.leads else latex(text)
    return rf"{shown} {{\footnotesize({latex(cell.beside)})}}" if cell.beside else shown
