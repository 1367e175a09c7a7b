"""A run as ir_metadata: YAML that a parser reads, with what the run knows and marks where only its owner does."""

import json

import pytest
import yaml

import steadyscore
from steadyscore.cli import main
from steadyscore.integrations.ir_metadata import TO_FILL


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    flags = ["--scorer", "mine=synthetic:slot:0.3", "--data", "passages", "--queries", "4", "--permutations", "3", "--no-report"]
    assert main(["audit", *flags, "--out", str(out)]) == 0
    return out


def test_the_metadata_say_what_the_run_knows(folder, capsys):
    assert main(["report", str(folder), "--format", "ir_metadata"]) == 0
    read = yaml.safe_load(capsys.readouterr().out)
    record = steadyscore.load(folder)[0].record
    assert read["schema-version"] == 0.1
    assert read["tag"] == "mine"
    assert [*read][3:] == ["platform", "research goal", "implementation", "method", "actor", "data"]
    assert f"numpy=={record.versions['numpy']}" in read["platform"]["software"]["libraries"]["python"]
    assert "steadyscore audit --scorer mine=synthetic:slot:0.3" in read["implementation"]["executable"]["cmd"]
    first, reranker = read["method"]["retrieval"]
    assert first["method"] == record.first_stage
    assert reranker["reranks"] == first["name"]
    assert reranker["params"]["permutations"] == 3
    assert reranker["params"]["scorer"] == {"kind": "synthetic", "effect": "slot", "size": 0.3}
    assert read["method"]["score ties"] == "smaller document id first"
    assert "ndcg@10" in read["research goal"]["evaluation"]["reported measures"]
    assert read["data"]["test collection"]["sha256"] == record.fingerprint.data.sha256
    assert read["actor"]["team"] == TO_FILL


def test_names_that_are_markup_in_yaml_stay_names(tmp_path, capsys):
    names = {"- a: [b]\n#c": "synthetic:none", 'yes "no" {': "synthetic:slot"}
    for number, (name, scorer) in enumerate(names.items()):
        out = tmp_path / str(number)
        steadyscore.audit({name: scorer}, "passages", queries=2, permutations=2, out=out, report=False, quiet=True)
        assert main(["report", str(out), "--format", "ir_metadata"]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["tag"] == json.loads(json.dumps(name))


def test_several_runs_are_refused(folder, tmp_path, capsys):
    steadyscore.audit("synthetic:none", "passages", queries=2, permutations=2, out=tmp_path, report=False, quiet=True)
    assert main(["report", str(folder), str(tmp_path), "--format", "ir_metadata"]) == 1
    assert "describes one run, and 2 were named" in capsys.readouterr().err
