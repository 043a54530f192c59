"""Distances between voters, from the inner products of their movements.

Examples
--------
>>> squared_distances(np.array([[1.0, 0.0], [0.0, 4.0]]))
array([[0., 5.],
       [5., 0.]])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROUNDING", "squared_distances"]

ROUNDING = 1e-12
"""Share of two squared movements that their squared distance must pass to tell them apart; float64
sums over many columns are not surer than this."""


def squared_distances(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distance of every pair.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products of movements from one point. Symmetric; not modified.

    Returns
    -------
    ndarray of shape (n, n), >= 0
        Symmetric, its diagonal 0; 0 as well for movements that rounding does not tell apart.
    """
    squares = np.diag(gram)
    both = squares[:, None] + squares[None, :]
    apart = both - 2 * gram
    apart[apart <= ROUNDING * both] = 0.0
    return apart
