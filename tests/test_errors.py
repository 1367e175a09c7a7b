"""The drawing of the error tree is the tree."""

import ast
import re
from pathlib import Path

from steadyscore import errors

PACKAGE = Path(errors.__file__).parent


def drawn() -> dict[str, str]:
    """Class -> the class it is drawn under."""
    above, found = {}, {}
    for branch, name in re.findall(r"^([│├└─ ]*)([A-Z]\w+) {2,}", errors.__doc__, re.M):
        depth = len(branch) // len("├── ")
        above[depth] = name
        found[name] = above.get(depth - 1, "Exception")
    return found


def defined() -> dict[str, str]:
    """Class -> its base class, of every class below SteadyscoreError in the package."""
    bases = {
        node.name: node.bases[0].id
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name)
    }

    def is_ours(name):
        return name == "SteadyscoreError" or (name in bases and is_ours(bases[name]))

    return {name: base for name, base in bases.items() if is_ours(name)}


def test_the_drawn_tree_is_the_tree_of_classes():
    assert drawn() == defined()


def test_the_drawn_exit_codes_are_those_of_the_classes():
    codes = {name: int(code) for name, code in re.findall(r"(\w+) +exit (\d):", errors.__doc__)}
    assert codes == {name: getattr(errors, name).exit_code for name in codes}
    assert codes.keys() == {"SteadyscoreError", "UsageError", "GateFailed"}
