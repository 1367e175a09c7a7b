"""What a fault is, and the list of them.

    @fault("name", "how it is injected, in a few words", times=50, few=2)
    def name(folder: Path, times: int) -> Counts:
        '''Injects it `times` times in an empty folder and counts rows against an undisturbed run (`counting.py`).'''

An assertion that fails in it fails the row, as a count that is not zero does. `Unavailable` says why this machine cannot
inject it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class Unavailable(Exception):
    """What this machine lacks for a fault: a right, a package."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Faults that were injected, and the rows that differ from those of an undisturbed run."""

    times: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.times + other.times, self.lost + other.lost, self.doubled + other.doubled, self.wrong + other.wrong)

    @property
    def is_sound(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


Inject = Callable[[Path, int], Counts]


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    how: str
    """How it is injected, as the table says it."""
    inject: Inject
    times: int
    """Times that `make faults` injects it."""
    few: int
    """Times that the test suite injects it."""
    is_slow: bool
    """Whether the suite leaves it to `make test-slow`."""


FAULTS: dict[str, Fault] = {}
"""In the order of the table."""


def fault(name: str, how: str, *, times: int, few: int = 1, is_slow: bool = False) -> Callable[[Inject], Inject]:
    """Put a function on the list."""

    def register(inject: Inject) -> Inject:
        assert name not in FAULTS, f"two faults are called {name}"
        FAULTS[name] = Fault(name, how, inject, times, few, is_slow)
        return inject

    return register


def all_faults() -> dict[str, Fault]:
    """Every fault of every module in `cases/`."""
    from tests.faults import cases

    for module in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"{cases.__name__}.{module.name}")
    return FAULTS
