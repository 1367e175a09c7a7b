"""A language model that runs out of memory."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from steadyscore.engines import EngineOptions
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.faults.processes import run_forked
from tests.helpers.models import byte_tokenizer, tiny_causal
from tests.helpers.pools import some_instances, write_collection

TOLERANCE = 1e-5
"""Fewer windows in a pass: other shapes of the same sums, whose last digits may differ."""
LARGEST = {"paper": 2500, "isolated": 150, "set": 350}
"""Tokens of a pass that are refused for each way of reading: several windows or texts at once, and never one alone."""


Prepare = Callable[[Any], None]


def audit_tiny(data: Path, out: Path, prompt: Any, inner: int, prepare: Prepare | None = None) -> None:
    """Audit a tiny model with passes of any size; `prepare(engine)` makes them too large."""
    import torch

    from steadyscore.collection import open_collection
    from steadyscore.engines.local.model import TransformersEngine

    torch.set_num_threads(1)  # a copy of a process has none of its other threads
    config = AuditConfig(permutations=3, settings=Settings(width=5, prompt=prompt))
    model = tiny_causal(intermediate_size=inner)
    engine = TransformersEngine(model, byte_tokenizer(), "tiny", EngineOptions(batch_tokens=100_000), {"kind": "hf"})
    scorer = scorer_for(engine, open_collection(str(data)).collection, config)
    if prepare is not None:
        prepare(engine)
    warned: list[logging.LogRecord] = []
    watch = logging.Handler()
    watch.emit = warned.append  # type: ignore[method-assign]
    logging.getLogger("steadyscore.engines").addHandler(watch)
    run = score_collection(scorer, str(data), out, config)
    assert run.record.failed == []
    if prepare is not None:
        assert len([record for record in warned if "memory ran out" in record.getMessage()]) == 1
        assert engine._passes.tokens < 100_000


def refuse_large(most: int, engine: Any) -> None:
    """An injected error, in the words of a GPU: a pass of more tokens than these does not fit."""
    import torch

    inner, forward = engine.model.base_model, engine.model.base_model.forward

    def refusing(*args: Any, **options: Any) -> Any:
        if options["input_ids"].numel() > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return forward(*args, **options)

    inner.forward = refusing


def take_memory(megabytes: int, engine: Any) -> None:
    """From now on this process gets no more than so much memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def disturb(folder: Path, ways: Sequence[tuple[str, Prepare]], inner: int) -> Counts:
    """Audit in each way of reading, disturbed and not."""
    import steadyscore.engines.local.model  # noqa: F401  # before the copies of this process are made

    data = write_collection(folder / "pools.jsonl", some_instances(queries=2 if inner < 1000 else 1, candidates=10))
    counts = Counts()
    for number, (prompt, prepare) in enumerate(ways):
        whole, out = folder / f"whole-{prompt}", folder / f"run-{number}"
        if not whole.exists():
            run_forked(audit_tiny, data, whole, prompt, inner)
        run_forked(audit_tiny, data, out, prompt, inner, prepare)
        counts += Counts(1) + compare_runs(out, whole, tolerance=TOLERANCE)
    return counts


@fault(
    "engine out of memory",
    f"torch refuses passes above a size with its own error, in audits of a tiny model; scores within {TOLERANCE:g}",
    times=3,
    is_slow=True,
)
def refuse_passes(folder: Path, times: int) -> Counts:
    ways = [(prompt, partial(refuse_large, most)) for prompt, most in LARGEST.items()]
    return disturb(folder, [ways[number % len(ways)] for number in range(times)], inner=48)


@fault(
    "machine out of memory",
    f"`RLIMIT_AS` leaves an audit 96 MB beside the loaded model, so that malloc itself fails; scores within {TOLERANCE:g}",
    times=2,
    is_slow=True,
)
def limit_memory(folder: Path, times: int) -> Counts:
    return disturb(folder, [("paper", partial(take_memory, 96))] * times, inner=4096)
