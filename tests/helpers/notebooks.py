"""Example notebooks in this process: quicker than a kernel, and a failure shows its line."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any


def code_cells(file: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any], where: str) -> tuple[Any, str]:
    """The value of the last expression, as a notebook shows it, and what was printed."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None  # type: ignore[attr-defined]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), where, "exec"), names)
        value = eval(compile(last, where, "eval"), names) if last else None
    return value, printed.getvalue()


def stored_print(cell: dict[str, Any]) -> str:
    """What the stored outputs of a cell say was printed."""
    return "".join("".join(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream" and o["name"] == "stdout")


def stored_value(cell: dict[str, Any], kind: str) -> str | None:
    """The value that a cell shows as `text/plain` or `text/html`, where it stored one."""
    shown = [o["data"][kind] for o in cell["outputs"] if o["output_type"] == "execute_result"]
    return "".join(shown[0]) if shown else None
