"""When to stop: what is known of a mean at an error that looking after every query does not raise (beyond the paper).

Testing by betting (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"): capital
K_t = Π (1 + λ_i (x_i - bound)) is a martingale if the mean is `bound`, whatever the distribution, so by Ville's inequality it
ever reaches 1 / error with probability at most `error`. One gambler bets on a mean above, one on a mean below. Values lie in
[0, 1] and come in random order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..terms import Array

ERROR = 0.05
"""Probability of a wrong answer, however often one looks."""
GRID = 1_000
"""Means that limits are looked for among."""


class Capital:
    """Capital of the gambler who bets that the mean exceeds each of some bounds; values come one by one.

    Stakes are their aGRAPA: λ_t = clip((μ - bound) / (σ² + (μ - bound)²), 0, 1 / (2 bound)) with mean and variance
    of the values before t, started from one pseudo-observation 1/2 with variance 1/4.
    """

    def __init__(self, bounds: ArrayLike):
        self.log: Array = np.zeros(np.shape(bounds))
        """log K_t against every bound."""
        self._bounds = np.asarray(bounds, float)
        self._count = 1
        self._sum: Array = np.asarray(0.5)
        self._squares: Array = np.asarray(0.25)

    def add(self, values: ArrayLike) -> None:
        """The next value, or of studies side by side one of each."""
        value = np.asarray(values, float)
        edge = self._sum / self._count - self._bounds
        stakes = np.clip(edge / (self._squares / self._count + edge**2), 0, 0.5 / self._bounds)
        self.log = self.log + np.log1p(stakes * (value - self._bounds))
        self._count, self._sum = self._count + 1, self._sum + value
        self._squares = self._squares + (value - self._sum / self._count) ** 2


class StoppingAnswer(NamedTuple):
    answer: Literal["below", "at_least", "undecided"]
    queries: int
    """Queries looked at when the answer fell, or all of them."""
    undefined: int
    """Queries without a value, passed over."""


def decide(values: ArrayLike, bound: float, *, error: float = ERROR) -> StoppingAnswer:
    """Is the mean over queries below `bound`? Reads per-query values in [0, 1] one by one and stops when it knows."""
    values = np.asarray(values, float).ravel()
    seen = values[~np.isnan(values)]
    if not 0 < bound < 1:
        raise InputError(f"the bound must lie between 0 and 1, not {bound}.")
    evidence = Evidence(Until("the mean", ">=", bound), error)
    for place in np.flatnonzero(~np.isnan(values)):
        evidence.add(values[place])
        if (answer := evidence.answer) != "undecided":
            passed = int(place + 1 - evidence.queries)
            return StoppingAnswer("at_least" if answer == "holds" else "below", evidence.queries, passed)
    return StoppingAnswer("undecided", len(seen), len(values) - len(seen))


@dataclass(frozen=True, slots=True)
class Until:
    """When an audit has scored enough: a measure is known to hold a bound or not to, or is known within a width."""

    measure: str
    sign: Literal[">=", "<=", "±"]
    number: float

    @classmethod
    def parse(cls, text: str) -> Until:
        fields = re.fullmatch(r"\s*([^\s<>=±]+)\s*(>=|<=|=\s*±|=\s*\+-)\s*(\d*\.?\d+)\s*", text)
        if fields is None:
            raise InputError(f"{text!r} is not a bound. Write overlap>=0.8, tau_psi<=0.1, or pair_flip=±0.03 for a width.")
        measure, sign, number = fields[1], fields[2], float(fields[3])
        is_width = sign not in (">=", "<=")
        if not 0 < number < (0.5 if is_width else 1):
            what, most = ("a width", "0.5") if is_width else (f"a bound on {measure}", "1")
            raise InputError(f"{text!r} can never be decided: give {what} between 0 and {most}.")
        return cls(measure, "±" if is_width else sign, number)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.measure}{'=' * (self.sign == '±')}{self.sign}{self.number:g}"


Answer = Literal["holds", "fails", "undecided"]


class Evidence:
    """What the values so far say of the mean of all: limits that hold at any moment, and the answer that follows from them.

    Each limit of a bound is wrong with probability `error` at most, of a width with half of that: only one can be.
    """

    def __init__(self, until: Until, error: float = ERROR):
        self.until = until
        self._needed = -np.log(error / 2 if until.sign == "±" else error)
        own = [] if until.sign == "±" else [until.number]
        self._means = np.unique(np.concatenate([np.arange(1, GRID) / GRID, own]))
        self._above, self._below = Capital(self._means), Capital(1 - self._means)
        self._too_low, self._too_high = np.zeros((2, len(self._means)), bool)
        self.queries = 0
        """Queries that have a value."""

    def add(self, value: float) -> None:
        """One more value; NaN is passed over."""
        if np.isnan(value):
            return
        if not 0 <= value <= 1:
            raise InputError("sequential stopping needs values between 0 and 1; rescale them first.")
        self.queries += 1
        self._above.add(value)
        self._below.add(1 - value)
        self._too_low |= self._above.log >= self._needed
        self._too_high |= self._below.log >= self._needed

    @property
    def limits(self) -> tuple[float, float]:
        """What the mean lies between. All means outside were refuted, and not only some beyond others that were not."""
        low, high = (int(np.append(refuted, False).argmin()) for refuted in (self._too_low, self._too_high[::-1]))
        return float(self._means[low - 1]) if low else 0.0, float(self._means[-high]) if high else 1.0

    @property
    def answer(self) -> Answer:
        low, high = self.limits
        if self.until.sign == "±":
            return "holds" if high - low <= 2 * self.until.number else "undecided"
        is_above, is_below = low >= self.until.number, high <= self.until.number
        if not is_above and not is_below:
            return "undecided"
        return "holds" if is_above == (self.until.sign == ">=") else "fails"
