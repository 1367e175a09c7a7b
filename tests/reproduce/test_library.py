"""What a run cannot give is refused in one sentence, and never made up."""

import pytest

from steadyscore.engines import Capabilities, EngineOptions
from steadyscore.reproduce import execute
from steadyscore.reproduce.execute import Store
from steadyscore.reproduce.jobs import Need, job_of, request_of
from steadyscore.reproduce.library import Library, MissingRun
from steadyscore.reproduce.planted import PlantedGrader
from steadyscore.reproduce.recipe import Side
from steadyscore.reproduce.scale import choices_from


class RankingOnly(PlantedGrader):
    """A planted grader that says of itself that it gives no scores."""

    def __init__(self, *given):
        super().__init__(*given)
        self.capabilities = Capabilities(gives="ranking", deterministic=True)


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "PlantedGrader", RankingOnly)
    choices = choices_from("tiny")
    side = Side(system="rank-zephyr", collections="dl19", permutations=3, seeds=(0,))
    job = job_of(request_of(side, "qwen3-4b", 0, "dl19"), frozenset({Need(3)}), choices)
    execute.Workshop(Store(tmp_path), choices, EngineOptions(), quiet=True).do(job, print)
    return Library(Store(tmp_path), choices), side


def test_a_system_that_only_ranks_has_no_overlap(library):
    shelf, side = library
    place = (side, "qwen3-4b", 0, "dl19")
    assert shelf.observation(*place, "tau_psi").values.size
    for name in ("overlap", "floor:overlap", "retention"):
        with pytest.raises(MissingRun, match=rf"^rank-zephyr on dl19 gives a ranking, and {name} needs scores"):
            shelf.observation(*place, name)
    assert shelf.measured(*place).cutoff.value is None
