"""What is shipped: one version, the type marker, and files beside the code that agree with it."""

import os
import re
import shutil
import subprocess
import tomllib

import pytest

import steadyscore
from steadyscore.cli import main
from tests.helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HATCH = PROJECT["tool"]["hatch"]


def test_the_version_is_written_once(capsys):
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    file = ROOT / HATCH["version"]["path"]
    assert re.findall(r'^__version__ = "(.+)"$', file.read_text(encoding="utf-8"), re.M) == [steadyscore.__version__]
    try:
        main(["--version"])
    except SystemExit:
        assert capsys.readouterr().out == f"steadyscore {steadyscore.__version__}\n"


def test_the_deployed_image_is_of_this_version():
    image = re.search(r"image: steadyscore:(\S+)", (ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert image[1] == steadyscore.__version__


def test_the_type_marker_is_in_the_wheel():
    """A wheel holds every file of its packages that is not ignored by git."""
    (package,) = HATCH["build"]["targets"]["wheel"]["packages"]
    assert (ROOT / package / "py.typed").is_file()
    assert not {"exclude", "only-include", "include"} & HATCH["build"]["targets"]["wheel"].keys()
    assert not re.search(r"typed", (ROOT / ".gitignore").read_text(encoding="utf-8"))
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]


def test_the_core_dependencies_are_pinned_for_development():
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line}
    assert {re.split(r"[<>=\[]", name)[0] for name in PROJECT["project"]["dependencies"]} <= pinned


def test_the_lowest_versions_that_are_tried_are_those_declared():
    tried = [line for line in (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
    declared = [name.replace(">=", "==") for name in PROJECT["project"]["dependencies"]]
    assert [without_zeros(line) for line in tried] == [without_zeros(line) for line in declared]


def without_zeros(version):
    return re.sub(r"(\.0)+$", "", version)


def test_the_citation_names_the_authors_of_the_paper():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = re.findall(r"family-names: (\w+), given-names: (\w\.)", cited)
    assert len(names) == 4
    assert all(f"{given} {family}" in readme for family, given in names)
    assert re.search(r'type: generic\n  title: "(.+)"', cited)[1] in readme


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_makefile_names_test_files_that_exist():
    targets = ["test-python", "test-ray", "test-stores", "test-vllm", "test-tools", "test-harnesses"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    words = ["make", "-n", "PYTHON=python3", *targets]
    told = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=alone, check=True)
    named = set(re.findall(r"tests/[\w/]+\.py", told.stdout))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
