"""What a run will cost is what it then costs, told from the address alone."""

from __future__ import annotations

import pytest

from steadyscore.collection import open_collection
from steadyscore.engines.systems import SYSTEMS
from steadyscore.errors import InputError
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer
from steadyscore.scoring.estimate import estimate
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from tests.helpers.pools import a_card, some_instances, write_collection


@pytest.fixture
def long_pools(tmp_path):
    return str(write_collection(tmp_path / "long.jsonl", some_instances(queries=2, candidates=30)))


@pytest.mark.parametrize("settings", [Settings(), Settings(width=7)])
def test_a_reranker_takes_the_whole_pool_unless_it_is_told_otherwise(long_pools, tmp_path, settings):
    config = AuditConfig(permutations=3, settings=settings)
    scorer = open_scorer("synthetic:slot", open_collection(long_pools).collection, config)
    run = score_collection(scorer, long_pools, tmp_path / "run", config)
    assert estimate("synthetic:slot", long_pools, config).windows == run.record.coverage.windows


def test_a_language_model_takes_the_tasks_width_and_a_system_its_own(long_pools):
    config = AuditConfig(permutations=3)
    assert estimate("hf:some/model", long_pools, config).windows == 2 * 4 * 2  # 30 by 20
    assert SYSTEMS["jina-reranker-v3-b20"].width == 20
    assert estimate("system:jina-reranker-v3-b20", long_pools, config).windows == 2 * 4 * 2
    assert estimate("system:jina-reranker-v3", long_pools, config).windows == 2 * 4


def test_an_adapters_card_tells_width_characters_and_words(tmp_path):
    """The shipped adapter was trained at width 10, where the task's is 20."""
    config = AuditConfig(permutations=10, cut=Cut(queries=2))
    assert estimate("smollm2-135m-oc", "passages", config).windows == 44
    assert estimate("hf:smollm2-135m-oc", "passages", config).windows == 44
    (tmp_path / "card.json").write_text(a_card(settings={"width": 4, "chars": 50, "prompt": "compact"}))
    plain, adapted = (
        estimate(address, "passages", how)
        for address, how in (
            ("smollm2-135m", AuditConfig(10, settings=Settings(width=4, prompt="compact"), chars=50, cut=Cut(queries=2))),
            (f"smollm2-135m+{tmp_path}", config),
        )
    )
    assert (adapted.windows, adapted.tokens) == (plain.windows, plain.tokens)
    assert estimate(f"vllm:some/model+{tmp_path}", "passages", config).windows == 2 * 11 * 5
    asked = AuditConfig(permutations=10, settings=Settings(width=20), cut=Cut(queries=2))
    assert estimate(f"smollm2-135m+{tmp_path}", "passages", asked).windows == 22


def test_an_address_that_names_nothing_has_no_cost(long_pools):
    for address in ("teapot", "teapot:x", "smollm2-135m+nowhere"):
        with pytest.raises(InputError):
            estimate(address, long_pools, AuditConfig())
