"""What an aggregation rule gets and returns.

A rule never sees files. It is one of two kinds, or neither (the weighted mean):

* of columns: what every single parameter comes to, from the voters' values of it;
* of whole updates: how much of each update counts, from their lengths and inner products.

To add one: a file in this folder with the paper in its docstring, a name in
`AggregationConfig.method`, a line in `AGGREGATORS` of `clma.aggregation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.config import AggregationConfig

__all__ = ["Aggregator", "ColumnRule", "Mix", "MixRule", "Spread"]

ColumnRule = Callable[[NDArray[np.floating], AggregationConfig], NDArray[np.float64]]
"""Takes the voters' values of some columns, shape (n_columns, n_voters), each row rising; returns
what the columns come to, shape (n_columns,). Not modified. Nobody's number of examples counts."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the voters of a cohort moved, and how far apart they are.

    Parameters
    ----------
    shares : ndarray of shape (n_voters,), > 0
        In the mean of all; their sum is 1. Voters without a share are not listed.
    norms : ndarray of shape (2, n_voters), >= 0
        Euclidean norms of the updates: over the tensors that cohorting looks at, and over all
        other tensors of floating point; in units of the parameters.
    gram : ndarray of shape (n_voters, n_voters) or None
        Inner products of what lies between each voter's weights and one model, the same for all,
        over all tensors of floating point. Symmetric; only where the rule asks for it.
    """

    shares: NDArray[np.float64]
    norms: NDArray[np.float64]
    gram: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class Mix:
    """A model as a mean of shortened updates: sum of w (k x + (1 - k) b) over the voters.

    `x` are a voter's weights, `b` those of the model that it was sent.

    Parameters
    ----------
    weights : ndarray of shape (n_voters,), >= 0
        w; their sum is 1. A voter of weight 0 is not read.
    kept : ndarray of shape (2, n_voters), in [0, 1]
        k, by kind of tensor as in `Spread.norms`.
    """

    weights: NDArray[np.float64]
    kept: NDArray[np.float64]

    @classmethod
    def of_whole(cls, weights: NDArray[np.float64]) -> Mix:
        """Return the mean of updates that are not shortened."""
        return cls(weights, np.ones((2, weights.size)))


MixRule = Callable[[Spread, AggregationConfig], Mix | None]
"""Returns None where the weighted mean stands."""


def _one(_config: AggregationConfig) -> int:
    return 1


@dataclass(frozen=True, slots=True)
class Aggregator:
    """A rule, and what it needs.

    Parameters
    ----------
    columns : callable or None
        Of the first kind; None: columns are averaged by the voters' shares.
    mix : callable or None
        Of the second kind.
    compares : bool
        Whether `mix` needs `Spread.gram`; columns are not looked at before it is known.
    min_voters : callable
        Fewest voters with a share that the rule can do with, as it is configured.
    """

    columns: ColumnRule | None = None
    mix: MixRule | None = None
    compares: bool = False
    min_voters: Callable[[AggregationConfig], int] = _one
