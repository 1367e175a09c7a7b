"""A real vLLM server at `/v1/systemone`, audited through `systemone:` and compared with the same weights through `hf`.

`make test-vllm`. vLLM knows how to read typed questions from a few architectures (`READ_STRATEGIES`), and Llama, which
SmolLM2 is, is not among them: it answers 501. Its next-token reader works for it as it is, so the server is started with one
more entry in that table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from steadyscore.collection import open_collection
from steadyscore.decision_models.engine import grade_questions
from steadyscore.decision_models.questions import State
from steadyscore.decision_models.serving import answer_of, question_prompts
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.checks import TOLERANCE
from steadyscore.models.embedded import model_path
from steadyscore.scoring.config import AuditConfig, Cut, scorer_for
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.window.prompt import prompt_text, state_text
from steadyscore.window.readout import expected_grade
from tests.engines.test_vllm import MODEL, TEXTS, free_port, until_healthy

pytestmark = [pytest.mark.slow, pytest.mark.model]
LAUNCH = """
try:
    from vllm.entrypoints.openai.decisions import strategies
except ImportError:  # before 0.33
    from vllm.entrypoints.generate.structured_decisions import strategies
strategies.READ_STRATEGIES.setdefault("LlamaForCausalLM", strategies.NextTokenStrategy)
from vllm.entrypoints.cli.main import main
main()
"""
OPTIONS = EngineOptions(concurrency=4, cache=False, timeout=600)


@pytest.fixture(scope="module")
def engine():
    """The decision model behind a server of its own."""
    pytest.importorskip("vllm")
    port = free_port()
    flags = ["--dtype", "float32", "--max-model-len", "4096", "--logprobs-mode", "raw_logprobs", "--host", "127.0.0.1"]
    command = [sys.executable, "-c", LAUNCH, "serve", str(model_path(MODEL)), "--served-model-name", MODEL, *flags]
    server = subprocess.Popen([*command, "--port", str(port)])
    try:
        until_healthy(f"http://127.0.0.1:{port}/health", server)
        yield open_engine(f"systemone:{MODEL}@http://127.0.0.1:{port}", OPTIONS)
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(scope="module")
def windows():
    """A window of five in two orders."""
    return [prompt_text(PASSAGE_RERANKING, "why is the sky blue", texts) for texts in (TEXTS, TEXTS[::-1])]


def read(engine, windows):
    """(windows, slots) expected grades and label masses."""
    found = engine.grade_logits(windows, label_mass=True)
    grades = np.array([expected_grade(np.exp(reading.logits)) for reading in found])
    return grades, np.array([reading.label_mass for reading in found])


def test_llama_is_still_missing_from_vllm_s_table():
    """When this fails, LAUNCH is no longer needed."""
    strategies = pytest.importorskip("vllm.entrypoints.openai.decisions.strategies", reason="vLLM 0.33 is not installed")
    assert "LlamaForCausalLM" not in strategies.READ_STRATEGIES


def test_vllm_answers_as_hf_does_behind_the_same_words(engine, windows):
    plain = open_engine(f"hf:{MODEL}")
    theirs, masses = read(engine, windows)
    mine, my_masses = [], []
    for window in windows:
        prompts = question_prompts(plain.encoder, State(state_text(window)), grade_questions(window))
        answers = [answer_of(reading) for reading in plain.grade_logits(prompts, label_mass=True)]
        mine.append([answer.expected_level for answer in answers])
        my_masses.append([answer.label_mass for answer in answers])
    difference = np.abs(np.array(mine) - theirs).max() / 3
    mass = np.abs(np.array(my_masses) - masses).max()
    print(f"\nvLLM against hf, {theirs.size} questions: score {difference:.1e}, label mass {mass:.1e}")
    assert difference <= TOLERANCE["float32"]
    assert mass <= TOLERANCE["float32"]


def test_the_noise_floor_of_identical_requests(engine, windows):
    """The same windows one after the other, again, and all at once with others in the batch."""
    alone = np.array([read(engine, [window])[0][0] for window in windows])
    again = np.array([read(engine, [window])[0][0] for window in windows])
    with ThreadPoolExecutor(4) as pool:
        crowded = np.array([found[0][0] for found in pool.map(lambda window: read(engine, [window]), windows * 2)])
    same, other = np.abs(again - alone).max() / 3, np.abs(crowded - np.tile(alone, (2, 1))).max() / 3
    print(f"\nnoise floor, {alone.size} questions: repeated {same:.1e}, in a batch with others {other:.1e}")
    assert max(same, other) <= TOLERANCE["float32"]


def test_an_embedded_collection_is_audited(engine, tmp_path):
    config = AuditConfig(permutations=2, settings=Settings(width=5), chars=200, cut=Cut(queries=2, pool=5))
    scorer = scorer_for(engine, open_collection("passages").collection, config)
    run = score_collection(scorer, "passages", tmp_path / "run", config)
    assert run.record.failed == []
    moves = [np.ptp(query.scores, axis=0).max() for query in run.read_queries()]
    print(f"\naudited {json.dumps([round(float(move), 3) for move in moves])}: largest move of a score over three orders")
    assert len(moves) == 2
    assert max(moves) > 10 * TOLERANCE["float32"]
