"""A dry run times a few windows of the run itself, and says why where it cannot."""

from __future__ import annotations

import time

import pytest

from steadyscore.audits.estimate import estimate_audit
from steadyscore.collection import open_collection
from steadyscore.engines.python import open_object
from steadyscore.scoring.config import AuditConfig, Cut, scorer_for
from steadyscore.scoring.estimate import WINDOWS, estimate, time_windows
from steadyscore.scoring.scorer import Settings


def test_some_windows_of_as_many_queries_are_timed_and_the_first_is_not(monkeypatch):
    clock = iter(range(0, 1000, 2))  # every window takes two seconds
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    asked = []

    def score(query, texts):
        asked.append(len(texts))
        return [0.0] * len(texts)

    source, config = open_collection("passages"), AuditConfig(settings=Settings(width=5))
    scorer = scorer_for(open_object(score), source.collection, config)
    rate = time_windows(scorer, "synthetic:none", source, config)
    assert asked == [5] * (WINDOWS + 1)
    assert (rate.windows, rate.seconds) == (WINDOWS, 2 * WINDOWS)
    whole = estimate("synthetic:none", source, AuditConfig(settings=Settings(width=5), cut=Cut(pool=5), permutations=1))
    assert rate.tokens == pytest.approx(whole.tokens * WINDOWS / (2 * 32), rel=0.3)
    assert rate.tokens_per_second == rate.tokens / rate.seconds


def test_a_scorer_that_is_not_here_or_charges_is_estimated_without_a_time():
    parts = estimate_audit(
        ["synthetic:slot", "python:nowhere:score", "openai:gpt@http://127.0.0.1:9"],
        [open_collection("passages")],
        AuditConfig(cut=Cut(queries=3)),
    )
    here, absent, hosted = (part.to_json() for part in parts.parts)
    assert here["seconds"] > 0
    assert here["timed"]["windows"] == 2
    assert (absent["seconds"], absent["timed"]) == (None, None)
    assert "nowhere" in absent["not_timed"]
    assert hosted["not_timed"] == "it charges"
    assert "python:nowhere:score is not timed: " in str(parts)
