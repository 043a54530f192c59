"""The Kolmogorov-Smirnov statistic with a sign, exact including ties.

CLMA, Algorithm 3, splits drifted clients by the sign of a statistic that as commonly defined has
none. The sign is the one of the larger one-sided difference, as in SciPy's `statistic_sign`.

Examples
--------
>>> signed_ks([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
0.3333333333333333
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clma.errors import EmptyCohortError, InvalidUpdateError

__all__ = ["signed_ks", "signed_ks_sorted"]


def signed_ks(values: ArrayLike, reference: ArrayLike) -> float:
    """Compare the distribution of values with that of a reference.

    Parameters
    ----------
    values, reference : array of shape (n,) and (m,)
        Not modified.

    Returns
    -------
    float in [-1, 1]
        D+ if D+ >= D-, else -D-, with D+ the largest excess of the values' distribution function
        over the reference's. Positive: the values are the *smaller* ones.

    Raises
    ------
    EmptyCohortError
        If one side is empty.
    InvalidUpdateError
        If a value is NaN, which has no place in an order.

    Notes
    -----
    Any permutation of the values gives the same number: the statistic sees how weights are
    distributed, not where they moved. It is a diagnostic here, and decides only in the literal
    mode.
    """
    return signed_ks_sorted(np.sort(np.ravel(values)), np.sort(np.ravel(reference)))


def signed_ks_sorted(values: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    """Do the same for arrays that are sorted already, so that a reference is sorted once."""
    n, m = values.size, reference.size
    if n == 0 or m == 0:
        raise EmptyCohortError(f"signed KS of {n} and {m} values, wanted at least one each")
    if np.isnan(values[-1]) or np.isnan(reference[-1]):
        raise InvalidUpdateError("signed KS got NaN, wanted numbers")
    # Differences of the two step functions as integers over n*m: equal heights compare equal,
    # which float quotients do not guarantee.
    above, below = 0, 0
    for points in (values, reference):
        counts = np.searchsorted(values, points, side="right").astype(np.int64)
        expected = np.searchsorted(reference, points, side="right").astype(np.int64)
        excess = counts * m - expected * n
        above, below = max(above, int(excess.max())), max(below, int(-excess.min()))
    return above / (n * m) if above >= below else -below / (n * m)


def signed_ks_of_rows(
    rows: Sequence[NDArray[np.floating]], reference: NDArray[np.floating]
) -> tuple[float, ...]:
    """Return the statistic of every row against one reference, which is sorted once."""
    ordered = np.sort(reference)
    return tuple(signed_ks_sorted(np.sort(row), ordered) for row in rows)
