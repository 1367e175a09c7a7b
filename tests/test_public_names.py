"""The public surface is one sorted list, and everything on it exists."""

import subprocess
import sys
from collections.abc import Sequence
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest

import steadyscore
from steadyscore.training.recipe import TrainConfig
from steadyscore.training.train import TrainSettings


def test_all_is_sorted_and_importable():
    assert steadyscore.__all__ == sorted(steadyscore.__all__)
    for name in steadyscore.__all__:
        assert getattr(steadyscore, name) is not None


def test_a_measure_is_a_function_on_arrays():
    """The contract: the names of the measures are public functions."""
    scores = np.array([[4.0, 3, 2, 1], [4, 3, 1, 2], [1, 2, 3, 4]])
    assert np.isclose(steadyscore.tau_psi(scores), 2 / 3)
    assert np.isclose(steadyscore.pair_flip(scores), 1)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'tau'"):
        _ = steadyscore.tau


def test_type_checkers_know_the_settings_of_training():
    hints = [get_type_hints(kind) for kind in (TrainConfig, TrainSettings)]  # without their bounds
    listed = {name: hint for name, hint in hints[1].items() if get_origin(hint) is Sequence}
    assert {name: get_args(hint)[0] for name, hint in listed.items()} == {name: get_args(hints[0][name])[0] for name in listed}
    assert {**hints[1], **{name: hints[0][name] for name in listed}, "data": str} == hints[0]  # `train` makes a file of rows


SLIPS = """import steadyscore
audits = steadyscore.audit(lambda query, texts: [len(text) for text in texts], "passages", permutatoins=4)
steadyscore.train("smollm2_passages", steps="1")
reveal_type(audits)
reveal_type(steadyscore.compare(audits))
"""


@pytest.mark.slow
def test_a_type_checker_finds_slips_of_users(tmp_path):
    (tmp_path / "mine.py").write_text(SLIPS)
    checks = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", tmp_path / "mine.py"]
    said = subprocess.run(checks, capture_output=True, text=True, cwd=tmp_path).stdout
    assert 'Unexpected keyword argument "permutatoins"' in said
    assert 'Argument "steps" to "train" has incompatible type "str"' in said
    assert 'Revealed type is "steadyscore.audits.result.Audits"' in said
    assert 'Revealed type is "steadyscore.audits.comparison.Comparison"' in said


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
