"""The weighted mean of a cohort's weights (FedAvg's server step).

McMahan et al. (2017), "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS, Algorithm 1.

Examples
--------
>>> weighted_mean([np.array([0.0]), np.array([4.0])], [1, 3]).tolist()
[3.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.config import AggregationConfig
from clma.errors import EmptyCohortError, InvalidUpdateError, ShapeMismatchError
from clma.records import SealedUpdate

__all__ = ["shares_of", "weighted_mean"]


def weighted_mean(arrays: Sequence[NDArray[Any]], weights: Sequence[float]) -> NDArray[np.float64]:
    """Average arrays of one shape.

    Parameters
    ----------
    arrays : sequence of n ndarray, all of one shape
        Not modified; nothing is broadcast.
    weights : sequence of n float >= 0
        Example counts; only their ratios matter.

    Returns
    -------
    ndarray, float64
        Summed in the order given: the caller sorts by client id, so that the order of arrival
        cannot change a bit.

    Raises
    ------
    EmptyCohortError
        If there is no array, or all weights are 0: nobody's model is an average of nothing.
    InvalidUpdateError
        If a weight is negative or not finite.
    ShapeMismatchError
        If shapes differ.
    """
    shares = _shares(len(arrays), weights)
    shape = np.shape(arrays[0])
    total = np.zeros(shape)
    for array, share in zip(arrays, shares, strict=True):
        if np.shape(array) != shape:
            raise ShapeMismatchError(f"mean of shapes {list(shape)} and {list(np.shape(array))}")
        total += np.asarray(array, dtype=np.float64) * share
    return total


def _shares(n: int, weights: Sequence[float]) -> list[float]:
    if n == 0 or len(weights) != n:
        raise EmptyCohortError(f"mean of {n} arrays with {len(weights)} weights")
    for weight in weights:
        if not np.isfinite(weight) or weight < 0:
            raise InvalidUpdateError(f"weight {weight} in a mean, wanted a finite number >= 0")
    total = sum(weights)
    if total <= 0:
        raise EmptyCohortError(f"mean of {n} arrays whose weights are all 0")
    return [weight / total for weight in weights]


def shares_of(updates: Sequence[SealedUpdate], config: AggregationConfig) -> list[float]:
    """Return every update's share in the mean of all, as the configuration weighs them.

    Raises
    ------
    EmptyCohortError
        If there is none, or all weights are 0.
    """
    equal = config.weight == "equal"
    return _shares(len(updates), [1.0 if equal else u.n_examples for u in updates])
