"""MADD: two clients are alike if all others look alike from both of them.

In many dimensions cosines of noisy vectors crowd together; whole profiles of cosines still differ.

References
----------
.. [1] Chen, Xu and others (2024), "Classifier Clustering and Feature Alignment for Federated
   Learning under Distributed Concept Drift", NeurIPS (FedCCFA), which takes the measure over from
   Sarkar and Ghosh (2019), "On Perfect Clustering of High Dimension, Low Sample Size Data", IEEE
   TPAMI 42(9).

Examples
--------
>>> vectors = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
>>> madd_distances(1 - vectors @ vectors.T).round(6).tolist()
[[0.0, 0.6, 0.2], [0.6, 0.0, 0.8], [0.2, 0.8, 0.0]]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["madd_distances"]


def madd_distances(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean absolute difference of distances to all others.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        Cosine distances, symmetric, zero diagonal. Not modified.

    Returns
    -------
    ndarray of shape (n, n), in [0, 2]
        Symmetric, zero diagonal. For fewer than three clients there are no others: then the cosine
        distances as they are.
    """
    n = len(distances)
    if n < 3:
        return distances.copy()
    # Row by row: all triples at once would be n^3 numbers.
    madd = np.zeros((n, n))
    for i in range(n):
        differences = np.abs(distances[i][None, :] - distances)
        # What i and j are from each other and from themselves is no third client's view.
        own = differences[:, i] + np.diag(differences)
        madd[i] = (differences.sum(axis=1) - own) / (n - 2)
        madd[i, i] = 0.0
    return np.asarray((madd + madd.T) / 2)
