"""The point with the least sum of distances to all updates, each by its share.

Pillutla, Kakade and Harchaoui (2022), "Robust Aggregation for Federated Learning", IEEE
Transactions on Signal Processing 70; Weiszfeld's iteration, with the step away from a data point of
Vardi and Zhang (2000), "The multivariate L1-median and associated data depth", PNAS 97.

Examples
--------
>>> points = np.array([[1.0, 1.0], [1.0, 1.2], [1.1, 1.0], [0.9, 0.9], [100.0, -50.0]])
>>> weights = geometric_median(points @ points.T, np.full(5, 0.2))
>>> [round(float(x), 5) for x in weights @ points]
[1.02259, 0.99842]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.aggregation.contract import Mix, Spread
from clma.aggregation.distances import squared_distances
from clma.config import AggregationConfig
from clma.errors import NotEnoughClientsError

__all__ = ["geometric_median", "weigh_by_distance"]

MAX_STEPS = 1000
TOLERANCE = 1e-7
"""Length of the last step, and `EPSILON` of the least distance, as shares of the median distance
from the medoid: what a unit of the parameters is must not matter."""
EPSILON = 1e-9


def geometric_median(gram: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights with which the rows' mean is their geometric median.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products of movements from one point. Symmetric; not modified.
    shares : ndarray of shape (n,), > 0
        Their sum is 1.

    Returns
    -------
    ndarray of shape (n,), >= 0
        Their sum is 1.

    Notes
    -----
    Weights are all there is to compute. Every step of the iteration is a weighted mean of the rows,
    z = sum of w_i x_i with weights that add up to 1, and for such a point
    |x_i - z|^2 = G_ii - 2 (G w)_i + w' G w, whatever point the inner products G are measured from.
    Here that is the medoid, the row of the least sum of distances: close to most rows, so that a
    row that is very far costs the others no digits.

    If any row is the geometric median, it is the medoid, and it is exactly if all others together
    pull at it with less than its own share. Else one step away from it leads to a point that is
    better than every row, the sum of distances falls with every step, and no step ends on a row,
    where Weiszfeld's iteration would stay for good. Rows that weigh less than one half, however far
    they are, cannot take it along: each pulls with its share, not with its distance.
    """
    distances = np.sqrt(squared_distances(gram))
    medoid = int(np.argmin(distances @ shares))
    gaps = distances[medoid]
    here = np.where(gaps > 0, 0.0, shares)
    pulls = np.divide(shares, gaps, out=np.zeros_like(gaps), where=gaps > 0)
    centred = gram - gram[medoid] - gram[:, [medoid]] + gram[medoid, medoid]
    pull = np.sqrt(max(float(pulls @ centred @ pulls), 0.0))
    if pull <= here.sum():
        return np.asarray(here / here.sum())
    stay = float(here.sum()) / pull
    start = stay * here / here.sum() + (1 - stay) * pulls / pulls.sum()
    return _weiszfeld(centred, shares, start, scale=float(np.median(gaps[gaps > 0])))


def _weiszfeld(
    gram: NDArray[np.float64],
    shares: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    scale: float,
) -> NDArray[np.float64]:
    """Go on from `weights` until a step is short; `scale` is a distance."""
    for _ in range(MAX_STEPS):
        products = gram @ weights
        squares = np.diag(gram) - 2 * products + weights @ products
        pulls = shares / np.sqrt(np.maximum(squares, (EPSILON * scale) ** 2))
        before, weights = weights, pulls / pulls.sum()
        step = weights - before
        if step @ gram @ step <= (TOLERANCE * scale) ** 2:
            break
    return weights


def weigh_by_distance(spread: Spread, _config: AggregationConfig) -> Mix:
    """Give every voter the weight that it has in the geometric median.

    Parameters
    ----------
    spread : Spread
        With inner products.
    """
    if spread.gram is None:
        raise NotEnoughClientsError("geometric_median compares updates, got no inner products")
    return Mix.of_whole(geometric_median(spread.gram, spread.shares))
