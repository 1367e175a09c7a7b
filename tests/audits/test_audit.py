"""The result as a value and the public functions around it: what a notebook user meets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import steadyscore
from steadyscore import cli
from steadyscore.audits import audit as module
from steadyscore.collection import open_collection
from steadyscore.errors import InputError, MissingExtra, RunMismatch
from steadyscore.machine import disk
from steadyscore.measures.measurement import Threshold
from steadyscore.results.figure import Figure, mean_figure
from steadyscore.results.load import budget_values, load_run
from steadyscore.runs.records import Capabilities
from steadyscore.scoring.config import AuditConfig, open_scorer
from steadyscore.scoring.estimate import remember_speed, speeds
from steadyscore.scoring.score import score_collection
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_claims, some_instances, write_collection

ROWS = some_instances(6)


def length(query, texts):
    return [float(len(text)) for text in texts]


def by_place(query, texts):
    return [len(text) + 9.0 * place for place, text in enumerate(texts)]


@pytest.fixture
def run(tmp_path):
    file = write_collection(tmp_path / "c.jsonl", ROWS)
    config = AuditConfig(permutations=6)
    scorer = open_scorer("synthetic:slot:0.5", open_collection(str(file)).collection, config)
    return score_collection(scorer, str(file), tmp_path / "run", config)


# -- figures and runs


def test_a_figure_has_an_interval_where_there_is_more_than_one_query():
    assert mean_figure(np.array([0.5])) == Figure(0.5, None, None, 1)
    two = mean_figure(np.array([0.4, 0.6, np.nan]))
    assert two.low <= two.value == 0.5 <= two.high
    assert two.queries == 2


def test_a_figure_is_written_with_its_floor_only_where_it_has_one():
    assert Figure(0.5, 0.4, 0.6, 3).to_json() == {"value": 0.5, "low": 0.4, "high": 0.6, "queries": 3}
    assert Figure(0.5, 0.4, 0.6, 3, 0.1, True).to_json() == {
        "value": 0.5, "low": 0.4, "high": 0.6, "queries": 3, "floor": 0.1, "above_floor": True,
    }  # fmt: skip
    assert str(Figure(0.5, 0.4, 0.6, 3, 0.1, True)) == "0.500 [0.400, 0.600] floor 0.100"


def test_a_curve_goes_from_one_permutation_to_all(run):
    found = budget_values(run, run.read_queries(), Threshold(cutoff=0.5))
    assert list(found) == [1, 2, 3, 4, 5, 6]
    assert found[1]["score_variance"] > found[3]["score_variance"]
    assert "tau_psi" not in found[4]  # one ensemble of four cannot be compared with itself


def test_the_first_point_of_the_curve_is_the_run(run):
    threshold = Threshold(cutoff=0.5)
    expected = load_run(run, threshold).measured.values["tau_psi"].mean()
    assert budget_values(run, run.read_queries(), threshold)[1]["tau_psi"] == pytest.approx(expected)


def test_a_ranking_has_no_threshold(run):
    run._record = replace(run.record, capabilities=Capabilities(gives="ranking"))
    found = load_run(run, Threshold(cutoff=0.5))
    assert "overlap" not in found.figures
    assert {"overlap@10", "pair_flip", "tau_psi"} <= found.figures.keys()
    assert "gives a ranking" in found.measured.cutoff.how


def test_rows_are_per_query_and_measure(run):
    audits = steadyscore.Audits([load_run(run)])
    table = audits.to_arrow()
    assert table.num_rows == 6 * len(audits[0].measured.values)
    assert table.column_names == ["variant", "collection", "query_id", "measure", "value"]


# -- the main job as a function


def test_a_function_is_audited_on_an_embedded_collection_and_prints_the_table():
    """The line of the README, in a process of its own: nothing is left behind, no heavy library is loaded."""
    code = (
        "import sys, steadyscore\n"
        "heavy = lambda: [name for name in ('torch', 'matplotlib', 'polars', 'datasets', 'fastapi') if name in sys.modules]\n"
        "print(steadyscore.audit(lambda q, c: [len(t) for t in c], 'passages'))\n"
        "print(heavy())\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert " ".join(out[0].split()) == "passages ndcg@10 tau_psi overlap chance_overlap retention"
    (row,) = [line for line in out if line.startswith("python:lambda")]
    assert " 0.000  1.000 [1.000, 1.000] " in row
    *_, note, rest, last = out
    assert note.startswith("passages: "), "what must be known to read the table stands below it"
    assert rest.endswith(" more measures: to_text(everything=True)")
    assert last == "[]"


def test_without_out_nothing_is_kept_and_with_it_the_same_call_resumes(tmp_path):
    calls = []

    def counted(query, texts):
        calls.append(query)
        return length(query, texts)

    assert steadyscore.audit(counted, ROWS, permutations=2, quiet=True)[0].folder is None
    before = len(calls)
    first = steadyscore.audit(counted, ROWS, permutations=2, out=tmp_path / "run", quiet=True)
    again = steadyscore.audit(counted, ROWS, permutations=2, out=tmp_path / "run", quiet=True)
    assert len(calls) == 2 * before + 3, "one window of three stored queries, which must score as they did"
    assert first.to_json() == again.to_json()
    loaded = steadyscore.load(tmp_path / "run")
    assert loaded[0].figures == first[0].figures
    assert (tmp_path / "run" / "report" / "index.html").exists()


def test_data_that_a_scorer_may_have_seen_is_refused_before_anything_is_scored(tmp_path):
    calls = []

    def counted(query, texts):
        calls.append(query)
        return length(query, texts)

    with pytest.raises(InputError, match=r"is not apart from passages: it shares 3 queries and \d+ of \d+ candidates with it"):
        steadyscore.audit(
            counted, "passages", queries=3, permutations=2, apart_from=["passages"], out=tmp_path / "run", quiet=True
        )
    assert not calls
    assert not (tmp_path / "run").exists()
    assert steadyscore.audit(counted, "passages", queries=3, permutations=2, apart_from=["responses"], quiet=True)


def test_several_scorers_on_several_collections_stand_in_a_table_each(tmp_path):
    found = steadyscore.audit([length, by_place], ["passages", "responses"], queries=3, permutations=2, quiet=True)
    assert [(audit.name, audit.collection) for audit in found] == [
        ("python:length", "passages"), ("python:length", "responses"),
        ("python:by_place", "passages"), ("python:by_place", "responses"),
    ]  # fmt: skip
    assert [line.split()[0] for line in found.table.splitlines() if "tau_psi" in line] == ["passages", "responses"]
    assert found[0]["tau_psi"].value == 0 < found[2]["tau_psi"].value
    assert found._repr_html_().partition("<details>")[0].count("<table>") == 2


class Predicts:
    def predict(self, pairs):
        return np.array([float(len(text)) for _, text in pairs])


class Ranks:
    def rank(self, query, documents):
        ordered = sorted(range(len(documents)), key=lambda i: -len(documents[i]))
        return [{"corpus_id": i, "score": float(len(documents[i]))} for i in ordered]


@pytest.mark.parametrize("scorer", [Predicts(), Ranks(), {"mine": length}, "synthetic:none"])
def test_a_scorer_may_be_an_object_a_named_function_or_an_address(scorer):
    (found,) = steadyscore.audit(scorer, ROWS, permutations=3, quiet=True)
    assert found["tau_psi"].value == 0


def test_a_name_that_the_caller_gave_an_address_stays_with_the_run(tmp_path):
    scorers = {"mine": "synthetic:none", "yours": length}
    found = steadyscore.audit(scorers, ROWS, permutations=2, out=tmp_path, report=False, quiet=True)
    assert [audit.name for audit in found] == ["mine", "yours"]
    assert {audit.name for audit in steadyscore.load(tmp_path)} == {"mine", "yours"}
    again = steadyscore.audit("synthetic:slot", ROWS, permutations=2, quiet=True)
    assert again[0].name == "synthetic:slot:0.2"  # without a name, what the scorer calls itself


def frames():
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    long = [
        {"query_id": row["id"], "query": row["query"], "candidate_id": c["id"], "text": c["text"], "relevance": c["relevance"]}
        for row in ROWS
        for c in row["candidates"]
    ]
    return {
        "list": ROWS,
        "long": long,
        "pandas": pd.DataFrame(long),
        "polars": pl.DataFrame(long),
        "arrow": pa.Table.from_pylist(long),
        "wide": pd.DataFrame(ROWS),
    }


@pytest.mark.parametrize("form", ["list", "long", "pandas", "polars", "arrow", "wide"])
def test_the_same_rows_give_the_same_figures_in_every_form(form, tmp_path):
    file = write_collection(tmp_path / "c.jsonl", ROWS)
    (expected,) = steadyscore.audit(by_place, str(file), permutations=3, quiet=True)
    (found,) = steadyscore.audit(by_place, frames()[form], permutations=3, quiet=True)
    assert found.figures == expected.figures


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_hugging_face_dataset_is_a_collection(is_streamed):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(ROWS)
    (found,) = steadyscore.audit(by_place, rows.to_iterable_dataset() if is_streamed else rows, permutations=3, quiet=True)
    (expected,) = steadyscore.audit(by_place, ROWS, permutations=3, quiet=True)
    assert found.figures == expected.figures


def test_texts_alone_are_a_collection():
    (found,) = steadyscore.audit(
        by_place, [{"query": "why", "candidates": ["a b", "c", "d e f"]}] * 2, permutations=4, quiet=True
    )
    assert found.measured.query_ids == ("1", "2")
    assert "ndcg@10" not in found.figures


def test_scores_that_exist_go_in_as_an_array_a_frame_or_a_file(tmp_path):
    import pandas as pd

    scores = np.random.default_rng(0).random((4, 3, 5))
    rows = [
        {"query_id": f"{q + 1:06d}", "permutation": m, "candidate_id": str(c), "score": scores[q, m, c]}
        for q in range(4) for m in range(3) for c in range(5)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    by_query = {f"{q + 1:06d}": scores[q] for q in range(4)}
    found = [steadyscore.audit(scores=given, cutoff=0.5)[0] for given in (scores, by_query, frame, tmp_path / "mine.csv")]
    assert all(audit.figures == found[0].figures for audit in found)
    judged = steadyscore.audit(scores=scores, relevance=np.tile([0, 1, 2, 0, 1], (4, 1)))[0]
    assert judged["ndcg@10"].queries == 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"scorers": 7, "data": "passages"}, "a int is not a scorer"),
        ({"scorers": None, "data": "passages"}, "nothing to audit"),
        ({"scorers": length, "data": None}, "there is no data"),
        ({"scorers": length, "data": []}, "there is no row to score"),
        ({"scorers": length, "data": [{"text": "a"}]}, "no column is recognised as query among text"),
        ({"scorers": length, "data": {"query": "a"}}, "dict is not a kind of data"),
        ({"scorers": length, "data": [{"query": "", "candidates": []}]}, "no column is recognised as query or as text"),
        ({"scorers": length, "data": "passages", "widht": 3}, "apart_from. Did you mean width?"),
        ({"scorers": length, "data": "passages", "threshold": steadyscore.Threshold()}, "audit has no setting threshold"),
        ({"scorers": length, "data": "passages", "pool": -1, "width": 0}, "pool is -1: give a whole number, 1 or more."),
        ({"scorers": length, "data": "passages", "permutations": 0}, "permutations is 0: give a whole number, 1 or more."),
        ({"scorers": length, "data": "passages", "match_retention": 1.5}, "match_retention 1.5 is not a share from 0 to 1."),
        ({"scorers": length, "data": "passages", "cutoff": np.nan}, "cutoff nan is neither a finite number nor f1."),
        ({"scorers": "nobody:x", "data": "nowhere"}, "unknown kind of scorer 'nobody'"),
        ({"scores": np.full((2, 2), np.nan)}, "4 scores are NaN or infinite"),
        ({"scores": np.zeros(3)}, "have shape"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_a_sentence(words, sentence):
    with pytest.raises(InputError) as refusal:
        steadyscore.audit(**words)
    assert sentence in str(refusal.value)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(InputError) as refusal:
        steadyscore.audit(["nobody:x", "synthetic:slot"], ["nowhere", "passages"], readers=["synthetic:slot"], ir=["P@x"])
    assert len(refusal.value.mistakes) >= 4


def test_settings_of_several_parts_are_told_at_once_and_numbers_of_numpy_count():
    with pytest.raises(InputError) as refusal:
        steadyscore.audit(length, "passages", pool=-1, width=0, permutations=-1, chars=-5, fit="shrnk", markers="runes")
    assert len(refusal.value.mistakes) == 6
    (found,) = steadyscore.audit(length, ROWS, permutations=np.int64(2), quiet=True)
    assert found.record.fingerprint.permutations == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"perturb": "drop"}, "perturb is 'drop': give a list."),
        ({"perturb": ["drops"]}, "there is no perturbation 'drops'"),
        ({"cutoff": 0.5, "match_retention": 0.3}, "cutoff and match_retention each say what is kept"),
        ({"cutoff": "0.5"}, "cutoff '0.5' is neither a finite number nor f1."),
    ],
)
def test_settings_that_would_be_ignored_are_refused(words, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        steadyscore.audit(length, ROWS, **words)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scores": {1: np.eye(2), "1": np.eye(2)}}, "two queries of the scores have one name"),
        ({"scores": np.eye(2) * 1j}, "the scores are not an array of numbers"),
        ({"scores": np.ones((2, 0))}, "has no candidate"),
        ({"scores": np.eye(2), "relevance": [0.5, 1]}, "have 0.5 as relevance, which is not a whole number of 32 bits"),
        ({"scores": np.eye(2), "relevance": [np.inf, 1]}, "have inf as relevance, which is not a whole number"),
        ({"scores": np.eye(2), "relevance": [2**31, 1]}, "as relevance, which is not a whole number of 32 bits"),
        ({"scores": np.eye(2), "relevance": [-(2.0**40), 1]}, "as relevance, which is not a whole number of 32 bits"),
        ({"scores": {"a": np.eye(2), "\ud800": np.eye(2)}}, r"'\\ud800' cannot be a query id"),
        ({"scores": {"a\nb": np.eye(2)}}, r"'a\\nb' cannot be a query id"),
        ({"scores": [0.5, 0.2]}, "a row of the scores is 0.5"),
        ({"scores": [None]}, "a row of the scores is None"),
        ({"scores": [{"query_id": "q", "permutation": 0, "candidate_id": "a", "score": 1.0}, 7]}, "a row of the scores is 7"),
        ({"scores": [[1, 2], [3]]}, "the scores are not an array of numbers"),
    ],
)
def test_arrays_that_are_no_scores_are_refused(given, sentence):
    with pytest.raises(InputError, match=sentence):
        steadyscore.audit(**given)


@pytest.mark.parametrize("given", [[[1, 2], [2, 1]], ((1, 2), (2, 1)), [np.array([1, 2]), np.array([2, 1])], [[[1, 2], [2, 1]]]])
def test_nested_lists_are_arrays(given):
    listed, array = (steadyscore.audit(scores=s, relevance=[1, 0], cutoff=1.5)[0] for s in (given, np.array([[1, 2], [2, 1]])))
    coverage = listed.measured.coverage
    assert (coverage.queries, coverage.permutations, coverage.candidates) == (1, [2], 2)
    assert listed["tau_psi"].value == 1
    assert listed.figures == array.figures


def test_a_slot_that_nobody_held_has_no_profile_and_json_stays_json(tmp_path):
    places = {"a": (0, 0), "b": (2, 0), "c": (0, 1)}
    rows = [
        {"query_id": f"q{q}", "permutation": m, "candidate_id": c, "score": float(m * i), "slot": slot, "window": window}
        for q in range(2) for m in range(3) for i, (c, (slot, window)) in enumerate(places.items())
    ]  # fmt: skip
    (found,) = steadyscore.audit(scores=rows, out=tmp_path, quiet=True)
    assert [value is None for value in found.measured.slot_profile] == [False, True, False]
    told = json.loads((tmp_path / "summary.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert told["runs"][0]["slot_profile"] == found.measured.slot_profile
    assert "ψ(p)" in (tmp_path / "report" / "index.html").read_text()


def test_judgements_below_zero_are_zero_in_arrays_as_in_files():
    scores = np.random.default_rng(0).random((3, 4, 5))
    below, zero = ([[-1, 0, 1, 2, -2]] * 3, [[0, 0, 1, 2, 0]] * 3)
    found = [steadyscore.audit(scores=scores, relevance=gold, cutoff=0.5)[0].figures for gold in (below, zero)]
    assert found[0] == found[1]


def test_a_cache_that_cannot_be_written_costs_no_run(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", "/dev/null/nowhere")
    remember_speed("some scorer", 120, 10.0)
    assert speeds() == {}


def test_a_plot_is_a_figure_of_the_page_and_a_frame_has_a_row_per_measure():
    found = steadyscore.audit([length, by_place], ROWS, permutations=4, match_retention=0.4, quiet=True)
    assert "<svg" in found.plot("decisions")._repr_html_()
    with pytest.raises(InputError, match="there is no figure 'pie'"):
        found.plot("pie")
    frame = found.to_pandas()
    assert set(frame["variant"]) == {"python:length", "python:by_place"}
    assert {"value", "low", "high", "queries"} <= set(frame.columns)
    assert len(found.to_pandas(queries=True)) == sum(6 * len(audit.measured.values) for audit in found)


def test_a_figure_is_saved_with_colours_of_its_own(tmp_path):
    figure = steadyscore.audit([length, by_place], ROWS, permutations=4, match_retention=0.4, quiet=True).plot("quality")
    saved = figure.save(tmp_path / "new" / "figure.svg").read_text()
    assert ElementTree.fromstring(saved).tag.endswith("svg")
    assert "var(--" not in saved
    assert not hasattr(figure, "capitalize")
    with pytest.raises(InputError, match=r"does not end in \.svg"):
        figure.save(tmp_path / "figure.bmp")


def test_a_measure_that_does_not_exist_is_answered_with_the_nearest():
    (found,) = steadyscore.audit(length, ROWS, permutations=2, quiet=True)
    with pytest.raises(KeyError, match=r"no measure taupsi; did you mean tau_psi\?"):
        found["taupsi"]
    with pytest.raises(KeyError, match=r"no measure bleu; there are .*tau_psi"):
        found["bleu"]


def test_results_are_short_in_a_repl(tmp_path):
    scorers = {"long " * 100: length, "by place": by_place}
    found = steadyscore.audit(scorers, ROWS, permutations=4, out=tmp_path, report=False, quiet=True)
    results = [
        found,
        *found,
        found[0].queries[0],
        found[0].source,
        found[0].source.collection,
        steadyscore.compare(found),
        steadyscore.gate(found, max={"tau_psi": 0.0}),
        steadyscore.recommend(found[1].folder, target="overlap=0.5"),
        steadyscore.study_variance(*found, estimator="reference"),
        steadyscore.Run.open(found[1].folder),
        steadyscore.rerank(length, "what " * 100, ["text " * 100]),
        steadyscore.study_width(length, ROWS, width=2, permutations=2, quiet=True),
        steadyscore.attack(length, ROWS, attacks=["instruction"], quiet=True),
        found.plot("decisions"),
    ]
    assert [shown for result in results if len(shown := repr(result)) > 200 or "\n" in shown] == []
    assert repr(found[1]).startswith("<Audit by place on data, 6 queries: ndcg@10 ")


@pytest.mark.parametrize("result", ["audits", "comparison", "ranking"])
def test_a_frame_without_pandas_says_what_to_install(result, monkeypatch):
    found = steadyscore.audit([length, by_place], ROWS, permutations=2, quiet=True)
    values = {"audits": found, "comparison": steadyscore.compare(found), "ranking": steadyscore.rerank(length, "q", ["a"])}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"to_pandas\(\) needs pandas, .* Install with: pip install pandas$"):
        values[result].to_pandas()


def verdict(path, body):
    return {"choices": [{"message": {"content": "SUPPORTED"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}


@pytest.mark.parametrize(("scorers", "collections"), [(1, 1), (2, 2)])
def test_one_audit_opens_each_collection_once_reads_each_table_once_and_measures_once(
    scorers, collections, tmp_path, monkeypatch
):
    counts = {"open": 0, "read": 0, "measure": 0, "figures": 0}

    def counting(name, real):
        def counted(*args, **more):
            counts[name] += 1
            return real(*args, **more)

        return counted

    sources = []
    for place in range(collections):
        (tmp_path / str(place)).mkdir()
        sources.append(Path(some_claims(tmp_path / str(place), 4)))
        sources[-1] = sources[-1].rename(sources[-1].with_name(f"claims{place}.jsonl"))
        sources[-1].write_text(sources[-1].read_text().replace('"claims"', f'"claims{place}"'))
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("steadyscore.collection._is_own", counting("open", steadyscore.collection._is_own))
    monkeypatch.setattr("steadyscore.runs.folder.Run.read_queries", counting("read", steadyscore.runs.folder.Run.read_queries))
    monkeypatch.setattr("steadyscore.results.load.measure_run", counting("measure", steadyscore.results.load.measure_run))
    monkeypatch.setattr("steadyscore.results.load.mean_figures", counting("figures", steadyscore.results.load.mean_figures))
    with Server(verdict) as server:
        found = module.audit(
            ["synthetic:slot:0.3", "synthetic:none"][:scorers], [str(file) for file in sources], permutations=2, cutoff=0.5,
            noise_floor=True, perturb=["drop"], readers=[f"openai:reader@{server.url}"], reader_k=2,
            out=tmp_path / "run", quiet=True,
        )  # fmt: skip
    runs = scorers * collections
    assert len(found) == runs
    assert counts == {"open": collections, "read": runs, "measure": runs, "figures": runs}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["runs"][0]["measures"]["verdict_flip"]["value"] == 0


def test_a_perturbation_without_judgements_is_left_out_and_json_stays_json(tmp_path, capsys):
    rows = [
        {"id": one["id"], "query": one["query"], "candidates": [{"id": c["id"], "text": c["text"]} for c in one["candidates"]]}
        for one in some_instances(3)
    ]
    file = write_collection(tmp_path / "unjudged.jsonl", rows)
    words = f"audit --scorer synthetic:companion --data {file} --permutations 2 --perturb reverse --no-report --json"
    assert cli.main([*words.split(), "--out", str(tmp_path / "run")]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert "reverse_psi" in told["runs"][0]["measures"]
    assert "reverse_ndcg@10" not in told["runs"][0]["measures"]


def test_a_run_that_cannot_be_matched_is_said_before_anything_is_scored(tmp_path):
    asked = []
    steadyscore.audit("synthetic:slot", "responses", queries=4, out=tmp_path / "other", report=False)
    with pytest.raises(InputError, match="holds no run on passages"):
        steadyscore.audit(
            lambda query, texts: asked.append(query) or [0.5] * len(texts), "passages", match_retention=str(tmp_path / "other")
        )
    assert not asked


def test_a_share_that_is_matched_on_several_collections_can_be_compared(tmp_path):
    common = {"queries": 6, "report": False}
    data = ["passages", "multidoc_qa"]
    steadyscore.audit("synthetic:slot:0.1", data, out=tmp_path / "other", **common)
    both = {"a": "synthetic:slot:0.2", "b": "synthetic:slot:0.3"}
    steadyscore.audit(both, data, out=tmp_path / "mine", match_retention=str(tmp_path / "other"), **common)
    assert steadyscore.compare(tmp_path / "mine", measures=["overlap"]).contrasts


def test_nobody_else_works_in_a_run_while_it_is_perturbed(tmp_path):
    seen = []

    def scorer(query, texts):
        seen.append(any(tmp_path.rglob(disk.LOCK)))
        return [len(text) / 9999 for text in texts]

    steadyscore.audit(scorer, "passages", queries=2, permutations=2, perturb=["reverse"], out=tmp_path / "run", report=False)
    assert len(seen) > 2 * 3
    assert all(seen)


def test_judgements_of_given_scores_are_all_used_or_refused(tmp_path):
    scores = np.random.default_rng(0).random((3, 2, 400))
    with pytest.raises(InputError, match="3 queries have scores and 2 have judgements"):
        steadyscore.audit(scores=scores, relevance=np.ones((2, 400)))
    with pytest.raises(InputError, match="query b has judgements and no scores"):
        steadyscore.audit(scores={"a": scores[0]}, relevance={"a": np.ones(400), "b": np.ones(400)})
    with pytest.raises(InputError, match="column `relevance` of its own"):
        steadyscore.audit(scores=[{"query_id": "a", "candidate_id": "d", "permutation": 0, "score": 1.0}], relevance=np.ones(1))
    relevance = np.zeros((3, 400), int)
    relevance[:, 0] = 1
    steadyscore.audit(scores=scores, relevance=relevance, out=tmp_path / "kept", report=False)
    relevance[:, 200] = 1  # in the middle, which numpy does not print
    with pytest.raises(RunMismatch):
        steadyscore.audit(scores=scores, relevance=relevance, out=tmp_path / "kept", report=False)


def test_no_scorers_at_all_are_refused():
    for none in ({}, [], None):
        with pytest.raises(InputError, match="nothing to audit"):
            steadyscore.audit(none, "passages")
