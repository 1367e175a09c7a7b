"""A short, repeatable stretch of `make fuzz`: a file that is nearly right is read, or refused with a sentence."""

import pytest

from tests.fuzz.formats import FORMATS
from tests.fuzz.run import run


@pytest.mark.parametrize("name", FORMATS)
def test_files_that_are_nearly_right_are_read_or_refused_with_a_sentence(name, tmp_path):
    counts, failures = run(name, 100, 1, tmp_path)
    assert failures == []
    assert counts["accepted"]
    assert counts["refused"]
