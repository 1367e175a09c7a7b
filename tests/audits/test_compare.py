import json
from dataclasses import replace

import numpy as np
import pytest

import steadyscore
from steadyscore.audits.compare import Bootstrap, contrasts, disagreement
from steadyscore.audits.comparison import Disagreement
from steadyscore.errors import InputError
from steadyscore.measures.measurement import measure
from steadyscore.runs.records import Fingerprint
from steadyscore.runs.table import Scored
from tests.helpers.pools import some_instances, write_collection
from tests.measures.test_measurement import query

TASK = "passage_reranking"


def values(**noise):
    """Variants whose scores move by `noise` between permutations, on two collections."""
    found = {}
    for name, size in noise.items():
        found[name] = {}
        for c in ("one", "two"):
            queries = []
            for i in range(12):
                q = query(i + 100 * (c == "two"), n=10, permutations=6)
                rng = np.random.default_rng(i)
                scores = q.scores[:1] + size * rng.normal(size=q.scores.shape)
                queries.append(
                    type(q)(q.query_id, q.candidate_ids, q.permutations, scores, q.slots, q.windows, relevance=q.relevance)
                )
            found[name][c] = measure(queries)
    return found


def test_a_steadier_variant_is_told_from_its_baseline():
    rows = contrasts({TASK: values(shaky=0.5, steady=0.05)}, "shaky", ["tau_psi", "overlap"])
    tau = next(row for row in rows if row.measure == "tau_psi")
    assert tau.difference.high < 0
    assert (tau.wins, tau.collections) == (2, 2)
    assert tau.adjusted_p < 0.01


def test_a_variant_equals_itself():
    found = values(a=0.3)
    rows = contrasts({TASK: found | {"b": found["a"]}}, "a", ["tau_psi"])
    assert rows[0].difference[:3] == (0, 0, 0)


def test_only_shared_queries_are_paired():
    found = values(a=0.3, b=0.1)
    short = measure([query(i, n=10, permutations=6) for i in range(4)])
    found["b"]["one"] = short
    assert contrasts({TASK: found}, "a", ["tau_psi"])[0].difference.queries == 4 + 12


def test_what_cannot_be_compared_is_refused():
    found = values(a=0.3, b=0.1)
    with pytest.raises(InputError, match="no run of 'c'"):
        contrasts({TASK: found}, "c", ["tau_psi"])
    with pytest.raises(InputError, match="share no collection"):
        contrasts({TASK: {"a": {"one": found["a"]["one"]}, "b": {"two": found["b"]["two"]}}}, "a", ["tau_psi"])


def test_discordance_needs_two_variants():
    found = values(a=0.5, b=0.05)
    assert disagreement(found, "ndcg@10", "overlap").collections == 2
    assert disagreement({"a": found["a"]}, "ndcg@10", "overlap") is None


# -- the function


def by_length(query, texts):
    return [float(len(text)) for text in texts]


def by_place(query, texts):
    return [len(text) + 9.0 * place for place, text in enumerate(texts)]


@pytest.fixture(scope="module")
def audits():
    scorers = {"steady": by_length, "shaky": by_place}
    return steadyscore.audit(scorers, some_instances(8), permutations=4, match_retention=0.4, quiet=True)


def test_audits_are_compared_with_the_first_unless_a_baseline_is_named(audits):
    comparison = steadyscore.compare(audits)
    assert comparison.baseline == "steady"
    tau = next(row for row in comparison.contrasts if row.measure == "tau_psi")
    assert tau.difference.low > 0
    other = steadyscore.compare(audits, baseline="shaky", measures=["tau_psi"])
    assert other.contrasts[0].difference.value == pytest.approx(-tau.difference.value)


def test_what_differs_besides_the_scorer_is_said():
    rows = [some_instances(queries=4, candidates=size) for size in (5, 6)]
    first, other = (
        steadyscore.audit(scorer, data, permutations=m, quiet=True)
        for scorer, data, m in ((by_length, rows[0], 2), (by_place, rows[1], 3))
    )
    said = "\n".join(steadyscore.compare(first, other).missing)
    assert "data: the runs share a name and were made of different files" in said
    assert "data: the runs differ in permutations (2, 3)" in said
    same = steadyscore.audit(by_place, rows[0], permutations=2, quiet=True)
    assert steadyscore.compare(first, same).missing == ()


def test_a_comparison_prints_as_a_table_and_is_a_frame(audits):
    comparison = steadyscore.compare(audits[0], audits[1], measures=["tau_psi", "overlap"])
    assert str(comparison).splitlines()[0].split("  ")[0] == "variant"
    assert "minus steady" in str(comparison)
    assert comparison._repr_html_().count("<tr>") == 3
    pytest.importorskip("pandas")
    frame = comparison.to_pandas()
    assert list(frame["measure"]) == ["tau_psi", "overlap"]
    assert {"value", "low", "high", "queries", "adjusted_p", "wins"} <= set(frame.columns)


def test_comparing_folders_gives_what_the_command_gives(tmp_path, capsys):
    from steadyscore.cli import main

    steadyscore.audit(
        ["synthetic:slot:0.3", "synthetic:none"], some_instances(8), permutations=3, out=tmp_path, report=False, quiet=True
    )
    assert main(["compare", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(steadyscore.compare(tmp_path).to_json()))
    assert list(printed) == ["baseline", "contrasts", "discordance", "missing", "warnings", "remarks"]
    assert list(printed["contrasts"][0]) == [
        "task", "variant", "measure", "level", "baseline_level", "difference", "adjusted_p", "wins", "collections", "better",
    ]  # fmt: skip
    loaded = steadyscore.load(tmp_path)
    assert steadyscore.compare(loaded).to_json() == steadyscore.compare(tmp_path).to_json()


def test_what_the_function_cannot_compare_is_refused_with_a_sentence(audits):
    other = steadyscore.audit({"third": by_place}, some_instances(8), permutations=4, cutoff=30.0, quiet=True)
    for given, words, sentence in [
        ([], {}, "nothing to compare"),
        ([audits[0]], {}, "only steady is there to compare"),
        ([audits[0], audits[0]], {}, "is given more than once"),
        ([audits, other], {}, "different thresholds"),
        ([audits], {"measures": ["beauty"]}, "unknown measure 'beauty'"),
        ([audits], {"discordance": [("ndcg@10", "retention")]}, "retention has no better side, so no winner"),
        ([audits], {"baseline": "nobody"}, "no run of 'nobody'"),
        ([audits], {"serving_permutations": 2}, "for run folders"),
    ]:
        with pytest.raises(InputError, match=sentence):
            steadyscore.compare(*given, **words)


# -- tasks, bootstraps, winners, gains


def measured(**by_query):
    """A run of three queries with these values."""
    base = measure([query(i, n=4, permutations=2) for i in range(3)])
    values = {name.replace("_at_", "@"): np.array(found, float) for name, found in by_query.items()}
    return replace(base, query_ids=("a", "b", "c"), values=values)


def test_tasks_have_means_of_their_own_in_which_collections_weigh_the_same():
    long = measured(tau_psi=[0.4, 0.4, 0.4])
    by_task = {
        "passage_reranking": {
            "base": {"one": long, "two": long},
            "new": {"one": measured(tau_psi=[0.1, 0.1, np.nan]), "two": measured(tau_psi=[0.3, 0.3, 0.3])},
        },
        "response_ranking": {"base": {"three": long}, "new": {"three": measured(tau_psi=[0.9, 0.9, 0.9])}},
    }
    rows = contrasts(by_task, "base", ["tau_psi"])
    assert [(row.task, row.level, row.baseline_level, row.difference.value) for row in rows] == [
        ("passage_reranking", pytest.approx(0.2), pytest.approx(0.4), pytest.approx(-0.2)),
        ("response_ranking", pytest.approx(0.9), pytest.approx(0.4), pytest.approx(0.5)),
    ]
    assert rows[0].difference.queries == 5


def test_levels_and_difference_stand_on_the_same_queries():
    by_task = {TASK: {"a": {"c": measured(tau_psi=[0.1, 0.5, np.nan])}, "b": {"c": measured(tau_psi=[np.nan, 0.2, 0.9])}}}
    row = contrasts(by_task, "a", ["tau_psi"])[0]
    assert (row.level, row.baseline_level, row.difference.value) == (0.2, 0.5, pytest.approx(-0.3))


def test_the_bootstrap_can_be_chosen():
    steady = {f"c{i}": measured(tau_psi=[0.5, 0.5, 0.5]) for i in range(2)}
    moved = {"c0": measured(tau_psi=[0.1, 0.2, 0.3]), "c1": measured(tau_psi=[0.6, 0.7, 0.8])}
    by_task = {TASK: {"base": steady, "new": moved}}
    whole, inside = (
        contrasts(by_task, "base", ["tau_psi"], Bootstrap(s, 2000))[0].difference for s in ("collections", "queries")
    )
    assert whole.low <= -0.3 + 1e-9  # a draw may hold one collection twice
    assert whole.high >= 0.2 - 1e-9
    assert inside.high - inside.low < whole.high - whole.low
    assert inside.value == whole.value
    one_collection = {TASK: {name: {"c0": found["c0"]} for name, found in by_task[TASK].items()}}
    with pytest.raises(InputError, match="one cannot be drawn anew"):
        contrasts(one_collection, "base", ["tau_psi"], Bootstrap("collections"))
    with pytest.raises(InputError, match="unknown bootstrap"):
        Bootstrap("everything")


def test_winners_that_differ_are_named_for_any_pair_of_measures():
    def run(quality, decision):
        return measured(ndcg_at_10=[quality] * 3, overlap=[decision] * 3)

    found = {"sharp": {"one": run(1, 0), "two": run(1, 1)}, "calm": {"one": run(0, 1), "two": run(0, 0)}}
    between = disagreement(found, "ndcg@10", "overlap")
    assert (between.discordant, between.collections, between.winners) == (1, 2, {"one": ("sharp", "calm")})
    assert "(one: sharp, calm)" in str(between)
    assert disagreement(found, "overlap", "overlap").discordant == 0
    ranking = {"one": measured(ndcg_at_10=[2, 2, 2])}  # has no overlap, and is left out
    assert disagreement(found | {"first stage": ranking}, "ndcg@10", "overlap").winners == between.winners


def test_values_that_no_query_has_on_both_sides_are_left_out():
    by_task = {TASK: {"a": {"c": measured(tau_psi=[0.1, np.nan, np.nan])}, "b": {"c": measured(tau_psi=[np.nan, 0.2, 0.9])}}}
    assert contrasts(by_task, "a", ["tau_psi"]) == []


def test_winners_stand_on_collections_where_all_variants_have_both_measures_for_some_query():
    whole = measured(ndcg_at_10=[1, 1, 1], overlap=[0, 0, 0]), measured(ndcg_at_10=[0, 0, 0], overlap=[1, 1, 1])
    apart = (
        measured(ndcg_at_10=[1, np.nan, np.nan], overlap=[1, 1, 1]),
        measured(ndcg_at_10=[np.nan, 1, 1], overlap=[0, 0, 0]),
    )
    found = {name: {"whole": one, "apart": two} for name, one, two in zip("ab", whole, apart, strict=True)}
    for measures in (("ndcg@10", "overlap"), ("overlap", "ndcg@10")):
        between = disagreement(found, *measures)
        assert (between.collections, between.discordant, [*between.winners]) == (1, 1, ["whole"])
        assert disagreement({name: {"apart": runs["apart"]} for name, runs in found.items()}, *measures) is None


def test_tables_that_are_judged_on_other_queries_have_no_winners_and_json_stays_json():
    scores = {f"q{i}": np.random.default_rng(i).random((3, 4)) for i in range(4)}
    sides = [
        steadyscore.audit(scores=scores, relevance={id: [1, 0, 0, 0] for id in judged}, cutoff=0.5, quiet=True)
        for judged in (("q0", "q1"), ("q2", "q3"))
    ]
    named = [replace(audit, name=name) for name, (audit,) in zip("ab", sides, strict=True)]
    told = steadyscore.compare(*named).to_json()
    assert told["discordance"] == []
    assert "overlap" in {row["measure"] for row in told["contrasts"]}
    json.dumps(told, allow_nan=False)


@pytest.fixture(scope="module")
def two_tasks(tmp_path_factory):
    """Runs of two scorers on two tasks, in folders whose names do not sort as they are given."""
    folder = tmp_path_factory.mktemp("tasks")
    for data in ("passages", "responses"):
        for name, scorer in (("b", "synthetic:slot:0.5"), ("a", "synthetic:none")):
            steadyscore.audit(scorer, data, queries=6, permutations=4, out=folder / f"{name}-{data}", report=False, quiet=True)
    return [folder / f"{name}-{data}" for name in "ba" for data in ("passages", "responses")]


def test_the_baseline_is_the_first_run_named(two_tasks):
    assert steadyscore.compare(*two_tasks).baseline == "synthetic:slot:0.5"
    loaded = steadyscore.load(two_tasks[2])
    assert steadyscore.compare(two_tasks[0], loaded).baseline == "synthetic:slot:0.5"
    assert steadyscore.compare(loaded, two_tasks[0]).baseline == "synthetic:none:0.2"


def test_a_table_is_printed_for_each_task_with_the_baselines_level(two_tasks, capsys):
    from steadyscore.cli import main

    words = ["compare", *map(str, two_tasks), "--measures", "tau_psi", "--per-query", "--discordance", "tau_psi", "pair_flip"]
    assert main([*words, "--bootstrap", "queries", "--draws", "500"]) == 0
    out = capsys.readouterr().out
    assert len([line for line in out.splitlines() if line.startswith("variant ")]) == 4
    assert all(words in out for words in ("(passages)", "(responses)", "synthetic:slot:0.5's"))
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {(row["task"], row["level"]) for row in printed["contrasts"]} == {("passage_reranking", 0), ("response_ranking", 0)}
    assert all(row["baseline_level"] > 0 for row in printed["contrasts"])
    assert {row["decision"] for row in printed["discordance"]} == {"pair_flip"}
    usual = steadyscore.compare(*two_tasks).disagreements
    assert [(one.quality, one.decision) for one in usual] == [("ndcg@10", "overlap"), ("ndcg@1", "pair_flip")]
    assert [row["measure"] for row in printed["gains"]] == ["ndcg@10", "ndcg@1"]
    assert all(row["improving"] + row["regressing"] == pytest.approx(1) for row in printed["gains"])
    assert all(row["permutations"] == 4 for row in printed["gains"])


def test_reversed_leads_and_gains_are_those_that_were_planted():
    """Of four permutations one puts the variant below the baseline."""

    def a_query(name, rows):
        return Scored(name, ("a", "b"), np.arange(4), np.array(rows, float), relevance=np.array([1.0, 0.0]))

    good, bad = [1, 0], [0, 1]
    before = [a_query("q", [good, bad, bad, bad]), a_query("r", [good, good, bad, bad])]
    after = [a_query("q", [bad, good, good, good]), a_query("r", [bad, good, good, good])]
    scorers = {"base": by_length, "new": by_place}
    audits = steadyscore.audit(scorers, some_instances(2), permutations=2, cutoff=0.5, quiet=True)
    planted = [
        replace(found, queries=queries, measured=measure(queries)) for found, queries in zip(audits, (before, after), strict=True)
    ]
    gain = steadyscore.compare(*planted, per_query=True).gains[0]
    assert (gain.reversals, gain.permutations) == (1, 4)
    assert (gain.improving, gain.regressing, gain.correlation) == (1, 0, None)


def test_what_is_not_compared_is_named(two_tasks):
    comparison = steadyscore.compare(two_tasks[0], two_tasks[2], two_tasks[3])
    assert any("no run of synthetic:slot:0.5" in sentence for sentence in comparison.missing)
    with pytest.raises(InputError, match="no two runs have answer_em and overlap on one collection"):
        steadyscore.compare(*two_tasks, discordance=[("answer_em", "overlap")])


def test_runs_that_share_no_query_are_refused_with_that_count(tmp_path):
    rows = [row | {"id": f"{row['id']}-other"} for row in some_instances(2)]
    runs = [
        steadyscore.audit({name: by_place}, of, permutations=2, quiet=True)
        for name, of in (("a", some_instances(2)), ("b", rows))
    ]
    with pytest.raises(InputError, match="0 of 4 queries are shared by a and b"):
        steadyscore.compare(*runs)


def tables(sizes: tuple[int, int], candidates: tuple[int, int] = (6, 6)) -> list[steadyscore.Audits]:
    """Two tables of scores for the same queries, with so many permutations and candidates each."""
    found = []
    for m, n in zip(sizes, candidates, strict=True):
        rng = np.random.default_rng(m)
        scores = {f"q{i}": rng.random((m, n)) for i in range(8)}
        found.append(steadyscore.audit(scores=scores, relevance=dict.fromkeys(scores, [1] + [0] * (n - 1)), quiet=True))
    return found


def test_what_differs_between_tables_of_scores_is_said():
    assert "the runs differ in permutations (2, 5)" in "\n".join(steadyscore.compare(*tables((2, 5))).missing)
    said = "\n".join(steadyscore.compare(*tables((2, 3), (6, 4))).missing)
    assert "scored other candidates for 8 of 8 shared queries" in said
    moved = steadyscore.compare(*tables((3, 4)), per_query=True).gains
    assert [gain.permutations for gain in moved] == [0]  # nobody knows which orders two tables were made of


def test_another_number_of_averaged_permutations_is_said():
    rows = some_instances(queries=6, candidates=5)
    one, mean = (
        steadyscore.audit({name: by_place}, rows, permutations=6, serving_permutations=budget, quiet=True)
        for name, budget in (("one", 1), ("mean", 3))
    )
    assert "serving permutations (1, 3), which moves measures by itself." in "\n".join(steadyscore.compare(one, mean).missing)


def test_winners_are_those_of_the_queries_that_all_variants_have():
    found = values(a=0.01, b=0.3)
    worst = measure([query(i, n=10, permutations=6) for i in range(12, 40)])  # only a has these, and they are bad
    merged = found["a"]["one"]
    wide = {name: np.concatenate([merged.values[name], worst.values[name]]) for name in ("ndcg@10", "overlap")}
    found["a"]["one"] = replace(merged, query_ids=merged.query_ids + worst.query_ids, values=merged.values | wide)
    shared = disagreement(values(a=0.01, b=0.3), "ndcg@10", "overlap")
    assert disagreement(found, "ndcg@10", "overlap") == shared


# -- names and settings


BEFORE = "def score(query, texts):\n    return [float(len(text)) for text in texts]\n"
AFTER = "def score(query, texts):\n    return [float(place) for place, _ in enumerate(texts)]\n"


def test_one_function_before_and_after_a_change_is_named_by_its_folders(tmp_path, monkeypatch, capsys):
    from steadyscore.cli import main

    monkeypatch.chdir(tmp_path)
    data = str(write_collection(tmp_path / "small.jsonl", some_instances(6)))
    for folder, source in (("main", BEFORE), ("pr", AFTER)):
        (tmp_path / "changing.py").write_text(source)
        flags = ["--data", data, "--permutations", "3", "--out", f"runs/{folder}", "--no-report"]
        assert main(["audit", "--scorer", "python:changing:score", *flags]) == 0
    capsys.readouterr()
    assert main(["compare", "runs/main", "runs/pr"]) == 0
    printed = capsys.readouterr().out
    assert "minus main" in printed.splitlines()[0]
    assert {line.split()[0] for line in printed.splitlines()[1:4]} == {"pr"}
    assert main(["compare", "runs/main", "runs/pr", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["baseline"], {row["variant"] for row in found["contrasts"]}) == ("main", {"pr"})
    assert "return" not in json.dumps(found)


def test_runs_that_no_record_tells_apart_are_named_by_their_folders_beside_their_scorer(tmp_path):
    for folder in ("main", "pr"):
        for scorer in ("synthetic:slot:0.3", "synthetic:none"):
            steadyscore.audit(scorer, some_instances(6), permutations=3, out=tmp_path / folder, report=False, quiet=True)
    names = [audit.name for audit in steadyscore.compare(tmp_path / "main", tmp_path / "pr").audits]
    assert sorted(names) == [f"synthetic:{s} ({f})" for s in ("none:0.2", "slot:0.3") for f in ("main", "pr")]


def test_two_audits_in_memory_of_a_scorer_that_changed_are_numbered():
    both = [steadyscore.audit({"mine": score}, some_instances(6), permutations=3, quiet=True) for score in (by_length, by_place)]
    told = [
        replace(one[0], record=replace(one[0].record, fingerprint=Fingerprint.of({"scorer": f"{n}" * 50})))
        for n, one in enumerate(both)
    ]
    assert [audit.name for audit in steadyscore.compare(*told).audits] == ["mine (1)", "mine (2)"]


def test_every_setting_that_differs_is_said_and_how_many_queries_are_shared(tmp_path):
    ways = {"wide": {"width": 6}, "narrow": {"width": 2, "chars": 10, "seed": 7, "mitigations": ["self-consistency:2"]}}
    audits = [
        steadyscore.audit(
            {name: "synthetic:slot:0.3"}, some_instances(12)[start:stop], permutations=3, cutoff=0.5, quiet=True, **how
        )[0]
        for (name, how), (start, stop) in zip(ways.items(), ((0, 9), (6, 12)), strict=True)
    ]
    compared = steadyscore.compare(*audits)
    shared = "3 of 12 queries are shared by wide and narrow self-consistency:2; differences are of these."
    for setting in ("width (6, 2)", "chars (all, 10)", "seed (0, 7)", "mitigations (none, self-consistency:2)"):
        for text in (str(compared), json.dumps(compared.to_json()), compared._repr_html_(), "\n".join(compared.missing)):
            assert setting in text
            assert shared in text
    assert {row.difference.queries for row in compared.contrasts} == {3}
    alike = steadyscore.compare(audits[0], replace(audits[0], name="other"))
    assert not alike.missing
    for module in ("jinja2", "matplotlib"):
        pytest.importorskip(module)
    from steadyscore.report.page import write_report

    page = write_report(audits, tmp_path).read_text().replace("\u00a0", " ")
    assert "The runs differ in width (6, 2)" in page
    assert shared in page


def test_one_winner_by_both_measures_is_said_as_such():
    alike = Disagreement("passage_reranking", "ndcg@10", "overlap", 0, 2, 0.0, {})
    assert str(alike) == "The best by ndcg@10 is also the best by overlap on 2 of 2 collections."
    apart = Disagreement("passage_reranking", "ndcg@10", "overlap", 1, 2, 0.5, {"a": ("one", "two")})
    assert str(apart) == "The best by ndcg@10 is not the best by overlap on 1 of 2 collections (a: one, two)."
