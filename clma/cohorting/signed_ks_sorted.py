"""The largest differences of two distribution functions, from sorted samples.

Differences are integers over n*m: equal heights compare equal, which float quotients do not
guarantee. The samples are not merged: whether any difference exceeds a given one is a comparison of
the two sorted arrays at a shift, which runs at the speed of memory.

Examples
--------
>>> sorted_statistic(np.array([1.0, 2.0]), np.array([2.0, 3.0, 4.0]))
0.6666666666666666
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["OneSide", "Weights", "signed_statistic", "sorted_statistic"]

STEP = 512
"""Ranks between two points where the difference is computed first."""

MAX_STEPS = 1024
"""Such points of a large sample: where the largest difference cannot lie is not looked at."""

STEPS_AT_ONCE = 64
"""Steps that are compared in one call."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What one value adds to an excess, so that both distribution functions end at one height.

    Parameters
    ----------
    value, reference : int > 0
        Of one of the n values, m / gcd(n, m), and of one of the m of the reference, n / gcd(n, m).
    """

    value: int
    reference: int

    @classmethod
    def of_sizes(cls, n: int, m: int) -> Weights:
        """Return the weights for n values and a reference of m."""
        divisor = gcd(n, m)
        return cls(m // divisor, n // divisor)


def signed_statistic(up: int, down: int, height: int) -> float:
    """Return the larger of two excesses over a height, negative where it is `down`, in [-1, 1]."""
    return up / height if up >= down else -down / height


def sorted_statistic(values: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    """Return the signed KS of two sorted samples without NaN, of one dtype."""
    weights = Weights.of_sizes(values.size, reference.size)
    rising = OneSide.of(values, reference, weights.value, weights.reference)
    falling = OneSide.of(reference, values, weights.reference, weights.value)
    # Where `down` is ahead, `up` decides only if it draws level, and else need not be known.
    up = rising.largest_excess(max(0, falling.reached - 1))
    down = falling.largest_excess(up)
    return signed_statistic(up, down, values.size * weights.value)


@dataclass(frozen=True, slots=True)
class OneSide:
    """The excess of the weighted count of `a` over that of `b`, known at every `step`-th of `b`.

    Parameters
    ----------
    a, b : ndarray of shape (n,) and (m,)
        Sorted, without NaN, of one dtype.
    weight_a, weight_b : int > 0
        Of one value of either, n * weight_a = m * weight_b; exact also beyond 64 bits.
    step : int > 0
    reached : int
        An excess that is reached somewhere.
    bounds : ndarray of shape (n_steps,)
        What the excess below any value of `b` within a step cannot exceed.
    """

    a: NDArray[np.floating]
    b: NDArray[np.floating]
    weight_a: int
    weight_b: int
    step: int
    reached: int
    bounds: NDArray[Any]

    @classmethod
    def of(
        cls, a: NDArray[np.floating], b: NDArray[np.floating], weight_a: int, weight_b: int
    ) -> OneSide:
        """Compute the excess at every `step`-th value of `b`."""
        step = max(STEP, b.size // MAX_STEPS)
        ranks = np.arange(0, b.size, step)
        counts = np.append(np.searchsorted(a, b[ranks], side="left"), a.size)
        number = _number_type(a.size * weight_a)
        heights_a, heights_b = counts.astype(number) * weight_a, ranks.astype(number) * weight_b
        # Below b[rank] there are at most `rank` of b. Within a step there are at least as many, and
        # of `a` at most those below its end.
        reached = int((heights_a[:-1] - heights_b).max())
        return cls(a, b, weight_a, weight_b, step, reached, heights_a[1:] - heights_b)

    def largest_excess(self, at_least: int) -> int:
        """Return the largest excess at any point, or what it is at least."""
        excess = max(at_least, self.reached)
        for first in range(0, self.bounds.size, STEPS_AT_ONCE):
            open_steps = np.flatnonzero(self.bounds[first : first + STEPS_AT_ONCE] > excess)
            if open_steps.size:
                start = int(first + open_steps[0]) * self.step
                stop = int(first + open_steps[-1] + 1) * self.step
                excess = max(excess, self._largest_above(excess, start, self.b[start:stop]))
        return excess

    @property
    def _number(self) -> DTypeLike:
        return _number_type(self.a.size * self.weight_a)

    def _largest_above(self, excess: int, start: int, part: NDArray[np.floating]) -> int:
        """Return the largest excess below a value of a part of `b`, if it is above the given."""
        places = self._exceeding(excess, start, part)
        if not places.size:
            return excess
        counts = np.searchsorted(self.a, part[places], side="left").astype(self._number)
        ranks = (start + places).astype(self._number)
        return int((counts * self.weight_a - ranks * self.weight_b).max())

    def _exceeding(self, excess: int, start: int, part: NDArray[np.floating]) -> NDArray[np.intp]:
        """Return the values of a part of `b` that have more of `a` below them than allowed."""
        if self.weight_a == self.weight_b == 1:
            enough = self.a[start + excess : start + excess + part.size]
            return np.flatnonzero(enough < part[: enough.size])
        ranks = np.arange(start, start + part.size).astype(self._number)
        needed = (ranks * self.weight_b + excess) // self.weight_a
        needed = needed[needed < self.a.size].astype(np.intp)
        return np.flatnonzero(self.a[needed] < part[: needed.size])


def _number_type(height: int) -> DTypeLike:
    """Return int64, or Python's numbers where a sum of two heights would not fit."""
    return np.int64 if height < 2**62 else object
