"""One door, one spelling: every kind of address opens or says why not, and every row of the paper has one."""

import json
import re
import subprocess
import sys

import pytest

from steadyscore.cli import main
from steadyscore.commands.list import scorer_rows
from steadyscore.engines import PRESENTS, Engine, EngineOptions, Grader
from steadyscore.engines.kinds import KINDS, kind_of, open_engine
from steadyscore.engines.systems import SYSTEMS
from steadyscore.errors import InputError, MissingExtra
from steadyscore.scoring.scorer import Settings

MAIN = ["Off the shelf", "CapCal", "Round-robin", "BSC (x10)", "jina-reranker-v3 (B=20)", "GPT-5.4"]
TRAINED = ["Single-order", "Order-averaged", "DebiasFirst", "Perm. aug.", "OC-SFT"]
SPECIALISED = ["RankZephyr-7B", "jina-reranker-v3", "jina-reranker-v3 (B=20)", "mxbai-base-v2", "mxbai-large-v2"]
QWEN_RERANKER = [f"Qwen3-Reranker-4B, {row}" for row in ("off the shelf", "order-avg.", "OC-SFT")]
REWARD = ["Pointwise", "PairRM", "Skywork-Reward-V2-Qwen3-4B", "OC-SFT"]


def listed(capsys):
    assert main(["list", "scorers", "--json"]) == 0
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
        assert kind in {each.prefix for each in KINDS} or ":" not in row["address"]


def test_every_kind_is_listed_and_says_what_it_honours():
    prefixes = {row.listing.address.partition(":")[0].partition("[")[0].partition("+")[0] for row in scorer_rows()}
    fields = set(EngineOptions.__dataclass_fields__)
    for kind in KINDS:
        assert kind.prefix in prefixes
        assert kind.options <= fields
        assert all(kind_of(f"{kind.prefix}+{variant}:x").prefix == kind.prefix for variant in kind.variants)
    assert set().union(*PRESENTS.values()) <= set(Settings.__dataclass_fields__)


def test_two_kinds_share_a_prefix_only_where_one_is_a_server():
    assert len({(kind.prefix, kind.is_server) for kind in KINDS}) == len(KINDS)
    assert [kind_of(f"vllm:m{rest}").is_server for rest in ("", "@http://localhost:1", "@https://a.example")] == [
        False,
        True,
        True,
    ]


NEW = """
from . import Address, Capabilities, EngineOptions, Kind, Listing, Reranker


class Lengths(Reranker):
    name, capabilities = "lengths:", Capabilities(gives="score")

    def identity(self):
        return {"kind": "lengths"}

    def score(self, query, texts):
        return [float(len(text)) for text in texts]


def open_lengths(address: Address, options: EngineOptions) -> Lengths:
    return Lengths()


KINDS = (Kind("lengths", open_lengths, takes="pool", listed=(Listing("lengths:", "score"),)),)
"""

USE = """
import sys
import steadyscore.engines
steadyscore.engines.__path__.append(sys.argv.pop(1))
from steadyscore.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_new_kind_is_one_file(tmp_path):
    """It is listed, opened, audited, and refused what it does not honour: nothing else has to know it."""
    (tmp_path / "lengths.py").write_text(NEW)

    def call(*words):
        done = subprocess.run([sys.executable, "-c", USE, str(tmp_path), *words], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    assert "lengths:" in {row["address"] for row in json.loads(call("list", "scorers", "--json")[1])}
    asked = ["audit", "--scorer", "lengths:", "--data", "passages", "--queries", "2", "--no-report"]
    code, out, _ = call(*asked, "--permutations", "2", "--out", str(tmp_path / "run"))
    assert (code, "lengths:" in out) == (0, True)
    code, _, said = call(*asked, "--out", str(tmp_path / "other"), "--prompt", "set", "--set", "dtype=bfloat16")
    assert (code, "prompt would change nothing of lengths:" in said) == (1, True)


def test_the_kinds_are_known_without_torch_and_without_an_http_client():
    heavy = {"torch", "transformers", "peft", "httpx", "httpx2", "vllm"}
    code = f"import sys, steadyscore.engines.kinds; print({heavy!r} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_system_gives_what_the_list_says():
    by_address = {row.listing.address: row.listing for row in scorer_rows()}
    for name, system in SYSTEMS.items():
        assert by_address[f"system:{name}" + ("" if system.hub else "@<id|folder>")].gives == system.gives
        assert system.revision is None or len(system.revision) == 40  # the hub takes whole commit names only


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("teapot:x", "unknown kind of scorer"),
        ("http://localhost:8000", "Write rerank:http://localhost:8000 for a rerank endpoint, openai:MODEL@"),
        ("rerank+teapot:http://x", "unknown variant 'teapot'.*cohere, jina, tei"),
        ("hf+teapot:x", "hf: has none"),
        ("system:teapot", "unknown system"),
        ("system:cross-encoder", "needs a model"),
        ("system:pairrm@/no/such/folder", "folder .* does not exist"),
        ("llamacpp:none.gguf", "names no server.*hf:none.gguf"),
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
