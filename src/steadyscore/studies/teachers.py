"""`steadyscore.study_teachers`: whether labels that move less over a teacher's orders made better students (§H.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import numpy as np

from ..audits.audits import Given, collect_audits
from ..collection import Data, open_collection
from ..errors import InputError
from ..machine.names import short_repr
from ..measures.decomposition import silver_beta
from ..measures.intervals import collection_mean
from ..measures.pairing import correlation
from ..measures.ranking import unless_nan
from ..results.render import Printed
from ..results.table import Table, table_of
from ..training.labels import label_quality, read_labels

HEADER = ("labels", "student", "silver-beta", "scale-free", "label quality", "student quality")


@dataclass(frozen=True, slots=True)
class Teacher:
    """A teacher's labels and the student that was trained on them."""

    labels: str
    student: str
    silver_beta: float | None
    """How far a label moves over the teacher's orders; None for labels from one order."""
    silver_beta_scale_free: float | None
    label_quality: float | None
    """nDCG of the averaged labels against judgements, where the training collection was given and has some."""
    student_quality: float
    """Mean over the student's collections, each with the same weight."""


@dataclass(frozen=True, slots=True)
class TeacherStudy(Printed):
    """Every teacher, and what goes together over them. Prints as the table of `steadyscore study teachers`."""

    measure: str
    """Of label and student quality."""
    teachers: tuple[Teacher, ...]
    correlations: dict[str, float | None]
    """Pearson's, of two columns over teachers; None where fewer than three teachers have both, or one does not vary."""

    def to_json(self) -> dict[str, object]:
        """As `steadyscore study teachers --json` prints it."""
        return asdict(self)

    def tables(self) -> list[Table]:
        notes = [
            f"correlation of {pair} over {len(self.teachers)} teachers: {'not defined' if value is None else f'{value:+.3f}'}"
            for pair, value in self.correlations.items()
        ]
        return [table_of(HEADER, [astuple(teacher) for teacher in self.teachers], notes=notes)]

    def __repr__(self) -> str:
        return short_repr(self, f"of {len(self.teachers)} teachers by {self.measure}")


def study_teachers(pairs: Iterable[tuple[str | Path, Given]], data: Data | None = None) -> TeacherStudy:
    """Hold the labels of several teachers against the quality of their students.

    pairs  a label folder, and the audits or run folder of the student trained on it; for every teacher
    data   the training collection: then the labels' own quality against its judgements is there too
    """
    given = list(pairs)
    if len(given) < 2:
        raise InputError("a study of teachers needs two or more. Give a label folder and a student's run for each.")
    students = [collect_audits([student]) for _, student in given]
    tasks = {audit.task.name: audit.task for audits in students for audit in audits}
    if len(tasks) > 1:
        raise InputError(f"the students were audited on several tasks ({', '.join(tasks)}), and means of tasks are not mixed.")
    task = next(iter(tasks.values()))
    measure = task.quality
    source = None if data is None else open_collection(data)
    teachers = []
    for (folder, _), audits in zip(given, students, strict=True):
        if lost := [audit.collection for audit in audits if measure not in audit.measured.values]:
            raise InputError(f"{audits[0].name} has no {measure} on {', '.join(lost)}: a student's quality needs judgements.")
        labels = read_labels(folder)
        beta = silver_beta([label.vectors for label in labels])
        own = None if source is None else label_quality(labels, source, task.quality_cutoff)[measure]
        quality = collection_mean([audit.measured.values[measure] for audit in audits])
        teachers.append(Teacher(str(folder), audits[0].name, unless_nan(beta.beta), unless_nan(beta.scale_free), own, quality))
    columns = ("silver_beta", "silver_beta_scale_free", "label_quality")
    correlations = {f"{column} and student_quality": _correlation(teachers, column) for column in columns}
    return TeacherStudy(measure, tuple(teachers), correlations)


def _correlation(teachers: Sequence[Teacher], column: str) -> float | None:
    values = [np.nan if (value := getattr(teacher, column)) is None else value for teacher in teachers]
    return unless_nan(correlation(values, [teacher.student_quality for teacher in teachers]))
