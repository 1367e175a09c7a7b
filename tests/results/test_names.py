"""Names that a person gives, and names that tell rows apart."""

from __future__ import annotations

import json

import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.results.screen import _short_names
from tests.helpers.pools import some_instances, write_collection


def test_a_name_on_the_command_line_is_that_of_the_table_the_folder_and_the_run(tmp_path, capsys):
    data = str(write_collection(tmp_path / "small.jsonl", some_instances(6)))
    flags = ["--data", data, "--permutations", "3", "--out", str(tmp_path / "run"), "--no-report"]
    scorers = ["--scorer", "oc=synthetic:slot:0.3", "--scorer", "synthetic:none"]
    assert main(["audit", *scorers, *flags, "--mitigation", "self-consistency:2"]) == 0
    rows = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert {"oc self-consistency:2", "synthetic:none:0.2 ...:2"} < {*rows}
    assert (tmp_path / "run/small/oc/run.json").exists()
    assert steadyscore.load(tmp_path / "run/small/oc")[0].name == "oc self-consistency:2"
    assert main(["audit", "--scorer", "oc=synthetic:slot:0.3", "--name", "oc", *flags]) == 2
    assert "--scorer NAME=ADDRESS" in capsys.readouterr().err


def test_two_scorers_of_one_name_are_wrong_usage(tmp_path, capsys):
    flags = ["--data", "passages", "--out", str(tmp_path)]
    assert main(["audit", "--scorer", "a=synthetic:none", "--scorer", "a=synthetic:slot", *flags]) == 2
    assert "two scorers are called a" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["score", "label", "attack", "width", "dry-run", "demo"])
def test_every_verb_that_scores_takes_a_name(verb, tmp_path, capsys):
    data = ["--data", str(write_collection(tmp_path / "small.jsonl", some_instances(4)))]
    kept = ["--out", str(tmp_path / "out")]
    words = {
        "score": ["score", *data], "label": ["label", *data, *kept], "dry-run": ["audit", *data, "--dry-run"],
        "attack": ["study", "attack", *data, *kept, "--json", "--keep", "2", "--attacks", "instruction", "--no-report"],
        "width": ["study", "width", *data, *kept, "--json", "--width", "3", "--permutations", "2"], "demo": ["demo", *kept],
    }[verb]  # fmt: skip
    assert main([*words, "--scorer", "planted=synthetic:companion:0.3"]) == 0
    printed = capsys.readouterr().out
    if verb in ("attack", "width"):
        assert json.loads(printed)["scorer"].startswith("planted")
    if verb == "demo":
        assert "planted  " in printed


@pytest.mark.parametrize("mitigations", [["self-consistency:2"], ["canonical-order", "self-consistency:2"]], ids=["one", "two"])
def test_a_mitigated_scorer_is_not_called_as_the_plain_one(mitigations):
    named, unnamed = (
        steadyscore.audit(scorer, some_instances(4), permutations=3, quiet=True, mitigations=mitigations)[0].name
        for scorer in ({"raw": "synthetic:slot:0.3"}, lambda query, texts: [len(text) for text in texts])
    )
    assert named == " ".join(["raw", *mitigations])
    assert unnamed.endswith(" ".join(["", *mitigations]))


def test_score_files_are_named_by_their_common_stem_or_as_is_asked(tmp_path, capsys):
    lines = [f"q{q} Q0 d{c} {c} {9 - c} x" for q in range(3) for c in range(1, 4)]
    for name in ("bm25-perm0.run", "bm25-perm10.run", "0.run", "1.run", "alone.v2.run"):
        (tmp_path / name).write_text("\n".join(lines))

    def name_of(*files, **more):
        return steadyscore.audit(scores=[tmp_path / file for file in files], keep_first=1, **more)[0].name

    assert name_of("bm25-perm0.run", "bm25-perm10.run") == "bm25-perm"
    assert name_of("0.run", "1.run") == tmp_path.name
    assert name_of("0.run", "1.run", name="mine") == "mine"
    assert steadyscore.audit(scores=[[[3, 2, 1], [1, 2, 3]]], name="planted", keep_first=1)[0].name == "planted"
    files = [str(tmp_path / "0.run"), str(tmp_path / "1.run")]
    assert main(["audit", "--scores", *files, "--name", "mine", "--keep", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["scorer"] == "mine"
    with pytest.raises(steadyscore.errors.InputError, match="named in a mapping"):
        steadyscore.audit("synthetic:none", some_instances(2), name="mine")


ADAPTERS, ENDPOINTS = "smollm2-135m+adapters/", "@http://localhost:8080/v1"


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["smollm2-135m", f"{ADAPTERS}single", f"{ADAPTERS}double"], ["smollm2-135m", "...single", "...double"]),
        ([f"tei:BAAI/bge{ENDPOINTS}", f"tei:mixed/large{ENDPOINTS}"], ["...BAAI/bge", "...mixed/large"]),
        (["first-stage order", f"{ADAPTERS}single"], ["first-stage order", "smollm2-135m+.../single"]),
        (["a_name_that_is_one_long_word"] * 2, ["a_name_that_is_one_long_word"] * 2),
        (["python:a_name_that_is_one_long_word"], ["python:a_name_that_is_one_long_word"]),
        (["alike/to_begin_and/one/in_the_end", "alike/to_begin_and/in_the_end"], None),
    ],
    ids=["beginning", "both-ends", "one", "word", "last-word", "nothing-left"],
)
def test_long_names_lose_what_they_have_in_common_and_then_their_middle(names, short):
    found = list(_short_names(names))
    assert len({*found}) == len({*names})
    assert short is None or found == short
