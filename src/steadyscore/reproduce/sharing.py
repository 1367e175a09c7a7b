"""Runs of the paper shared out among workers on many machines: groups of jobs, each made by one worker from beginning to end.

Jobs that need the same adapter or the same labels stand in one group, so that nothing is trained or labelled twice; all others
are groups of their own. Workers see one store. The same command without workers does what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..engines import EngineOptions
from ..scoring.parts import Share
from ..scoring.ray_launcher import Cluster, Row, map_on_ray
from .execute import Store, Workshop, do_all
from .jobs import Job, trainings_of
from .scale import Choices


def independent_groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that share an adapter or labels, together; in the order of the first of each, the same for every worker."""
    group_of: dict[str, int] = {}
    groups: dict[int, list[Job]] = {}
    for place, job in enumerate(jobs):
        needs = [key for training in trainings_of([job]) for key in (training.content.key, training.labels.key)]
        joined = sorted({group_of[key] for key in needs if key in group_of})
        here = joined[0] if joined else place
        merged = [member for number in joined for member in groups.pop(number)] + [job]
        groups[here] = merged
        group_of |= {key: here for key, group in group_of.items() if group in joined} | dict.fromkeys(needs, here)
    return [groups[number] for number in sorted(groups)]


def jobs_of_share(jobs: Sequence[Job], share: Share) -> list[Job]:
    """The jobs of one worker among several."""
    groups = independent_groups(jobs)
    return [job for place in share.parts(len(groups)) for job in groups[place]]


@dataclass(frozen=True)
class SharedJobs:
    """What all actors are told."""

    groups: list[list[Job]]
    store: Store
    choices: Choices
    options: EngineOptions
    command: Sequence[str] = ()

    def open(self) -> Callable[[Row], Any]:
        """The work of an actor, which keeps an opened model from group to group."""
        workshop = Workshop(self.store, self.choices, self.options, self.command, quiet=True)
        return partial(self._do, workshop)

    def _do(self, workshop: Workshop, row: Row) -> dict[str, list[str]]:
        remarks: list[str] = []
        failed = do_all(self.groups[row["group"]], workshop, remarks.append)
        return {"failed": failed, "remarks": remarks}


def do_on_ray(shared: SharedJobs, cluster: Cluster, say: Callable[[str], None], *, quiet: bool = False) -> None:
    """Do all groups on a Ray cluster. What failed or was lost is said, and left to the command that follows."""
    rows = [{"group": number} for number in range(len(shared.groups))]
    answers = map_on_ray(cluster, SharedJobs.open, shared, rows, quiet=quiet)
    for sentence in _sentences(shared.groups, answers):
        say(sentence)


def _sentences(groups: Sequence[Sequence[Job]], answers: Sequence[Any]) -> Iterator[str]:
    for group, answer in zip(groups, answers, strict=True):
        if answer.error:
            first = group[0].request
            yield f"{first.system} on {first.collection} and what belongs to it: {answer.error}. It is done here now."
        else:
            yield from (*answer.value["remarks"], *answer.value["failed"])
