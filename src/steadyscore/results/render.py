"""Tables as text, HTML, Markdown, LaTeX, CSV and JSON, and the one class whose values print themselves in all of them."""

from __future__ import annotations

import csv
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import zip_longest
from typing import Any

from ..machine.console import harmless
from ..machine.names import markdown_text
from ..measures.ranking import unless_nan
from .figure import Figure
from .table import NOTHING, Cell, Column, Row, Table, notes_of, one_line

FORMULA = re.compile(r"[=+\-@\t\r]")
"""How a text begins that a spreadsheet would compute."""
SIGNED = re.compile(r"[+-][\d.,]+%?\*?( ± [\d.]+)?( \[[+−-]?[\d.]+, [+−-]?[\d.]+\])?")
"""A number as a table prints it, with its spread or interval."""


# -- text


def to_text(tables: Sequence[Table]) -> str:
    """Columns padded to their widest cell, numbers on the right; below the tables their notes, a line each."""
    return "\n".join([*map(_text, tables), *notes_of(tables)])


def _text(table: Table) -> str:
    title = f"{one_line(table.title)}\n" if table.title and table.corner else ""
    headings = [column.whole_heading for column in table.columns]
    marked = [
        [name, *(_with_mark(cell, text) for cell, text in zip(row.cells, shown, strict=True))]
        for row, (name, *shown) in zip(table.rows, table.shown_rows(), strict=True)
    ]
    return title + _grid([table.headings()[0], *headings], marked)


def _with_mark(cell: Cell, text: str) -> str:
    return text + "*" * cell.leads + (f" ({one_line(cell.beside)})" if cell.beside else "")


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Padded columns; those of numbers are on the right. A heading may have several lines."""
    numeric = [all(_is_number(row[c]) for row in rows) and bool(rows) for c in range(len(headings))]
    heads = list(zip_longest(*(map(harmless, name.split("\n")) for name in headings), fillvalue=""))
    widths = [max(len(row[c]) for row in [*heads, *rows]) for c in range(len(headings))]
    return "".join(
        "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, numeric, strict=True)).rstrip()
        + "\n"
        for row in [*heads, *rows]
    )


def _is_number(cell: str) -> bool:
    return cell == NOTHING or cell.replace(".", "", 1).replace("-", "", 1).replace(",", "").isdigit()


# -- HTML


def to_html(tables: Sequence[Table]) -> str:
    """Plain tables for a notebook, and their notes as paragraphs."""
    return "".join([*map(_html, tables), *(f"<p>{escape(note)}</p>" for note in notes_of(tables))])


def _html(table: Table) -> str:
    title = f"<p>{escape(one_line(table.title))}</p>" if table.title and table.corner else ""
    groups = [f'<th colspan="{count}">{escape(one_line(name))}</th>' for name, count in table.groups()]
    over = f"<tr><th></th>{''.join(groups)}</tr>" if any(name for name, _ in table.groups()) else ""
    head = "".join(f"<th>{escape(one_line(text))}</th>" for text in table.headings())
    body = "".join(
        f"<tr><td>{escape(name)}</td>{''.join(map(_html_cell, row.cells, shown))}</tr>"
        for row, (name, *shown) in zip(table.rows, table.shown_rows(), strict=True)
    )
    return f"{title}<table><thead>{over}<tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_cell(cell: Cell, text: str) -> str:
    said = f' title="{escape(one_line(cell.reason))}"' if cell.reason else ""
    shown = f"<b>{escape(text)}</b>" if cell.leads else escape(text)
    return f"<td{said}>{shown}{f' <small>({escape(one_line(cell.beside))})</small>' if cell.beside else ''}</td>"


# -- Markdown


def to_markdown(tables: Sequence[Table]) -> str:
    """Pipe tables, which code hosts show, and the notes as a list."""
    parts = ["\n".join(_markdown(table)) for table in tables]
    notes = [f"- {_markdown_text(note)}" for note in notes_of(tables)]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])]) + "\n"


def _markdown(table: Table) -> Iterator[str]:
    if table.title and table.corner:
        yield f"**{_markdown_text(table.title)}**\n"
    yield _markdown_row(map(_markdown_text, [table.headings()[0], *(column.whole_heading for column in table.columns)]))
    yield _markdown_row(["---", *("---:" if table.is_numeric(c) else "---" for c in range(len(table.columns)))])
    for row, (name, *shown) in zip(table.rows, table.shown_rows(), strict=True):
        yield _markdown_row([_markdown_text(name), *map(_markdown_cell, row.cells, shown)])


def _markdown_row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell, text: str) -> str:
    shown = f"**{_markdown_text(text)}**" if cell.leads else _markdown_text(text)
    return f"{shown} ({_markdown_text(cell.beside)})" if cell.beside else shown


def _markdown_text(text: str) -> str:
    return markdown_text(harmless(text))


# -- LaTeX

SYMBOLS = {
    "τ": r"$\tau$", "β": r"$\beta$", "α": r"$\alpha$", "λ": r"$\lambda$", "ψ": r"$\psi$", "μ": r"$\mu$", "Δ": r"$\Delta$",
    "≥": r"$\geq$", "×": r"$\times$", "→": r"$\to$", "↓": r"$\downarrow$", "∈": r"$\in$", "−": "$-$", "±": r"$\pm$", "–": "--",
    "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "|": r"$|$", "<": "$<$", ">": "$>$", "…": r"\ldots{}",
    "●": r"$\bullet$", "○": r"$\circ$", "ᵃ": r"\textsuperscript{a}", "ᵇ": r"\textsuperscript{b}",
}  # fmt: skip
MINUS = re.compile(r"(?<![\w.])-(?=[\d.])")
"""The sign of a number, which as a hyphen is printed short."""
LINE = 68
"""Characters, with three for every column, that fit on a line of an article in \\small."""
FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
"""Scales what follows to the line where it is wider; of the package graphicx, without which it is printed as wide as it is."""
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
        return "\n".join(_latex_environment([table], table.title, label, remarks) for table in tables)
    return _latex_environment(tables, caption, label, remarks)


def _latex_environment(tables: Sequence[Table], caption: str, label: str, remarks: Sequence[str]) -> str:
    lines = [r"\begin{table}[htbp]", r"\centering", r"\small"]
    lines += [rf"\caption{{{latex(caption)}}}"] if caption else []
    lines += [rf"\label{{{label}}}"] if label else []
    lines += [r"\providecommand{\resizebox}[2]{}"] if any(map(_is_wide, tables)) else []
    for table in tables:
        lines += [*_latex_table(table, "" if table.title == caption else table.title), r"\par\vspace{4pt}"]
    lines += [rf"\par\footnotesize {latex(remark)}" for remark in (*remarks, *notes_of(tables))]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _is_wide(table: Table) -> bool:
    """Whether a line of an article may be too short for a table."""
    heads = [table.corner, *(column.heading for column in table.columns)]
    beside = [["", *(cell.beside for cell in row.cells)] for row in table.rows]
    rows = [[*map("".join, zip(*row, strict=True))] for row in zip(table.shown_rows(), beside, strict=True)]
    return sum(3 + max(map(len, column)) for column in zip(heads, *rows, strict=True)) > LINE


def _latex_table(table: Table, title: str) -> list[str]:
    count, is_wide = len(table.columns), _is_wide(table)
    sides = "".join("r" if table.is_numeric(c) or not table.rows else "l" for c in range(count))
    lines = [(FITTED + "{" if is_wide else "") + rf"\begin{{tabular}}{{l{sides}}}", r"\toprule"]
    if title:
        lines.append(rf"\multicolumn{{{count + 1}}}{{l}}{{\emph{{{latex(title)}}}}} \\")
    if any(name for name, _ in table.groups()):
        lines += _latex_groups(table.groups())
    lines.append(" & ".join([_latex_start(table.corner), *(latex(column.heading) for column in table.columns)]) + r" \\")
    lines.append(r"\midrule")
    group = ""
    for row, (name, *shown) in zip(table.rows, table.shown_rows(), strict=True):
        if row.group and row.group != group:
            lines += [r"\addlinespace"] if group else []
            lines.append(rf"\multicolumn{{{count + 1}}}{{l}}{{\textbf{{{latex(row.group)}}}}} \\")
        group, comment = row.group, " ".join(row.comment.split())
        lines.append(
            " & ".join([_latex_start(name), *map(_latex_cell, row.cells, shown)]) + r" \\" + (f" % {comment}" if comment else "")
        )
    return [*lines, r"\bottomrule", r"\end{tabular}" + "}" * is_wide]


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


def _latex_cell(cell: Cell, text: str) -> str:
    if not isinstance(cell.value, str):
        text = MINUS.sub("−", text)
    shown = rf"\textbf{{{latex(text)}}}" if cell.leads else latex(text)
    return rf"{shown} {{\footnotesize({latex(cell.beside)})}}" if cell.beside else shown


# -- CSV


def to_csv(tables: Sequence[Table]) -> str:
    """One row per row, numbers at full precision: a figure is a column, and its interval and noise floor are columns behind it.

    Several tables, or one with a title, have the title in a first column; a table has the columns of all.
    """
    records = [{"table": table.title} | _csv_row(table, row) for table in tables for row in table.rows]
    is_named = any(table.title for table in tables) or len(tables) > 1
    empty = [name for table in tables for name in (table.key, *(column.key for column in table.columns))]
    names = [name for name in dict.fromkeys([*(["table"] if is_named else []), *(key for r in records for key in r), *empty])
             if is_named or name != "table"]  # fmt: skip
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(csv_text, names))
    writer.writerows([record.get(name, "") for name in names] for record in records)
    return stream.getvalue()


def _csv_row(table: Table, row: Row) -> dict[str, str]:
    values = {table.key: csv_text(row.name)}
    for column, cell in zip(table.columns, row.cells, strict=True):
        values |= _csv_cell(column, cell)
    return values


def _csv_cell(column: Column, cell: Cell) -> dict[str, str]:
    value = cell.value
    if not isinstance(value, Figure):
        return {column.key: _csv_value(value)}
    more = {"low": value.low, "high": value.high} | ({} if value.floor is None else {"floor": value.floor})
    return {column.key: _csv_value(value.value)} | {f"{column.key}_{name}": _csv_value(end) for name, end in more.items()}


def _csv_value(value: float | str | None) -> str:
    if isinstance(value, float):
        return "" if unless_nan(value) is None else repr(float(value))
    return "" if value is None else csv_text(str(value))


def csv_text(text: str) -> str:
    """Text that a spreadsheet shows instead of computing it: behind an apostrophe, unless it is a number."""
    return f"'{text}" if FORMULA.match(text) and text != NOTHING and not SIGNED.fullmatch(text) else text


# -- JSON


def to_json(tables: Sequence[Table]) -> str:
    """A list of tables, each with its columns, rows and notes; a cell is its value with interval, or the reason for none."""
    return json.dumps([_json(table) for table in tables], indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _json(table: Table) -> dict[str, object]:
    columns = [
        {"key": column.key, "label": column.heading}
        | {name: value for name in ("group", "better") if (value := getattr(column, name))}
        for column in table.columns
    ]
    rows = [
        {table.key: row.name} | {column.key: _json_cell(cell) for column, cell in zip(table.columns, row.cells, strict=True)}
        for row in table.rows
    ]
    notes = [{"text": note.text, "weight": note.weight, "about": note.about} for note in table.notes]
    return {"title": table.title, "columns": columns, "rows": rows, "notes": notes}


def _json_cell(cell: Cell) -> dict[str, object]:
    value = cell.value
    shown = value.to_json() if isinstance(value, Figure) else {"value": unless_nan(value) if isinstance(value, float) else value}
    return {**shown, **({"leads": True} if cell.leads else {}), **({"reason": cell.reason} if cell.reason else {})}


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "table": to_text, "markdown": to_markdown, "latex": to_latex, "csv": to_csv, "json": to_json, "html": to_html,
}  # fmt: skip
"""Every form in which tables are written."""


class Printed(ABC):
    """A result that prints as tables: as text in a terminal, as HTML in a notebook, and in every form of `FORMATS`."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """What is printed, with the notes of each table."""

    @abstractmethod
    def to_json(self) -> Any:
        """As `--json` prints it."""

    def __str__(self) -> str:
        return to_text(self.tables()).rstrip("\n")

    def _repr_html_(self) -> str:
        return to_html(self.tables())

    def to_format(self, name: str) -> str:
        """The tables as `table` (text), `markdown`, `latex`, `csv`, `json` or `html`."""
        return FORMATS[name](self.tables())
