"""The width study: four runs, resumed, read again from disk, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines.synthetic import Effects, PlantedGrader, judgements_by_text
from steadyscore.errors import InputError
from steadyscore.studies.width import BASES, load_width_study

HOW = {"queries": 6, "pool": 8, "width": 4, "permutations": 3, "quiet": True}


def planted(**effects):
    return PlantedGrader("planted", Effects(**effects), judgements_by_text(open_collection("passages").instances()))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return steadyscore.study_width(planted(signal=0.2, width=0.2, skeleton=0.08), "passages", out=folder, **HOW), folder


def test_the_terms_add_up_to_the_width_effect_and_to_the_levels(study):
    found, _ = study
    for basis in BASES:
        terms, levels = found.terms[basis], found.levels[basis]
        parts = sum(terms[name].value for name in ("content", "length_slot", "skeleton"))
        assert terms["width"].value == pytest.approx(parts)
        assert terms["width"].value == pytest.approx(levels["companions"].value - levels["alone"].value)
        assert terms["content"].value > 0
        assert terms["skeleton"].value > 0
        assert terms["length_slot"].value == pytest.approx(0, abs=1e-12)


def test_the_score_effect_is_the_planted_change_over_the_pooled_sd(study):
    _, folder = study
    alone, wide = (list(steadyscore.load(folder / name)[0].queries) for name in ("alone", "companions"))
    change = np.concatenate([w.permuted.mean(axis=0) - a.permuted.mean(axis=0) for w, a in zip(wide, alone, strict=True)])
    assert np.abs(change).max() == pytest.approx(0.14, abs=1e-6)  # (0.2 + 0.08) times 1/2, at the judged and the others alike
    pooled = np.concatenate([q.permuted.mean(axis=0) for q in (*alone, *wide)]).std()
    assert study[0].score_effect == pytest.approx(np.abs(change).mean() / pooled)


def test_runs_on_disk_give_the_same_study(study):
    found, folder = study
    assert load_width_study([folder]) == found


def test_two_runs_give_the_width_effect_alone(study):
    found, folder = study
    two = load_width_study([folder / "alone", folder / "companions"])
    assert two.score_effect == found.score_effect
    assert {basis: list(terms) for basis, terms in two.terms.items()} == {basis: ["width"] for basis in BASES}


def test_the_same_call_scores_nothing_again(study, monkeypatch):
    found, folder = study
    again = planted(signal=0.2, width=0.2, skeleton=0.08)
    monkeypatch.setattr(again, "grade_logits", lambda *_, **__: pytest.fail("scored again"))
    assert steadyscore.study_width(again, "passages", out=folder, **HOW) == found


def test_a_scorer_without_any_effect_has_intervals_that_hold_zero():
    found = steadyscore.study_width(planted(companion=0.5, slot=0.1), "passages", **HOW | {"permutations": 6})
    for terms in found.terms.values():
        assert terms["skeleton"].value == 0
        assert terms["content"].low <= 0 <= terms["content"].high


def test_the_command_prints_the_study_and_reads_it_again(tmp_path, capsys):
    asked = ["--data", "passages", "--queries", "3", "--pool", "6", "--width", "3", "--permutations", "2", "--out", str(tmp_path)]
    assert main(["study", "width", "--scorer", "synthetic:slot", *asked, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert set(first["levels"][BASES[0]]) == {"companions", "fillers", "alone"}  # a reranker has no fixed answer
    assert first["terms"][BASES[0]]["skeleton"]["value"] == 0
    assert main(["study", "width", "--runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(["study", "width", "--runs", str(tmp_path)]) == 0
    assert "length and slot" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--data", "passages"], 2, "--scorer is missing; or name finished runs with --runs."),
        (["--runs", "x", "--scorer", "synthetic:slot"], 2, "--runs reads finished runs; leave out --scorer."),
        (["--scorer", "synthetic:slot", "--data", "passages", "--out", "o", "--width", "1"], 1, "compares a width with 1"),
    ],
)
def test_bad_input_is_one_sentence(arguments, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "width", *arguments]) == code
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_runs_that_do_not_fit_are_refused(study):
    _, folder = study
    with pytest.raises(InputError, match="no run under the condition alone"):
        load_width_study([folder / "companions"])
    with pytest.raises(InputError, match="both scored under the condition companions"):
        load_width_study([folder / "companions", folder])


def test_runs_of_other_candidates_or_of_another_scorer_are_refused(study, tmp_path):
    _, folder = study
    common = {"width": 1, "queries": 8, "report": False}
    steadyscore.audit("synthetic:companion:0.1", "passages", pool=6, out=tmp_path / "small", **common)
    with pytest.raises(InputError, match=r"different candidates|different scorers"):
        load_width_study([folder / "companions", tmp_path / "small"])
    steadyscore.audit("synthetic:slot:0.9", "passages", out=tmp_path / "other", **common)
    with pytest.raises(InputError, match="different scorers"):
        load_width_study([folder / "companions", tmp_path / "other"])
