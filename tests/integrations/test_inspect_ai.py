"""inspect_ai itself, by its own command line: choices in another order at every epoch, and its log as a score file."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import steadyscore
from steadyscore.errors import InputError
from steadyscore.measures import selection_flip

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed: make test-harnesses")

TASK = '''
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import choice
from inspect_ai.solver import multiple_choice
from steadyscore.integrations.inspect_ai import pull_to_first

SAMPLES = [
    Sample(id=f"{kind}-{n}", input=f"{kind}: which one? ({n})", choices=["red", "green", "blue", "black"], target="B")
    for kind in ("steady", "first") for n in range(6)
]


def answer(messages, tools, tool_choice, config):
    """Of a steady sample the green one, of the others whatever is shown first."""
    text = messages[-1].text
    letter = "A" if "first:" in text else next(line[0] for line in text.splitlines() if line.endswith(") green"))
    output = ModelOutput.from_content("mockllm/model", f"ANSWER: {letter}")
    output.usage = ModelUsage()  # else inspect counts tokens with a file from the network
    return output


@task
def colours():
    model = get_model("mockllm/model", custom_outputs=answer)
    return Task(dataset=MemoryDataset(SAMPLES), solver=multiple_choice(), scorer=[choice(), pull_to_first()], model=model)
'''

INSPECT = [
    *(sys.executable, "-m", "inspect_ai", "eval", "colours.py"),
    *("--log-dir", "logs", "--display", "none", "--model", "mockllm/model"),
]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "colours.py").write_text(TASK)
    more = ["--epochs", "6", "--epochs-reducer", "mean,steadyscore/flip", "--solver", "steadyscore/permuted_choice"]
    ran = subprocess.run(
        [*INSPECT, *more], cwd=folder, capture_output=True, text=True, timeout=300, env=os.environ | {"HOME": str(folder)}
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    (file,) = (folder / "logs").glob("*.eval")
    return file


def metrics(log):
    """{(scorer, reducer): {metric: value}} as inspect printed them."""
    from inspect_ai.log import read_eval_log

    scores = read_eval_log(str(log), header_only=True).results.scores
    return {(score.name, score.reducer): {name: metric.value for name, metric in score.metrics.items()} for score in scores}


def test_an_audit_of_the_log_has_the_flips_that_inspect_printed(log):
    audit = steadyscore.audit(scores=log)[0]
    (flips,) = [per["accuracy"] for (name, reducer), per in metrics(log).items() if name == "choice" and "flip" in reducer]
    assert flips > 0.3
    assert audit["selection_flip"].value == pytest.approx(flips, abs=1e-9)
    flipped = {query.query_id: selection_flip(query.permuted) for query in audit.queries}
    assert all(flipped[f"steady-{n}"] == 0 for n in range(6))


def test_the_direction_of_the_flips_is_told(log):
    pull = metrics(log)["pull_to_first", "mean"]["mean"]
    assert pull == pytest.approx((6 + 6 * share_of_green_first(log)) / 12 - 1 / 4)
    assert pull > 0.3


def share_of_green_first(log):
    from inspect_ai.log import read_eval_log

    orders = [s.metadata["steadyscore_order"] for s in read_eval_log(str(log)).samples if str(s.id).startswith("steady")]
    return np.mean([order[0] == 1 for order in orders])


def test_a_log_without_orders_is_refused_with_the_solver_that_writes_them(tmp_path):
    (tmp_path / "colours.py").write_text(TASK)
    subprocess.run(INSPECT, cwd=tmp_path, capture_output=True, timeout=300, check=True, env=os.environ | {"HOME": str(tmp_path)})
    (file,) = (tmp_path / "logs").glob("*.eval")
    with pytest.raises(InputError, match="--solver steadyscore/permuted_choice"):
        steadyscore.audit(scores=file)


def test_the_command_line_reads_the_log(log):
    command = [sys.executable, "-m", "steadyscore", "audit", "--scores", str(log), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(ran.stdout)["measures"]["selection_flip"]["value"] > 0.3
