"""Deal examples out: a held-out part first, the rest to clients, evenly or with skewed labels.

No example is dealt twice. All functions answer with row numbers.

Examples
--------
>>> labels = np.repeat([0, 1], 10)
>>> rest, held_out = hold_out(labels, 0.3, np.random.default_rng(0))
>>> [len(rows) for rows in deal_evenly(labels, rest, 2, np.random.default_rng(0))], len(held_out)
([7, 7], 6)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError

__all__ = ["class_shares", "deal_evenly", "deal_skewed", "hold_out"]

Rows = NDArray[np.int64]


def hold_out(
    labels: NDArray[np.int64], test_share: float, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Split examples, each class alike.

    Parameters
    ----------
    labels : ndarray of shape (n,)
    test_share : float in (0, 1)
        Rounded to whole examples within each class.
    rng : numpy.random.Generator

    Returns
    -------
    rest, held_out : ndarray of row numbers
        Sorted.
    """
    held_out = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        held_out.append(rows[: round(test_share * len(rows))])
    chosen = np.sort(np.concatenate(held_out))
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def deal_evenly(
    labels: NDArray[np.int64], rows: Rows, n_clients: int, rng: np.random.Generator
) -> tuple[Rows, ...]:
    """Deal rows in turn, class by class: shards, and their shares of a class, differ by one."""
    shuffled = rng.permutation(rows)
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return tuple(np.sort(ordered[client::n_clients]) for client in range(n_clients))


def class_shares(
    n_clients: int, n_classes: int, alpha: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw each client's class shares from a symmetric Dirichlet distribution.

    Parameters
    ----------
    n_clients, n_classes : int, >= 1
    alpha : float, > 0
        Small: few classes a client; 0.5 is the literature's usual skew.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_clients, n_classes)
        Rows add up to 1.
    """
    return np.asarray(rng.dirichlet(np.full(n_classes, alpha), size=n_clients))


def deal_skewed(
    labels: NDArray[np.int64],
    rows: Rows,
    shares: NDArray[np.float64],
    n_each: int,
    rng: np.random.Generator,
) -> tuple[Rows, ...]:
    """Deal each client as many rows, of classes by its own shares.

    Clients take one row at a time, in an order drawn for every turn. A class that is used up leaves
    its share to the others, so where nearly all rows are dealt the skew is milder than `shares`
    [1]_.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Class indices.
    rows : ndarray of row numbers
        What may be dealt.
    shares : ndarray of shape (n_clients, n_classes)
        See `class_shares`.
    n_each : int, >= 1
        Rows a client; so every client keeps a usable number.
    rng : numpy.random.Generator

    Returns
    -------
    tuple of ndarray
        One a client, sorted.

    Raises
    ------
    InvalidConfigError
        If there are not as many rows.

    References
    ----------
    .. [1] Hsu et al. (2019), "Measuring the Effects of Non-Identical Data Distribution for
       Federated Visual Classification", section 3. There one client draws after the other, which
       leaves the last one with what nobody wanted.
    """
    n_clients, n_classes = shares.shape
    if not 1 <= n_each * n_clients <= len(rows):
        raise InvalidConfigError(
            f"{n_each} examples for each of {n_clients} clients, there are {len(rows)}"
        )
    shuffled = rng.permutation(rows)
    piles = [shuffled[labels[shuffled] == label].tolist() for label in range(n_classes)]
    dealt: list[list[int]] = [[] for _ in range(n_clients)]
    for _ in range(n_each):
        for client in rng.permutation(n_clients).tolist():
            dealt[client].append(piles[_pick(shares[client], piles, rng.random())].pop())
    return tuple(np.sort(np.array(taken, dtype=np.int64)) for taken in dealt)


def _pick(shares: NDArray[np.float64], piles: Sequence[Sequence[int]], draw: float) -> int:
    """Return the class that a draw from [0, 1) falls on, of those that are left."""
    left = np.array([len(pile) for pile in piles])
    wanted = np.where(left > 0, shares, 0.0)
    # Of the classes that a client wants none may be left; then it takes what there is most of.
    edges = np.cumsum(wanted if wanted.sum() > 0 else left)
    return int(np.searchsorted(edges, draw * edges[-1], side="right"))
