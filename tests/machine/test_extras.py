"""What the core alone can do: everything else names its extra in one sentence before it begins."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution

import pytest

from steadyscore.errors import MissingExtra
from steadyscore.machine.extras import BRINGS, EXTRA, check_installed, install_line
from tests.helpers.paths import ROOT

CORE = f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRA)!r})); from steadyscore.cli import main; sys.exit(main())"
"""The command line in a process that can import no module of an extra."""


@pytest.fixture
def said_by_pip(monkeypatch):
    """What pip noted of where the package came from, as a test says it."""

    def say(text):
        monkeypatch.setattr(PathDistribution, "read_text", lambda self, name: text)

    say(None)
    return say


def run_core(folder, *words):
    return subprocess.run([sys.executable, "-c", CORE, *words], capture_output=True, text=True, cwd=folder)


def test_the_table_has_the_extras_of_the_package():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert BRINGS.keys() == declared.keys() - {"dev", "docs"}


def test_an_extra_inside_another_is_not_named_twice(said_by_pip):
    assert install_line(["torch", "yaml"]) == "pip install 'steadyscore[train]'"
    assert install_line(["httpx2", "torch"]) == "pip install 'steadyscore[hosted,local]'"


@pytest.mark.parametrize(
    ("place", "about", "line"),
    [
        ("my checkout", {"dir_info": {"editable": True}}, "pip install -e '{0}/my checkout[reports]'"),
        ("checkout", {"dir_info": {}}, "pip install '{0}/checkout[reports]'"),
        ("steadyscore-1-py3-none-any.whl", {"archive_info": {}}, "pip install '{0}/steadyscore-1-py3-none-any.whl[reports]'"),
    ],
    ids=["editable", "folder", "wheel"],
)
def test_the_line_names_what_the_package_was_installed_from(place, about, line, tmp_path, said_by_pip):
    (tmp_path / place).mkdir()
    said_by_pip(json.dumps({"url": (tmp_path / place).as_uri(), **about}))
    assert install_line(["jinja2"]) == line.format(tmp_path)
    (tmp_path / place).rmdir()
    assert install_line(["jinja2"]) == "pip install 'steadyscore[reports]'"


def test_the_line_names_an_address_that_the_package_was_installed_from(said_by_pip):
    said_by_pip(json.dumps({"url": "https://host/s.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}))
    assert install_line(["jinja2"]) == "pip install 'steadyscore[reports] @ git+https://host/s.git@abc'"
    said_by_pip(json.dumps({"url": "https://host/s.whl", "archive_info": {}}))
    assert install_line(["jinja2", "pandas"]) == "pip install 'steadyscore[reports] @ https://host/s.whl' pandas"


def test_modules_that_are_absent_are_named_together(monkeypatch, said_by_pip):
    for name in ("jinja2", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    sentence = (
        r"The page needs jinja2 and matplotlib, which are not installed\. Install with: pip install 'steadyscore\[reports\]'"
    )
    with pytest.raises(MissingExtra, match=sentence):
        check_installed("The page", "jinja2", "numpy", "matplotlib")


def test_the_core_alone_prints_the_table_and_says_before_scoring_that_there_is_no_page(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import sys\ndef score(query, texts):\n    print('scoring', file=sys.stderr)\n    return list(map(len, texts))\n"
    )
    words = "audit --scorer python:mine:score --data passages --queries 4 --permutations 2 --out run"
    done = run_core(tmp_path, *words.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("passages ")
    assert "[reports]'" in done.stderr.partition("scoring")[0]
    assert not (tmp_path / "run" / "report").exists()


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("demo", "local"),
        ("audit --scorer smollm2-135m --data passages --out out", "local"),
        ("audit --scorer synthetic:slot --data claims --reader hf:a/b --out out", "local"),
        ("audit --scorer synthetic:slot --data passages --set ir=P@5 --out out", "data"),
        ("audit --scorer rerank:http://127.0.0.1:9 --data passages --out out", "hosted"),
        ("score --data passages --out out", "local"),
        ("report somewhere --out out", "reports"),
        ("compare somewhere --report out", "reports"),
        ("label --scorer smollm2-135m --data passages --out out", "local"),
        ("train --base smollm2-135m --data passages --labels judgements --out out", "train"),
        ("train --recipe smollm2_passages --dry-run", "train"),
        ("adapter verify smollm2-135m-oc", "local"),
        ("adapter merge smollm2-135m-oc --out out", "local"),
        ("adapter halve smollm2-135m-oc --out out", "local"),
        ("adapter push smollm2-135m-oc owner/name", "local"),
        ("serve", "serve"),
        ("explore --no-browser synthetic:slot", "serve"),
        ("data get scifact --out out", "hub-data"),
    ],
)
def test_what_needs_an_extra_names_it_in_one_sentence_and_writes_nothing(tmp_path, words, extra):
    done = run_core(tmp_path, *words.split())
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(rf"pip install .*\[[a-z,-]*\b{extra}\b", done.stderr.splitlines()[-1])
    assert list(tmp_path.iterdir()) == []
