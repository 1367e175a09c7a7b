"""MTEB itself on the embedded passages: the scores of an audit, pool by pool, from Python and from its command line."""

import json
import os
import subprocess
import sys

import pytest

import steadyscore
from steadyscore.collection import open_collection
from steadyscore.errors import InputError

pytest.importorskip("mteb", reason="mteb is not installed: make test-harnesses")

TASK = '''
from datasets import Dataset
import mteb
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.mocks.mock_tasks.reranking import MockRerankingTask
from steadyscore.collection import open_collection

INSTANCES = list(open_collection("passages").instances())[:8]


class Passages(MockRerankingTask):
    """The first eight pools of the embedded passages as a reranking task."""

    metadata = MockRerankingTask().metadata.model_copy(update={"name": "SteadyscorePassages", "main_score": "ndcg_at_10"})

    def load_data(self, **kwargs):
        candidates = [candidate for instance in INSTANCES for candidate in instance.pool]
        self.dataset = {"default": {"test": RetrievalSplitData(
            queries=Dataset.from_list([{"id": each.id, "text": each.query} for each in INSTANCES]),
            corpus=Dataset.from_list([{"id": c.id, "text": c.text, "title": c.title or ""} for c in candidates]),
            relevant_docs={each.id: {c.id: int(c.relevance) for c in each.pool} for each in INSTANCES},
            top_ranked={each.id: [c.id for c in each.pool] for each in INSTANCES},
        )}}
        self.data_loaded = True
'''


def longest_first(query, texts):
    """A listwise scorer: what a text is given hangs on the others, and a little on its place."""
    ranks = {text: place for place, text in enumerate(sorted(texts, key=len))}
    return [ranks[text] / len(texts) - 0.001 * slot for slot, text in enumerate(texts)]


@pytest.fixture
def task(tmp_path, monkeypatch):
    (tmp_path / "passages_task.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    import passages_task

    return passages_task.Passages()


def test_scores_and_quality_are_those_of_an_audit(task, tmp_path):
    import mteb

    from steadyscore.integrations.mteb import SteadyscoreSearch

    model = SteadyscoreSearch(longest_first)
    result = mteb.evaluate(model, [task], cache=None, show_progress_bar=False)[0]
    audit = steadyscore.audit(longest_first, "passages", out=tmp_path / "run", queries=8, permutations=2, report=False)[0]
    assert result.scores["test"][0]["ndcg_at_10"] == pytest.approx(audit["ndcg@10"].value, abs=5e-6)  # MTEB keeps five digits
    instances = list(open_collection("passages").instances())[:8]
    rows = [{"id": each.id, "text": each.query} for each in instances]
    scores = model.search(rows, top_k=10, top_ranked={each.id: [c.id for c in each.pool] for each in instances})
    for instance in instances:
        shown = longest_first(instance.query, [candidate.text for candidate in instance.pool])
        assert list(scores[instance.id].values()) == pytest.approx(shown, abs=1e-9)


def test_a_task_that_ranks_a_whole_corpus_is_refused():
    from steadyscore.integrations.mteb import SteadyscoreSearch

    with pytest.raises(InputError, match="Take a reranking task"):
        SteadyscoreSearch("synthetic:none").search([], top_k=10)


def test_mteb_runs_a_scorer_from_its_own_command_line(tmp_path, task):
    (tmp_path / "run.py").write_text(
        "import sys, mteb, passages_task\n"
        "tasks = sys.modules['mteb.get_tasks']\n"
        "tasks._TASKS_REGISTRY['SteadyscorePassages'] = passages_task.Passages\n"
        "from steadyscore.integrations.mteb import main\n"
        "main(['synthetic:none', 'run', '-t', 'SteadyscorePassages', '--output-folder', 'results'])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    ran = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment)
    assert ran.returncode == 0, ran.stderr
    (file,) = (tmp_path / "results").rglob("SteadyscorePassages.json")
    assert 0 < json.loads(file.read_text())["scores"]["test"][0]["ndcg_at_10"] <= 1
