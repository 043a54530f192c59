"""The median of every coordinate.

Yin, Chen, Ramchandran and Bartlett (2018), "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML, definition 1.

Examples
--------
>>> middle_values(np.array([[1.0, 2.0, 9.0], [-5.0, 0.0, 1.0]]), AggregationConfig()).tolist()
[2.0, 0.0]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.config import AggregationConfig

__all__ = ["middle_values"]


def middle_values(
    values: NDArray[np.floating], _config: AggregationConfig | None = None
) -> NDArray[np.float64]:
    """Return the middle value of every column; of an even number, the mean of the middle two.

    Parameters
    ----------
    values : ndarray of shape (n_columns, n_voters)
        Each row rising. Not modified.

    Returns
    -------
    ndarray of shape (n_columns,)
        In the units of `values`. Fewer than half of the voters, whatever they send, do not move it
        out of the range of the others'.
    """
    n = values.shape[1]
    low, high = values[:, (n - 1) // 2], values[:, n // 2]
    return (low.astype(np.float64) + high) / 2
