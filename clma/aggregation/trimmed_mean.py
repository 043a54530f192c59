"""The mean of every coordinate without its extremes.

Yin, Chen, Ramchandran and Bartlett (2018), "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML, definition 2.

Examples
--------
>>> values = np.array([[-70.0, 1.0, 2.0, 3.0, 1e6]])
>>> mean_of_the_middle(values, AggregationConfig(trim_fraction=0.2)).tolist()
[2.0]
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from clma.config import AggregationConfig

__all__ = ["mean_of_the_middle", "n_trimmed"]


def n_trimmed(n_voters: int, trim_fraction: float) -> int:
    """Return how many values are dropped at each end: floor of the fraction of the voters.

    At least one value is left: `trim_fraction` is below one half. With fewer than
    1 / `trim_fraction` voters nothing is dropped.
    """
    # 0.29 * 100 is a bit below 29.
    return math.floor(round(trim_fraction * n_voters, 9))


def mean_of_the_middle(
    values: NDArray[np.floating], config: AggregationConfig
) -> NDArray[np.float64]:
    """Average every column without the largest and the smallest values.

    Parameters
    ----------
    values : ndarray of shape (n_columns, n_voters)
        Each row rising. Not modified.
    config : AggregationConfig

    Returns
    -------
    ndarray of shape (n_columns,)
        In the units of `values`. As many voters as are dropped at each end, whatever they send, do
        not move it out of the range of the others'.

    Notes
    -----
    Values are added in rising order: the sum does not depend on who sent which.
    """
    n = values.shape[1]
    dropped = n_trimmed(n, config.trim_fraction)
    # By rank, not along short rows: vectors of columns are what NumPy adds fast.
    ranks = np.ascontiguousarray(values[:, dropped : n - dropped].T)
    mean: NDArray[np.float64] = ranks.sum(axis=0, dtype=np.float64) / ranks.shape[0]
    # A rounded mean of equal values may lie a bit beside them.
    np.maximum(mean, values[:, dropped], out=mean)
    np.minimum(mean, values[:, n - 1 - dropped], out=mean)
    return mean
