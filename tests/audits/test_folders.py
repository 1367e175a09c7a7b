"""The layout of `--out` is the same for one scorer and for several, and that of earlier versions is read and gone on with."""

import shutil

import pytest

import steadyscore
from steadyscore.audits.audit import decision_folders
from steadyscore.errors import InputError, RunMismatch

ROWS = [
    {"id": f"q{q}", "query": f"thing {q}", "candidates": [{"id": f"d{c}", "text": f"{q} {'x' * c}"} for c in range(4)]}
    for q in range(3)
]


def audit(scorer, out, **settings):
    return steadyscore.audit(scorer, ROWS, permutations=2, keep_first=2, out=out, report=False, quiet=True, **settings)


def places(out):
    return sorted(str(file.parent.relative_to(out)) for file in out.glob("**/run.json"))


def test_a_scorer_has_the_same_place_alone_and_beside_others(tmp_path):
    audit("synthetic:slot", tmp_path / "one")
    audit(["synthetic:slot", "synthetic:none"], tmp_path / "two")
    assert places(tmp_path / "one") == ["data/synthetic-slot"]
    assert places(tmp_path / "two") == ["data/synthetic-none", "data/synthetic-slot"]


def test_a_scorer_that_comes_later_stands_beside_the_first(tmp_path):
    calls = []

    def counted(query, texts):
        calls.append(query)
        return [len(text) for text in texts]

    (first,) = audit({"mine": counted}, tmp_path)
    audit("synthetic:none", tmp_path)
    before = len(calls)
    together = audit({"mine": counted, "synthetic:none": "synthetic:none"}, tmp_path)
    assert len(calls) == before + 3, "one window of three stored queries, and nothing else, is scored twice"
    assert together[0].figures == first.figures
    assert [one.name for one in steadyscore.load(tmp_path)] == ["mine", "synthetic:none:0.2"]
    with pytest.raises(InputError, match=r"holds 2 runs, and one is asked for here.*data/mine, data/synthetic-none"):
        steadyscore.recommend(tmp_path, target="tau_psi=0.2")


def as_before(out):
    """One scorer on one collection as earlier versions wrote it: in `out` itself."""
    (file,) = out.glob("**/run.json")
    for each in file.parent.iterdir():
        shutil.move(each, out / each.name)
    shutil.rmtree(file.parent.parent)


def test_a_run_of_an_earlier_version_is_read_and_grows_where_it_is(tmp_path):
    (first,) = audit("synthetic:slot", tmp_path, queries=2)
    as_before(tmp_path)
    assert steadyscore.load(tmp_path)[0].figures == first.figures
    (grown,) = audit("synthetic:slot", tmp_path)
    assert (grown.folder, grown.measured.coverage.queries) == (tmp_path, 3)
    assert places(tmp_path) == ["."]
    with pytest.raises(RunMismatch, match="scorer was"):
        audit("synthetic:none", tmp_path)
    audit(["synthetic:none", "synthetic:companion"], tmp_path)
    assert [one.name.split(":")[1] for one in steadyscore.load(tmp_path)] == ["slot", "companion", "none"]


def test_scores_of_a_file_have_a_place_of_their_own(tmp_path):
    given = {"q": [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]}
    for _ in range(2):
        steadyscore.audit(scores=given, out=tmp_path, report=False)
    assert places(tmp_path) == ["scores/scores"]


def test_a_share_is_matched_to_one_run(tmp_path):
    audit(["synthetic:slot", "synthetic:none"], tmp_path)
    with pytest.raises(InputError, match=r"holds 2 runs on data\. Name the one to match: "):
        steadyscore.audit("synthetic:slot", ROWS, permutations=2, match_retention=tmp_path, quiet=True)


def test_an_audit_of_decisions_has_a_folder_for_every_model(tmp_path):
    assert decision_folders(tmp_path, ["a:b"]) == [tmp_path / "a-b"]
    assert decision_folders(tmp_path, ["a:b", "c"]) == [tmp_path / "a-b", tmp_path / "c"]
    (tmp_path / "decision-run.json").touch()
    assert decision_folders(tmp_path, ["a:b"]) == [tmp_path]


def test_two_runs_that_would_share_a_folder_are_refused_before_anything_is_scored(tmp_path):
    asked = []
    twins = {name: lambda query, texts: asked.append(query) or [0.5] * len(texts) for name in ("модель-α", "модель-β")}
    with pytest.raises(InputError, match="would be kept in one folder"):
        steadyscore.audit(twins, "passages", out=tmp_path / "runs")
    assert not asked
