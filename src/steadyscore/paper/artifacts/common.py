"""Rows and columns that several tables share."""

from __future__ import annotations

from typing import Unpack

from ..names import COLLECTIONS, SEEDS, SYSTEMS
from ..recipe import Fields, Line, joined

ALL_SEEDS = SEEDS
NDCG, TAU = Fields(measure="ndcg@10"), Fields(measure="tau_psi")
DASH = Fields(text="---")


def system_line(
    system: str, label: str = "", /, is_rival: bool = False, group: str = "", mark: str = "", **given: Unpack[Fields]
) -> Line:
    return Line(label or SYSTEMS[system].label, joined(Fields(system=system), given), group, is_rival, mark)


SIX = ("off-the-shelf", "single-order", "order-averaged", "permutation-augmentation", "debias-first", "oc-sft")
"""The variants that the mitigation tables compare, in the paper's order."""
FOUR = tuple(system_line(name) for name in ("off-the-shelf", "single-order", "order-averaged", "oc-sft"))
THREE = FOUR[1:]


def measure_line(label: str, measure: str, /, **given: Unpack[Fields]) -> Line:
    return Line(label, joined(given, Fields(measure=measure)))


def collection_line(collection: str, label: str = "", /, **given: Unpack[Fields]) -> Line:
    return Line(label or COLLECTIONS[collection], joined(given, Fields(collections=collection)))


def collection_lines(names: tuple[str, ...], **given: Unpack[Fields]) -> tuple[Line, ...]:
    return tuple(collection_line(name, **given) for name in names)


def variants_by_measure(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Two columns, quality and instability, under each variant's heading."""
    columns = []
    for variant in lines:
        for label, fields in (("nDCG", NDCG), ("τ-PSI", TAU)):
            columns.append(Line(label, joined(variant.fields, fields), variant.label, variant.is_rival))
    return tuple(columns)
