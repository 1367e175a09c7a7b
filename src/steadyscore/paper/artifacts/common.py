"""Rows, columns and blocks that several tables share, and a table of one block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..names import BASES, COLLECTIONS, SYSTEMS
from ..recipe import Artifact, Block, Drawing, Fields, Line, line

NDCG, TAU = Fields(measure="ndcg@10"), Fields(measure="tau_psi")
DASH = Fields(text="---")

Names = Iterable[str] | Mapping[str, str]
"""What lines are of; with the label of each, where the paper has another one there."""


def _labelled(names: Names, label: Any) -> list[tuple[str, str]]:
    return list(names.items()) if isinstance(names, Mapping) else [(name, label(name)) for name in names]


def systems(names: Names, /, group: str = "", is_rival: bool = False, **given: Any) -> tuple[Line, ...]:
    named = _labelled(names, lambda name: SYSTEMS[name].label)
    return tuple(Line(label, Fields(system=name) | given, group, is_rival) for name, label in named)


def bases(names: Names, **given: Any) -> tuple[Line, ...]:
    return tuple(Line(label, Fields(base=name) | given) for name, label in _labelled(names, lambda name: BASES[name].label))


def collections(names: Names, **given: Any) -> tuple[Line, ...]:
    return tuple(Line(label, given | Fields(collections=name)) for name, label in _labelled(names, COLLECTIONS.__getitem__))


def measures(names: Mapping[str, str], /, group: str = "", **given: Any) -> tuple[Line, ...]:
    """A line for each measure, under its label in the paper."""
    return tuple(Line(label, given | Fields(measure=name), group) for label, name in names.items())


SIX = ("off-the-shelf", "single-order", "order-averaged", "permutation-augmentation", "debias-first", "oc-sft")
"""The variants that the mitigation tables compare, in the paper's order."""
FOUR = systems(("off-the-shelf", "single-order", "order-averaged", "oc-sft"))
FOUR_RIVALS = systems(("off-the-shelf", "single-order", "order-averaged", "oc-sft"), is_rival=True)
THREE = FOUR[1:]


def estimate(label: str = "Estimate", group: str = "", **given: Any) -> tuple[Line, Line]:
    """Two columns: a difference, and its interval."""
    return line(label, group, form="signed", **given), line("95% CI", group, form="interval", **given)


def variants_by_measure(lines: tuple[Line, ...], group: str = "", **given: Any) -> tuple[Line, ...]:
    """Two columns, quality and instability, under each variant's heading."""
    return tuple(
        Line(label, variant.fields | measured | given, group + variant.label, variant.is_rival)
        for variant in lines
        for label, measured in (("nDCG", NDCG), ("τ-PSI", TAU))
    )


SHUFFLES = 40
"""Permutations that ensembles are made of."""
BUDGETS = tuple(line(str(k), serving=k, at=float(k)) for k in range(1, 11))


def amortized(title: str, axis: str, rows: tuple[Line, ...], **measured: Any) -> Block:
    """A measure against the number of permutations that are averaged."""
    drawn = Drawing("lines", "K, permutations averaged", axis)
    return Block(title, rows, BUDGETS, measured | Fields(permutations=SHUFFLES), "K", draw=drawn)


def table(
    name: str, title: str, basis: str, rows: Iterable[Line], columns: Iterable[Line], fields: Fields | None = None, **how: Any
) -> Artifact:
    """A table or figure of one block, which needs no title of its own."""
    return Artifact(name, title, basis, (Block("", tuple(rows), tuple(columns), fields or Fields(), **how),))
