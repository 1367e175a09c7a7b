"""Everything the code asks of a backend is declared by `Backend`, with a default where a backend may have nothing to say."""

import ast
from pathlib import Path

import pytest

import steadyscore
from steadyscore.engines import Capabilities, Engine, EngineOptions, Recording, Reranker
from steadyscore.engines.kinds import open_local_model
from steadyscore.engines.python import open_object
from steadyscore.errors import InputError

SOURCE = Path(steadyscore.__file__).parent


class Lengths(Reranker):
    name, capabilities = "lengths", Capabilities(gives="score")

    def identity(self):
        return {"kind": "lengths"}

    def score(self, query, texts):
        return [float(len(text)) for text in texts]


def test_a_backend_that_says_nothing_more_has_an_answer_to_everything():
    backend = Lengths()
    assert (backend.width, backend.encoder, backend.endpoint, backend.trained_settings) == (None, None, None, {})
    assert backend.options == EngineOptions()
    assert backend.watch() == {}
    assert backend.spent() == backend.spent_since({"requests": 3}) == {}
    assert backend.exclusive_key == id(backend)
    assert open_object(backend) is backend


def test_what_was_spent_since_is_the_difference():
    backend = Lengths()
    backend.spent = lambda: {"requests": 7, "cost": 0.5}
    assert backend.spent_since({"requests": 3}) == {"requests": 4, "cost": 0.5}


@pytest.mark.parametrize("kind", [Engine, Reranker, Recording])
def test_a_backend_without_its_work_cannot_be_made(kind):
    with pytest.raises(TypeError, match="abstract"):
        type("Idle", (kind,), {"identity": lambda self: {}})()


def test_a_local_model_is_asked_for_by_an_address_of_one():
    with pytest.raises(InputError, match="synthetic:none is not a model in this process"):
        open_local_model("synthetic:none")


def test_no_module_looks_for_an_attribute_of_a_backend_by_its_name():
    asked = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr")
        if ast.unparse(node.args[0]).split(".")[-1] in ("backend", "engine", "scorer")
    ]
    assert [place for place in asked if not place.startswith("engines/python.py:")] == []  # somebody's value, not a backend
