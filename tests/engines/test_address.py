"""One door, one spelling: every kind of address opens or says why not, and every row of the paper has one."""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

from steadyscore.cli import main
from steadyscore.commands.scorers import rows
from steadyscore.engines import Engine, Grader
from steadyscore.engines.address import KINDS, open_engine
from steadyscore.engines.systems import SYSTEMS
from steadyscore.errors import InputError, MissingExtra

MAIN = ["Off the shelf", "CapCal", "Round-robin", "BSC (x10)", "jina-reranker-v3 (B=20)", "GPT-5.4"]
TRAINED = ["Single-order", "Order-averaged", "DebiasFirst", "Perm. aug.", "OC-SFT"]
SPECIALISED = ["RankZephyr-7B", "jina-reranker-v3", "jina-reranker-v3 (B=20)", "mxbai-base-v2", "mxbai-large-v2"]
QWEN_RERANKER = [f"Qwen3-Reranker-4B, {row}" for row in ("off the shelf", "order-avg.", "OC-SFT")]
REWARD = ["Pointwise", "PairRM", "Skywork-Reward-V2-Qwen3-4B", "OC-SFT"]


def listed(capsys):
    assert main(["scorers", "list", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_list_covers_every_row_of_the_papers_tables(capsys):
    systems = {row["system"] for row in listed(capsys)}
    assert set(MAIN + TRAINED + SPECIALISED + QWEN_RERANKER + REWARD) <= systems


def test_the_list_keeps_its_contract(capsys):
    for row in listed(capsys):
        assert {"address", "system", "gives", "installed", "install"} <= row.keys()
        assert row["gives"] in ("distribution", "score", "ranking")
        assert isinstance(row["installed"], bool)
        assert row["installed"] or row["install"].startswith("pip install ")
        kind = re.match(r"[\w-]+", row["address"])[0]
        assert kind in KINDS or ":" not in row["address"]


def test_every_kind_is_listed_and_has_a_loader():
    addresses = [row.address for row in rows()]
    for name, kind in KINDS.items():
        assert any(address.startswith(name) for address in addresses), name
        file = Path(importlib.import_module(f"steadyscore.engines.{kind.module}").__file__)
        names = {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert kind.loader.split(".")[0] in names
        assert ("prompt" in kind.honours) == ("def grade_logits" in file.read_text()), name


def test_a_system_gives_what_the_list_says():
    by_address = {row.address: row for row in rows()}
    for name, system in SYSTEMS.items():
        assert by_address[f"system:{name}" + ("" if system.hub else "@<id|folder>")].gives == system.gives
        assert system.revision is None or len(system.revision) == 40  # the hub takes whole commit names only


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("teapot:x", "unknown kind of scorer"),
        ("rerank+teapot:http://x", "unknown variant 'teapot'.*cohere, jina, tei"),
        ("hf+teapot:x", "hf: has none"),
        ("system:teapot", "unknown system"),
        ("system:cross-encoder", "needs a model"),
        ("system:pairrm@/no/such/folder", "folder .* does not exist"),
        ("llamacpp:none.gguf", "file .* does not exist|not installed"),
        ("sglang:model", "Write sglang:<model>@<base url>"),
        ("synthetic:slot:big", "not a number"),
    ],
)
def test_what_cannot_be_opened_says_why(address, message):
    with pytest.raises((InputError, MissingExtra), match=message):
        open_engine(address)


def test_a_missing_library_names_the_line_that_installs_it(monkeypatch, tiny_folder):
    import sys

    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[vllm\]'"):
        open_engine(f"vllm:{tiny_folder}")


def test_an_engine_is_a_grader_and_a_function_is_neither(tiny_engine):
    assert isinstance(tiny_engine, Engine)
    assert isinstance(tiny_engine, Grader)
    assert not isinstance(open_engine("synthetic:none"), Grader)


def test_doctor_tries_anything_with_an_address(capsys):
    assert main(["doctor", "--scorer", "synthetic:slot", "--json"]) == 0
    found = {row["check"]: row["result"] for row in json.loads(capsys.readouterr().out)}
    assert found["the same twice"] == "equal"
    assert found["in reverse order"] != "differs by 0.0e+00"
    assert "gives score" in found["synthetic:slot can tell"]


def test_doctor_gates_an_engine(capsys, tiny_folder):
    assert main(["doctor", "--scorer", f"hf:{tiny_folder}", "--json"]) == 0
    found = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["readout against a plain forward"]["ok"]
    assert main(["doctor", "--scorer", "sglang:x@http://127.0.0.1:9", "--json", "--no-probe"]) == 0
