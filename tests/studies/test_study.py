"""The shared runner: variants are runs in folders of their names, one after the other, resumed; kept scores have none."""

from __future__ import annotations

import pytest

import steadyscore
from steadyscore.audits.audit import ScorerInput
from steadyscore.engines import EngineOptions
from steadyscore.errors import InputError
from steadyscore.scoring.config import AuditConfig
from steadyscore.studies.study import Variant, open_one, run_variants
from tests.helpers.pools import some_instances, write_collection


def run_two(given, folder):
    source = open_one(given, "a test")
    return run_variants(given, source, lambda plain: {name: Variant(plain, source) for name in ("one", "two")}, folder)


def test_every_variant_is_a_run_in_the_folder_of_its_name_and_is_scored_once(tmp_path):
    calls = []

    def counting(query, texts):
        calls.append(query)
        return [float(len(text)) for text in texts]

    given = ScorerInput({"mine": counting}, [some_instances(3)], AuditConfig(permutations=2), EngineOptions(), None, quiet=True)
    runs = run_two(given, tmp_path)
    name, run = next(runs)
    assert (name, run.is_complete, run.folder, (tmp_path / "two").exists()) == ("one", True, tmp_path / "one", False)
    assert [name for name, _ in runs] == ["two"]
    asked = len(calls)
    again = dict(run_two(given, tmp_path))
    assert all(run.is_complete for run in again.values())
    assert len(calls) - asked <= 2 * 3  # three stored windows of each variant are compared with new answers


def test_kept_scores_and_several_scorers_are_refused(tmp_path):
    data = str(write_collection(tmp_path / "data.jsonl", some_instances(3)))
    steadyscore.audit("synthetic:none", data, permutations=2, out=tmp_path / "run", report=False, quiet=True)
    for study in (steadyscore.attack, steadyscore.study_width):
        with pytest.raises(InputError, match="holds scores and reads no text"):
            study(f"scores:{tmp_path / 'run'}", data, quiet=True)
        with pytest.raises(InputError, match="takes one scorer at a time, and 2 were given"):
            study(["synthetic:none", "synthetic:slot"], data)
