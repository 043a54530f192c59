"""The mean silhouettes of many groupings of the same rows, from one matrix product.

Rousseeuw (1987), "Silhouettes", J. Comput. Appl. Math. 20: with a the mean distance of a row to the
others of its group and b the smallest mean distance to another group, (b - a) / max(a, b); 0 for a
row that is alone.

Examples
--------
>>> distances = 1 - np.kron(np.eye(2), np.ones((2, 2)))
>>> mean_silhouettes(distances, np.array([[0, 0, 1, 1], [0, 0, 1, 2]])).tolist()
[1.0, 0.5]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.blas import one_blas_thread

__all__ = ["mean_silhouettes"]


def mean_silhouettes(
    distances: NDArray[np.float64], groupings: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return the mean silhouette of every grouping.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        At least 0, symmetric, zero diagonal. Not modified.
    groupings : ndarray of shape (n_groupings, n)
        Labels 0 ... K - 1 in every row, K >= 2, each of them used.

    Returns
    -------
    ndarray of shape (n_groupings,), in [-1, 1]
        Equal for equal input on any number of threads.

    Notes
    -----
    Takes two more arrays of n x n at most, however many groupings there are.
    """
    n_groups = groupings.max(axis=1, initial=0) + 1
    means = np.empty(len(groupings))
    start = 0
    while start < len(groupings):
        # As many groupings as have n groups together, or one.
        fit = int(np.searchsorted(np.cumsum(n_groups[start:]), distances.shape[0], side="right"))
        stop = start + max(fit, 1)
        means[start:stop] = _means(distances, groupings[start:stop], n_groups[start:stop])
        start = stop
    return means


def _means(
    distances: NDArray[np.float64], groupings: NDArray[np.integer], n_groups: NDArray[np.integer]
) -> list[float]:
    stops = np.cumsum(n_groups)
    starts = stops - n_groups
    rows = np.arange(distances.shape[0])
    belongs = np.zeros((distances.shape[0], stops[-1]))
    for start, labels in zip(starts, groupings, strict=True):
        belongs[rows, start + labels] = 1.0
    with one_blas_thread():
        sums = distances @ belongs
    sizes = belongs.sum(axis=0)
    parts = [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]
    return [
        _mean_silhouette(sums[:, part], sizes[part], labels)
        for part, labels in zip(parts, groupings, strict=True)
    ]


def _mean_silhouette(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], labels: NDArray[np.integer]
) -> float:
    rows = np.arange(labels.size)
    own = sums[rows, labels] / np.maximum(sizes[labels] - 1, 1)
    others = sums / sizes
    others[rows, labels] = np.inf
    nearest = others.min(axis=1)
    larger = np.maximum(own, nearest)
    # Alone in a group, or at the same place as every other row: neither near nor far.
    defined = (sizes[labels] > 1) & (larger > 0)
    return float(np.mean(np.where(defined, nearest - own, 0.0) / np.where(defined, larger, 1.0)))
