"""How far counts can be trusted.

Examples
--------
>>> rate = Rate(1, 10)
>>> f"{rate.low:.3f} to {rate.high:.3f}"
'0.018 to 0.404'
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Rate", "sign_test"]

_Z = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many, with its 95 % interval.

    Parameters
    ----------
    count, total : int, 0 <= count <= total

    References
    ----------
    Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22.
    """

    count: int
    total: int

    @property
    def share(self) -> float:
        """In [0, 1]; 0 of nothing."""
        return self.count / self.total if self.total else 0.0

    @property
    def low(self) -> float:
        """Lower end of the interval, in [0, 1]."""
        return max(self._middle - self._half_width, 0.0) if self.count else 0.0

    @property
    def high(self) -> float:
        """Upper end of the interval, in [0, 1]."""
        return min(self._middle + self._half_width, 1.0) if self.count < self.total else 1.0

    @property
    def _middle(self) -> float:
        return (self.count + _Z**2 / 2) / (self.total + _Z**2)

    @property
    def _half_width(self) -> float:
        n, share = self.total, self.share
        return _Z / (n + _Z**2) * math.sqrt(n * share * (1 - share) + _Z**2 / 4)


def sign_test(n_better: int, n_worse: int) -> float:
    """Return how likely chance makes at least so many of the changes better, one-sided.

    Parameters
    ----------
    n_better, n_worse : int >= 0
        Cases that one rule gets right and the other wrong, and the other way round.

    Returns
    -------
    float in (0, 1]
    """
    n = n_better + n_worse
    return sum(math.comb(n, k) for k in range(n_better, n + 1)) / float(2**n)
