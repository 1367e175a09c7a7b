"""A short, repeatable stretch of `make fuzz`: a file that is nearly right is read, or refused with a sentence."""

import pytest

from tests.fuzz.formats import FORMATS, outcome
from tests.fuzz.guided import try_case
from tests.fuzz.run import run


@pytest.mark.parametrize("name", FORMATS)
def test_files_that_are_nearly_right_are_read_or_refused_with_a_sentence(name, tmp_path):
    counts, failures = run(name, 100, 1, tmp_path)
    assert failures == []
    assert counts["accepted"]
    assert counts["refused"]


def test_a_finding_is_kept_once_for_each_place_in_the_code(tmp_path):
    def read(content):
        if content == b"right":
            return "accepted"
        raise (KeyError if content < b"m" else ValueError)(content)

    assert [try_case(read, case, tmp_path) for case in (b"right", b"a", b"b", b"z")] == ["accepted", None, None, None]
    kept = sorted(file.read_bytes() for file in (tmp_path / "findings").iterdir() if not file.suffix)
    assert kept == [b"a", b"z"]


FOUND = {
    "not UTF-8 before a line separator": ("qrels", b"r\xee\n\xb0\n\xe2\x80\xa8"),
    "a line separator": ("qrels", "\u2028".encode()),
}
"""Cases of the guided fuzzer that once ended in something else than a value or a sentence."""


@pytest.mark.parametrize(("name", "content"), FOUND.values(), ids=FOUND)
def test_what_was_found_once_is_refused_with_a_sentence(name, content, tmp_path):
    assert outcome(FORMATS[name], tmp_path, content) == "refused"
