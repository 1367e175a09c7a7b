"""What the core alone can do: everything else names its extra in one sentence before it begins."""

import re
import subprocess
import sys
import tomllib

import pytest

from steadyscore.errors import MissingExtra
from steadyscore.machine.extras import BRINGS, EXTRA, check_installed, install_line
from tests.helpers.paths import ROOT

CORE = f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRA)!r})); from steadyscore.cli import main; sys.exit(main())"
"""The command line in a process that can import no module of an extra."""


def run_core(folder, *words):
    return subprocess.run([sys.executable, "-c", CORE, *words], capture_output=True, text=True, cwd=folder)


def test_the_table_has_the_extras_of_the_package():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert BRINGS.keys() == declared.keys() - {"dev"}


def test_an_extra_inside_another_is_not_named_twice():
    assert install_line(["torch", "yaml"]) == "pip install 'steadyscore[train]'"
    assert install_line(["httpx", "torch"]) == "pip install 'steadyscore[hosted,local]'"


def test_modules_that_are_absent_are_named_together(monkeypatch):
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
    assert "steadyscore[reports]" in done.stderr.partition("scoring")[0]
    assert not (tmp_path / "run" / "report").exists()


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("demo", "local"),
        ("audit --scorer smollm2-135m --data passages --out out", "local"),
        ("audit --scorer synthetic:slot --data claims --reader hf:a/b --out out", "local"),
        ("audit --scorer synthetic:slot --data passages --ir P@5 --out out", "data"),
        ("audit --scorer rerank:http://127.0.0.1:9 --data passages --out out", "hosted"),
        ("score --data passages --out out", "local"),
        ("report somewhere --out out", "reports"),
        ("compare somewhere --report out", "reports"),
        ("label --scorer smollm2-135m --data passages --out out", "local"),
        ("train --base smollm2-135m --data passages --labels judgements --out out", "train"),
        ("check smollm2_passages", "train"),
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
    assert re.search(rf"pip install 'steadyscore\[[a-z,-]*\b{extra}\b", done.stderr.splitlines()[-1])
    assert list(tmp_path.iterdir()) == []
