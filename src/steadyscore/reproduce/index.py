"""How far an artifact is: what the store holds of it, what it needs, and the page that lists it all."""

from __future__ import annotations

from typing import NamedTuple

from .artifacts import ARTIFACTS
from .execute import Store
from .jobs import jobs_of, requests_of
from .names import SYSTEMS
from .recipe import Artifact
from .scale import Choices


class Status(NamedTuple):
    status: str
    """`complete`, `part of it`, `not run`, `diagram`; the first two of the runs in the store."""
    runs: int
    done: int
    cells: int
    missing: list[str]
    """What is not there, one sentence each."""


def status_of(artifact: Artifact, choices: Choices, store: Store) -> Status:
    """How many of an artifact's runs are in the store."""
    if artifact.is_diagram:
        return Status("diagram", 0, 0, 0, [])
    cells = list(artifact.cells())
    jobs = jobs_of(requests_of(cells, choices), choices)
    done = sum(not store.unmet(job, choices) for job in jobs)
    missing = [f"{len(jobs) - done} of {len(jobs)} runs are not scored yet"] if done < len(jobs) else []
    word = "complete" if done == len(jobs) else "part of it" if done else "not run"
    return Status(word, len(jobs), done, len(cells), missing)


def needs_of(artifact: Artifact) -> list[str]:
    """What an artifact asks for beside scores, in words."""
    cells = list(artifact.cells())
    sides = [side for cell in cells if not cell.text for _, side in cell.sides()]
    trained = {side.system for side in sides if side.system} - {"off-the-shelf"}
    found = []
    if any(SYSTEMS[name].training for name in trained):
        found.append("adapters")
    if external := sorted(SYSTEMS[name].label for name in trained if SYSTEMS[name].is_external):
        found.append(", ".join(external))
    if any(side.reader for side in sides):
        found.append("readers")
    if any(side.perturb for side in sides):
        found.append("changed pools")
    if any(side.first_stage for side in sides):
        found.append("two more first stages")
    if any(len(side.seeds) > 1 for side in sides):
        found.append("three seeds")
    return found


PAGE = """\
# Paper index

Every table and figure of the paper, and what it needs. `steadyscore reproduce run NAME` makes one, `show NAME` prints it. Add
`--scale tiny` for parts of the embedded collections and graders with planted effects (shapes, not results), `--scale laptop`
for the embedded model, `--scale paper` for the paper's own; `steadyscore reproduce plan NAME` says what is missing on a machine.
Nothing here has been run at the paper's scale. `steadyscore reproduce list` prints how much of each a store holds.

A store (`--store DIR`) keeps runs, labels, adapters and derived collections, each in a folder named by a hash of what it is, with
`what.json` that says so in words: a run that two tables need is scored once, and a stopped command resumes. A run of more
permutations serves every table that needs fewer. `show` prints text, HTML (with the figure drawn), LaTeX for `\\input` with
booktabs, or CSV with one row per cell; each says what a cell is made from, and `--paper` adds the paper's values. `gallery`
writes them all as one static site ([below](#the-gallery)).

What the user names takes the place of the paper's, by flags or in a file for `--choices`:

```toml
base = "hf:/models/my-model"            # for every base; or one by one:
[bases]
"qwen3-4b" = "hf:Qwen/Qwen3-4B"
[collections]
legal-a = "/data/contracts.jsonl"       # a name or a file; without one, means leave the private collections out
[systems]
"gpt-5.4" = "openai:gpt-5.4@https://api.openai.com/v1"
[adapters]
"oc-sft/passage_reranking/qwen3-4b/42" = "adapters/passage-oc"   # system[/task][/base[/seed]]
[readers]
first = "hf:ibm-granite/granite-4.1-8b"
[runs]
"skywork/nectar" = "runs/skywork-nectar"
```

"""


def index_page() -> str:
    """docs/paper-index.md."""
    rows = ["| artifact | title | NAME | needs |", "|---|---|---|---|"]
    for artifact in ARTIFACTS.values():
        is_scored = any(not cell.text and cell.statistic != "size" for cell in artifact.cells())
        needs = ", ".join(needs_of(artifact)) or ("scores" if is_scored else "nothing")
        if artifact.is_diagram:
            rows.append(f"| {artifact.number} ({artifact.label}) | {artifact.title} | - | a diagram: nothing to measure |")
            continue
        rows.append(f"| {artifact.number} ({artifact.label}) | {artifact.title} | `{artifact.name}` | {needs} |")
    return PAGE + "\n".join(rows) + "\n\nEvery cell has code that measures it.\n"
