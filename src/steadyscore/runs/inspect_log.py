"""A log of inspect_ai as a score file: a sample is a query, an epoch a permutation, a choice a candidate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..machine.extras import check_installed

if TYPE_CHECKING:
    import pyarrow as pa

ORDER = "steadyscore_order"
"""Under this name the metadata of a sample keep the order in which its choices were shown."""


def read_inspect_log(file: Path) -> pa.Table:
    """A row for each choice of each sample in each epoch: its score is 1 where it was the answer, else 0.

    Epochs without an answer have no row: what is left is measured, and queries that lack permutations are named.
    """
    import pyarrow as pa

    check_installed(f"reading {file.name}", "inspect_ai")
    from inspect_ai.log import read_eval_log

    log = read_eval_log(str(file))
    samples = log.samples or []
    if errors := [str(sample.id) for sample in samples if sample.error]:
        raise InputError(f"{file}: {len(errors)} samples ended in an error, the first is {errors[0]}. Try `inspect eval-retry`.")
    if log.status != "success":
        raise InputError(f"{file} was not run to its end, its status is {log.status}. Try `inspect eval-retry`.")
    unknown = [str(sample.id) for sample in samples if ORDER not in sample.metadata or "choice" not in (sample.scores or {})]
    if unknown:
        raise InputError(
            f"{file} does not say in which order choices were shown, and which was the answer ({len(unknown)} samples, the first "
            f"is {unknown[0]}). Run the task with --solver steadyscore/permuted_choice and inspect's scorer choice()."
        )
    return pa.Table.from_pylist([row for sample in samples for row in _rows(sample)])


def _rows(sample: Any) -> list[dict[str, object]]:
    """One row for each choice; choices go by inspect's letters, in the order of the data set."""
    ids = [chr(ord("A") + place) if place < 26 else str(place - 25) for place in range(len(sample.choices))]
    answers = {*filter(None, (sample.scores["choice"].answer or "").split(", "))}
    targets = {*"".join(sample.target), *sample.target}
    slots = {place: slot for slot, place in enumerate(sample.metadata[ORDER])}
    return [
        {
            "query_id": str(sample.id), "permutation": sample.epoch - 1, "candidate_id": id, "score": float(id in answers),
            "relevance": int(id in targets), "slot": slots[place], "window": 0,
        }
        for place, id in enumerate(ids) if answers
    ]  # fmt: skip
