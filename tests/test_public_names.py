"""The public surface is one sorted list, and everything on it exists."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest

import steadyscore
from steadyscore.measures.threshold import Threshold
from steadyscore.measures.views import ScoreView
from steadyscore.scoring.config import AuditConfig, AuditSettings, Cut
from steadyscore.scoring.scorer import Settings
from steadyscore.training.labelling import LabelConfig, LabelSettings
from steadyscore.training.recipe import TrainConfig
from steadyscore.training.train import TrainSettings
from tests.helpers.paths import PACKAGE, ROOT


@pytest.mark.parametrize("package", [steadyscore, steadyscore.measures])
def test_all_is_sorted_and_importable(package):
    assert package.__all__ == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_the_top_has_few_names_and_the_measures_have_their_own_place():
    assert len(steadyscore.__all__) <= 60
    assert set(steadyscore.__all__) & set(steadyscore.measures.__all__) == {"Threshold"}
    modules = {file.stem for file in PACKAGE.joinpath("measures").glob("*.py")}
    assert not modules & set(steadyscore.measures.__all__)  # a module would be found in the place of the function


def test_a_measure_is_a_function_on_arrays():
    """The contract: the names of the measures are public functions."""
    scores = np.array([[4.0, 3, 2, 1], [4, 3, 1, 2], [1, 2, 3, 4]])
    assert np.isclose(steadyscore.measures.tau_psi(scores), 2 / 3)
    assert np.isclose(steadyscore.measures.pair_flip(scores), 1)


def test_a_measure_at_its_old_place_works_and_names_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"steadyscore\.tau_psi is steadyscore\.measures\.tau_psi now") as seen:
        assert steadyscore.tau_psi is steadyscore.measures.tau_psi
    assert seen[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="measures.overlap"):
        from steadyscore import overlap
    assert overlap is steadyscore.measures.overlap


def test_an_unknown_name_is_an_attribute_error():
    for package in (steadyscore, steadyscore.measures):
        with pytest.raises(AttributeError, match=f"{package.__name__}' has no attribute 'tau'"):
            _ = package.tau


def test_type_checkers_know_the_settings_of_training():
    hints = [get_type_hints(kind) for kind in (TrainConfig, TrainSettings)]  # without their bounds
    listed = {name: hint for name, hint in hints[1].items() if get_origin(hint) is Sequence}
    assert {name: get_args(hint)[0] for name, hint in listed.items()} == {name: get_args(hints[0][name])[0] for name in listed}
    assert {**hints[1], **{name: hints[0][name] for name in listed}, "data": str} == hints[0]  # `train` makes a file of rows


def test_type_checkers_know_the_settings_of_audits_and_labels():
    """A setting is named in one value of a configuration, and has its type there; those that mean more here have more."""
    parts = (LabelConfig, AuditConfig, Settings, Cut, Threshold, ScoreView)
    fields = {name: hint for part in reversed(parts) for name, hint in get_type_hints(part).items()}
    wider = {"query_ids", "cutoff", "match_retention", "threshold_protocol", "scheme", "fit"}
    wider |= {"mitigations", "perturb", "readers", "ir", "apart_from", "until"}
    for kind in (AuditSettings, LabelSettings):
        hints = get_type_hints(kind)
        assert hints.keys() - fields.keys() <= wider
        assert {name: hint for name, hint in hints.items() if name not in wider} == {
            name: fields[name] for name in hints if name not in wider
        }
    assert get_type_hints(LabelConfig).keys() <= get_type_hints(LabelSettings).keys()


SCRIPT = """import steadyscore
audits = steadyscore.audit(lambda query, texts: [len(text) for text in texts], "passages", permutations=4)
labelled = steadyscore.label("judgements", [{"query": "why", "passages": ["so", "no"]}], "labels", teacher_orders=1)
trained = steadyscore.train("smollm2_passages", labels=str(labelled.folder), steps=1)
gate = steadyscore.gate(steadyscore.load("runs"), min={"overlap": 0.8})
"""
TYPES = {
    "audits": "Audits", "labelled": "Labelled", "trained": "Trained", "gate": "Gate", "steadyscore.load('runs')": "Audits",
    "steadyscore.compare(audits)": "Comparison", "audits[0]['tau_psi'].value": "float",
}  # fmt: skip
SLIPS = """steadyscore.audit("synthetic:none", "passages", permutatoins=4)
steadyscore.train("smollm2_passages", steps="1")
steadyscore.label("judgements", "passages", "labels", teacher_order=1)
steadyscore.measures.tau_psi([[0.5]], estimate="pairwise")
"""
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_type_checker_knows_what_the_public_functions_give_and_finds_slips(tmp_path, checker):
    if checker == "pyright" and not shutil.which("pyright"):
        pytest.skip("pyright is not here: npm install -g pyright")
    (tmp_path / "mine.py").write_text(SCRIPT + "".join(f"reveal_type({value})\n" for value in TYPES) + SLIPS)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}))
    caches = ["--cache-dir", str(tmp_path / "cache")] if checker == "mypy" else []
    said = subprocess.run([*CHECKERS[checker], *caches, "mine.py"], capture_output=True, text=True, cwd=tmp_path).stdout
    shown = [line for line in said.splitlines() if "Revealed type" in line or "Type of" in line]
    assert [re.split(r"[\s.\"]+", line.rstrip('"'))[-1] for line in shown] == list(TYPES.values()), said
    wrong = [int(re.search(r"mine\.py:([0-9]+)", line)[1]) for line in said.splitlines() if re.search(r"[:-] error: ", line)]
    slips = SCRIPT.count("\n") + len(TYPES) + 1
    assert wrong == list(range(slips, slips + SLIPS.count("\n"))), said


def loaded_by(code: str) -> set[str]:
    result = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    return {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in result.stderr.splitlines()}


HEAVY = {"torch", "transformers", "pandas", "scipy", "matplotlib", "sklearn", "pyarrow"}


def test_importing_the_package_loads_nothing_heavy():
    assert not HEAVY & loaded_by("import steadyscore")


def test_help_loads_nothing_heavy():
    code = "from steadyscore.cli import main\ntry:\n main(['--help'])\nexcept SystemExit: pass"
    assert not HEAVY & loaded_by(code)


def test_the_help_of_every_verb_loads_no_torch():
    from steadyscore.cli import VERBS

    helps = f"for verb in {list(VERBS)}:\n try: main([verb, '--help'])\n except SystemExit: pass"
    assert not {"torch", "transformers", "matplotlib"} & loaded_by(f"from steadyscore.cli import main\n{helps}")
