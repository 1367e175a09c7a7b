"""A setting that says nothing to a scorer is refused, by what is known of its kind: nothing is promised that is not done."""

from __future__ import annotations

import pytest

import steadyscore
from steadyscore import EngineOptions
from steadyscore.cli import main
from steadyscore.engines import Price
from steadyscore.engines.kinds import honoured
from steadyscore.errors import InputError
from steadyscore.scoring.config import AuditConfig, check_use, open_scorer
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Collection
from tests.helpers.pools import some_instances

ROWS = some_instances(3)
PROMPTS = {
    "prompt": "set", "markers": "roman", "marker_seed": 3, "placeholder": "2", "instruction": "Be kind.", "fit": "shrink",
}  # fmt: skip
LOCAL = {"device": "cpu", "dtype": "bfloat16", "batch_tokens": 99, "trust_remote_code": True, "tensor_parallel": 2}
REMOTE = {"concurrency": 2, "rate": 60.0, "retries": 1, "price": Price(1, 1), "cache": False, "tokenizer": "x"}
WITHOUT_PROMPT = ["python:m:f", "command:cat", "rerank:http://localhost:1/rerank", "synthetic:none", "system:monot5", "scores:x"]


def by_place(query, texts):
    return [len(text) + 50.0 * place for place, text in enumerate(texts)]


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("address", WITHOUT_PROMPT)
def test_a_scorer_without_a_prompt_refuses_what_a_prompt_is_made_of(address, name):
    with pytest.raises(InputError, match=rf"{name} would change nothing of {address}\. Leave it out\."):
        check_use({address: address}, AuditConfig(settings=Settings(**{name: PROMPTS[name]})))


@pytest.mark.parametrize("name", [*LOCAL, *REMOTE])
@pytest.mark.parametrize("address", ["python:m:f", "synthetic:none", "first-stage:"])
def test_what_has_no_weights_and_no_address_refuses_how_they_are_run(address, name):
    with pytest.raises(InputError, match="would change nothing"):
        check_use({address: address}, AuditConfig(), EngineOptions(**{name: (LOCAL | REMOTE)[name]}))


@pytest.mark.parametrize("name", REMOTE)
def test_a_local_model_refuses_how_an_endpoint_is_asked(name):
    with pytest.raises(InputError, match="would change nothing"):
        check_use({"hf:m": "hf:m"}, AuditConfig(), EngineOptions(**{name: REMOTE[name]}))


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("hf:m", {*PROMPTS, "device", "dtype", "batch_tokens", "trust_remote_code", "width", "chars", "partition"}),
        ("openai:m@http://localhost:1/v1", {"prompt", "markers", "instruction", "price", "cache", "rate"}),
        ("vllm:m@http://localhost:1", {*PROMPTS, "tokenizer", "concurrency"}),
        ("system:rankgpt@openai:m@http://localhost:1/v1", {"price", "cache", "chars"}),
        ("command:cat", {"timeout", "watch", "chars"}),
    ],
)
def test_what_a_kind_honours_goes_through(address, names):
    assert names <= honoured(address)


def test_all_that_is_asked_in_vain_is_named_at_once():
    with pytest.raises(InputError, match=r"markers, prompt would change nothing of python:by_place\. Leave them out"):
        steadyscore.audit(by_place, ROWS, prompt="set", markers="roman")
    with pytest.raises(InputError, match="perturb markers would change nothing of python:by_place"):
        steadyscore.audit(by_place, ROWS, perturb=["markers"])


def test_what_some_honour_is_applied_to_those_and_named_for_the_others(tiny_folder, capsys):
    model = f"hf:{tiny_folder}"
    found = steadyscore.audit(
        {"mine": by_place, "model": model}, ROWS, prompt="set", permutations=2, perturb=["markers"],
        options=EngineOptions(batch_tokens=512),
    )  # fmt: skip
    said = capsys.readouterr().err
    assert "perturb markers, prompt: nothing changes for mine.\n" in said
    assert "batch_tokens: nothing changes for mine.\n" in said
    mine, other = found
    assert (mine.record.capabilities.order_free, other.record.capabilities.order_free) == (False, True)
    assert mine["tau_psi"].value > 0
    assert "marker_tau_psi" not in mine.figures
    assert mine.record.fingerprint.prompt == "paper"


def test_only_a_set_that_is_read_is_free_of_order():
    function = open_scorer(by_place, Collection("c", "passage_reranking"), AuditConfig()).backend
    scorer = Scorer(function, PASSAGE_RERANKING, Settings(prompt="set"))
    assert not scorer.capabilities.order_free
    assert scorer.settings.prompt == "paper"
    with pytest.raises(InputError, match="prompt would change nothing"):
        steadyscore.rerank(by_place, "q", ["a", "b"], prompt="set")


@pytest.mark.parametrize(
    "words",
    [
        "serve py=synthetic:slot --prompt set --port 0",
        "serve py=synthetic:slot --set dtype=bfloat16 --port 0",
        "score --scorer synthetic:slot --data passages --prompt set",
        "audit --scorer synthetic:slot --data passages --set markers=roman --dry-run",
        "audit --scorer synthetic:slot --data passages --set markers=roman --out runs/x",
        "study attack --scorer synthetic:slot --data passages --prompt set --out runs/x",
        "study width --scorer synthetic:slot --data passages --prompt set --out runs/x",
        "label --scorer synthetic:slot --data passages --prompt set --out runs/x",
    ],
    ids=lambda words: " ".join(
        words.split(" --")[0].split() + [w for w in words.split() if w in ("dtype=bfloat16", "--dry-run")]
    ),
)
def test_every_command_refuses_it_before_anything_is_scored(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 1
    assert "would change nothing of" in capsys.readouterr().err
    assert not list(tmp_path.rglob("run.json"))
