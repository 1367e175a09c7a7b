"""What came from outside is shown on a terminal and never obeyed: no colours, no lines of ours that are not ours."""

import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.cli import main
from steadyscore.engines import http
from steadyscore.machine import console
from steadyscore.machine.console import harmless, one_line, say
from steadyscore.results.render import to_text
from steadyscore.results.table import table_of
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection

EVIL = "boom\x1b[2J\x9b31m\x07\r\x00\x7f\u202eenif\u2066\nsteadyscore: all fine"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def assert_harmless(said):
    assert "boom" in said
    assert not OBEYED.search(said), repr(said)
    assert not any(line.startswith("steadyscore: all fine") for line in said.splitlines())


def test_characters_that_a_terminal_obeys_are_shown_by_their_numbers():
    assert harmless("a\x1b[31m\u202eb\tc\r\n\x85") == "a\\u001b[31m\\u202eb\tc\\u000d\n\\u0085"
    assert one_line(" a\n\tb\x85c\u2028d \x1b") == "a b c d \\u001b"
    assert harmless("Grüße, 中文, שלום") == "Grüße, 中文, שלום"


@given(st.text())
def test_no_text_is_obeyed_and_json_stays_what_it_is(text):
    assert not OBEYED.search(harmless(text))
    assert "\n" not in one_line(text)
    assert json.loads(harmless(json.dumps([text], ensure_ascii=False))) == [text]


def test_further_lines_of_a_message_are_indented(capsys):
    say("steadyscore: one\ntwo")
    assert capsys.readouterr().err == "steadyscore: one\n  two\n"


@pytest.fixture
def pools(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    return str(write_collection(tmp_path / "pools.jsonl", some_instances(queries=3, candidates=3)))


@pytest.mark.parametrize(("which", "code"), [("thing 1", 4), ("thing", 1)], ids=["one query", "every query"])
def test_what_a_scorer_raises_is_one_harmless_line(pools, tmp_path, monkeypatch, capsys, which, code):
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"raises_{code}"
    body = f"if {which!r} in texts[0]: raise ValueError({EVIL!r})\n    return [1.0] * len(texts)"
    (tmp_path / f"{name}.py").write_text(f"def score(query, texts):\n    {body}\n")
    assert main(["audit", "--scorer", f"python:{name}:score", "--data", pools, "--out", "run", "--no-report"]) == code
    assert_harmless(capsys.readouterr().err)


@pytest.mark.parametrize("status", ["400", "401", "500"])
def test_what_an_endpoint_answers_is_one_harmless_line(pools, capsys, caplog, status):
    with Server(lambda path, body: {}) as server:
        server.always, server.refusal = lambda body: status, EVIL.encode()
        words = ["audit", "--scorer", f"rerank:{server.url}/rerank", "--data", pools, "--out", "run", "--set", "retries=0"]
        assert main(words) == 1
    assert_harmless(capsys.readouterr().err + caplog.text)


def test_wrong_usage_is_answered_without_obeying_it(capsys):
    with pytest.raises(SystemExit):
        main(["audit", f"--{EVIL}"])
    assert_harmless(capsys.readouterr().err)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO], ids=["terminal", "file"])
def test_results_are_harmless_on_a_terminal_and_as_they_are_in_a_file(monkeypatch, stream):
    monkeypatch.setattr(sys, "stdout", stream())
    written = sys.stdout
    with console.results_only():
        print("boom\x1b\u202e")
    assert written.getvalue() == ("boom\\u001b\\u202e\n" if stream is Terminal else "boom\x1b\u202e\n")


def test_a_name_takes_one_line_of_a_table():
    table = to_text([table_of(["name", "value"], [[EVIL, 1.0], ["b", 2.0]])])
    assert_harmless(table)
    assert len(table.splitlines()) == 3


@pytest.mark.parametrize("is_terminal", [True, False], ids=["bar", "lines"])
def test_names_in_progress_are_harmless(monkeypatch, is_terminal):
    written = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(console, "_lines", console._Lines())
    with console.job(EVIL, 2, at_once=True) as work:
        work.advance(remark=EVIL)
    said = written.getvalue()
    assert "boom" in said
    assert not OBEYED.search(said.replace("\r", ""))  # a bar begins its line anew
    assert not any(line.startswith("steadyscore: all fine") for line in re.split("[\r\n]", said))
