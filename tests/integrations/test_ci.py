"""deploy/ci and the pre-commit hook: what they run is run here, in a repository that the test makes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import yaml

from tests.helpers.paths import ROOT

CI = ROOT / "deploy" / "ci"
SCORERS = """
def steady(query, texts):
    return [len(text) for text in texts]


def unstable(query, texts):
    return [len(text) / 100 - place for place, text in enumerate(texts)]
"""
FLAGS = "--queries 8 --permutations 4 --match-retention 0.3"


@pytest.fixture
def repository(tmp_path):
    """A folder with scorers of its own, and `steadyscore` and `python` as a build has them."""
    (tmp_path / "scorers.py").write_text(SCORERS)
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "steadyscore").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m steadyscore "$@"\n')
    (bin / "steadyscore").chmod(0o755)
    return tmp_path


def run(repository, script, **variables):
    known = os.environ | {"PATH": f"{repository / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": f"{repository}:{ROOT / 'src'}"}
    return subprocess.run(
        ["sh", "-e", "-c", script], cwd=repository, env=known | variables, capture_output=True, text=True, timeout=300
    )


def action_step(**inputs):
    """The script of the Action's step that audits, and its variables, with inputs filled in as GitHub fills them in."""
    action = yaml.safe_load((CI / "action.yml").read_text())
    given = {name: one.get("default", "") for name, one in action["inputs"].items()} | inputs
    assert {name for name, one in action["inputs"].items() if one.get("required")} <= inputs.keys()
    (step,) = [step for step in action["runs"]["steps"] if step["name"] == "Audit and gate"]
    env = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value) for name, value in step["env"].items()
    }
    assert "${{" not in "".join(env.values())
    return step["run"], env | {"GITHUB_ACTION_PATH": str(CI)}


def test_the_action_fails_on_an_unstable_scorer_and_passes_on_a_steady_one(repository):
    codes, bounds = {}, {"data": "passages", "audit": FLAGS, "gate": "--min overlap=0.8"}
    for name in ("steady", "unstable"):
        script, env = action_step(scorer=f"python:scorers:{name}", **bounds)
        summary = repository / f"{name}.md"
        ran = run(repository, script, **env | {"OUT": f"runs/{name}"}, GITHUB_STEP_SUMMARY=str(summary))
        codes[name] = ran.returncode
        text = summary.read_text()
        assert f"python:scorers:{name}" in text
        assert re.search(r"^\| .* \| overlap >= 0.8 \|", text, re.M)
        assert ("FAILED" in text) is (name == "unstable")
        suite = ElementTree.parse(repository / "runs" / name / "gate.xml").getroot()
        assert int(suite.get("failures")) == (name == "unstable")
        if name == "unstable":
            assert "overlap >= 0.8 fails with 0." in ran.stderr
            assert re.search(r"^query p\d+: ", ran.stderr, re.M)
            assert re.search(r"^  p\S+ is kept with .* then dropped with .*\(cause: slot\): ", ran.stderr, re.M)
            assert "next: steadyscore audit --scorer 'python:scorers:unstable' --data 'passages'" in ran.stderr
            assert "Traceback" not in ran.stderr
    assert codes == {"steady": 0, "unstable": 3}


def test_the_action_holds_a_run_against_that_of_the_default_branch(repository):
    bounds = {"data": "passages", "audit": FLAGS, "max-drop": "overlap=0.05 tau_psi=0.05"}
    script, env = action_step(scorer="python:scorers:steady", **bounds)
    first = run(repository, script, **env)
    assert first.returncode == 0, first.stderr
    assert "There is no baseline in '.steadyscore/baseline' yet" in first.stdout
    (repository / ".steadyscore/check").rename(repository / ".steadyscore/baseline")
    script, env = action_step(scorer="mine=python:scorers:unstable", **bounds)
    second = run(repository, script, **env)
    assert second.returncode == 3
    assert "drop of overlap <= 0.05 fails with" in second.stderr
    assert "rise of tau_psi <= 0.05 fails with" in second.stderr
    assert "fails in four of five cases" in (repository / ".steadyscore/check/summary.md").read_text()


def test_an_audit_that_cannot_run_fails_the_action_with_its_own_code(repository):
    script, env = action_step(scorer="python:scorers:absent", data="passages", gate="--min overlap=0.8")
    ran = run(repository, script, **env)
    assert ran.returncode not in (0, 3)
    assert not (repository / ".steadyscore/check/gate.xml").exists()


def test_the_gitlab_template_keeps_a_baseline_and_fails_a_later_run(repository):
    template = yaml.safe_load((CI / "gitlab.yml").read_text())[".steadyscore"]
    source = repository / "source"
    (source / "deploy").mkdir(parents=True)
    shutil.copytree(CI, source / "deploy/ci")
    commit = (
        "git init -q && git add . && git -c user.name=x -c user.email=x commit -qm x && git tag " + template["variables"]["REF"]
    )
    subprocess.run(["sh", "-ec", commit], cwd=source, check=True)
    variables = template["variables"] | {"SOURCE": source.as_uri(), "DATA": "passages", "AUDIT": FLAGS}
    variables |= {"GATE": "--min overlap=0.5", "MAX_DROP": "overlap=0.05"}
    script = "\n".join(line for line in template["script"] if "pip install" not in line)
    first = run(repository, script, **variables, SCORER="python:scorers:steady", KEEP="yes")
    assert first.returncode == 0, first.stderr
    assert "| overlap >= 0.5 |" in first.stdout
    second = run(repository, script, **variables | {"OUT": "runs/pr"}, SCORER="python:scorers:unstable")
    assert second.returncode == 3
    assert "drop of overlap &lt;= 0.05" in second.stdout


def test_the_action_is_one_that_github_can_read():
    action = yaml.safe_load((CI / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert "shell" in step or "uses" in step
        assert "${{" not in step.get("run", ""), "an input inside a script would be code"


# ---- the pre-commit hook


def score_file(folder, name, scores):
    """Three queries of two candidates under two orders."""
    rows = [f"q{q},{p},d{c},{score}" for q in range(3) for p, row in enumerate(scores) for c, score in enumerate(row)]
    file = folder / f"scores-{name}.csv"
    file.write_text("\n".join(["query_id,permutation,candidate_id,score", *rows, ""]))
    return file


def test_the_hook_passes_steady_score_files_and_fails_unstable_and_broken_ones(repository):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    steady = score_file(repository, "steady", [(0.9, 0.1), (0.8, 0.2)])
    unstable = score_file(repository, "unstable", [(0.9, 0.1), (0.1, 0.9)])
    broken = score_file(repository, "broken", [(0.9, 0.1), ("nan", 0.9)])
    assert all(re.search(hook["files"], f"data/{file.name}") for file in (steady, unstable, broken))
    assert hook["language"] == "python"

    def check(*files, args):
        return run(repository, shlex.join([*shlex.split(hook["entry"]), *args, *(file.name for file in files)]))

    bound = ["--min", "overlap=0.8", "--cutoff", "0.5"]
    assert check(steady, args=bound).returncode == 0
    assert check(steady, args=hook["args"]).returncode == 0
    failed = check(steady, unstable, args=bound)
    assert failed.returncode == 3
    assert "scores-unstable on scores: overlap >= 0.8 fails with 0.0000" in failed.stderr
    assert "scores-steady" not in failed.stderr
    refused = check(broken, args=bound)
    assert refused.returncode == 1
    assert "scores-broken.csv" in refused.stderr
    assert "Traceback" not in refused.stderr
