"""`steadyscore data`, from the command line's own entry."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from steadyscore.cli import main
from steadyscore.collection import check, open_collection, read_instances, write
from steadyscore.collection.catalogue import CATALOGUE
from steadyscore.terms import Candidate, Collection, Instance
from tests.collection.test_multidoc_qa import hotpot
from tests.collection.test_passages import beir, trec
from tests.collection.test_responses import feedback
from tests.helpers.paths import ROOT

EVALUATION = {
    "dl19": 43, "dl20": 54, "dl21": 53, "dl22": 76, "dl23": 82, "nfcorpus": 308, "fiqa": 648, "touche2020": 49, "arguana": 1406,
    "climate-fever": 1535, "trec-covid": 50, "dbpedia": 400, "scifact": 300, "signal1m": 97, "trec-news": 57, "robust04": 249,
    "hotpotqa": 200, "2wikimultihopqa": 200, "musique": 200, "rewardbench2": 1763, "nectar": 434, "ppe-math": 512,
    "ppe-mmlu-pro": 512, "rm-bench": 1327,
}  # fmt: skip
TRAIN = {"msmarco": 30_000, "hotpotqa-train": 30_500, "ultrafeedback": 30_700}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "collections"


def data(*arguments) -> int:
    return main(["data", *map(str, arguments)])


def test_list_names_every_collection_of_the_paper(capsys):
    assert data("list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert all(set(row) == {"name", "task", "queries", "role", "available", "how"} for row in rows.values())
    for role, expected in (("evaluation", EVALUATION), ("train", TRAIN)):
        assert {name: rows[name]["queries"] for name in expected} == expected
        assert {(rows[name]["role"], rows[name]["available"]) for name in expected} == {(role, False)}
    assert "NIST" in rows["robust04"]["how"]
    assert rows["passages"] == {
        "name": "passages", "task": "passage_reranking", "queries": 32, "role": "evaluation", "available": True,
        "how": "ships with steadyscore",
    }  # fmt: skip
    assert data("list") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in EVALUATION)


def test_characters_kept_are_the_papers():
    assert [name for name, known in CATALOGUE.items() if known.chars != 1200] == list(EVALUATION)[5:16]
    assert {CATALOGUE[name].chars for name in list(EVALUATION)[5:16]} == {500}


def test_build_show_check_and_export_a_named_beir_collection(tmp_path, capsys, cache):
    claims = tmp_path / "claims_dev.jsonl"
    claims.write_text(
        '{"id": "q1", "claim": "c", "evidence": {}}\n{"id": "q2", "claim": "c", "evidence": {"1": [{"label": "SUPPORT"}]}}\n'
    )
    assert data("build", "scifact", "--from", beir(tmp_path / "beir"), "--verdicts", claims) == 0
    out, err = capsys.readouterr()
    assert out == f"{cache / 'scifact.jsonl.gz'}: 2 queries\n"
    assert "queries/s" not in err  # a bar is for terminals
    assert "scifact holds 2 queries, the paper's table has 300" in err
    source = open_collection("scifact")
    header, instances = source.collection, source.instances
    assert (header.chars, header.task, header.details["depth"], header.details["first_stage"]["k1"]) == (
        500,
        "claim_verification",
        100,
        0.9,
    )
    assert {source["file"] for source in header.details["sources"]} == {
        "corpus.jsonl",
        "queries.jsonl",
        "test.tsv",
        "claims_dev.jsonl",
    }
    assert [instance.verdict for instance in instances()] == ["NOT ENOUGH INFO", "SUPPORTED"]

    assert data("check", "scifact") == 1
    err = capsys.readouterr().err
    assert "the paper's table has 300: its filters left out: queries without a judgement (1)" in err

    assert data("show", "scifact", "--json") == 0
    card = json.loads(capsys.readouterr().out)
    assert (card["queries"], card["queries_in_paper"], card["relevance"]) == (2, 300, {"1": 1, "2": 1, "unjudged": 3})
    assert card["verdicts"] == {"NOT ENOUGH INFO": 1, "SUPPORTED": 1}
    assert card["licence"] == "claims CC BY 4.0, abstracts ODC-By 1.0"

    assert data("show", "scifact") == 0
    shown = capsys.readouterr().out
    assert "1: 1, 2: 1, unjudged: 3" in shown
    assert "NOT ENOUGH INFO: 1, SUPPORTED: 1" in shown

    for format in ("trec", "beir"):
        folder = tmp_path / format
        assert data("export", "scifact", "--format", format, "--out", folder) == 0
        assert data("build", "again", "--format", format, "--from", folder, "--out", tmp_path / f"{format}.jsonl") == 0
        again = open_collection(tmp_path / f"{format}.jsonl").instances
        for one, other in zip(instances(), again(), strict=True):
            assert (one.id, one.query, one.judged) == (other.id, other.query, other.judged)
            assert [(c.id, c.text, c.title, c.relevance, c.rank) for c in one.pool] == [
                (c.id, c.text, c.title, c.relevance, c.rank) for c in other.pool
            ]


def test_get_is_quick_when_nothing_is_to_do(capsys):
    assert data("get", "passages", "--json") == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["queries"] == 32


def test_an_exported_run_keeps_the_pools_order_for_tools_that_sort_by_score(tmp_path, capsys):
    tied = tuple(Candidate(id, "text", relevance=1, rank=rank, score=2.0) for rank, id in enumerate("bca", 1))
    write(tmp_path / "x.jsonl", Collection("x", "passage_reranking"), [Instance("1", "why", tied)])
    assert data("export", tmp_path / "x.jsonl", "--out", tmp_path / "out", "--json") == 0
    run = [line.split() for line in (tmp_path / "out" / "run.txt").read_text().splitlines()]
    assert [fields[2] for fields in sorted(run, key=lambda fields: -float(fields[4]))] == ["b", "c", "a"]
    write(tmp_path / "y.jsonl", Collection("y", "passage_reranking"), [Instance("a b", "why", (Candidate("c d", "text"),))])
    assert data("export", tmp_path / "y.jsonl", "--out", tmp_path / "bad") == 1
    assert "id 'c d' has a space" in capsys.readouterr().err
    assert not list((tmp_path / "bad").glob("*"))


def test_the_documents_agree_with_the_catalogue_and_the_checker(tmp_path):
    docs = ROOT / "docs"
    table = (docs / "collections.md").read_text()
    for known in CATALOGUE.values():
        assert f"| `{known.name}` | {known.task} | {known.role} | {known.queries:,} " in table
    example = (docs / "data-format.md").read_text().split("```json\n")[1].split("```")[0]
    (path := tmp_path / "example.jsonl").write_text(example)
    assert check(path) == []


def test_the_first_n_are_nested_subsets(tmp_path, capsys):
    assert data("export", "passages", "--format", "jsonl", "--queries", 3, "--out", tmp_path / "three.jsonl") == 0
    ids = [instance.id for instance in open_collection("passages").instances()]
    assert [instance.id for instance in read_instances(tmp_path / "three.jsonl")] == ids[:3]
    assert check(tmp_path / "three.jsonl") == []


def test_data_without_a_name_needs_a_format(tmp_path, capsys):
    assert data("build", "mine", "--from", tmp_path) == 2
    assert "--format" in capsys.readouterr().err
    out = tmp_path / "mine.jsonl"
    assert data("build", "mine", "--format", "trec", "--from", trec(tmp_path / "trec"), "--out", out, "--chars", 300) == 0
    source = open_collection(out)
    header, instances = source.collection, source.instances
    assert (header.name, header.chars, header.details["first_stage"]["kind"]) == ("mine", 300, "run")
    assert [instance.id for instance in instances()] == ["301", "302"]
    assert data("build", "mine", "--format", "trec", "--from", tmp_path / "trec", "--out", out, "--k1", 1.2) == 0
    assert open_collection(out).collection.details["first_stage"]["k1"] == 1.2
    assert data("build", "mine", "--format", "trec", "--from", tmp_path / "trec", "--first-stage", "bm99") == 1
    (tmp_path / "trec" / "qrels.txt").write_text("999 0 A 1\n")
    capsys.readouterr()
    assert data("build", "mine", "--format", "trec", "--from", tmp_path / "trec", "--out", tmp_path / "none.jsonl") == 1
    assert "no query is left: queries without a judgement (2)" in capsys.readouterr().err
    assert not (tmp_path / "none.jsonl").exists()
    assert data("check", out) == 0


def test_own_lines_are_checked_and_signed(tmp_path, capsys):
    source = tmp_path / "own.jsonl"
    source.write_text('{"id": "1", "query": "why", "candidates": [{"id": "a", "text": "x"}]}\n')
    assert data("build", "ours", "--format", "jsonl", "--from", source) == 0
    header = open_collection("ours").collection
    assert (header.name, header.queries) == ("ours", 1)
    assert data("check", "ours") == 0
    source.write_text('{"id": "1", "query": "", "candidates": []}\n{"id": "2"}\n')
    assert data("build", "theirs", "--format", "jsonl", "--from", source, "--out", tmp_path / "theirs.jsonl") == 1
    err = capsys.readouterr().err
    assert f"{source}:1:" in err
    assert f"{source}:2:" in err
    assert not (tmp_path / "theirs.jsonl").exists()


def test_samples_of_own_lines_are_nested(tmp_path):
    source = tmp_path / "own.jsonl"
    write(source, Collection("own", "passage_reranking"), (Instance(str(i), "why", (Candidate("a", "x"),)) for i in range(30)))
    samples = []
    for size in (5, 10):
        out = tmp_path / f"{size}.jsonl"
        assert data("build", "mine", "--format", "jsonl", "--from", source, "--sample", size, "--chars", 77, "--out", out) == 0
        samples.append({instance.id for instance in read_instances(out)})
        assert open_collection(out).collection.chars == 77
    assert samples[0] < samples[1]


def test_verdicts_are_counted_against_the_paper(tmp_path, capsys):
    pool = (Candidate("a", "x"),)
    for given, code in ((300, 0), (299, 1)):
        claims = (Instance(str(i), f"claim {i}", pool, verdict="REFUTED" if i < given else None) for i in range(300))
        write(tmp_path / "scifact.jsonl", Collection("scifact", "passage_reranking"), claims)
        assert data("check", tmp_path / "scifact.jsonl") == code
    assert "scifact has 299 claims with a verdict, the paper 300" in capsys.readouterr().err


def test_question_answering_and_its_filters(tmp_path, capsys):
    (folder := tmp_path / "hotpot").mkdir()
    rows = [hotpot(id=f"{i:03d}") for i in range(230)]
    rows[3], rows[5] = hotpot(id="few", passages=9), hotpot(id="one", supports=("T1",))
    (folder / "hotpot_dev_distractor_v1.json").write_text(json.dumps(rows))
    (folder / "hotpot_train_v1.1.json").write_text("[")  # another split, not looked at
    out = tmp_path / "h.jsonl"
    assert data("build", "hotpotqa", "--from", folder, "--out", out) == 0
    assert data("check", out) == 0  # the first 200 that pass, as in the paper's table
    ids = [instance.id for instance in read_instances(out)]
    assert len(ids) == 200
    assert "few" not in ids
    assert ids[0] == "000"
    (folder / "hotpot_dev_distractor_v1.json").write_text(json.dumps(rows[:150]))
    assert data("build", "hotpotqa", "--from", folder, "--out", out) == 0
    capsys.readouterr()
    assert data("check", out) == 1
    assert "not exactly 10 passages (1), not exactly 2 supporting passages (1)" in capsys.readouterr().err


def test_training_pools_come_in_disjoint_parts(tmp_path, capsys):
    rows = [{**feedback(1, 5, 7, 9), "instruction": f"Do {i % 12}"} for i in range(16)]
    (source := tmp_path / "flan.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "uf.jsonl"
    assert data("build", "ultrafeedback", "--from", source, "--out", out, "--parts", "train=10,held-out=2") == 0
    train, held_out = list(read_instances(out)), list(read_instances(tmp_path / "uf.held-out.jsonl"))
    assert (len(train), [each.query for each in held_out]) == (10, ["Do 10", "Do 11"])
    assert open_collection(out).collection.details["part"] == "train"
    assert sorted(os.listdir(tmp_path)) == ["flan.jsonl", "uf.held-out.jsonl", "uf.jsonl"]
    assert data("check", out, "--apart-from", out) == 1
    assert "is in both" in capsys.readouterr().err
    assert data("build", "ultrafeedback", "--from", source, "--out", tmp_path / "none.jsonl") == 1  # 30,000 are not there
    assert not (tmp_path / "none.jsonl").exists()


def test_nectar_is_kept_apart_from_ultrafeedback(tmp_path, capsys):
    answers = [{"answer": f"a{rank}", "model": "m", "rank": rank} for rank in range(1, 8)]
    rows = [{"prompt": f"\n\nHuman: Do {i}\n\nAssistant: ", "answers": answers} for i in range(6)]
    (source := tmp_path / "nectar.json").write_text(json.dumps(rows))
    assert data("build", "nectar", "--from", source) == 1
    assert "steadyscore data get ultrafeedback" in capsys.readouterr().err
    other = tmp_path / "uf.jsonl"
    write(other, Collection("uf", "response_ranking"), [Instance("1", "do 3", (Candidate("a", "x"),))])
    assert data("build", "nectar", "--from", source, "--verdicts", source) == 1
    assert "are for passage data" in capsys.readouterr().err
    assert data("build", "nectar", "--from", source, "--apart-from", other, "--sample", 5, "--out", tmp_path / "n.jsonl") == 0
    assert "Do 3" not in {instance.query for instance in read_instances(tmp_path / "n.jsonl")}
    assert data("show", tmp_path / "n.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1])["chance_ndcg@1"] == pytest.approx(9 / 21)


def test_every_mistake_before_anything_is_written(tmp_path, capsys):
    (source := tmp_path / "dev.jsonl").write_text(json.dumps(hotpot()) + "\n{oops\n" + json.dumps({"_id": "x"}) + "\n")
    assert data("build", "hotpotqa", "--from", source, "--out", tmp_path / "out" / "x.jsonl") == 1
    err = capsys.readouterr().err
    assert f"{source}:2: not JSON" in err
    assert f"{source}:3:" in err
    assert not (tmp_path / "out" / "x.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "nowhere.jsonl"), "no such file"),
        (("check", "passagess"), "Did you mean passages?"),
        (("show", "dl20"), "steadyscore data get dl20"),
        (("build", "dl19", "--from", "/nowhere"), "no such folder. To build dl19: put topics.tsv"),
        (("get", "hotpotq"), "Did you mean hotpotqa?"),
        (("get", "robust04"), "steadyscore data build robust04 --from FOLDER"),
    ],
)
def test_errors_end_with_the_next_step(arguments, message, capsys):
    assert data(*arguments) == 1
    assert message in capsys.readouterr().err


def test_get_without_a_network_says_how_to_build_from_files(monkeypatch, capsys, cache):
    def offline(*arguments, **options):
        raise ConnectionError("Name or service not known")

    for module, function, name in (("ir_datasets", "load", "fiqa"), ("datasets", "load_dataset", "rm-bench")):
        double = type(sys)(module)
        setattr(double, function, offline)
        monkeypatch.setitem(sys.modules, module, double)
        assert data("get", name) == 1
        err = capsys.readouterr().err.splitlines()[-1]
        assert f"{name} could not be fetched from" in err
        assert err.endswith(f"steadyscore data build {name} --from FOLDER")
    assert not list(cache.glob("*"))


def test_get_through_datasets(monkeypatch, capsys):
    double = type(sys)("datasets")
    rows = [{"id": str(i), "prompt": "Q", "chosen": ["a"], "rejected": ["b"] * (3 + (i == 1))} for i in range(3)]
    double.load_dataset = lambda id, configuration, split, streaming: (
        rows if (id, split) == ("allenai/reward-bench-2", "test") else []
    )
    monkeypatch.setitem(sys.modules, "datasets", double)
    assert data("get", "rewardbench2") == 0
    source = open_collection("rewardbench2")
    header, instances = source.collection, source.instances
    assert [instance.id for instance in instances()] == ["0", "2"]
    assert header.details["dropped"] == {"not exactly 4 responses": 1}


CONVERT = """
import sys
from steadyscore.cli import main
code = main(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
sys.exit(code)
"""


def big(path, queries: int, size: int = 10):
    pool = [{"id": f"d{j}", "text": "some words about the thing that was asked " * 4, "relevance": j % 4} for j in range(size)]
    with path.open("w") as file:
        for i in range(queries):
            file.write(json.dumps({"id": f"q{i}", "query": f"what is {i}", "candidates": pool}) + "\n")
    return path


def build_command(*how, source, out) -> list[str]:
    return [sys.executable, *how, "data", "build", "big", "--format", "jsonl", "--from", str(source), "--out", str(out)]


def peak(source, out) -> int:
    command = build_command("-c", CONVERT, source=source, out=out)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


def test_conversion_streams(tmp_path):
    small, large = (peak(big(tmp_path / f"{n}.jsonl", n), tmp_path / "out.jsonl.gz") for n in (100, 4000))
    assert large - small < 25  # MB; 4,000 instances are 9 MB of text and far more as objects


@pytest.mark.slow
def test_a_hundred_thousand_instances_take_less_than_500_mb(tmp_path):
    assert peak(big(tmp_path / "in.jsonl", 100_000), tmp_path / "out.jsonl") < 500
    assert sum(1 for _ in read_instances(tmp_path / "out.jsonl")) == 100_000


def test_killed_conversions_leave_nothing_half_written(tmp_path):
    source, out, rng = big(tmp_path / "in.jsonl", 3000), tmp_path / "out" / "x.jsonl", random.Random(3)
    command = build_command("-m", "steadyscore", source=source, out=out)
    for _ in range(4):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(0.3 + rng.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not out.exists() or check(out) == []
    subprocess.run(command, check=True, capture_output=True)
    assert check(out) == []
    assert os.listdir(out.parent) == ["x.jsonl"]


def test_msmarco_is_sampled_and_cut_as_the_paper_does(tmp_path, capsys):
    """Sorted ids, Random(42), a train part and a held-out part; a text that recurs is replaced by the next query."""
    (folder := tmp_path / "msmarco").mkdir()
    texts = {str(i): f"query {i % 38}" for i in range(40)}  # 38 and 39 repeat 0 and 1
    (folder / "queries.train.tsv").write_text("".join(f"{id}\t{text}\n" for id, text in texts.items()))
    (folder / "qrels.train.tsv").write_text("".join(f"{id}\t0\t{id}\t1\n" for id in texts))
    (folder / "collection.tsv").write_text("".join(f"{id}\tpassage {id}\n" for id in texts))
    (folder / "run.txt").write_text("".join(f"{id} Q0 {id} 1 9.5 bm25\n" for id in texts))
    out = tmp_path / "ms.jsonl"
    assert data("build", "msmarco", "--from", folder, "--out", out, "--sample", 30, "--parts", "train=30,held-out=8") == 0
    order = sorted(texts)
    random.Random(42).shuffle(order)
    train, held_out = list(read_instances(out)), list(read_instances(tmp_path / "ms.held-out.jsonl"))
    assert [each.id for each in train] == order[:30]
    assert [each.id for each in held_out] == [id for id in order[30:] if texts[id] not in {each.query for each in train}][:8]
    assert data("check", tmp_path / "ms.held-out.jsonl", "--apart-from", out) == 1  # the count is not the paper's 500
    assert "is in both" not in (told := capsys.readouterr().err)
    assert "has the text of" not in told
    assert "the paper's table has 500" in told
