"""From a recipe to a table: scored once, resumed, shared, shown in four formats; and what is refused, in one sentence."""

import io
import json
import random
import re
from dataclasses import replace
from functools import cache

import pandas as pd
import pytest

from steadyscore.cli import main
from steadyscore.commands import reproduce
from steadyscore.engines import EngineOptions
from steadyscore.errors import InputError
from steadyscore.paper.artifacts import ARTIFACTS
from steadyscore.paper.data import data_of
from steadyscore.paper.jobs import job_of, jobs_of, need_of, request_of, requests_of
from steadyscore.paper.layout import fill
from steadyscore.paper.library import At, Library
from steadyscore.paper.plan import plan_of
from steadyscore.paper.recipe import Request, Side
from steadyscore.paper.render import FORMATS, Shown, to_csv, to_html, to_latex, to_text
from steadyscore.paper.scale import choices_from
from steadyscore.paper.work import Store, Workshop
from steadyscore.runs.folder import find_runs

TINY = choices_from("tiny")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with the runs of two small tables, made by the command line."""
    folder = tmp_path_factory.mktemp("paper")
    assert main(["reproduce", "run", "rr-pairflip", "reportedscore", "--store", str(folder), "--json"]) == 0
    return Store(folder)


def show(store, name, choices=TINY):
    return fill(ARTIFACTS[name], Library(store, choices))


def test_every_cell_of_a_finished_table_has_a_value_and_a_basis(store):
    filled = show(store, "rr-pairflip")
    assert filled.counts() == (30, 30)
    for row in filled.grids[0].values:
        for value in row:
            assert 0 <= value.value <= 1
            assert value.low <= value.value <= value.high
            assert (value.basis.collections, value.basis.seeds) == (1, 1)


def test_the_planted_ordering_comes_back(store):
    first, *_, last = zip(*[[v.value for v in row] for row in show(store, "rr-pairflip").grids[0].values], strict=True)
    assert sum(first) > 2 * sum(last)  # off the shelf flips more than twice as often as OC-SFT, as planted


def test_a_run_that_two_tables_need_is_scored_once(store):
    keys = [
        {job.content.key for job in jobs_of(requests_of(ARTIFACTS[name].cells(), TINY), TINY)}
        for name in ("rr-pairflip", "reportedscore")
    ]
    assert len(keys[0] & keys[1]) == 5
    assert {folder.name for folder in (store.folder / "runs").iterdir()} == keys[0] | keys[1]


def test_running_again_scores_nothing_again(store, capsys):
    before = {run.folder: run.record.sessions for run in find_runs([store.folder / "runs"])}
    assert main(["reproduce", "run", "rr-pairflip", "--store", str(store.folder)]) == 0
    assert {run.folder: run.record.sessions for run in find_runs([store.folder / "runs"])} == before
    assert "30 of 30 runs are complete" in capsys.readouterr().out


def test_runs_that_cannot_be_made_are_not_counted(tmp_path, capsys):
    assert main(["reproduce", "run", "levels", "--scale", "paper", "--stage", "score", "--store", str(tmp_path)]) == 4
    assert re.match(r"0 of [1-9]\d* runs are complete", capsys.readouterr().out)


TOGETHER = (
    "pool-controls", "amort", "qa-transfer-reader", "amortconsumers", "width-controls", "phenomenon", "downstream", "qa-width",
)  # fmt: skip
"""Tables that share runs at ten and at forty permutations, some of which have changed pools, readers and a noise floor too."""


def printed_after(names, folder):
    """Each table as CSV once all of them are scored into one store, in this order; what was printed before stays as it was."""
    tables = {}
    for name in names:
        assert main(["reproduce", "run", name, "--store", str(folder), "--json"]) == 0
        for known in [*tables, name]:
            assert tables.setdefault(known, table := to_csv(show(Store(folder), known), Shown())) == table
    return tables


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return cache(lambda name: printed_after([name], tmp_path_factory.mktemp(name))[name])


@pytest.mark.slow  # minutes: four of the tables together, and each alone
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tables_do_not_depend_on_what_else_is_scored_or_in_which_order(alone, tmp_path, seed):
    names = random.Random(seed).sample(TOGETHER, 4)
    assert printed_after(names, tmp_path) == {name: alone(name) for name in names}


def test_a_larger_run_hides_nothing_of_a_smaller_one(tmp_path):
    store, workshop = Store(tmp_path), Workshop(Store(tmp_path), TINY, EngineOptions(), quiet=True)
    side = Side("off-the-shelf", collections="hotpotqa", seeds=(0,), reader="first", permutations=3)
    jobs = [
        job_of(request_of(one, "qwen3-4b", 0, "hotpotqa"), frozenset({need_of(one)}), TINY)
        for one in (side, replace(side, reader="", permutations=5))
    ]
    read = []
    for done, job in enumerate(jobs, start=1):
        assert store.unmet(job, TINY)
        workshop.do(job, print)
        assert [bool(store.unmet(each, TINY)) for each in jobs] == [False] * done + [True] * (2 - done)
        read.append(Library(store, TINY).observation(At(side, "qwen3-4b", 0, "hotpotqa"), "answer_flip").values.tolist())
    assert read[0] == read[1]
    assert len(list((tmp_path / "runs").glob("*/m*"))) == 2


def test_a_reader_counts_as_many_orders_as_the_cell(tmp_path):
    """A run of forty orders, all of them read, and a cell of ten: its flips are those of a run of ten."""
    at = {"system": "off-the-shelf", "base": "qwen3-4b", "collections": "hotpotqa", "seeds": (0,), "reader": "first"}
    for folder, sizes in (("ten", (10,)), ("forty", (40, 10))):
        for size in sizes:
            side = Side(**at, permutations=size)
            job = job_of(request_of(side, "qwen3-4b", 0, "hotpotqa"), frozenset({need_of(side)}), TINY)
            Workshop(Store(tmp_path / folder), TINY, EngineOptions(), quiet=True).do(job, print)
    place = At(Side(**at), "qwen3-4b", 0, "hotpotqa")
    ten, forty = (Library(Store(tmp_path / folder), TINY).observation(place, "answer_flip") for folder in ("ten", "forty"))
    assert [path.name for path in (tmp_path / "forty/runs").glob("*/m*")] == ["m40"]
    assert ten.values.tolist() == forty.values.tolist()
    larger = place._replace(side=Side(**at, permutations=40))
    all_read = Library(Store(tmp_path / "forty"), TINY).observation(larger, "answer_flip")
    assert all_read.values.tolist() != ten.values.tolist()


def test_a_run_says_in_words_what_its_key_means(store):
    for folder in (store.folder / "runs").iterdir():
        what = json.loads((folder / "what.json").read_text())
        assert {"scorer", "data", "width", "mitigation"} <= set(what)


def test_text_shows_values_basis_and_the_papers_own(store):
    text = to_text(show(store, "rr-pairflip"), Shown(paper=True))
    assert re.search(r"RewardBench-2 .*\(0\.763\)", text)
    assert re.search(r"^\d+ queries of 1 collection: \d+ cells$", text, re.M)
    assert "not a result" in text


def test_html_says_of_every_cell_what_it_is_made_from(store):
    page = to_html(show(store, "rr-pairflip"), Shown())
    cells = re.findall(r'<td title="([^"]*)">', page)
    assert len(cells) == 30
    assert all(re.match(r"\d+ queries of 1 collection, 95 % interval", cell) for cell in cells)


def test_csv_is_read_by_pandas_with_types(store):
    frame = pd.read_csv(io.StringIO(to_csv(show(store, "reportedscore"), Shown(paper=True))))
    assert len(frame) == 30
    assert frame["value"].dtype == frame["low"].dtype == float
    assert frame["queries"].dtype == frame["seeds"].dtype == int
    assert frame["bold"].dtype == bool
    gap = frame[frame["column"] == "Gap"]
    assert (gap["low"] <= gap["value"]).all()
    assert (gap["value"] <= gap["high"]).all()
    assert gap["paper"].tolist() == ["−0.136", "−0.031", "+0.047", "+0.019", "−0.110"]


def columns_of(row):
    """Columns that a row of a LaTeX table fills."""
    cells = re.split(r"(?<!\\)&", row)
    return sum(int(found[1]) if (found := re.match(r"\s*\\multicolumn\{(\d+)\}", cell)) else 1 for cell in cells)


@pytest.mark.parametrize("name", ["rr-pairflip", "reportedscore", "levels", "grids-ndcg"])
def test_latex_is_a_booktabs_table_whose_rows_fill_its_columns(store, name):
    """Cells that are not run print as a dash, so that any table can be parsed."""
    text = to_latex(show(store, name), Shown(paper=True, intervals=True))
    plain = re.sub(r"(?<!\\)%.*", "", text)
    assert plain.count(r"\begin{") == plain.count(r"\end{")
    assert len(re.findall(r"(?<!\\)[{]", plain)) == len(re.findall(r"(?<!\\)[}]", plain))
    assert len(re.findall(r"(?<!\\)\$", plain)) % 2 == 0
    assert plain.isascii()
    for spec, body in re.findall(r"\\begin\{tabular\}\{([lr]*)\}(.*?)\\end\{tabular\}", plain, re.S):
        assert [rule for rule in ("toprule", "midrule", "bottomrule") if body.count(f"\\{rule}") != 1] == []
        rows = re.sub(r"\\(toprule|midrule|bottomrule|addlinespace)|\\cmidrule\(lr\)\{[\d-]+\}", "", body).split(r"\\")
        assert {columns_of(row) for row in rows if row.strip()} == {len(spec)}


@pytest.mark.parametrize("format", FORMATS)
def test_show_prints_every_format(store, format, capsys):
    assert main(["reproduce", "show", "rr-pairflip", "--store", str(store.folder), "--format", format]) == 0
    assert "RewardBench-2" in capsys.readouterr().out


def test_intervals_are_the_papers_percentiles_or_an_audits_on_request(store, capsys):
    printed = []
    for flags in ([], ["--expanded"]):
        assert main(["reproduce", "show", "reportedscore", "--store", str(store.folder), *flags]) == 0
        printed.append(capsys.readouterr().out)
    gaps = [
        [float(x) for x in re.search(r"^Nectar .*\[(\S+), (\S+)\]", text.replace("−", "-"), re.M).groups()] for text in printed
    ]
    assert gaps[1][0] <= gaps[0][0] < gaps[0][1] <= gaps[1][1]  # five prompts: an audit's is wider
    assert gaps[0] != gaps[1]
    assert "as `audit` reads them" in printed[1]


def test_half_finished_seeds_give_no_mean_and_say_so(store):
    filled = show(store, "labelcrossing")
    value = filled.grids[0].values[0][6]  # OC-SFT's column is a mean over three seeds, and one is scored
    assert value.value is None
    assert re.match(r"1 of 3 seeds are complete: oc-sft of qwen3-4b, seed 43, on rewardbench2 is not scored yet", value.reason)


def test_a_table_that_is_not_run_says_what_is_missing(tmp_path):
    filled = show(Store(tmp_path), "rr-pairflip")
    assert filled.counts() == (0, 30)
    assert "off-the-shelf of qwen3-4b on rewardbench2 is not scored yet." in {reason for reason, _ in filled.reasons()}
    assert not list(tmp_path.iterdir())


def test_a_run_of_the_user_takes_the_place_of_ours_where_it_fits(store):
    run = next(r for r in find_runs([store.folder / "runs"]) if r.record.collection == "responses, part 1 of 5")
    choices = choices_from("tiny", runs={"off-the-shelf/rewardbench2": str(run.folder)})
    assert show(store, "rr-pairflip", choices).grids[0].values[0][0].value is not None


def test_a_run_that_does_not_fit_is_refused_in_one_sentence(store):
    run = next(r for r in find_runs([store.folder / "runs"]) if r.record.collection == "responses, part 1 of 5")
    choices = choices_from("tiny", runs={"off-the-shelf/nectar": str(run.folder)})
    reason = show(store, "rr-pairflip", choices).grids[0].values[1][0].reason
    assert re.fullmatch(r".* scored responses, part 1 of 5, not responses, part 2 of 5\. Name a run of .*\.", reason)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "tab:level"], "the paper has no table or figure 'tab:level'. Did you mean levels?"),
        (["show", "levels", "--adapter", "oc=nowhere"], "adapters: 'oc' is not a system."),
        (["plan", "levels", "--collection", "dl18=x.jsonl"], "collections: 'dl18' is not in the paper's tables."),
        (["plan", "levels", "--base", "a", "--base", "b"], "--base names 2 models for all bases."),
        (["plan", "levels", "--system", "gpt-5.4"], "--system gpt-5.4: write --system NAME=VALUE."),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_1(arguments, said, tmp_path, capsys):
    assert main(["reproduce", *arguments, "--store", str(tmp_path)]) == 1
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("flags", "dtype"), [(["--scale", "paper"], "bfloat16"), (["--scale", "tiny"], "float32"),
                                              (["--scale", "paper", "--set", "dtype=float32"], "float32")])  # fmt: skip
def test_models_score_in_bfloat16_at_the_papers_scale_unless_a_flag_says_otherwise(flags, dtype, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(reproduce, "Workshop", lambda store, choices, options, *rest, **named: seen.append(options))
    assert main(["reproduce", "run", "taskconfig", *flags, "--store", str(tmp_path)]) == 0
    assert [options.dtype for options in seen] == [dtype]


def test_the_plan_says_how_each_kind_of_collection_is_got(tmp_path):
    missing = "\n".join(
        plan_of([ARTIFACTS["firststage"], ARTIFACTS["public-full"]], choices_from("paper"), Store(tmp_path)).missing
    )
    assert "NFCorpus is not on this machine. Get it with: steadyscore data get nfcorpus\n" in missing
    assert "SciFact is not on this machine. Get it with: steadyscore data get scifact --verdicts FILE" in missing
    assert re.search(
        r"Robust04 is not on this machine\. Get it with: sign NIST's .*; steadyscore data build robust04 --from", missing
    )
    assert re.search(
        r"DL19 with the first stage bge .*: steadyscore data get dl19 --first-stage dense:\S+ --out \S+dl19-bge", missing
    )
    assert "Legal-A is private" in missing


def test_a_collection_of_the_user_is_not_rearranged_into_another_first_stage_at_the_papers_scale():
    given = {"collections": {"dl19": "mine.jsonl"}}
    plain, dense = (Request("oc-sft", "qwen3-4b", 42, "dl19", first_stage=stage) for stage in ("", "bge"))
    assert data_of(plain, choices_from("paper", **given)).value["collection"] == "mine.jsonl"
    assert data_of(dense, choices_from("paper", **given)).value == {
        "collection": "dl19-bge", "part": None, "arrangement": "first-stage", "first_stage": "",
    }  # fmt: skip
    assert data_of(dense, choices_from("tiny", **given)).value["first_stage"] == "bge"


def test_the_plan_of_the_papers_scale_names_what_is_missing(tmp_path, capsys):
    assert main(["reproduce", "plan", "pairrm", "--scale", "paper", "--store", str(tmp_path), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {run["system"] for run in plan["runs"]} == {"Pointwise labels, B=1", "PairRM", "Skywork", "OC-SFT"}
    assert sum(run["windows"] for run in plan["runs"]) > 10_000
    assert {t["system"] for t in plan["trainings"]} == {"pointwise", "oc-sft"}
    assert "Nectar is not on this machine. Get it with: steadyscore data get nectar" in plan["missing"]


def test_a_missing_system_says_how_to_name_it(tmp_path, capsys):
    assert main(["reproduce", "plan", "tab:levels", "--scale", "paper", "--store", str(tmp_path)]) == 0
    assert "gpt-5.4 has no address. Name one: --system gpt-5.4=ADDRESS" in capsys.readouterr().out


def test_the_users_own_take_the_place_of_the_papers():
    given = choices_from("paper", base="smollm2-135m", systems={"gpt-5.4": "synthetic:ties"}, collections={"dl19": "passages"})
    jobs = jobs_of(requests_of(ARTIFACTS["levels"].cells(), given), given)
    assert {job.scoring.address for job in jobs if job.request.system == "gpt-5.4"} == {"synthetic:ties"}
    assert {job.scoring.address for job in jobs if job.request.system == "off-the-shelf"} == {"smollm2-135m"}
    assert {job.data.value["collection"] for job in jobs if job.request.collection == "dl19"} == {"passages"}


def test_choices_are_read_from_a_file_and_every_mistake_is_named(tmp_path):
    file = tmp_path / "choices.toml"
    file.write_text('base = "smollm2-135m"\nseeds = [1]\n[readers]\nfirst = "smollm2-135m"\n')
    assert choices_from("laptop", file).reader_address("first") == "smollm2-135m"
    file.write_text('bass = "x"\n[bases]\nqwen = "y"\n')
    with pytest.raises(InputError, match=r"unknown key 'bass'[\s\S]*'qwen' is not in the paper's tables"):
        choices_from("laptop", file)
    file.write_text('bases = 3\nseeds = ["a"]\nbase = 2026-01-01\n[runs]\nx = 4\n')
    with pytest.raises(InputError, match=r"bases: input should be an object[\s\S]*seeds: 0: [\s\S]*runs: x: "):
        choices_from("laptop", file)


def test_a_diagram_says_that_there_is_nothing_to_measure(tmp_path, capsys):
    assert main(["reproduce", "show", "remedies", "--store", str(tmp_path)]) == 0
    assert "is a diagram" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(2_700)  # all tables in six forms; others may share the processors
def test_every_artifact_runs_end_to_end_at_the_tiny_scale(tmp_path, capsys):
    """A small pool has no later slots, and reads of other evidence cannot be compared; every other cell has a number."""
    assert main(["reproduce", "run", "all", "--store", str(tmp_path), "--json"]) == 0
    library = Library(Store(tmp_path), TINY)
    known = ("no window has", "no query has the same evidence")
    for artifact in (a for a in ARTIFACTS.values() if not a.is_diagram):
        filled = fill(artifact, library)
        assert [reason for reason, _ in filled.reasons() if not any(word in reason for word in known)] == [], artifact.name
        for draw in FORMATS.values():
            assert draw(filled, Shown(True, True))
    capsys.readouterr()
    assert main(["reproduce", "list", "--store", str(tmp_path), "--json"]) == 0
    statuses = {row["name"]: row["status"] for row in json.loads(capsys.readouterr().out)}
    assert {name for name, status in statuses.items() if status != "complete"} == {"remedies"}
