"""The cutoff of an adapter is an audit's, kept where a server finds it."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from steadyscore import audit
from steadyscore.errors import InputError
from steadyscore.models.card import read_card
from steadyscore.models.embedded import shipped_adapters
from steadyscore.serve.service import open_model
from steadyscore.training.adapters import PERMUTATIONS, store_cutoff
from steadyscore.training.recipe import TrainConfig
from tests.helpers import tiny


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """An adapter, and queries that it was not trained on."""
    folder = tmp_path_factory.mktemp("world")
    tiny.save(folder / "base", tiny.decoder())
    for name, seed in (("trained", 0), ("others", 1)):
        tiny.write_collection(folder / f"{name}.jsonl", 10, 5, seed=seed)
    tiny.train_adapter(
        TrainConfig(
            base=f"hf:{folder / 'base'}", data=str(folder / "trained.jsonl"), labels="judgements", out=str(folder / "adapter"),
            objective="single_order", widths=(5,), steps=2, batch=2, learning_rate=1e-2, device="cpu",
        )
    )  # fmt: skip
    return folder


@pytest.fixture
def adapter(world, tmp_path) -> Path:
    return Path(shutil.copytree(world / "adapter", tmp_path / "adapter"))


def address(world: Path, adapter: Path) -> str:
    return f"hf:{world / 'base'}+{adapter}"


def test_it_is_the_cutoff_of_an_audit_and_what_a_server_decides_with(world, adapter):
    before = read_card(adapter)
    stored = store_cutoff(adapter, world / "others.jsonl", keep=0.4, quiet=True)
    how = {"match_retention": 0.4, "permutations": PERMUTATIONS, "quiet": True}
    [audited] = audit(address(world, adapter), str(world / "others.jsonl"), **how)
    assert stored.value == audited.measured.cutoff.value
    assert (stored.overlap, stored.retention) == (audited["overlap"].value, audited["retention"].value)
    assert stored.on == "10 queries of others"
    assert read_card(adapter).to_json() == {**before.to_json(), "cutoff": asdict(stored)}
    model = open_model("own", address(world, adapter))
    assert (model.cutoff, model.expected_overlap) == (stored.value, stored.overlap)
    assert f"what scores at least {stored.value:.4g}." in (adapter / "README.md").read_text()


def test_a_run_of_the_adapter_is_not_scored_again_and_that_of_another_is_refused(world, adapter, tmp_path):
    data, how = str(world / "others.jsonl"), {"permutations": PERMUTATIONS, "report": False, "quiet": True}
    audit(address(world, adapter), data, out=tmp_path / "run", **how)
    assert store_cutoff(adapter, run=tmp_path / "run") == store_cutoff(adapter, data, quiet=True)
    for other, changed, words in (
        (f"hf:{world / 'base'}", {"width": 5}, "was scored by another adapter"),
        (address(world, adapter), {"width": 3}, "was scored with width 3 and not 5"),
        (address(world, adapter), {"mitigations": ["canonical-order"]}, "was scored with mitigation canonical-order"),
    ):
        audit(other, data, out=tmp_path / words, **how, **changed)
        with pytest.raises(InputError, match=words):
            store_cutoff(adapter, run=tmp_path / words)


def test_queries_that_it_was_trained_on_are_remarked(world, adapter, caplog):
    store_cutoff(adapter, world / "others.jsonl", quiet=True)
    assert not caplog.records
    store_cutoff(adapter, world / "trained.jsonl", quiet=True)
    assert "fitted on what the adapter was trained on" in caplog.text


def test_what_cannot_have_a_cutoff_is_refused_and_its_card_stays(world, adapter):
    before = (adapter / "card.json").read_bytes()
    one = tiny.write_collection(adapter.parent / "one.jsonl", 1, 5, seed=2)
    with pytest.raises(InputError, match="no cutoff can be fitted on one"):
        store_cutoff(adapter, one, quiet=True)
    with pytest.raises(InputError, match="Give one of them"):
        store_cutoff(adapter)
    with pytest.raises(InputError, match="is part of the package"):
        store_cutoff(shipped_adapters()["smollm2-135m-set"], one)
    assert (adapter / "card.json").read_bytes() == before
