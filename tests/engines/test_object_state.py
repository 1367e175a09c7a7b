"""Another scorer cannot pass for one that was audited: its code, closures, attributes and weights tell them apart."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import numpy as np
import pytest

import steadyscore
from steadyscore.engines.object_state import state_of
from steadyscore.errors import RunMismatch
from tests.helpers.pools import some_instances

ROWS = some_instances(queries=3, candidates=4)


def plain(query, texts):
    return [len(text) for text in texts]


def weighted(query, texts, weight=0.0):
    return [weight * place + len(text) for place, text in enumerate(texts)]


def closure(weight):
    def score(query, texts):
        return weighted(query, texts, weight)

    return score


class Ranks:
    def __init__(self, weight):
        self.weight = np.array([weight])

    def rank(self, query, texts):
        return [{"corpus_id": i, "score": float(self.weight[0]) * i + len(text)} for i, text in enumerate(texts)]


class Predicts:
    def __init__(self, weight):
        self.settings = {"deep": [{"weight": weight}]}

    def predict(self, pairs):
        return [self.settings["deep"][0]["weight"] * i + len(text) for i, (_, text) in enumerate(pairs)]

    def score(self, query, texts):
        return self.predict([(query, text) for text in texts])


MADE = {
    "closure": closure,
    "partial": lambda weight: functools.partial(weighted, weight=weight),
    "rank": Ranks,
    "predict": Predicts,
    "method": lambda weight: Predicts(weight).score,
    "lambda": lambda weight: lambda query, texts: weighted(query, texts, weight),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_another_scorer_in_the_same_folder_is_refused_and_the_same_one_goes_on(make, tmp_path):
    how = {"permutations": 2, "quiet": True, "out": tmp_path / "runs", "report": False}
    first = steadyscore.audit(make(0.0), ROWS, **how)
    assert steadyscore.audit(make(0.0), ROWS, **how)[0].figures == first[0].figures
    with pytest.raises(RunMismatch, match="was made by another command: scorer was"):
        steadyscore.audit(make(50.0), ROWS, **how)


def test_a_plain_function_is_its_text():
    assert state_of(plain) == (None, ())


def test_weights_tell_models_apart():
    torch = pytest.importorskip("torch")

    def model(seed):
        torch.manual_seed(seed)
        return torch.nn.Linear(3, 2)

    assert state_of(model(0)) == state_of(model(0)) != state_of(model(1))


def test_a_scorer_that_counts_its_calls_goes_on_and_one_that_was_trained_does_not():
    counted, trained = Predicts(1.0), Ranks(1.0)
    before = [state_of(counted), state_of(counted.score), state_of(trained)]
    counted.settings["calls"] = 7
    trained.weight += 1
    assert [state_of(counted), state_of(counted.score)] == before[:2]
    assert state_of(trained) != before[2]


def test_a_value_that_cannot_be_looked_into_is_named():
    class Opaque:
        __slots__ = ()

    class Holds:
        def __init__(self):
            self.part, self.me = Opaque(), self

        def predict(self, pairs):
            return [0.0] * len(pairs)

    (unknown,) = state_of(Holds()).unknown
    assert unknown.endswith("Opaque")


def test_the_order_of_a_set_does_not_tell_processes_apart():
    program = (
        "from steadyscore.engines.object_state import state_of\n"
        "print(state_of(lambda query, texts: [float(text in {'a', 'b', 'c', 'd'}) for text in texts]).digest)"
    )

    def digest(seed):
        asked = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, check=True).stdout

    assert digest("1") == digest("2")
