"""The benchmarks of bench/: what is fitted, what is refused, and the harness on a small model, by tokens and not by time."""

import ast
import importlib
import sys

import numpy as np
import pytest

from tests.helpers.paths import ROOT


@pytest.fixture(scope="module")
def bench():
    """The folder's modules, which import each other as scripts do."""
    names = ("contenders", "turns", "bench_scoring", "bench_growth")
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(ROOT / "bench"))
        for name in names:
            sys.modules.pop(name, None)


def row(bench, name, scores, *, case=None, expected=None, processor=1.0, tokens=0):
    """A row whose readings gave these scores and took so long."""
    contender = next(c for c in bench["contenders"].CONTENDERS if c.name == name)
    made = bench["turns"].Row(contender, case or bench["contenders"].Case(pool=2))
    made.scores = [np.array(each, dtype=float) for each in scores]
    made.expected = None if expected is None else np.array(expected, dtype=float)
    made.readings = [bench["turns"].Timed(2 * processor, processor, tokens, 0.0, 100.0)]
    return made


@pytest.mark.parametrize("script", [*ROOT.glob("bench/*.py"), *ROOT.glob("lab/*.py")], ids=lambda script: script.stem)
def test_what_a_script_takes_from_the_package_is_there(script):
    """Scripts that no test runs, since they need servers, models or hours."""
    for taken in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(taken, ast.ImportFrom) and (taken.module or "").partition(".")[0] == "steadyscore":
            known = set(dir(importlib.import_module(taken.module)))
            modules = {name for name in (alias.name for alias in taken.names) if name not in known}
            for name in modules:
                importlib.import_module(f"{taken.module}.{name}")


# -- fits


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.7, 2.0])
def test_a_planted_exponent_is_recovered_exactly(bench, exponent):
    sizes = [2, 4, 8, 16, 32]
    assert bench["bench_growth"].fit(sizes, [3 * size**exponent for size in sizes]) == pytest.approx([exponent] * 3, abs=1e-9)


def test_the_interval_covers_a_planted_exponent_under_noise(bench):
    """Of 400 draws, 95 % within what chance explains at 4 standard errors: the draws are the same every time."""
    sizes, random = np.array([2, 4, 8, 16, 32]), np.random.default_rng(0)
    fits = [bench["bench_growth"].fit(sizes, sizes**1.5 * np.exp(random.normal(0, 0.1, 5))) for _ in range(400)]
    covered = np.mean([fitted.low <= 1.5 <= fitted.high for fitted in fits])
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 400)


def test_a_line_that_is_not_straight_has_a_wide_interval(bench):
    fitted = bench["bench_growth"].fit([1, 2, 4, 8], [10 + size**2 for size in (1, 2, 4, 8)])
    assert fitted.high - fitted.low > 0.5


def test_a_cost_planted_in_a_run_is_found_on_each_axis(bench):
    growth, contenders = bench["bench_growth"], bench["contenders"]
    grid = growth.grids(16, 4, 4)
    planted = {"queries": 1.0, "orders": 0.5, "pool": 2.0, "chars": 1.5, "width": 0.25}

    def seconds(case):
        return 0.01 * np.prod([float(getattr(case, axis)) ** exponent for axis, exponent in planted.items()])

    rows = [
        row(bench, f"ours, float32, {kind}", [[0.5]], case=case, processor=seconds(case), tokens=case.pool)
        for kind in growth.KINDS
        for case in dict.fromkeys(case for cases in grid.values() for case in cases)
    ]
    found = growth.exponents(rows, grid, "processor")
    assert {key: fitted.exponent for key, fitted in found.items()} == pytest.approx(
        {
            (axis, kind): exponent
            for axis, exponent in planted.items()
            for kind in growth.KINDS
            if (axis, kind) != ("width", "set")
        }
    )
    assert "| pool | 4, 32 | 2.00 [2.00, 2.00] | 2.00 [2.00, 2.00] | 2.00 [2.00, 2.00] | 1.00, 1.00, 1.00 |" in growth.table(
        rows, grid
    )
    assert contenders.Case(pool=16, width=4) in grid["orders"]


# -- what is compared


def test_equal_scores_are_compared_and_the_difference_is_kept(bench):
    rows = [
        row(bench, "transformers, float32, causal", [[0.25, 0.5]]),
        row(bench, "ours, float32, causal", [[0.25, 0.50005]], expected=[0.25, 0.5], processor=0.5),
    ]
    bench["turns"].compare(rows)
    assert rows[1].difference == pytest.approx(5e-5)
    assert bench["bench_scoring"].speed(rows[1], rows) == 2.0
    assert "| 2 | ours, causal | float32 | 1.00 | 0.50 | 2.00x | | 100 | 5.0e-05 |" in bench["bench_scoring"].table(rows).replace(
        "  |", " |"
    )


@pytest.mark.parametrize(
    ("name", "scores", "expected"),
    [
        ("ours, float32, causal", [[0.25, 0.51]], None),
        ("ours, float32, causal", [[0.25, 0.5], [0.25, 0.51]], None),
        ("ours, float32, causal", [[0.25, float("nan")]], None),
        ("llama.cpp, Q4_1, causal", [[float("nan")] * 2], None),
        ("ours, float32, isolated", [[0.25, 0.5]], [0.25, 0.6]),
        ("llama.cpp, Q4_1, causal", [[float("nan"), 0.6]], None),
    ],
    ids=["one reading", "a later reading", "a score is missing", "nothing read", "its own plain pass", "four bits"],
)
def test_unequal_outputs_are_refused(bench, name, scores, expected):
    rows = [row(bench, "transformers, float32, causal", [[0.25, 0.5]]), row(bench, name, scores, expected=expected)]
    with pytest.raises(bench["turns"].Unequal, match=r"scores 2 candidates otherwise, by .*: not compared"):
        bench["turns"].compare(rows)


def test_half_precision_and_four_bits_may_differ_more(bench):
    rows = [
        row(bench, "transformers, float32, causal", [[0.25, 0.5]]),
        row(bench, "ours, bfloat16, causal", [[0.25, 0.51]]),
        row(bench, "llama.cpp, Q4_1, causal", [[float("nan"), 0.51]]),
    ]
    bench["turns"].compare(rows)
    assert [each.difference for each in rows[1:]] == pytest.approx([0.01, 0.01])


def test_what_reads_something_else_is_a_row_of_its_times_and_never_ranked(bench):
    rows = [
        row(bench, "transformers, float32, causal", [[0.25, 0.5]]),
        row(bench, "rank-llm, bfloat16", [[2, 1]], processor=0.1),
        row(bench, "cross-encoder 22M, float32", [[7, -7]], processor=0.1),
    ]
    bench["turns"].compare(rows)
    assert [bench["bench_scoring"].speed(each, rows) for each in rows] == [1.0, None, None]
    text = bench["bench_scoring"].table(rows)
    assert "time only: writes an order" in text
    assert "time only: random weights" in text


def test_one_candidate_a_prompt_is_compared_with_rerankers_alone(bench):
    rows = [
        row(bench, "transformers, float32, causal", [[0.25, 0.5]], processor=8.0),
        row(bench, "rerankers, float32, pointwise", [[4.0, -3.0]], processor=4.0),
        row(bench, "ours, float32, pointwise", [[4.0002, -3.0]], processor=2.0),
    ]
    bench["turns"].compare(rows)
    assert bench["bench_scoring"].speed(rows[2], rows) == 2.0


def test_one_that_cannot_be_opened_says_why(bench):
    refused = bench["turns"].Row(bench["contenders"].CONTENDERS[-3], reason="ModuleNotFoundError: No module named 'vllm'")
    assert "| | rank-llm | bfloat16 | not run: ModuleNotFoundError: No module named 'vllm' |" in bench["bench_scoring"].table(
        [refused]
    )


# -- the harness itself


def test_the_texts_of_a_case_have_its_length_and_differ(bench):
    case = bench["contenders"].Case(queries=2, pool=8, orders=3, chars=700)
    pools = bench["contenders"].shown(case)
    texts = [candidate.text for pool, _ in pools for candidate in pool.pool]
    assert {len(text) for text in texts} == {700}
    assert len(set(texts)) == 16
    assert [orders.shape for _, orders in pools] == [(3, 8)] * 2


@pytest.fixture(scope="module")
def counted(bench, tmp_path_factory):
    """What each kind of windows reads on a small model, without a process: tokens, which are the same on every machine."""
    from steadyscore.models.embedded import EMBEDDED, is_present

    contenders = bench["contenders"]
    if not is_present(EMBEDDED["smollm2-135m"]):
        pytest.skip("the embedded model's tokenizer is not in the cache; `make setup` fetches it")
    return {c.layout: contenders.open_contender(c, contenders.TINY_MODEL) for c in contenders.OURS if c.precision == "float32"}


@pytest.mark.parametrize(("kind", "exponent"), [("causal", (0.85, 1.0)), ("isolated", (0.2, 0.8)), ("set", (-1e-9, 1e-9))])
def test_tokens_grow_with_orders_as_the_kind_of_windows_says(bench, counted, kind, exponent):
    """Causal windows are read anew in every order but for what they share, isolated texts once; a set has no order."""
    cases = [bench["contenders"].Case(pool=4, width=2, orders=orders, chars=60) for orders in (1, 2, 4)]
    answers = [counted[kind](case) for case in cases]
    assert [answer.scores.shape for answer in answers] == [(1, orders, 4) for orders in (1, 2, 4)]
    fitted = bench["bench_growth"].fit([1, 2, 4], [answer.tokens for answer in answers])
    assert exponent[0] <= fitted.exponent <= exponent[1]


@pytest.mark.parametrize("kind", ["causal", "isolated", "set"])
def test_every_kind_of_windows_scores_as_plain_passes_do(bench, counted, kind):
    case = bench["contenders"].Case(queries=2, pool=4, width=2, orders=2, chars=60)
    assert counted[kind](case).scores == pytest.approx(counted[kind].prepare(case), abs=1e-5)


def test_contenders_in_processes_take_turns_and_one_that_is_missing_says_so(bench, counted, monkeypatch, tmp_path):
    contenders, turns = bench["contenders"], bench["turns"]
    chosen = [c for c in contenders.CONTENDERS if c.name in ("ours, float32, causal", "llama.cpp, Q4_1, causal")]
    missing = tmp_path / "xllamacpp.py"
    missing.write_text("raise ImportError('it is not here')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    case = contenders.Case(pool=2, width=2, chars=60)
    record = turns.run(chosen, [case], [case], contenders.TINY_MODEL, rounds=2, threads=1)
    ours, llama = record["rows"]
    assert len(ours.readings) == 2
    assert ours.difference < 1e-5
    assert llama.reason == "ImportError: it is not here"
    turns.write(record, tmp_path / "run.json")
    assert '"tokens"' in (tmp_path / "run.json").read_text()


# -- the page


def test_the_page_tells_what_its_files_hold(bench):
    page, files = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8"), ROOT / "docs/images"
    read, growth = bench["turns"].read, bench["bench_growth"]
    assert bench["bench_scoring"].table(read(files / "benchmarks-scoring.json")["rows"]) in page
    record = read(files / "benchmarks-growth-embedded.json")
    assert growth.table(record["rows"], growth.grids(**record["grid"])) in page
