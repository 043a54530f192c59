"""All the groupings that a linkage tree offers, from two groups to many.

SciPy's `cut_tree` gives the same groupings, one merge of all rows after another; here only the last
few merges are undone.

Examples
--------
>>> tree = np.array([[0, 1, 0.1, 2], [2, 3, 0.2, 2], [4, 5, 0.9, 4]])
>>> cut_from_top(tree, max_groups=3).tolist()
[[0, 0, 1, 1], [0, 0, 1, 2]]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["cut_from_top"]


def cut_from_top(tree: NDArray[np.float64], *, max_groups: int) -> NDArray[np.intp]:
    """Return the groupings into 2 ... max_groups groups.

    Parameters
    ----------
    tree : ndarray of shape (n - 1, 4)
        As `scipy.cluster.hierarchy.linkage` returns it: two nodes, their distance, leaves below.
    max_groups : int in [1, n]

    Returns
    -------
    ndarray of shape (max_groups - 1, n)
        Labels, numbered as the groups split off.

    Notes
    -----
    Of merges at equal distance those are undone first that are nearest to the root, then those on
    the right, as `cut_tree` does.
    """
    n = tree.shape[0] + 1
    children = tree[:, :2].astype(np.intp)
    breadth, first, last, leaves = _walk(children)
    order = np.lexsort((-breadth, tree[:, 2]))
    labels = np.zeros(n, np.intp)
    cuts = np.empty((max_groups - 1, n), np.intp)
    for cut in range(max_groups - 1):
        child = children[order[n - 2 - cut], 1]
        labels[leaves[first[child] : last[child]]] = cut + 1
        cuts[cut] = labels
    return cuts


def _walk(
    children: NDArray[np.intp],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return when a walk in breadth meets every merge, and which leaves lie below every node."""
    n = children.shape[0] + 1
    sizes = np.ones(2 * n - 1, np.intp)
    for merge, (left, right) in enumerate(children):
        sizes[n + merge] = sizes[left] + sizes[right]
    first = np.zeros(2 * n - 1, np.intp)
    breadth = np.zeros(n - 1, np.intp)
    level = [2 * n - 2]
    n_met = 0
    while level:
        below = []
        for node in level:
            if node >= n:
                breadth[node - n] = n_met
                n_met += 1
                left, right = children[node - n]
                first[left] = first[node]
                first[right] = first[node] + sizes[left]
                below += [int(right), int(left)]
        level = below
    leaves = np.empty(n, np.intp)
    leaves[first[:n]] = np.arange(n)
    return breadth, first, first + sizes, leaves
