"""The worker: what is served beside a request changes none of its scores, and nothing is lost or stuck."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from steadyscore.engines import Capabilities, Engine, EngineOptions, Grader
from steadyscore.engines.local.shared import SharedBases
from steadyscore.errors import InputError
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.serve.batcher import (
    QUEUE_PASSES,
    SMALL_TOKENS,
    Batcher,
    Busy,
    ClientDisconnected,
    ShuttingDown,
    TimedOut,
    batched_backend,
    check_wanted,
)
from steadyscore.serve.service import instance_of
from steadyscore.serve.settings import Limits
from steadyscore.tasks import TASKS
from steadyscore.window.presentation import windows
from tests.helpers.waiting import until

NOISE = 1e-4
TASK = TASKS["passage_reranking"]


@pytest.fixture
def batcher():
    made = Batcher(Limits(batch_windows=4, queue_windows=100, requests=40))
    yield made
    made.close(5)


def some_pool(i: int, n: int = 5):
    return instance_of(f"what is thing {i}", [f"thing {i} number {c} " + "word " * (c + i % 3) for c in range(n)])


def echo(batch):
    return [item * 10 for item in batch]


class Held:
    """An engine whose passes begin, say so, and wait to be let go."""

    def __init__(self, answer=echo):
        self.answer, self.begun, self.go, self.passes = answer, threading.Event(), threading.Event(), []

    def __call__(self, batch):
        self.passes.append(batch)
        self.begun.set()
        assert self.go.wait(120)
        return self.answer(batch)


@pytest.mark.parametrize("workers", [1, 3])
def test_scores_do_not_depend_on_what_else_is_served(tiny_engine, tiny_folder, workers):
    """Rule 0: the same request alone and among 30 others, in whatever passes they share and however many run at once."""
    served = SharedBases().open(f"hf:{tiny_folder}", EngineOptions(share_prefix=False))
    settings = Settings(width=3, label_mass=False)
    pools = [some_pool(i, 4 + i % 4) for i in range(30)]
    alone = [Scorer(tiny_engine, TASK, settings).score(pool) for pool in pools]
    passes = []
    batcher = Batcher(Limits(batch_windows=8, queue_windows=1000, workers=workers), lambda *facts: passes.append(facts))

    def one(pool):
        with batcher.admit(4, 120) as admission:
            return Scorer(batched_backend(served, batcher, admission), TASK, settings).score(pool)

    with ThreadPoolExecutor(12) as threads:
        together = list(threads.map(one, pools))
    batcher.close()
    assert max(np.abs(a - b).max() for a, b in zip(alone, together, strict=True)) <= NOISE
    assert max(requests for _, requests, _ in passes) >= 2, "no pass was shared, so nothing was shown"


def test_a_prompt_holds_the_candidates_of_one_request_only(tiny_engine):
    """Every prompt that reaches the engine decodes to one query and its own documents."""
    seen = []

    class Spy(Engine):
        name, capabilities = tiny_engine.name, tiny_engine.capabilities
        encoder, context = tiny_engine.encoder, tiny_engine.context

        def identity(self):
            return tiny_engine.identity()

        def grade_logits(self, prompts, *, label_mass=False):
            seen.extend(tiny_engine.encoder.tokenizer.decode([*p.prefix, *p.body]) for p in prompts)
            return tiny_engine.grade_logits(prompts, label_mass=label_mass)

    batcher = Batcher(Limits(batch_windows=8))

    def one(i):
        pool = instance_of(f"secret{i}", [f"only{i} doc{c}" for c in range(3)])
        with batcher.admit(1, 120) as admission:
            Scorer(batched_backend(Spy(), batcher, admission), TASK, Settings(label_mass=False)).score(pool)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(one, range(6)))
    batcher.close()
    for text in seen:
        named = {i for i in range(6) if f"secret{i}" in text or f"only{i}" in text}
        assert len(named) == 1


def test_a_batched_grader_is_presented_as_the_one_it_wraps(batcher):
    """An adapter's own prompt and width hold for a request too."""

    class Trained(Grader):
        name, capabilities = "trained", Capabilities(gives="distribution")

        def __init__(self):
            self.trained_settings = {"prompt": "compact", "width": 2}

        def identity(self):
            return {"kind": "trained"}

        def grade_logits(self, prompts, *, label_mass=False):
            raise AssertionError

    with batcher.admit(1, 120) as admission:
        plain, batched = (Scorer(b, TASK) for b in (Trained(), batched_backend(Trained(), batcher, admission)))
    assert (batched.settings, batched.width, batched.identity()) == (plain.settings, plain.width, plain.identity())
    assert (batched.settings.prompt, batched.width) == ("compact", 2)


def test_windows_of_several_pools_share_a_pass(batcher, tiny_engine):
    passes = []
    batcher.on_batch = lambda windows, requests, seconds: passes.append(windows)
    pools = [some_pool(i) for i in range(3)]
    with batcher.admit(3, 120) as admission:
        scorer = Scorer(batched_backend(tiny_engine, batcher, admission), TASKS["passage_reranking"])
        together = scorer.score_pools(pools)
    assert passes == [3]
    alone = [Scorer(tiny_engine, TASKS["passage_reranking"]).score(pool) for pool in pools]
    np.testing.assert_allclose(np.stack(together), np.stack(alone), atol=1e-5)


def test_a_small_request_does_not_wait_for_a_large_one(batcher):
    engine = Held()

    def ask(items):
        with batcher.admit(len(items), 120) as admission:
            return batcher.call(admission, (0, False), engine, items)

    with ThreadPoolExecutor(2) as threads:
        large = threads.submit(ask, list(range(60)))
        assert engine.begun.wait(120)
        small = threads.submit(ask, [100])
        until(lambda: len(batcher.jobs) == 2)
        engine.go.set()
        assert small.result() == [1000]
        assert len(large.result()) == 60
    assert [100 in batch for batch in engine.passes].index(True) == 1, "the first pass after it came"
    assert len(engine.passes) > 10


def test_one_request_s_fault_is_not_the_others(batcher):
    def upper(batch):
        if "bad" in batch:
            raise RuntimeError("poison")
        return [item.upper() for item in batch]

    engine = Held(upper)

    def ask(item):
        with batcher.admit(1, 120) as admission:
            return batcher.call(admission, (0, False), engine, [item])

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(ask, "a")
        assert engine.begun.wait(120)
        asked = [threads.submit(ask, item) for item in ("b", "bad", "c")]
        until(lambda: len(batcher.jobs) == 3)
        engine.go.set()
        assert [request.result() for request in (first, asked[0], asked[2])] == [["A"], ["B"], ["C"]]
        with pytest.raises(RuntimeError, match="poison"):
            asked[1].result()
    assert sorted(engine.passes[1]) == ["b", "bad", "c"], "they shared a pass"


def test_too_few_results_fail_the_request_and_not_the_worker(batcher):
    with batcher.admit(2, 120) as admission, pytest.raises(RuntimeError, match="2 windows were given and 1 results came back"):
        batcher.call(admission, (0, False), lambda batch: batch[:1], ["a", "b"])
    with batcher.admit(1, 120) as admission:
        assert batcher.call(admission, (0, False), echo, ["c"]) == echo(["c"])


def test_a_full_queue_refuses_and_says_when(batcher):
    with batcher.admit(90, 1), pytest.raises(Busy) as refusal, batcher.admit(20, 1):
        pass
    assert 1 <= refusal.value.retry_after <= 60
    with batcher.admit(20, 1):
        pass
    assert not batcher.in_flight


def retry_after_of(batcher, model, other):
    with batcher.admit(90, 1, model), pytest.raises(Busy) as refusal, batcher.admit(20, 1, other):
        pass
    return refusal.value.retry_after


def test_a_full_queue_counts_the_rate_of_the_models_in_it(batcher, monkeypatch):
    """However fast another model is, and whichever model the refused request asks for."""
    now = [0.0]
    monkeypatch.setattr("steadyscore.serve.batcher.time", SimpleNamespace(monotonic=lambda: now[0]))

    def taking(seconds):
        def run(batch):
            now[0] += seconds
            return echo(batch)

        return run

    for model, run, passes in (("slow", taking(0.1), 1), ("fast", taking(0.001), 50)):
        with batcher.admit(passes, 120, model) as admission:
            for _ in range(passes):
                batcher.call(admission, (0, False), run, [1])
    assert retry_after_of(batcher, "slow", "fast") == retry_after_of(batcher, "slow", "slow") == 4  # half of 90, 10 a second
    assert retry_after_of(batcher, "fast", "slow") == 1


def test_time_runs_out(batcher):
    engine = Held()
    with batcher.admit(1, 0.05) as admission, pytest.raises(TimedOut):
        batcher.call(admission, (0, False), engine, [1])
    engine.go.set()
    with batcher.admit(1, 120) as admission:
        assert batcher.call(admission, (0, False), echo, [2]) == [20]


def test_windows_of_a_client_that_went_are_not_scored(batcher):
    scored = []
    with batcher.admit(40, 120) as admission:

        def leave_in_the_second_pass(batch):
            scored.extend(batch)
            if len(scored) > 4:
                admission.cancel()
            return echo(batch)

        with pytest.raises(ClientDisconnected):
            batcher.call(admission, (0, False), leave_in_the_second_pass, list(range(40)))
        with pytest.raises(ClientDisconnected):
            batcher.call(admission, (0, False), leave_in_the_second_pass, [99])
    batcher.close(5)
    assert scored == list(range(8))


def test_closing_finishes_what_was_let_in_and_refuses_the_rest():
    batcher, engine = Batcher(Limits(batch_windows=1)), Held()

    def ask():
        with batcher.admit(4, 120) as admission:  # two rounds, as adaptive stopping has them
            return [batcher.call(admission, (0, False), engine, [item, item]) for item in (1, 2)]

    with ThreadPoolExecutor(2) as threads:
        asked = threads.submit(ask)
        assert engine.begun.wait(120)
        closing = threads.submit(batcher.close, 10)
        until(lambda: not batcher.alive)
        with pytest.raises(ShuttingDown), batcher.admit(1, 1):
            pass
        engine.go.set()
        assert asked.result() == [[10, 10], [20, 20]]
        assert closing.result(), "every worker has ended"


def test_two_engines_take_turns(batcher):
    calls, both = [], threading.Event()

    def engine(name):
        def run(batch):
            calls.append(name)
            both.wait(120)
            return echo(batch)

        return run

    def ask(key, name):
        with batcher.admit(12, 120) as admission:
            batcher.call(admission, (key, False), engine(name), list(range(12)))

    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(ask, key, name) for key, name in ((1, "a"), (2, "b"))]
        until(lambda: len(batcher.jobs) == 2)  # while the first pass waits
        both.set()
        for request in asked:
            request.result()
    assert calls.count("a") == calls.count("b") == 3
    assert calls != sorted(calls)


def test_idle_workers_share_a_request_unless_its_engine_takes_one_pass_at_a_time():
    """Two workers run one function at the same time, unless its passes have an exclusive key: then they never do."""
    batcher, meeting = Batcher(Limits(workers=2)), threading.Barrier(2)
    until(lambda: batcher.free == 2)  # both have begun
    inside, most = [], []

    def together(batch):
        meeting.wait(120)  # breaks where the other half is not being scored at the same time
        return echo(batch)

    def alone(batch):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.005)  # time in which a second pass would be seen; none is waited for
        inside.pop()
        return echo(batch)

    with batcher.admit(6, 20) as admission:
        assert batcher.call(admission, (1, False), together, [1, 2, 3, 4, 5, 6]) == [10, 20, 30, 40, 50, 60]

    def ask(i):
        with batcher.admit(3, 20) as admission:
            return batcher.call(admission, (2, i % 2 == 0), alone, [i, i, i], exclusive_key=7)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(8))) == [[10 * i] * 3 for i in range(8)]
    batcher.close(5)
    assert max(most) == 1


def test_every_worker_ends_when_the_last_request_is_answered():
    batcher = Batcher(Limits(workers=3))
    with ThreadPoolExecutor(1) as threads:
        with batcher.admit(1, 120) as admission:
            closing = threads.submit(batcher.close, 120)
            until(lambda: not batcher.alive)
            assert batcher.call(admission, (0, False), echo, [1]) == [10]
        assert closing.result(), "every worker has ended"


# -- bounds in tokens


def costs(*tokens, part=0):
    """Costs of windows that have nothing in common."""
    return [{part + place: count} for place, count in enumerate(tokens)]


@pytest.fixture
def bounded():
    made = Batcher(Limits(window_tokens=1000, workers=1))
    yield made
    made.close(5)


def test_a_window_of_too_many_tokens_is_refused_before_anything_is_queued(tiny_engine):
    batcher = Batcher(Limits(window_tokens=500))
    with batcher.admit(1, 120) as admission:
        scorer = Scorer(batched_backend(tiny_engine, batcher, admission), TASK, Settings(label_mass=False))
        needed = len(Scorer(tiny_engine, TASK).prompt(some_pool(1), windows(range(5), 5)[0]))
        assert needed > 500
        with pytest.raises(InputError, match=rf"has {needed:,} tokens, the server takes 500\. Send fewer or shorter documents"):
            scorer.score(some_pool(1))
        assert (admission.tokens, admission.windows, batcher.tokens, batcher.jobs) == (0, 0, 0, [])
    batcher.close(5)


def test_a_pass_has_so_many_tokens_and_what_its_windows_share_counts_once(bounded):
    engine = Held()
    engine.go.set()
    with bounded.admit(10, 120) as admission:
        bounded.call(admission, (0, False), engine, [1, 2, 3, 4, 5], costs=costs(400, 400, 400, 900, 400))
        shared = [{-1: 800, place: 50} for place in range(4)]
        bounded.call(admission, (0, False), engine, [6, 7, 8, 9], costs=shared)
    assert engine.passes == [[1, 2], [3], [4], [5], [6, 7, 8, 9]]
    assert bounded.tokens == 0


def test_a_queue_that_is_full_of_tokens_refuses_what_comes_and_never_what_has_begun(bounded):
    engine, many = Held(), [1000] * (QUEUE_PASSES + 1)

    def ask(first, count):
        with bounded.admit(99, 120) as admission:
            found = bounded.call(admission, (0, False), engine, range(count), costs=costs(*many[:count], part=first))
            return found + bounded.call(admission, (0, False), echo, [7], costs=costs(1000, part=-1))

    with ThreadPoolExecutor(2) as threads:
        lone = threads.submit(ask, 0, QUEUE_PASSES + 1)  # more than the queue holds, and nobody else waits
        assert engine.begun.wait(120)
        with pytest.raises(Busy):
            ask(100, 1)
        engine.go.set()
        assert lone.result()[-1] == 70
    assert bounded.tokens == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_small_request_does_not_wait_for_large_ones_that_keep_every_worker_busy(workers):
    batcher, engines = Batcher(Limits(workers=workers)), [Held() for _ in range(workers)]

    def ask(engine, item, tokens):
        with batcher.admit(1, 120) as admission:
            return batcher.call(admission, (0, False), engine, [item], costs=costs(tokens, part=item))

    with ThreadPoolExecutor(workers + 1) as threads:
        large = []
        for item, engine in enumerate(engines):
            large.append(threads.submit(ask, engine, item, 5000))
            assert engine.begun.wait(120)
        waiting = threads.submit(ask, echo, 8, 5000)
        assert ask(echo, 9, SMALL_TOKENS) == [90], "while the large ones are held"
        assert not any(request.done() for request in (*large, waiting))
        for engine in engines:
            engine.go.set()
        assert [request.result() for request in (*large, waiting)] == [[10 * item] for item in (*range(workers), 8)]
    batcher.close(5)


def test_a_small_window_shares_no_pass_with_a_large_one(bounded):
    engine = Held()

    def ask(item, tokens):
        with bounded.admit(1, 120) as admission:
            return bounded.call(admission, (0, False), engine, [item], costs=costs(tokens, part=item))

    bounded.limits = replace(bounded.limits, window_tokens=9000)
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(ask, 0, 10)
        assert engine.begun.wait(120)
        asked = [threads.submit(ask, item, tokens) for item, tokens in ((1, 2000), (2, 10), (3, 2000))]
        until(lambda: len(bounded.jobs) == 3)
        engine.go.set()
        for request in (first, *asked):
            request.result()
    assert sorted(map(sorted, engine.passes)) == [[0], [1, 3], [2]]


# -- work that nobody waits for


def test_a_pass_ends_where_nobody_waits_for_it_and_not_before(bounded):
    begun, left, ended = threading.Event(), threading.Event(), threading.Event()
    with bounded.admit(2, 120) as admission:

        def layers(batch):
            check_wanted()  # somebody waits
            begun.set()
            assert left.wait(120)
            try:
                check_wanted()
            finally:
                ended.set()
            raise AssertionError("a pass went on for nobody")

        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(bounded.call, admission, (0, False), layers, [1])
            assert begun.wait(120)
            assert len(bounded.ages) == 1
            admission.cancel()
            left.set()
            with pytest.raises(ClientDisconnected):
                asked.result()
            assert ended.wait(120)
    until(lambda: not bounded.ages)
    with bounded.admit(1, 120) as admission:
        assert bounded.call(admission, (0, False), echo, [2]) == [20], "the worker goes on"


def test_a_local_model_stops_at_the_next_layer(tiny_folder, bounded):
    """The client leaves while the first layer is computed, and no second one is."""
    served = SharedBases(before_layer=check_wanted).open(f"hf:{tiny_folder}", EngineOptions(share_prefix=False))
    layers, computed = served._base.engine.model.base_model.layers, []
    assert len(layers) > 1
    for place, layer in enumerate(layers):
        layer.mlp.register_forward_pre_hook(lambda *_, place=place: computed.append(place) or admission.cancel())
    bounded.limits = Limits()
    with bounded.admit(1, 120) as admission, pytest.raises(ClientDisconnected):
        Scorer(batched_backend(served, bounded, admission), TASK, Settings(label_mass=False)).score(some_pool(1))
    until(lambda: not bounded.ages)
    assert computed == [0]


@pytest.mark.parametrize(("key", "workers", "stuck"), [(None, 1, True), (None, 2, False), (7, 2, True)])
def test_workers_are_stuck_where_passes_outlive_every_deadline(monkeypatch, key, workers, stuck):
    """All workers of any, or the one pass at a time that an engine with an exclusive key takes."""
    batcher, engine = Batcher(Limits(workers=workers, seconds=60)), Held()
    with batcher.admit(1, 120) as admission, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(batcher.call, admission, (0, False), engine, [1], key)
        assert engine.begun.wait(120)
        assert not batcher.is_stuck
        monkeypatch.setattr("steadyscore.serve.batcher.time", SimpleNamespace(monotonic=lambda: time.monotonic() + 61))
        assert batcher.is_stuck == stuck
        engine.go.set()
        asked.result()
    batcher.close(5)
