"""`steadyscore.study_teachers`: whether labels that move less over a teacher's orders made better students (§H.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..audits.load import Given, collect_audits, load_runs
from ..audits.table import html_table, text_table
from ..collection import Data, open_collection
from ..errors import InputError
from ..machine.names import short_repr
from ..measures.decomposition import silver_beta
from ..measures.gains import correlation
from ..measures.intervals import collection_mean
from ..measures.ranking import unless_nan
from .labels import label_quality, read_labels

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

    def cells(self) -> list[Any]:
        """A row of the table."""
        figures = (self.silver_beta, self.silver_beta_scale_free, self.label_quality, self.student_quality)
        return [self.labels, self.student, *("-" if figure is None else figure for figure in figures)]


@dataclass(frozen=True, slots=True)
class TeacherStudy:
    """Every teacher, and what goes together over them. Prints as the table of `steadyscore teachers`."""

    measure: str
    """Of label and student quality."""
    teachers: tuple[Teacher, ...]
    correlations: dict[str, float | None]
    """Pearson's, of two columns over teachers; None where fewer than three teachers have both, or one does not vary."""

    def to_json(self) -> dict[str, Any]:
        """As `steadyscore teachers --json` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        sentences = [
            f"correlation of {pair} over {len(self.teachers)} teachers: {'not defined' if found is None else f'{found:+.3f}'}"
            for pair, found in self.correlations.items()
        ]
        return "\n".join([text_table(HEADER, [teacher.cells() for teacher in self.teachers]), *sentences])

    def __repr__(self) -> str:
        return short_repr(self, f"of {len(self.teachers)} teachers by {self.measure}")

    def _repr_html_(self) -> str:
        return html_table(HEADER, [teacher.cells() for teacher in self.teachers])


def study_teachers(pairs: Iterable[tuple[str | Path, Given]], data: Data | None = None) -> TeacherStudy:
    """Hold the labels of several teachers against the quality of their students.

    pairs  a label folder, and the audits or run folder of the student trained on it; for every teacher
    data   the training collection: then the labels' own quality against its judgements is there too
    """
    given = list(pairs)
    if len(given) < 2:
        raise InputError("a study of teachers needs two or more. Give a label folder and a student's run for each.")
    students = [collect_audits([student], load_runs, is_measured_anew=False) for _, student in given]
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
    found = {f"{column} and student_quality": _correlation(teachers, column) for column in columns}
    return TeacherStudy(measure, tuple(teachers), found)


def _correlation(teachers: Sequence[Teacher], column: str) -> float | None:
    values = [np.nan if (value := getattr(teacher, column)) is None else value for teacher in teachers]
    return unless_nan(correlation(values, [teacher.student_quality for teacher in teachers]))
