"""The table of `make test-wheel`: what is counted as working, as naming an extra, and as falling over."""

from __future__ import annotations

import sys
from pathlib import Path

from steadyscore.cli import VERBS, parser
from steadyscore.machine.extras import BRINGS, WITH_LOCAL
from tests.helpers import check_wheel
from tests.helpers.check_wheel import ENVIRONMENTS, STAND_INS, TRACE, WITH_TORCH, cell, check, examples, table, verdict


def test_a_stack_trace_is_never_taken_for_a_refusal():
    trace = "Traceback (most recent call last):\n  ...\nModuleNotFoundError: pip install 'steadyscore[local]'"
    assert verdict(1, "", trace) == TRACE
    assert verdict(0, "", trace) == TRACE
    assert verdict(1, "", "") == TRACE


def test_a_refusal_names_its_extra_in_its_last_line():
    sentence = "steadyscore: Scoring needs torch, which is not installed. Install with: pip install 'steadyscore[local]'"
    assert verdict(1, "", sentence) == "names local"
    assert verdict(1, "", "steadyscore: there is no run in runs/first.") == "refuses"
    assert verdict(0, "", sentence) == "works"


def test_a_verb_that_names_extras_among_its_results_names_them_all():
    results = "local models  pip install 'steadyscore[local]'  NO\nBM25  pip install 'steadyscore[data]'  NO"
    assert verdict(1, results, "") == "names data,local"


def test_only_a_server_may_still_run_when_its_time_is_over():
    assert verdict(None, "", "", is_server=True) == "works"
    assert verdict(None, "", "") == TRACE


def test_one_trace_marks_the_verb_and_what_examples_did_is_said_once_each():
    assert cell(["works", "works", "names local", TRACE]) == TRACE
    assert cell([TRACE]) == TRACE
    assert cell(["works", "works", "works"]) == "works"
    assert cell(["works", "names local", "works"]) == "names local / works"


def test_the_table_has_a_row_for_each_verb_and_a_column_for_each_environment():
    lines = table({"core": {"demo": "works", "serve": "names serve"}, "serve": {"demo": "works", "serve": "works"}}).splitlines()
    assert [line.split() for line in lines] == [
        ["verb", "core", "serve"], ["demo", "works", "works"], ["serve", "names", "serve", "works"]
    ]  # fmt: skip


def test_a_program_is_run_and_judged_by_its_help_and_its_examples(tmp_path):
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nwords = sys.argv[1:]\n"
        "if '--help' in words: print('examples:\\n  steadyscore plan good\\n  steadyscore plan bad')\n"
        "elif words == ['plan', 'bad']: raise RuntimeError('fell over')\n"
    )
    program.chmod(0o755)
    found, wrong = check(program, "plan", tmp_path)
    assert found == TRACE
    assert len(wrong) == 1
    assert "RuntimeError: fell over" in wrong[0]


def test_every_stand_in_is_a_command_line_of_its_verb():
    for verb, commands in STAND_INS.items():
        for words in commands:
            assert parser(verb).parse_args(words.split()).verb == verb
    assert STAND_INS.keys() <= VERBS.keys()
    assert all(len(examples(parser_help(verb))) >= 2 for verb in VERBS.keys() - STAND_INS.keys())


def parser_help(verb: str) -> str:
    return parser(verb)._subparsers._group_actions[0].choices[verb].format_help()


def test_environments_are_extras_and_torch_is_named_where_an_extra_brings_it():
    assert set(ENVIRONMENTS) - {"core"} == BRINGS.keys() - {"vllm", "ray"}
    assert set(WITH_TORCH) == {"local", *WITH_LOCAL} - {"vllm"}


def test_an_environment_that_is_there_gets_the_new_wheel_alone(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "steadyscore").touch()
    ran = []
    monkeypatch.setattr(check_wheel.subprocess, "run", lambda command, check: ran.append(command))
    check_wheel.install(Path("a.whl"), "train", tmp_path)
    ((*_, no_deps, again, wheel),) = ran
    assert (no_deps, again, wheel) == ("--no-deps", "--force-reinstall", "a.whl")
