"""What is installed is what was locked, and nothing that is read can run code."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.helpers.paths import ROOT

LOCK = (ROOT / "requirements-lock.txt").read_text(encoding="utf-8")
LOCKED = {name: Version(version) for name, version in re.findall(r"^([a-z0-9-]+)==(\S+) \\$", LOCK, re.M)}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(extra: str) -> Iterator[Requirement]:
    """What an extra asks for, with the extras of ours that it names."""
    for line in PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            for other in requirement.extras:
                yield from wanted(other)
        else:
            yield requirement


def test_every_package_of_the_lock_has_its_hashes():
    blocks = re.split(r"\n(?=[a-z0-9])", LOCK)
    without = [block for block in blocks[1:] if "--hash=sha256:" not in block]
    assert without == []
    assert len(LOCKED) > 150
    assert "--index" not in LOCK
    assert " @ " not in LOCK


def test_the_lock_holds_the_versions_of_constraints_txt():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    other = {
        name: (version, LOCKED.get(plain(name)))
        for name, version in pinned.items()
        if plain(name) not in LOCKED or LOCKED[plain(name)].public != version
    }
    assert other == {}, "run `make lock`"


def test_the_demos_lock_is_a_part_of_the_tests_lock():
    lock = (ROOT / "requirements-demo-lock.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", lock, re.M))
    assert {name: Version(version) for name, version in versions.items()}.items() <= LOCKED.items(), "run `make lock`"
    assert 30 < len(versions) < len(LOCKED) / 2
    assert [block for block in re.split(r"\n(?=[a-z0-9])", lock)[1:] if "--hash=sha256:" not in block] == []
    missing = [str(r) for r in map(Requirement, PROJECT["dependencies"]) if plain(r.name) not in versions]
    assert missing == [], "run `make lock`"


def test_the_lock_holds_what_pyproject_asks_for():
    needs = [*map(Requirement, PROJECT["dependencies"]), *wanted("dev")]
    missing = [str(r) for r in needs if plain(r.name) not in LOCKED or not r.specifier.contains(LOCKED[plain(r.name)].public)]
    assert missing == [], "run `make lock`"


def test_torch_is_the_cpu_build():
    assert LOCKED["torch"].local == "cpu"
    assert not [name for name in LOCKED if name.startswith(("nvidia-", "triton"))]


# -- no code from data

MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle", "imp"}
CALLS = {"eval", "exec", "__import__"}


def dangers(source: str) -> Iterator[str]:
    """What in a module could run code that stands in data, or in a text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"import {a.name}" for a in node.names if a.name.split(".")[0] in MODULES)
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in MODULES:
            yield f"from {node.module}"
        if not isinstance(node, ast.Call):
            continue
        named = ast.unparse(node.func)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if named in CALLS:
            yield named
        if named in ("torch.load", "torch.jit.load") and not _is(given.get("weights_only"), True):
            yield f"{named} without weights_only=True"
        if named in ("np.load", "numpy.load") and not _is(given.get("allow_pickle"), False):
            yield f"{named} without allow_pickle=False"
        if re.fullmatch(r"(pd|pandas)\.read_pickle|os\.(system|popen)", named):
            yield named
        if re.fullmatch(r"yaml\.(unsafe_|full_)?load(_all)?", named):
            yield named
        if "shell" in given and not _is(given["shell"], False):
            yield f"{named} with a shell"


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


FILES = sorted((ROOT / "src").rglob("*.py"))


def test_nothing_that_is_read_can_run_code():
    """`python:` and `command:` scorers are code that the user names; they are imported and started by name, not from data."""
    found = {str(file.relative_to(ROOT)): sorted(dangers(file.read_text(encoding="utf-8"))) for file in FILES}
    assert len(found) > 200
    assert {file: what for file, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "from joblib import load", "import os, dill", "eval(x)", "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "np.load(f)", "np.load(f, allow_pickle=True)", "yaml.load(f)", "yaml.full_load(f)", "subprocess.run(c, shell=True)",
        "subprocess.run(c, shell=yes)", "os.system(c)", "pd.read_pickle(f)", "__import__(x)",
    ],
)  # fmt: skip
def test_each_danger_is_seen(line):
    assert list(dangers(line))


@pytest.mark.parametrize(
    "line", ["torch.load(f, weights_only=True)", "np.load(f, allow_pickle=False)", "yaml.safe_load(f)", "model.eval()", "run(c)"]
)
def test_what_is_safe_is_not_taken_for_a_danger(line):
    assert not list(dangers(line))
