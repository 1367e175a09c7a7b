"""The folder is the floor: a package imports only from those before it in the list of `docs/architecture.md`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.paths import PACKAGE, ROOT, TESTS

PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
HEAVY = {"torch", "transformers", "peft", "accelerate", "matplotlib", "jinja2", "pandas"}
MAY_BE_HEAVY = set(re.findall(r"`([\w/]+\.py)`", re.search(r"^Modules that import torch.*$", PAGE, re.M)[0]))
BY_NAME = {("engines/kinds.py", "decision_models"), ("audits/audits.py", "decision_models")}
"""Tables that name a module of a later package, which is imported when it is asked for."""
MODULES = sorted(str(f.relative_to(PACKAGE)) for f in PACKAGE.rglob("*.py"))
QUESTIONS = re.findall(r"^\| ([^|]+\?) \| `([\w/.]+)`(?:: `(\w+)`)?", PAGE, re.M)


def package_of(module: str) -> str:
    return module.split("/")[0].removesuffix(".py")


def targets(module: str, node: ast.ImportFrom) -> list[str]:
    """Files of ours that a relative import names."""
    if not node.level:
        return []
    here = Path(module).parts[:-1]
    base = [*here[: len(here) - (node.level - 1)], *(node.module.split(".") if node.module else [])]
    files = []
    for alias in node.names:
        choices = [[*base, alias.name + ".py"], [*base, alias.name, "__init__.py"], [*base, "__init__.py"]]
        if base:
            choices.insert(2, [*base[:-1], base[-1] + ".py"])
        files.append(next(str(Path(*parts)) for parts in choices if str(Path(*parts)) in MODULES))
    return files


def imports(module: str) -> Iterator[ast.ImportFrom]:
    """Those inside functions and those for annotations alone too."""
    yield from (node for node in ast.walk(ast.parse((PACKAGE / module).read_text())) if isinstance(node, ast.ImportFrom))


def test_the_list_names_every_package_and_nothing_else():
    assert sorted(PACKAGES) == sorted({package_of(module) for module in MODULES})
    assert len([name for name in PACKAGES if (PACKAGE / name).is_dir()]) <= 19


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_packages_before_its_own(module):
    place = PACKAGES.index(package_of(module))
    for node in imports(module):
        assert not (node.module or "").startswith("steadyscore"), f"{module} imports itself by its whole name"
        for other in map(package_of, targets(module, node)):
            assert PACKAGES.index(other) <= place, f"{module} imports {other}"


@pytest.mark.parametrize("module", MODULES)
def test_a_later_package_is_named_only_in_a_table(module):
    texts = [node.value for node in ast.walk(ast.parse((PACKAGE / module).read_text())) if isinstance(node, ast.Constant)]
    names = [re.fullmatch(r"steadyscore\.(\w+)(\.\w+)*", text) for text in texts if isinstance(text, str)]
    later = {name[1] for name in names if name and name[1] in PACKAGES[PACKAGES.index(package_of(module)) + 1 :]}
    assert {(module, name) for name in later} <= BY_NAME


@pytest.mark.parametrize("module", MODULES)
def test_heavy_packages_are_imported_at_the_top_only_where_the_page_says_so(module):
    top = set()
    for node in ast.parse((PACKAGE / module).read_text()).body:
        if isinstance(node, ast.Import):
            top |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            top.add((node.module or "").split(".")[0])
    assert module in MAY_BE_HEAVY or not HEAVY & top


def test_the_page_names_only_heavy_modules_that_exist():
    assert set(MODULES) >= MAY_BE_HEAVY


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_in_its_first_line_what_lives_there(module):
    assert ast.get_docstring(ast.parse((PACKAGE / module).read_text())) or module == "__main__.py"


def test_no_module_is_crowded():
    lengths = {module: len((PACKAGE / module).read_text().splitlines()) for module in MODULES}
    assert {module: lines for module, lines in lengths.items() if lines > 450} == {}


def test_no_cycle_between_modules():
    graph = {m: {t for node in imports(m) for t in targets(m, node) if t != m} for m in MODULES}
    seen: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in seen:
            for other in graph[module]:
                visit(other, (*path, module))
            seen.add(module)

    for module in MODULES:
        visit(module, ())


def test_a_newcomer_has_ten_questions_and_a_path_for_each():
    section = PAGE.partition("## Ten questions")[2].partition("\n## ")[0]
    asked = [question for question, _, _ in QUESTIONS if f"| {question} |" in section]
    assert len(asked) == section.count("? |") == 10


@pytest.mark.parametrize(("question", "file", "name"), QUESTIONS)
def test_every_question_is_answered_by_a_path_that_exists(question, file, name):
    text = (PACKAGE / file).read_text()
    assert not name or re.search(rf"^(def|class|async def) {name}\b|^{name}\b.*=", text, re.M), question


def test_tests_mirror_the_packages():
    folders = {f.parent.name for f in TESTS.glob("*/test_*.py")} - {"faults", "fuzz"}
    assert folders <= set(PACKAGES)
