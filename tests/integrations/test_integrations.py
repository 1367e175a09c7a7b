"""Each integration against the real package where it is installed; one that is not is skipped by name."""

import ast
import importlib.util
import inspect
from pathlib import Path

import numpy as np
import pytest

from steadyscore.errors import InputError
from steadyscore.integrations import Ranker

QUERY = "what is a thing"
TEXTS = ["a thing of one kind", "nothing here", "what a thing is", "what a thing is", "weather"]


@pytest.fixture
def ranker():
    return Ranker("synthetic:none")


def best_first(ranker):
    return [TEXTS[index] for index, _ in ranker.rank(QUERY, TEXTS)]


def test_a_ranker_scores_texts_in_place_and_ranks_them_whatever_the_order(ranker):
    scores = ranker.scores(QUERY, TEXTS)
    assert scores[2] == scores[3]
    assert [index for index, _ in ranker.rank(QUERY, TEXTS, top_k=2)] == [2, 3]
    order = [3, 0, 4, 2, 1]
    shuffled = [TEXTS[i] for i in order]
    assert ranker.scores(QUERY, shuffled) == [scores[i] for i in order]
    assert [shuffled[i] for i, _ in ranker.rank(QUERY, shuffled)] == best_first(ranker)
    assert ranker.scores(QUERY, []) == []


def test_a_ranker_serves_under_mitigations():
    canonical = Ranker("synthetic:slot:3", mitigations=["canonical-order"])
    order = [3, 0, 4, 2, 1]
    first, second = canonical.rank(QUERY, TEXTS), canonical.rank(QUERY, [TEXTS[i] for i in order])
    assert [TEXTS[i] for i, _ in first] == [TEXTS[order[i]] for i, _ in second]
    assert [score for _, score in first] == [score for _, score in second]
    plain = Ranker("synthetic:slot:30")
    assert plain.rank(QUERY, TEXTS)[0][0] == plain.rank(QUERY, TEXTS[::-1])[0][0] == 0  # the first slot wins


def test_sentence_transformers_style(ranker):
    from steadyscore.integrations.sentence_transformers import CrossEncoder

    encoder = CrossEncoder("synthetic:none")
    hits = encoder.rank(QUERY, TEXTS, top_k=3, return_documents=True)
    assert [hit["text"] for hit in hits] == best_first(ranker)[:3]
    assert hits[0].keys() == {"corpus_id", "score", "text"}
    pairs = [(QUERY, TEXTS[0]), (QUERY, TEXTS[1]), ("another", TEXTS[0])]
    assert encoder.predict(pairs).shape == (3,)
    assert np.isclose(encoder.predict(pairs)[1], encoder.predict(pairs[1]))
    assert encoder.predict(np.array(pairs)).tolist() == encoder.predict(pairs).tolist()
    assert encoder.predict(np.array(pairs[1])) == encoder.predict(pairs[1])
    assert encoder.predict([]).shape == encoder.predict(np.empty((0, 2), str)).shape == (0,)
    how = {"batch_size": 2, "show_progress_bar": False, "num_workers": 0}
    assert encoder.predict(pairs, convert_to_numpy=False, **how) == encoder.predict(pairs).tolist()
    assert encoder.rank(QUERY, TEXTS, convert_to_numpy=True, **how) == encoder.rank(QUERY, TEXTS)


def test_the_shape_is_that_of_a_cross_encoder():
    """The parameters of both methods in the real class, read from its source: importing it takes many seconds."""
    spec = importlib.util.find_spec("sentence_transformers")
    if spec is None:
        pytest.skip("sentence-transformers is not installed")
    from steadyscore.integrations.sentence_transformers import CrossEncoder

    source = (Path(spec.origin).parent / "cross_encoder" / "model.py").read_text()
    real = {node.name: node.args for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    deprecated = {"num_workers", "convert_to_numpy"}  # which a decorator takes out
    for name in ("rank", "predict"):
        ours = inspect.signature(getattr(CrossEncoder, name)).parameters.values()
        placed = [parameter.name for parameter in ours if parameter.kind is not parameter.KEYWORD_ONLY]
        known = [argument.arg for argument in real[name].args]
        assert [word.replace("sentences", "inputs") for word in placed] == known[: len(placed)]
        assert {parameter.name for parameter in ours} - set(placed) <= {*known, *deprecated}


def test_rerankers(ranker):
    pytest.importorskip("rerankers")
    from rerankers.documents import Document

    from steadyscore.integrations.rerankers import SteadyscoreRanker

    model = SteadyscoreRanker("synthetic:none")
    results = model.rank(QUERY, TEXTS, doc_ids=list("abcde"))
    assert [result.text for result in results] == best_first(ranker)
    assert [result.rank for result in results] == [1, 2, 3, 4, 5]
    assert results.get_score_by_docid("b") == ranker.scores(QUERY, TEXTS)[1]
    assert model.rank(QUERY, [Document(TEXTS[4], doc_id="w", metadata={"k": 1})])[0].metadata == {"k": 1}
    assert model.score(QUERY, TEXTS[0]) == ranker.scores(QUERY, TEXTS[:1])[0]


def test_langchain(ranker):
    documents = pytest.importorskip("langchain_core.documents")
    from steadyscore.integrations.langchain import SteadyscoreCompressor

    given = [documents.Document(text, metadata={"n": n}) for n, text in enumerate(TEXTS)]
    found = SteadyscoreCompressor(ranker=ranker, top_n=3).compress_documents(given, QUERY)
    assert [document.page_content for document in found] == best_first(ranker)[:3]
    assert found[0].metadata == {"n": 2, "relevance_score": max(ranker.scores(QUERY, TEXTS))}
    assert "relevance_score" not in given[2].metadata


def test_llama_index(ranker):
    schema = pytest.importorskip("llama_index.core.schema")
    from steadyscore.integrations.llama_index import SteadyscorePostprocessor

    nodes = [schema.NodeWithScore(node=schema.TextNode(text=text), score=0.0) for text in TEXTS]
    after = SteadyscorePostprocessor(ranker=ranker, top_n=2)
    found = after.postprocess_nodes(nodes, query_str=QUERY)
    assert [node.node.get_content() for node in found] == best_first(ranker)[:2]
    assert found[0].score == max(ranker.scores(QUERY, TEXTS))
    with pytest.raises(InputError, match="without a query"):
        after.postprocess_nodes(nodes)


def test_haystack(ranker):
    haystack = pytest.importorskip("haystack")
    from haystack.core.serialization import allow_deserialization_module

    from steadyscore.integrations.haystack import SteadyscoreRanker

    pipeline = haystack.Pipeline()
    pipeline.add_component("ranker", SteadyscoreRanker("synthetic:none", top_k=3))
    allow_deserialization_module("steadyscore.integrations.haystack")  # Haystack opens only modules one has named
    pipeline = haystack.Pipeline.from_dict(pipeline.to_dict())
    given = [haystack.Document(content=text, meta={"n": n}) for n, text in enumerate(TEXTS)]
    found = pipeline.run({"ranker": {"query": QUERY, "documents": given}})["ranker"]["documents"]
    assert [document.content for document in found] == best_first(ranker)[:3]
    assert found[0].score == max(ranker.scores(QUERY, TEXTS))
    assert given[2].score is None
    with pytest.raises(InputError, match="top_k is 0"):
        SteadyscoreRanker("synthetic:none", top_k=3).run(QUERY, given, top_k=0)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # PyTerrier's own code under pandas 3
def test_pyterrier(ranker):
    pt = pytest.importorskip("pyterrier")
    import pandas as pd

    from steadyscore.integrations.pyterrier import SteadyscoreTransformer

    rows = [[q, query, f"d{n}", text] for q, query in (("1", QUERY), ("2", "weather")) for n, text in enumerate(TEXTS)]
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text"]).assign(score=1.0, rank=0)
    found = (pt.Transformer.identity() >> SteadyscoreTransformer(ranker))(frame)
    assert list(found.columns).count("rank") == 1
    first = found[found.qid == "1"].sort_values("docno")
    assert np.allclose(first["score"], ranker.scores(QUERY, TEXTS))
    assert found[(found.qid == "2") & (found["rank"] == 0)]["text"].item() == "weather"
