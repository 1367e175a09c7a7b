"""Many clients at once, and what the server costs over the scorer in-process. Slow tests print their figures (-s).

pytest -m slow -s tests/serve/test_load.py                      # on a machine with nothing else to do, some ten minutes
STEADYSCORE_LOAD_SECONDS=60 pytest -m slow -s tests/serve/test_load.py -k flat
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from steadyscore.engines.local.device import cores
from tests.helpers.serving import DOCUMENTS, QUERY, app_of, listening, memory_of, serving

SECONDS = float(os.environ.get("STEADYSCORE_LOAD_SECONDS", "300"))
QUIET = 0.1
"""Share of the cores that other programs may take before a speed is theirs rather than ours."""
TICKS = os.sysconf("SC_CLK_TCK")
PASSAGES = [
    f"{text} " + "The town lies on the river and has a harbour, a market and two old bridges. " * 2 for text in DOCUMENTS * 2
]


class Pounded(NamedTuple):
    answers: Counter[int]
    sent: int
    rate: float
    """Answers of 200 a second."""
    cpu: float
    """CPU seconds of the server for each of them."""
    others: float
    """Share of the cores that other programs took meanwhile."""


def cpu_of(process: subprocess.Popen[str]) -> float:
    """Seconds a process has worked."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_of_all() -> float:
    """Seconds all programs together have worked, and what the host took away."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def pound(url: str, process: subprocess.Popen[str], clients: int, seconds: float, documents: list[str] = DOCUMENTS) -> Pounded:
    """`clients` at once, each asking again as soon as it has its answer, three times or more."""
    answers: Counter[int] = Counter()
    sent, lock, until = 0, threading.Lock(), time.monotonic() + seconds

    def one(number: int) -> None:
        nonlocal sent
        with httpx.Client(base_url=url, timeout=120, verify=False) as client:  # certificates take longer to read than scores
            for asked in itertools.count():
                if asked >= 3 and time.monotonic() > until:
                    return
                with lock:
                    sent += 1
                answer = client.post("/v1/rerank", json={"query": f"{QUERY} {number}", "documents": documents})
                whole = answer.status_code != 200 or len(answer.json()["results"]) == len(documents)
                with lock:
                    answers[answer.status_code if whole else -1] += 1

    began, own, server, everybody = time.monotonic(), time.process_time(), cpu_of(process), cpu_of_all()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall, server = time.monotonic() - began, cpu_of(process) - server
    others = (cpu_of_all() - everybody - server - (time.process_time() - own)) / (wall * cores())
    return Pounded(answers, sent, answers[200] / wall, server / max(1, answers[200]), others)


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of some 60 tokens: a pass costs more than its tokens, as on a GPU."""
    from tests.helpers.tiny import decoder, save

    return save(tmp_path_factory.mktemp("model"), decoder())


def test_many_clients_share_passes_and_lose_nothing(tmp_path: Path, small_model: Path) -> None:
    """32 clients for three seconds; the five minutes and the throughput are for a quiet machine (`-m slow`)."""
    with serving(tmp_path, f"hf:{small_model}") as (url, process):
        pound(url, process, 32, 1)  # threads and buffers that stay
        before = memory_of(process, "VmRSS")
        found = pound(url, process, 32, 3)
        page = httpx.get(f"{url}/metrics", timeout=60).text
        assert found.answers.keys() <= {200, 429}
        assert found.answers.total() == found.sent > 32
        assert memory_of(process, "VmRSS") < before * 1.1
        assert "Traceback" not in (tmp_path / "log").read_text()
    figures = {line.split(" ")[0]: float(line.split(" ")[1]) for line in page.splitlines() if not line.startswith("#")}
    assert figures['steadyscore_batch_requests_bucket{le="1.0"}'] < figures["steadyscore_batch_requests_count"]
    assert figures["steadyscore_queue_windows"] == 0


@pytest.mark.slow
def test_memory_is_flat_and_nothing_is_lost_under_32_clients(tmp_path: Path, small_model: Path) -> None:
    """Five minutes, or STEADYSCORE_LOAD_SECONDS; the first fifth fills what may fill, then memory stays where it is."""
    with serving(tmp_path, f"hf:{small_model}") as (url, process):
        warm = pound(url, process, 32, SECONDS / 5)
        before = memory_of(process, "VmRSS")
        found = pound(url, process, 32, SECONDS)
        after, most = memory_of(process, "VmRSS"), memory_of(process, "VmHWM")
        log = (tmp_path / "log").read_text()
    print(
        f"\n{found.sent} requests, answers {dict(found.answers)}, {found.rate:.1f}/s, others took {found.others:.0%} of the cores"
    )
    print(f"resident memory {before / 1024:.0f} to {after / 1024:.0f} MB, at most {most / 1024:.0f} MB")
    assert (warm.answers + found.answers).keys() <= {200, 429}
    assert found.answers.total() == found.sent
    assert after < before * 1.05
    assert most < before * 1.2
    assert "Traceback" not in log


@pytest.mark.slow
@pytest.mark.model
def test_eight_clients_get_more_than_one(tmp_path: Path, smollm2: Any) -> None:
    """One client's window has one worker; eight keep every worker at work. Rounds in turn, so that a slow minute hits both."""
    with serving(tmp_path, "smollm2-135m") as (url, process):
        pound(url, process, 8, 5, PASSAGES)
        rounds = [(pound(url, process, 1, 20, PASSAGES), pound(url, process, 8, 20, PASSAGES)) for _ in range(3)]
    ratio = statistics.median(eight.rate / one.rate for one, eight in rounds)
    for one, eight in rounds:
        told = [f"{found.rate:.2f}/s at {found.cpu:.3f} CPU s a request" for found in (one, eight)]
        print(f"\none client {told[0]}, eight {told[1]}")
    others = max(found.others for pair in rounds for found in pair)
    print(f"eight against one: {ratio:.2f} times (median of 3); others took at most {others:.0%} of the {cores()} cores")
    if others > QUIET or cores() < 2:
        pytest.skip(f"no quiet machine of two cores: others took {others:.0%}, eight against one was {ratio:.2f}")
    assert ratio >= 1.5


@pytest.mark.slow
@pytest.mark.model
def test_the_server_adds_less_than_a_tenth_to_the_scorer_in_process(smollm2: Any) -> None:
    """The same model in the same process, once called and once asked over HTTP, in turn; CPU seconds count both ends."""
    from steadyscore.serve.service import instance_of, open_model

    model = open_model("smollm2-135m", "smollm2-135m")
    scorer, pool = model.scorer(), instance_of(QUERY, PASSAGES)

    def timed(work: Any) -> tuple[float, float, Any]:
        wall, cpu = time.monotonic(), time.process_time()
        found = work()
        return time.monotonic() - wall, time.process_time() - cpu, found

    with listening(app_of(model)) as url, httpx.Client(base_url=url, timeout=120) as client:

        def asked() -> list[float]:
            answer = client.post("/score", json={"queries": QUERY, "documents": PASSAGES})
            return [row["score"] for row in answer.json()["data"]]

        timed(lambda: scorer.score(pool))
        rounds = [(timed(lambda: scorer.score(pool)), timed(asked)) for _ in range(9)]
    wall, cpu = (statistics.median(there[i] / here[i] for here, there in rounds) for i in (0, 1))
    print(f"\nthe server takes {wall:.3f} times the scorer's time and {cpu:.3f} times its CPU (medians of {len(rounds)})")
    assert all(np.abs(here[2] - there[2]).max() <= 1e-6 for here, there in rounds)
    assert cpu < 1.1
