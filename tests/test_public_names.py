"""The public surface is one sorted list, and everything on it exists."""

import subprocess
import sys

import numpy as np

import steadyscore


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
    import pytest

    with pytest.raises(AttributeError, match="no attribute 'tau'"):
        _ = steadyscore.tau


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
