"""Settings check the bounds and the words that their types state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from steadyscore.errors import InputError
from steadyscore.machine.bounds import AboveZero, NotNegative, Positive, Share, check_fields, field_mistakes


@dataclass
class Some:
    width: Positive | None = None
    retries: NotNegative = 0
    rate: AboveZero | None = None
    share: Share = 0.5
    fit: Literal["refuse", "shrink"] = "refuse"
    anything: Any = None
    name: str = ""


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("width", 0, "width is 0: give a whole number, 1 or more."),
        ("width", 2.5, "width is 2.5: give a whole number, 1 or more."),
        ("width", True, "width is True: give a whole number, 1 or more."),
        ("width", "3", "width is '3': give a whole number, 1 or more."),
        ("retries", -1, "retries is -1: give a whole number, 0 or more."),
        ("retries", None, "retries is None: give a whole number, 0 or more."),
        ("rate", 0.0, "rate is 0.0: give a number above 0."),
        ("rate", float("nan"), "rate is nan: give a number above 0."),
        ("share", 1.5, "share is 1.5: give a number of 0 or more and of 1 or less."),
        ("fit", "shrnk", "fit is 'shrnk': give refuse or shrink."),
    ],
)
def test_a_value_that_its_type_forbids_is_named(field, value, sentence):
    assert field_mistakes(Some(**{field: value})) == [sentence]


def test_what_the_types_allow_passes_and_every_mistake_is_told_at_once():
    check_fields(Some(width=3, rate=1, share=1, anything=object(), name="x"))
    with pytest.raises(InputError) as refusal:
        check_fields(Some(width=-1, fit="no"))
    assert len(refusal.value.mistakes) == 2
