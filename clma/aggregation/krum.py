"""The update with the closest neighbours, or the mean of a few such.

Blanchard, El Mhamdi, Guerraoui and Stainer (2017), "Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent", NIPS, section 4 and, for several, multi-Krum; how many may be selected:
El Mhamdi, Guerraoui and Rouault (2018), "The Hidden Vulnerability of Distributed Learning in
Byzantium", ICML.

Examples
--------
>>> points = np.array([[1.0, 1.0], [1.0, 1.2], [1.1, 1.0], [0.9, 0.9], [100.0, -50.0]])
>>> [round(float(score), 2) for score in krum_scores(points @ points.T, n_byzantine=1)]
[0.03, 0.09, 0.06, 0.07, 24784.21]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.aggregation.contract import Mix, Spread
from clma.aggregation.distances import squared_distances
from clma.config import AggregationConfig
from clma.errors import NotEnoughClientsError

__all__ = ["fewest_voters", "krum_scores", "select_closest"]

SCORE_DIGITS = 9
"""Significant digits of a score: what lies beyond depends on the machine's BLAS."""


def fewest_voters(config: AggregationConfig) -> int:
    """Return n, the least number with n >= 2 f + 3 and m <= n - f - 2 (f liars, m selected)."""
    return config.n_byzantine + 2 + max(config.n_byzantine + 1, config.n_selected)


def krum_scores(gram: NDArray[np.float64], *, n_byzantine: int) -> NDArray[np.float64]:
    """Return for every voter the sum of the squared distances to its closest others.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products of movements from one point. Symmetric; not modified.
    n_byzantine : int >= 0
        Voters that may lie, f; the n - f - 2 closest others count.

    Returns
    -------
    ndarray of shape (n,)
        In squared units of the parameters.

    Raises
    ------
    NotEnoughClientsError
        If n < 2 f + 3.
    """
    n = gram.shape[0]
    if n < 2 * n_byzantine + 3:
        raise NotEnoughClientsError(
            f"krum over {n} updates, n_byzantine = {n_byzantine} needs {2 * n_byzantine + 3}"
        )
    # The first of each row is its own.
    rising = np.sort(squared_distances(gram), axis=1)[:, 1:]
    scores = rising[:, : n - n_byzantine - 2].sum(axis=1)
    return np.array([float(f"{score:.{SCORE_DIGITS}g}") for score in scores])


def select_closest(spread: Spread, config: AggregationConfig) -> Mix:
    """Take the `n_selected` voters of the lowest scores, with equal weights.

    Parameters
    ----------
    spread : Spread
        With inner products.
    config : AggregationConfig

    Notes
    -----
    Of equal scores the first voter's, by client id, is the lower one.
    """
    if spread.gram is None:
        raise NotEnoughClientsError("krum compares updates, got no inner products")
    scores = krum_scores(spread.gram, n_byzantine=config.n_byzantine)
    chosen = np.argsort(scores, kind="stable")[: config.n_selected]
    weights = np.zeros(scores.size)
    weights[chosen] = 1.0 / chosen.size
    return Mix.of_whole(weights)
