"""When a long run of a server fails: memory, threads or files that grow, and answers that are not those due."""

from collections import Counter

import pytest

from tests.helpers.soak import MOST_GROWTH, Sample, median_slope, mistakes_of


def samples(slope, threads=lambda i: 8, files=lambda i: 14):
    """24 minutes at so many MB an hour, with one odd sample."""
    found = [Sample(i / 2, 10 * i, 430 + slope * i / 120, threads(i), files(i)) for i in range(48)]
    return [*found[:20], found[20]._replace(memory=600.0), *found[21:]]


def test_the_slope_is_that_of_most_samples():
    assert median_slope(samples(0)) == 0
    assert median_slope(samples(30)) == pytest.approx(30, rel=0.01)


@pytest.mark.parametrize(
    ("found", "wrong", "said"),
    [
        (samples(MOST_GROWTH / 2), {}, []),
        (samples(3 * MOST_GROWTH), {}, ["resident memory grew by 30.0 MB an hour; 10.0 are allowed"]),
        (samples(0, threads=lambda i: 8 + i), {}, ["threads grew from 31 to 55"]),
        (samples(0, files=lambda i: 14 + i), {}, ["files grew from 37 to 61"]),
        (samples(0), {"rerank: 500": 2}, ["2 wrong answers: rerank: 500"]),
    ],
)
def test_what_grows_and_what_is_wrong_is_named(found, wrong, said):
    assert mistakes_of(found, Counter(wrong)) == said
