"""Rows end to end are the rows that were put in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.measures.rows import Rows


@given(st.lists(st.lists(st.floats(allow_nan=True), max_size=5), max_size=8))
def test_every_row_comes_back_exactly_by_iteration_and_by_place(given_rows):
    rows = Rows(np.array(row, float) for row in given_rows)
    assert len(rows) == len(given_rows)
    for found, expected in zip(rows, given_rows, strict=True):
        np.testing.assert_array_equal(found, expected)
    for place in range(-len(given_rows), len(given_rows)):
        np.testing.assert_array_equal(rows[place], given_rows[place])


def test_a_place_beyond_the_end_is_an_index_error():
    with pytest.raises(IndexError):
        Rows([np.zeros(2)])[1]
