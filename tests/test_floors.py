"""The house keeps its floors: a module imports only what `docs/architecture.md` allows."""

import ast
import re
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

PACKAGE = ROOT / "src" / "steadyscore"
FLOORS = re.findall(r"^\| (\d) \| `([\w/.]+)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.M)
FLOOR = {name: int(floor) for floor, name in FLOORS}
TORCH_ALLOWED = set(re.findall(r"^\| \d \| `([\w/.]+)` \| †", (ROOT / "docs" / "architecture.md").read_text(), re.M))
MODULES = sorted(str(f.relative_to(PACKAGE)) for f in PACKAGE.rglob("*.py"))


def target(module: str, node: ast.ImportFrom) -> list[str]:
    """Files of ours that a relative or absolute import names."""
    here = list(Path(module).parts[:-1])
    if node.level:
        base = here[: len(here) - (node.level - 1)]
    elif node.module and node.module.split(".")[0] == "steadyscore":
        base = []
        node = ast.ImportFrom(module=".".join(node.module.split(".")[1:]), names=node.names, level=0)
    else:
        return []
    parts = base + (node.module.split(".") if node.module else [])
    found = []
    for alias in node.names:
        for candidate in (
            Path(*parts, alias.name + ".py"),
            Path(*parts, alias.name, "__init__.py"),
            Path(*parts).with_suffix(".py") if parts else None,
            Path(*parts, "__init__.py"),
        ):
            if candidate and str(candidate) in MODULES:
                found.append(str(candidate))
                break
    return found


def imports(module: str, top_level_only: bool = False):
    tree = ast.parse((PACKAGE / module).read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield node


def test_every_module_stands_in_the_table():
    assert set(MODULES) == FLOOR.keys()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_its_floor_or_below(module):
    for node in imports(module):
        for other in target(module, node):
            assert FLOOR[other] <= FLOOR[module], f"{module} (floor {FLOOR[module]}) imports {other} (floor {FLOOR[other]})"


@pytest.mark.parametrize("module", MODULES)
def test_torch_is_imported_at_the_top_only_where_marked(module):
    tree = ast.parse((PACKAGE / module).read_text())
    heavy = {"torch", "transformers", "peft", "accelerate", "matplotlib", "jinja2", "pandas"}
    top = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            top |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            top.add((node.module or "").split(".")[0])
    assert module in TORCH_ALLOWED or not heavy & top


def test_no_module_is_crowded():
    lengths = {module: len((PACKAGE / module).read_text().splitlines()) for module in MODULES}
    assert {m: n for m, n in lengths.items() if n > 450} == {}


def test_no_cycle_between_modules():
    graph = {m: {t for node in imports(m, top_level_only=True) for t in target(m, node) if t != m} for m in MODULES}
    seen: dict[str, int] = {}

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if not seen.get(module):
            seen[module] = 1
            for other in graph[module]:
                visit(other, (*path, module))

    for module in MODULES:
        visit(module, ())
