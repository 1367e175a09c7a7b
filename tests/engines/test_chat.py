"""Grades read from the log-probabilities of a chat endpoint; the rest of the engine is in test_http.py."""

import math

import numpy as np
import pytest

from steadyscore.engines.answers import Malformed
from steadyscore.engines.chat import parse_grade_logprobs


def written(probabilities):
    """`[1] Grade: 2` with these probabilities of the four grades."""
    other = [{"token": str(grade), "logprob": math.log(p)} for grade, p in enumerate(probabilities)]
    tokens = [{"token": "[1] Grade: ", "top_logprobs": []}, {"token": "2", "top_logprobs": other}]
    return {"choices": [{"logprobs": {"content": tokens}}]}


@pytest.mark.parametrize("probabilities", [(0.5, 0.5, 0.5, 0.5), (0.01, 0.01, 0.98, 0.05), (1, 1, 1, 1)], ids=["2", "1.05", "4"])
def test_grades_that_sum_to_more_than_1_are_refused(probabilities):
    with pytest.raises(Malformed, match=r"have probability .* together"):
        parse_grade_logprobs(["1"], written(probabilities))


def test_what_is_left_of_1_lay_on_other_tokens():
    found = parse_grade_logprobs(["1"], written((0.1, 0.1, 0.5, 0.1)))
    np.testing.assert_allclose(found.label_mass, [0.8])
    np.testing.assert_allclose(np.exp(found.logits), [[0.1, 0.1, 0.5, 0.1]])
