"""The command line as a user meets it: help, exit codes, one sentence per mistake, nothing half-written."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from steadyscore.cli import MOVED, VERBS, main
from steadyscore.collection import open_collection
from steadyscore.commands import data
from steadyscore.machine import disk
from steadyscore.runs.folder import find_run
from tests.helpers.models import byte_tokenizer, tiny_causal
from tests.helpers.pools import some_instances, write_collection


def call(capsys, *words):
    try:
        code = main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_help_takes_a_second_of_the_processor_at_most():
    """Not by the clock, which also counts what else the machine does."""
    assert min(_processor_seconds([sys.executable, "-m", "steadyscore", "--help"]) for _ in range(5)) < 1.0


def _processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_python_m_equals_the_command():
    words = ["list", "measures"]
    a = subprocess.run([sys.executable, "-m", "steadyscore", *words], capture_output=True, text=True)
    b = subprocess.run([os.path.join(os.path.dirname(sys.executable), "steadyscore"), *words], capture_output=True, text=True)
    assert (a.returncode, a.stdout) == (b.returncode, b.stdout) == (0, a.stdout)


STOPS_AT_TORCH = """
import os, sys

class Watch:
    def find_spec(name, path=None, target=None):
        if name == "torch":
            os.write(2, b"torch is loaded under " + os.environ.get("OMP_WAIT_POLICY", "nothing").encode())
            os._exit(0)

sys.meta_path.insert(0, Watch)
"""


@pytest.mark.parametrize("own", ["", "ACTIVE"], ids=["unset", "set"])
@pytest.mark.parametrize(
    "code",
    [
        "from steadyscore.cli import main; main(['serve', 'smollm2-135m'])",
        "from steadyscore.cli import main; main(['data', 'get', 'smollm2-135m'])",
        "import steadyscore; steadyscore.audit('smollm2-135m', 'passages', queries=1)",
    ],
    ids=["serve", "without an engine", "Python"],
)
def test_threads_wait_passively_before_torch_is_loaded_unless_the_user_says_otherwise(tmp_path, code, own):
    """A thread that spins while it waits for its partner takes the core that its partner waits for."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"STEADYSCORE_CACHE": str(tmp_path)} | ({"OMP_WAIT_POLICY": own} if own else {})
    done = subprocess.run([sys.executable, "-c", STOPS_AT_TORCH + code], env=environment, capture_output=True, text=True)
    assert done.stderr.endswith(f"torch is loaded under {own or 'PASSIVE'}"), done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_ends_with_examples(capsys, verb):
    code, out, _ = call(capsys, verb, "--help")
    assert code == 0
    assert len(out.split("examples:\n", 1)[1].strip().splitlines()) >= 2


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("dance",),
        ("audit", "--permutations", "0"),
        ("audit", "--bogus"),
        ("gate", "runs", "--min", "x=1"),
        ("gate", "runs", "--min", "overlap=low"),
        ("compare", "runs", "--measures", "beauty"),
        ("compare", "runs", "--target", "beauty=1"),
        ("compare", "runs", "--target", "overlap=low"),
        ("compare", "runs", "--target", "overlap=0.8", "--per-query"),
        ("score", "--scorer", "synthetic:none", "--data", "passages", "--top", "0"),
        ("score", "--scorer", "synthetic:none", "--data", "passages", "--top", "-1"),
    ],
)
def test_wrong_usage_is_exit_2(capsys, words):
    assert call(capsys, *words)[0] == 2


def test_the_name_alone_says_what_it_does_and_three_commands(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert [line.split()[:2] for line in err.splitlines() if line.startswith("  ")] == [
        ["steadyscore", verb] for verb in ("demo", "audit", "serve")
    ]
    assert max(map(len, err.splitlines())) <= 120
    assert "steadyscore --help" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "r"], "steadyscore: error: `steadyscore plan` is now `steadyscore study plan`, with the same flags.\n"),
        (["audti"], "steadyscore: error: there is no verb 'audti'; did you mean audit?\nSee steadyscore --help.\n"),
        (["audit", "--permutatoins", "3"], "unrecognized arguments: --permutatoins 3; --permutatoins may mean --permutations\n"),
        (["audit", "--cutoff", "high"], "argument --cutoff: high is not a score: give a number, or f1\n"),
        (
            ["serve", "--port", "99999"],
            "argument --port: 99999 is not a port: give a number from 0 (any free one) to 65535\n",
        ),
    ],
)
def test_a_slip_is_answered_in_a_line_and_a_hint(capsys, words, said):
    code, _, err = call(capsys, *words)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 2


def test_there_are_sixteen_verbs_at_most_and_an_older_word_says_what_to_type(capsys):
    assert len(VERBS) <= 16
    assert not VERBS.keys() & MOVED.keys()
    for word, sentence in MOVED.items():
        code, _, err = call(capsys, word, "x")
        assert (code, err.splitlines()[0]) == (2, f"steadyscore: error: {sentence}")
        assert re.findall(r"steadyscore (\w+)", sentence)[-1] in VERBS


def test_a_recipe_or_a_model_is_fetched_by_its_name(capsys, monkeypatch, tmp_path):
    assert call(capsys, "list", "recipes", "smollm2_passages")[1].startswith("# OC-SFT")
    assert {"name": "smollm2_passages"}.items() <= json.loads(call(capsys, "list", "recipes", "--json")[1])[-1].items()
    monkeypatch.setattr(data, "is_present", lambda model: True)
    monkeypatch.setattr(data, "model_path", lambda name: tmp_path)
    assert call(capsys, "data", "get", "smollm2-135m")[:2] == (0, f"{tmp_path}\n")
    code, _, err = call(capsys, "data", "get", "smollm2-135m", "--depth", "5")
    assert (code, err) == (2, "steadyscore: smollm2-135m is a model; leave out --depth.\n")


def test_a_mistake_in_the_data_leaves_no_folder_behind(capsys, tmp_path, collection_file):
    assert audit(capsys, "synthetic:none", collection_file, tmp_path / "out", "--permutations", "2")[0] == 0
    (tmp_path / "broken.jsonl").write_text(collection_file.read_text().replace('"pools"', '"broken"', 1) + "{}\n")
    code, _, err = audit(capsys, "synthetic:none", tmp_path / "broken.jsonl", tmp_path / "out", "--permutations", "2")
    assert code == 1, err
    assert "broken.jsonl" in err
    assert call(capsys, "gate", tmp_path / "out", "--min", "overlap=0")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--scores", "s.csv", "--queries", "1"], 2, "--scores measures a file and scores nothing; leave out --queries."),
        (["--scorer", "synthetic:none", "--data", "passages", "--relevance", "q"], 2, "--relevance judges --scores"),
        (["--scorer", "systemone:m@http://localhost:1", "--decisions", "d", "--cutoff", "1"], 2, "leave out --cutoff."),
        (["--scorer", "synthetic:none", "--data", "passages", "--data", "passages"], 1, "passages is given twice"),
        (
            ["--scorer", "synthetic:none", "--data", "passages", "--query-ids", ",".join(f"p{i}" for i in range(99))],
            1,
            "no query",
        ),
        (["--scorer", "synthetic:none", "--data", "x" * 300], 1, "x" * 20),
    ],
)
def test_what_would_be_ignored_or_lost_is_refused(words, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["audit", *words, "--out", "runs"]) == code
    assert said in capsys.readouterr().err


PRESENTATION = "--set partition=round-robin --set markers=letters --fit shrink --set reader_k=3 --on ray --allow-scorer-change"
DECISIONS = "--serving-permutations 5 --set threshold_protocol=reference --device cpu"
SCORES = "--permutations 2 --seed 9 --set scheme=balanced --set price=1,2 --set cache=no"


@pytest.mark.parametrize(
    ("mode", "ignored"),
    [
        ("audit --decisions tickets --scorer systemone:m@http://localhost:1 --dry-run", f"{PRESENTATION} {DECISIONS}"),
        ("audit --scores s.csv", f"{PRESENTATION} {SCORES} --scorer synthetic:none --dry-run"),
        ("study attack --runs r", "--width 9 --queries 1 --seed 5 --dry-run --set retries=0 --out o"),
        ("study width --runs r", "--width 9 --permutations 3 --seed 5 --set retries=0 --out o"),
    ],
)
def test_every_flag_that_a_mode_would_ignore_is_named(mode, ignored, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*mode.split(), *ignored.split()]) == 2
    said = capsys.readouterr().err
    assert [word for word in ignored.split() if word.startswith("--") and word not in said] == []
    assert not any(word in said.partition(";")[2] for word in mode.split()[1:] if word.startswith("--"))


def test_a_pipe_is_not_replaced_by_a_file(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    run = ["audit", "--scorer", "synthetic:none", "--data", "responses", "--queries", "3", "--permutations", "2", "--no-report"]
    assert main([*run, "--out", str(tmp_path / "runs")]) == 0
    assert main(["gate", str(tmp_path / "runs"), "--max", "tau_psi=1", "--junit", str(tmp_path / "pipe")]) == 1
    assert "is a folder, a pipe or a device, which is not replaced" in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()


def test_a_served_budget_is_named_where_its_figures_stand(tmp_path, capsys):
    run = ["audit", "--scorer", "synthetic:slot", "--data", "responses", "--queries", "3", "--permutations", "4", "--json"]
    assert main([*run, "--serving-permutations", "2", "--no-report", "--out", str(tmp_path / "runs")]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["serving_permutations"] == 2
    assert main([*run[:-1], "--all", "--serving-permutations", "2", "--no-report", "--out", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr()
    assert "need --serving-permutations 2 too" in said.out + said.err


def test_what_would_fail_after_scoring_is_told_before_anything_is_opened(capsys, tmp_path, monkeypatch, collection_file):
    monkeypatch.setattr("steadyscore.audits.audit.open_engine", lambda *_: pytest.fail("opened"))
    words = ["--reader", "nonsense", "--reader", "synthetic:slot", "--set", "ir=P@x,P@5,P@0", "--scorer", "nobody:x"]
    for more in ((), ("--dry-run",)):
        code, _, err = audit(capsys, "synthetic:slot", collection_file, tmp_path / "run", *words, "--data", "nowhere", *more)
        assert code == 1
        assert "unknown scorer 'nonsense'" in err
        assert "synthetic:slot cannot read: it writes no text" in err
        assert "passage_reranking has neither verdicts nor answers" in err
        assert "ir=P@x: ir_measures cannot compute it" in err
        assert "ir=P@0: ir_measures cannot compute it" in err
        assert "ir=P@5:" not in err
        assert "unknown kind of scorer 'nobody'" in err
        assert "no collection is named nowhere" in err
    code, _, err = audit(capsys, "synthetic:slot", collection_file, tmp_path / "run", "--serving-permutations", "50")
    assert code == 2
    assert "--serving-permutations 50 averages more orders than the 10 that are scored" in err
    assert not (tmp_path / "run").exists()


def test_labels_from_judgements_that_are_not_there(capsys, tmp_path):
    pool = {"id": "q", "query": "what", "candidates": [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}]}
    file = write_collection(tmp_path / "unjudged.jsonl", [pool])
    code, _, err = call(capsys, "label", "--scorer", "judgements", "--data", file, "--out", tmp_path / "labels")
    assert code == 1
    assert "has a judged candidate. Name a scorer to label with" in err
    assert not (tmp_path / "labels").exists()


def test_missing_flags_are_told_together(capsys):
    code, _, err = call(capsys, "audit")
    assert code == 2
    assert "--scorer is missing" in err
    assert "--data is missing" in err
    assert "--out is missing" in err


def test_an_audit_prints_a_table_and_writes_its_files(capsys, tmp_path, collection_file):
    code, out, _ = call(
        capsys, "audit", "--scorer", "synthetic:slot", "--data", collection_file, "--out", tmp_path / "run", "--no-report"
    )
    assert code == 0
    assert "tau_psi" in out
    assert {f.name for f in (tmp_path / "run").iterdir()} == {"pools", "measures.parquet", "summary.json"}
    run = tmp_path / "run" / "pools" / "synthetic-slot"
    assert {f.name for f in run.iterdir()} == {
        "run.json",
        "requests",
        "parts",
        "status.json",
        "scores.parquet",
        "queries.parquet",
    }


def test_json_is_one_object_with_measures_and_coverage(capsys, tmp_path, collection_file):
    words = ("audit", "--scorer", "synthetic:slot", "--data", collection_file, "--out", tmp_path / "run", "--no-report", "--json")
    code, out, _ = call(capsys, *words)
    found = json.loads(out)
    assert code == 0
    assert {"value", "low", "high", "queries"} <= found["measures"]["tau_psi"].keys()
    assert found["coverage"]["queries"] == 4


def test_several_scorers_give_one_comparison(capsys, tmp_path, collection_file):
    words = [
        "audit",
        "--scorer",
        "synthetic:slot",
        "--scorer",
        "synthetic:none",
        "--data",
        collection_file,
        "--out",
        tmp_path / "run",
        "--no-report",
        "--json",
    ]
    _, out, _ = call(capsys, *words)
    runs = json.loads(out)["runs"]
    assert [run["scorer"] for run in runs] == ["synthetic:slot:0.2", "synthetic:none:0.2"]
    assert runs[0]["measures"]["tau_psi"]["value"] > 0
    assert runs[1]["measures"]["tau_psi"]["value"] == 0
    _, out, _ = call(capsys, "compare", tmp_path / "run", "--measures", "tau_psi", "--json")
    assert json.loads(out)["contrasts"][0]["measure"] == "tau_psi"


def test_a_comparison_without_a_row_says_why(capsys, tmp_path, collection_file):
    for scorer in ("synthetic:slot", "synthetic:none"):
        audit(capsys, scorer, collection_file, tmp_path / "runs" / scorer[10:])
    code, out, err = call(capsys, "compare", tmp_path / "runs" / "slot")
    assert (code, out) == (1, "")
    assert "only synthetic:slot:0.2 is there to compare. Give a run of another scorer too." in err
    code, out, err = call(capsys, "compare", tmp_path / "runs", "--measures", "verdict_flip", "tau_psi", "answer_em")
    assert (code, out) == (1, "")
    assert "no two runs have verdict_flip, answer_em to compare. `steadyscore list measures` says what it needs." in err
    assert call(capsys, "compare", tmp_path / "runs")[0] == 0  # the usual measures are those there are


def test_the_noise_floor_stands_beside_the_figure(capsys, tmp_path):
    words = (
        "audit",
        "--scorer",
        "synthetic:slot",
        "--data",
        "passages",
        "--out",
        tmp_path / "r",
        "--no-report",
        "--noise-floor",
        "--json",
    )
    figure = json.loads(call(capsys, *words)[1])["measures"]["tau_psi"]
    assert figure["floor"] == 0
    assert figure["above_floor"] is True


def test_a_dry_run_counts_windows_and_writes_nothing(capsys, tmp_path):
    words = ("audit", "--scorer", "synthetic:slot", "--data", "passages", "--width", "20", "--out", tmp_path / "run")
    code, out, _ = call(capsys, *words, "--dry-run", "--json")
    row = json.loads(out)[0]
    assert (code, row["queries"], row["windows"]) == (0, 32, 32 * 11)
    assert row["tokens"] > 100_000
    assert not (tmp_path / "run").exists()


def test_a_dry_run_tells_what_hosted_scorers_and_readers_cost(capsys, tmp_path):
    from steadyscore.engines.chat import TOKENS_PER_LINE

    hosted = "openai:m@http://127.0.0.1:9/v1"
    words = ["audit", "--scorer", hosted, "--scorer", "synthetic:slot", "--data", "claims", "--permutations", "3", "--dry-run"]
    words += ["--queries", "4", "--pool", "6"]
    row, local = json.loads(call(capsys, *words, "--set", "price=2,10", "--json")[1])
    graded = 4 * 6 * 4  # queries, candidates, three permutations and the first-stage order
    assert row["cost"] == pytest.approx((2 * row["tokens"] + 10 * graded * TOKENS_PER_LINE) / 1e6)
    assert (row["total_cost"], local["cost"], local["total_cost"]) == (row["cost"], None, None)
    assert json.loads(call(capsys, *words, "--json")[1])[0]["cost"] is None  # no price
    assert "give price" in call(capsys, *words)[1]
    reader = [*words, "--reader", hosted, "--reader", "smollm2-135m", "--set", "price=2,10"]
    row, local = json.loads(call(capsys, *reader, "--json")[1])
    read, embedded = row["readers"]
    assert (read["reader"], read["prompts"]) == (hosted, 4 * 3)
    assert read["cost"] == pytest.approx((2 * read["tokens"] + 10 * 12 * 5) / 1e6)
    assert embedded["cost"] is None
    assert (row["total_cost"], local["total_cost"]) == (row["cost"] + read["cost"], read["cost"])
    out = call(capsys, *reader)[1]
    assert f"read by {hosted}" in out
    assert "up to 12" in out
    assert "all together" in out
    assert call(capsys, *[w if w != "claims" else "passages" for w in reader])[0] == 1  # nothing to read for


def test_a_dry_run_counts_the_windows_of_a_mitigation(capsys):
    words = ["audit", "--scorer", "synthetic:slot", "--data", "passages", "--queries", "2", "--permutations", "3", "--dry-run"]
    words += ["--pool", "10", "--width", "5", "--json"]
    plain, averaged, canonical = (
        json.loads(call(capsys, *words, *more)[1])[0]
        for more in ((), ("--mitigation", "self-consistency:4"), ("--mitigation", "canonical-order"))
    )
    assert (plain["windows"], averaged["windows"], canonical["windows"]) == (2 * 4 * 2, 4 * 2 * 4 * 2, 2 * 2)
    assert averaged["tokens"] == pytest.approx(4 * plain["tokens"], abs=4)
    assert canonical["tokens"] == pytest.approx(plain["tokens"] / 4, abs=4)


def test_a_dry_run_is_about_right(tiny_engine):
    """The estimate of tokens is within a third of what the real tokenizer of the embedded model counts."""
    from steadyscore.collection import open_collection
    from steadyscore.models.embedded import EMBEDDED, is_present
    from steadyscore.scoring.config import AuditConfig, Cut, open_scorer
    from steadyscore.scoring.estimate import estimate
    from steadyscore.window.presentation import windows

    if not is_present(EMBEDDED["smollm2-135m"]):
        pytest.skip("the embedded model is not in the cache; `make setup` fetches it")
    config = AuditConfig(permutations=1, cut=Cut(queries=3))
    source = open_collection("passages")
    collection, instances = source.collection, source.instances
    scorer = open_scorer("smollm2-135m", collection, config)
    pools = [i for i, _ in zip(instances(), range(3), strict=False)]
    real = sum(len(scorer.prompt(i, w)) for i in pools for w in windows(range(len(i.pool)), 20))
    assert estimate("smollm2-135m", "passages", config).tokens / 2 == pytest.approx(real, rel=0.34)


def test_a_gate_passes_and_fails(capsys, tmp_path, collection_file):
    call(capsys, "audit", "--scorer", "synthetic:slot", "--data", collection_file, "--out", tmp_path / "run", "--no-report")
    assert call(capsys, "gate", tmp_path / "run", "--max", "tau_psi=1")[0] == 0
    code, _, err = call(
        capsys, "gate", tmp_path / "run", "--max", "tau_psi=0.0", "--min", "ndcg@10=0", "--junit", tmp_path / "g.xml"
    )
    assert code == 3
    assert "tau_psi <= 0 fails with" in err
    assert 'failures="1"' in (tmp_path / "g.xml").read_text()


def test_what_comes_after_an_audit_decides_with_its_threshold(capsys, tmp_path, collection_file):
    run, other = (str(tmp_path / name) for name in ("run", "other"))
    flags = ["--scorer", "synthetic:slot:2", "--data", str(collection_file), "--permutations", "6", "--json"]
    _, out, _ = call(capsys, "audit", *flags, "--match-retention", "0.3", "--out", run)
    told = json.loads(out)["measures"]["overlap"]["value"]
    gate = ["gate", run, "--min", "overlap=0"]
    assert json.loads(call(capsys, *gate, "--json")[1])[0]["value"] == told
    assert json.loads(call(capsys, *gate, "--json", "--cutoff", "f1")[1])[0]["value"] != told
    assert "retention-matched" in call(capsys, *gate)[1]
    assert "retention-matched" in Path(call(capsys, "report", run)[1].split()[-1]).read_text()
    call(capsys, "audit", *flags, "--width", "3", "--cutoff", "f1", "--out", other)
    code, _, err = call(capsys, "compare", run, other)
    assert code == 1
    assert "audited with different thresholds" in err
    code, out, _ = call(capsys, "compare", run, other, "--cutoff", "0.5")
    assert code == 0
    assert "synthetic:slot:2 (width 3)" in out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--cutoff", "nan"], "nan is not a score: give a number, or f1"),
        (["--match-retention", "30"], "30 is not a share"),
        (["--match-retention", "0"], "0 is not a share"),
        (["--cutoff", "0.5", "--match-retention", "0.3"], "not allowed with"),
    ],
)
def test_a_threshold_that_cannot_be_is_wrong_usage(capsys, flags, words):
    code, _, err = call(capsys, "gate", "runs/none", "--min", "overlap=0.9", *flags)
    assert (code, words in err) == (2, True)


def test_what_perturbations_moved_is_in_table_page_and_gate(capsys, tmp_path, collection_file):
    flags = ["--scorer", "synthetic:companion:1", "--data", str(collection_file), "--permutations", "3", "--out", str(tmp_path)]
    _, out, _ = call(capsys, "audit", *flags, "--perturb", "drop", "--set", "ir=P@5")
    assert "pool_psi_drop" in out
    assert "P@5" in out
    assert "pool_psi_drop" in (tmp_path / "report" / "index.html").read_text()
    assert call(capsys, "gate", str(tmp_path), "--max", "pool_psi_drop=1")[0] == 0


def test_the_page_is_of_what_is_served(capsys, tmp_path, collection_file):
    flags = ["--scorer", "synthetic:slot", "--data", str(collection_file), "--permutations", "6", "--out", str(tmp_path)]
    _, out, _ = call(capsys, "audit", *flags, "--serving-permutations", "3", "--json")
    told = json.loads(out)
    page = Path(told["report"]).read_text()
    assert "the mean of 3 permutations" in page
    assert f"{told['measures']['tau_psi']['value']:.3f}" in page


def test_a_score_file_becomes_a_run_with_a_page(capsys, tmp_path, collection_file):
    call(capsys, "audit", "--scorer", "synthetic:slot", "--data", str(collection_file), "--out", str(tmp_path / "run"))
    file, out = str(find_run(tmp_path / "run").folder / "scores.parquet"), str(tmp_path / "kept")
    code, text, _ = call(capsys, "audit", "--scores", file, "--out", out)
    assert code == 0
    assert "report: " in text
    assert {f.name for f in (tmp_path / "kept").iterdir()} == {"scores", "summary.json", "measures.parquet", "report"}
    assert find_run(tmp_path / "kept").folder == tmp_path / "kept" / "scores" / "scores"
    assert call(capsys, "audit", "--scores", file, "--out", out)[0] == 0
    assert call(capsys, "gate", out, "--min", "overlap=0")[0] == 0
    code, _, err = call(capsys, "audit", "--scores", file, "--perturb", "drop", "--set", "curve=yes")
    assert code == 2
    assert "leave out --perturb, --set curve." in err


def test_a_plan_says_what_a_margin_costs(capsys, tmp_path, collection_file):
    call(capsys, "audit", "--scorer", "synthetic:slot", "--data", collection_file, "--out", tmp_path / "run", "--no-report")
    _, out, _ = call(
        capsys, "study", "plan", tmp_path / "run", "--measure", "tau_psi", "--margin", "0.05", "--is-below", "0.5", "--json"
    )
    found = json.loads(out)
    assert found["required"][0]["permutations"] == 2
    assert found["is_below"]["answer"] in ("below", "undecided")


@pytest.mark.parametrize(("flag", "value"), [("--margin", "inf"), ("--margin", "nan"), ("--margin", "0"), ("--is-below", "inf")])
def test_a_plan_needs_numbers_that_are_finite(capsys, tmp_path, flag, value):
    code, _, err = call(capsys, "study", "plan", tmp_path, flag, value, "--json")
    assert code == 2
    assert f"{flag}: {value} is not" in err


def test_scores_without_a_model(capsys, tmp_path):
    file = tmp_path / "s.csv"
    rows = [f"q1,{p},{c},{s}" for p, order in enumerate(("abcd", "abdc", "dcba")) for s, c in enumerate(reversed(order))]
    file.write_text("query_id,permutation,candidate_id,score\n" + "\n".join(rows) + "\n")
    code, out, _ = call(capsys, "audit", "--scores", file, "--cutoff", "1.5", "--json")
    assert code == 0
    assert json.loads(out)["measures"]["tau_psi"]["value"] == pytest.approx(2 / 3)


def test_queries_with_fewer_permutations_or_no_judgement_are_named(capsys, tmp_path):
    file = tmp_path / "s.csv"
    rows = [f"q{q},{p},{c},{p * s},{'' if q else s}" for q in range(3) for p in range(3 - q) for s, c in enumerate("abc")]
    file.write_text("query_id,permutation,candidate_id,score,relevance\n" + "\n".join(rows) + "\n")
    code, out, _ = call(capsys, "audit", "--scores", file, "--cutoff", "1", "--all")
    assert code == 0
    assert "s.csv: 2 of 3 queries have fewer than 3 permutations: q1 has 2, q2 has 1. A query with one is in no mean that" in out
    assert "2 of 3 queries have no judgement and are not in the means that need one: q1, q2." in out


@pytest.mark.parametrize("odd", ["query", "candidate"])
def test_ids_with_blanks_are_no_columns_of_a_trec_run(capsys, tmp_path, odd):
    first, second = some_instances(queries=2, candidates=2)
    (second if odd == "query" else second["candidates"][1])["id"] = "q 1"
    words = ("score", "--scorer", "synthetic:none", "--data", write_collection(tmp_path / "pools.jsonl", [first, second]))
    code, out, err = call(capsys, *words, "--format", "trec")
    assert (code, out) == (1, "")
    assert "the id 'q 1' holds a blank, which a TREC run cannot" in err
    assert call(capsys, *words, "--format", "trec", "--queries", "1")[0] == 0
    assert call(capsys, *words, "--format", "jsonl")[0] == 0


def test_a_score_run_is_trec(capsys, collection_file):
    _, out, _ = call(
        capsys, "score", "--scorer", "synthetic:none", "--data", collection_file, "--format", "trec", "--queries", "1"
    )
    lines = [line.split() for line in out.splitlines()]
    assert len(lines) == 6
    assert [line[3] for line in lines] == list("123456")
    assert [float(line[4]) for line in lines] == sorted((float(line[4]) for line in lines), reverse=True)


@pytest.mark.parametrize("scores", ["len(c) // 9 / 9", "len(c) * 1e-10", "1 - len(c) * 1e-9"])
def test_a_tool_that_sorts_a_run_by_score_gets_the_order_of_its_ranks(capsys, tmp_path, monkeypatch, collection_file, scores):
    address = mine(tmp_path, monkeypatch, f"return [{scores} for c in candidates]")
    words = ("score", "--scorer", address, "--data", collection_file)
    printed = [line.split() for line in call(capsys, *words, "--format", "trec")[1].splitlines()]
    ranked = [json.loads(line) for line in call(capsys, *words, "--format", "jsonl")[1].splitlines()]
    assert [(q, d, int(rank)) for q, _, d, rank, *_ in printed] == [(r["query_id"], r["candidate_id"], r["rank"]) for r in ranked]
    for query_id in dict.fromkeys(line[0] for line in printed):
        of_query = [np.float32(line[4]) for line in printed if line[0] == query_id]
        assert of_query == sorted(set(of_query), reverse=True)
    is_as_scored = [float(line[4]) for line in printed] == [row["score"] for row in ranked]
    assert is_as_scored is (scores == "len(c) * 1e-10")


# -- bad input, each with its sentence and exit code


def audit(capsys, scorer, data, out, *more):
    return call(capsys, "audit", "--scorer", scorer, "--data", data, "--out", out, "--no-report", *more)


def mine(tmp_path, monkeypatch, body):
    (tmp_path / "mine.py").write_text(f"def score(query, candidates):\n    {body}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "python:mine:score"


def test_missing_file(capsys, tmp_path):
    code, _, err = audit(capsys, "synthetic:none", tmp_path / "none.jsonl", tmp_path / "run")
    assert code == 1
    assert "none.jsonl" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        ([], "candidate"),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "a"),
        ([{"id": "a"}], "text"),
        ([{"id": "a", "text": "  "}], "text"),
    ],
)
def test_bad_pools(capsys, tmp_path, candidates, words):
    file = write_collection(tmp_path / "bad.jsonl", [*some_instances(1), {"id": "qx", "query": "q", "candidates": candidates}])
    code, _, err = audit(capsys, "synthetic:none", file, tmp_path / "run")
    assert code == 1
    assert "bad.jsonl:3" in err
    assert words in err


def test_nan_from_a_custom_scorer(capsys, tmp_path, monkeypatch, collection_file):
    address = mine(tmp_path, monkeypatch, "return [float('nan')] * len(candidates)")
    code, _, err = audit(capsys, address, collection_file, tmp_path / "run")
    assert code == 1
    assert "gave nan as the score of candidate" in err


def test_a_scorer_that_fails_on_some_queries_is_exit_4_and_names_them(capsys, tmp_path, monkeypatch, collection_file):
    address = mine(
        tmp_path,
        monkeypatch,
        "if '2' in query: raise RuntimeError('endpoint gave up')\n    return [float(len(c)) for c in candidates]",
    )
    code, _, err = audit(capsys, address, collection_file, tmp_path / "run")
    assert code == 4
    assert "1 of 4 queries" in err
    assert "q2 (RuntimeError: endpoint gave up)" in err


@pytest.mark.parametrize("verb", ["serve", "explore"])
def test_a_server_asks_its_endpoint_every_time(verb):
    from steadyscore.cli import parser
    from steadyscore.commands.serve import open_models

    address = "openai:m@http://127.0.0.1:9/v1"
    [model] = open_models([address], parser(verb).parse_args([verb, address])).values()
    assert not model.backend.endpoint.cached


@pytest.mark.parametrize(
    ("address", "flags", "options"),
    [
        (
            "openai:m@http://localhost:1/v1",
            "--set retries=0 --set timeout=2 --set cache=no --set price=1,2",
            (0, 2.0, False, (1.0, 2.0), None),
        ),
        ("sglang:m@http://localhost:1", "--set trust_remote_code=yes --set tokenizer=t", (5, 300.0, True, None, "t")),
    ],
    ids=["hosted", "served"],
)
def test_a_demo_takes_every_flag_of_its_engine(capsys, tmp_path, monkeypatch, address, flags, options):
    asked = []
    monkeypatch.setattr("steadyscore.audits.audit.open_engine", lambda address, options: (asked.append(options), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        call(capsys, "demo", "--scorer", address, "--out", tmp_path / "demo", *flags.split())
    made = asked[0]
    assert (made.retries, made.timeout, made.cache, made.price, made.tokenizer) == options


def test_a_demo_with_queries_that_could_not_be_scored_is_exit_4(capsys, tmp_path, monkeypatch):
    first = next(open_collection("passages").instances()).query
    address = mine(tmp_path, monkeypatch, f"if query == {first!r}: raise RuntimeError('no')\n    return [0.5] * len(candidates)")
    monkeypatch.setattr("steadyscore.report.page.write_report", lambda variants, folder: folder / "index.html")
    code, out, err = call(capsys, "demo", "--scorer", address, "--out", tmp_path / "demo")
    assert code == 4
    assert "1 of 12 queries of python:mine:score could not be scored" in err
    assert "report: " in out


def test_a_demo_shows_one_pool_in_two_orders_before_it_counts(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("steadyscore.commands.demo.SCORERS", ("by place=synthetic:slot", "as a set=synthetic:none"))
    for is_first in (True, False):
        _, _, err = call(capsys, "demo", "--out", tmp_path / "demo")
        shown = re.search(
            r"for example, '.+': by place keeps passages ([\d, ]+), and .* in reverse order ([\d, ]+) \((\d) of 3 alike", err
        )
        assert bool(shown) is is_first
        if shown:
            one, other = (set(places.split(", ")) for places in shown.groups()[:2])
            assert (len(one), len(other), len(one & other)) == (3, 3, int(shown[3]))


def test_a_demo_keeps_its_runs_where_an_audit_would(capsys, tmp_path):
    call(capsys, "demo", "--scorer", "synthetic:slot", "--out", tmp_path / "demo")
    summary = json.loads((tmp_path / "demo/summary.json").read_text())
    assert [run["data"] for run in summary["runs"]] == ["passages"]
    scores = pq.read_table(tmp_path / "demo/passages/synthetic-slot/scores.parquet")
    assert set(scores["window"].to_pylist()) == {0}  # every pool in one prompt


@pytest.mark.parametrize("verb", ["audit", "score", "label"])
def test_a_scorer_that_always_fails_is_exit_1(capsys, tmp_path, monkeypatch, collection_file, verb):
    address = mine(tmp_path, monkeypatch, "raise ValueError('no')")
    code, _, err = call(capsys, verb, "--scorer", address, "--data", collection_file, "--out", tmp_path / "run")
    assert code == 1
    assert "scored none of the 4 queries" in err


FAILS = "import os\n    if '2' in query and {when} and not os.path.exists('fixed'): raise RuntimeError('gave up')\n    "
"""A function that fails on query q2 until somebody fixes it, with the same source: the run is resumed."""


def test_score_writes_what_could_be_scored_and_names_the_rest(capsys, tmp_path, monkeypatch, collection_file):
    address = mine(tmp_path, monkeypatch, FAILS.format(when="True") + "return [float(len(c)) for c in candidates]")
    words = ("score", "--scorer", address, "--data", collection_file, "--format", "trec", "--out", tmp_path / "run.trec")
    code, _, err = call(capsys, *words)
    assert code == 4
    assert "1 of 4 queries of python:mine:score could not be scored: q2 (RuntimeError: gave up)." in err
    assert [line.split()[0] for line in (tmp_path / "run.trec").read_text().splitlines()] == ["q0"] * 6 + ["q1"] * 6 + ["q3"] * 6


def test_a_fault_beside_the_run_leaves_the_run_and_is_tried_again(capsys, tmp_path, monkeypatch, collection_file):
    """`--perturb` and `--noise-floor` score after the run is complete: their faults cost neither table nor summary."""
    body = "calls[query] = calls.get(query, 0) + 1\n    " + FAILS.format(when="(len(candidates) == 5 or calls[query] > 3)")
    address = mine(tmp_path, monkeypatch, body + "return [float(len(c)) for c in candidates]\n\ncalls = {}")
    words = ("--permutations", "2", "--perturb", "drop", "--noise-floor", "--json")
    code, out, err = audit(capsys, address, collection_file, tmp_path / "run", *words)
    assert code == 4
    for flag in ("--noise-floor", "--perturb drop"):
        assert f"1 of the queries of python:mine:score could not be scored for {flag}: q2 (RuntimeError: gave up)." in err
    (row,) = json.loads(out)["runs"]
    assert row["failed"] == {
        flag: [{"query_id": "q2", "reason": "RuntimeError: gave up"}] for flag in ("noise-floor", "perturb drop")
    }
    assert row["measures"]["pool_psi_drop"]["queries"] == 3
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["measures"]["tau_psi"]["queries"] == 4
    (tmp_path / "fixed").touch()
    code, out, err = audit(capsys, address, collection_file, tmp_path / "run", *words)
    assert (code, err) == (0, "")
    assert "failed" not in json.loads(out)["runs"][0]
    assert json.loads(out)["measures"]["pool_psi_drop"]["queries"] == 4


def test_labels_name_the_queries_without_one(capsys, tmp_path, monkeypatch, collection_file):
    address = mine(tmp_path, monkeypatch, FAILS.format(when="True") + "return [0.5 for c in candidates]")
    label = ("label", "--data", collection_file, "--json", "--out")
    code, out, err = call(capsys, *label, tmp_path / "labels", "--scorer", address)
    assert code == 4
    assert "1 of 4 queries of python:mine:score could not be labelled: q2 (RuntimeError: gave up)." in err
    found = json.loads(out)
    assert (found["queries"], found["failed"]) == (3, [{"query_id": "q2", "reason": "RuntimeError: gave up"}])
    # Recalibration needs the query in both sets.
    call(capsys, *label, tmp_path / "judged", "--scorer", "judgements")
    code, out, err = call(
        capsys, *label, tmp_path / "matched", "--from", tmp_path / "judged", "--recalibrate-to", tmp_path / "labels"
    )
    assert (code, json.loads(out)["queries"]) == (4, 3)
    assert f"1 of 4 queries of {tmp_path / 'judged'} could not be labelled: q2 (no label in {tmp_path / 'labels'})." in err
    (tmp_path / "fixed").touch()
    assert call(capsys, *label, tmp_path / "labels", "--scorer", address)[0] == 0
    other = write_collection(tmp_path / "other.jsonl", [{**row, "id": f"other-{row['id']}"} for row in some_instances(2)])
    call(capsys, "label", "--data", other, "--scorer", "judgements", "--out", tmp_path / "elsewhere")
    code, _, err = call(
        capsys, *label, tmp_path / "none", "--from", tmp_path / "judged", "--recalibrate-to", tmp_path / "elsewhere"
    )
    assert code == 1
    assert f"no query of {tmp_path / 'judged'} has a label in {tmp_path / 'elsewhere'}" in err


def test_queries_without_a_judgement_are_named(capsys, tmp_path):
    rows = some_instances(3)
    for candidate in rows[1]["candidates"]:
        del candidate["relevance"]
    file = write_collection(tmp_path / "half.jsonl", rows)
    code, _, err = call(capsys, "label", "--data", file, "--scorer", "judgements", "--out", tmp_path / "labels")
    assert code == 0
    assert "1 of 3 queries have no judged candidate and get no label: q1." in err


def test_unknown_model(capsys, tmp_path, collection_file):
    code, _, err = audit(capsys, "gpt-99", collection_file, tmp_path / "run")
    assert code == 1
    assert "unknown scorer 'gpt-99'" in err


def test_a_model_without_chat_template(capsys, tmp_path, collection_file):
    tiny_causal().save_pretrained(tmp_path / "m")
    byte_tokenizer(chat_template=None).save_pretrained(tmp_path / "m")
    code, _, err = audit(capsys, f"hf:{tmp_path / 'm'}", collection_file, tmp_path / "run")
    assert code == 1
    assert "has no chat template" in err


def test_grade_digits_that_are_not_single_tokens(capsys, tmp_path, collection_file):
    from tokenizers import normalizers

    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("2", "two")
    tiny_causal().save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    code, _, err = audit(capsys, f"hf:{tmp_path / 'm'}", collection_file, tmp_path / "run")
    assert code == 1
    assert 'grade "2" is 3 tokens for this tokenizer' in err


def test_window_too_long_and_shrunk(capsys, tmp_path, collection_file):
    tiny_causal(max_position_embeddings=900).save_pretrained(tmp_path / "m")
    byte_tokenizer().save_pretrained(tmp_path / "m")
    code, _, err = audit(capsys, f"hf:{tmp_path / 'm'}", collection_file, tmp_path / "run", "--permutations", "2")
    assert code == 1
    assert "width 6 does not fit: window 1 of query q0 needs" in err
    code, out, _ = audit(
        capsys, f"hf:{tmp_path / 'm'}", collection_file, tmp_path / "r2", "--permutations", "2", "--fit", "shrink", "--json"
    )
    assert code == 0
    assert json.loads(out)["runs"][0]["scoring"]["shrunk"]


def test_a_run_folder_of_another_fingerprint(capsys, tmp_path, collection_file):
    audit(capsys, "synthetic:none", collection_file, tmp_path / "run")
    code, _, err = audit(capsys, "synthetic:none", collection_file, tmp_path / "run", "--seed", "7")
    assert code == 1
    assert "was made by another command: seed was" in err


def test_no_write_permission(capsys, tmp_path, collection_file):
    (tmp_path / "file").write_text("")
    code, _, err = audit(capsys, "synthetic:none", collection_file, tmp_path / "file" / "run")
    assert code == 1
    assert "cannot write" in err


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(capsys, tmp_path, collection_file, monkeypatch):
    """Every write goes to the device that is always full, so it is the kernel that refuses."""
    open_to_write = disk.open_to_write
    monkeypatch.setattr(disk, "open_to_write", lambda _, mode: open_to_write(Path("/dev/full"), mode))
    code, _, err = audit(capsys, "synthetic:none", collection_file, tmp_path / "run")
    assert code == 1
    assert "No space left on device" in err
    assert [path for path in tmp_path.rglob("run/**/*") if path.is_file()] == []


@pytest.mark.slow
def test_a_file_system_with_no_room(capsys, tmp_path, collection_file):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        code, _, err = audit(capsys, "synthetic:none", collection_file, small / "run")
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert code == 1
    assert "No space left on device" in err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("steadyscore ga", ["gate"]),
        ("steadyscore data ex", ["export"]),
        ("steadyscore data export --fo", ["--format"]),
        ("steadyscore data export --format ", ["trec", "beir", "jsonl"]),
        ("steadyscore audit --mat", ["--match-retention"]),
        ("steadyscore audit --set dty", ["dtype="]),
        ("steadyscore audit --data ", []),
        ("steadyscore nothing --x", []),
    ],
)
def test_a_shell_completes_half_a_line(line, expected, monkeypatch, capsys):
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    assert main() == 0
    assert capsys.readouterr().out.split() == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gate runs --min overlp=0.3", "unknown measure 'overlp'; did you mean overlap?"),
        ("compare runs --measures tau_ps", "unknown measure 'tau_ps'; did you mean tau_psi?"),
        ("audit --scorer openi:m@http://x --data passages --out x", "Did you mean openai?"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) in (1, 2)
    assert said in capsys.readouterr().err
