"""Deal examples to clients that differ from the start, and choose what each of them is tested on.

A client is tested on held-out examples with the class shares that it trains on: it is asked what it
will be asked at home. Tests of two clients may share examples; none of them is trained on.

Examples
--------
>>> labels = np.tile(np.arange(10), 60)
>>> rows, held_out = np.arange(480), np.arange(480, 600)
>>> shards, tests = deal_apart(
...     "class-groups", labels, rows, held_out, 10, np.random.default_rng(0)
... )
>>> [len(np.unique(labels[shard])) for shard in shards]
[4, 4, 4, 4, 3, 3, 3, 3, 3, 3]
>>> [len(test) for test in tests]
[48, 48, 48, 48, 36, 36, 36, 36, 36, 36]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.standing_schedules import N_CLASS_GROUPS, group_numbers

__all__ = ["class_sets", "deal_apart", "deal_by_class", "deal_known", "draw_like"]

Rows = NDArray[np.int64]

LEAST_SHARE = 0.2  # of an even share: what every client has at least
MAX_DRAWS = 10_000
MIN_CLASSES = 2  # a client of one class has nothing to tell apart


def deal_apart(
    shape: str,
    labels: NDArray[np.int64],
    rows: Rows,
    held_out: Rows,
    n_clients: int,
    rng: np.random.Generator,
    *,
    skew: float | None = None,
    shared: Sequence[int] = (),
) -> tuple[tuple[Rows, ...], tuple[Rows, ...]]:
    """Deal rows for a standing schedule.

    Parameters
    ----------
    shape : {"dirichlet", "class-groups"}
        See `clma.simulation.standing_schedules`.
    labels : ndarray of shape (n,)
        Class indices, 0 to the largest.
    rows, held_out : ndarray of row numbers
        What may be dealt, and what may be tested on.
    n_clients : int, >= 1
    rng : numpy.random.Generator
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution, for ``dirichlet``.
    shared : sequence of int
        Classes that all groups of ``class-groups`` know.

    Returns
    -------
    shards, tests : tuple of ndarray
        One a client, sorted.

    Raises
    ------
    InvalidConfigError
        If ``dirichlet`` has no parameter, or there are too few rows.
    """
    if shape == "dirichlet":
        if skew is None:
            raise InvalidConfigError("schedule 'dirichlet' has no parameter, wanted one > 0")
        shards = deal_by_class(labels, rows, n_clients, skew, rng)
    else:
        sets = class_sets(int(labels[rows].max()) + 1, rng, shared=shared)
        groups = group_numbers(n_clients, len(sets))
        shards = deal_known(labels, rows, [sets[g] for g in groups], rng)
    return shards, tuple(draw_like(labels, shard, held_out, rng) for shard in shards)


def deal_by_class(
    labels: NDArray[np.int64],
    rows: Rows,
    n_clients: int,
    alpha: float,
    rng: np.random.Generator,
) -> tuple[Rows, ...]:
    """Deal the rows of each class by shares of the clients that are drawn for it.

    Parameters
    ----------
    labels : ndarray of shape (n,)
    rows : ndarray of row numbers
        All are dealt.
    n_clients : int, >= 1
    alpha : float, > 0
        Parameter of the symmetric Dirichlet distribution of a class's shares [1]_; the smaller, the
        fewer classes a client has, and the more do clients differ in size.
    rng : numpy.random.Generator

    Returns
    -------
    tuple of ndarray
        One a client, sorted.

    Raises
    ------
    InvalidConfigError
        If no draw leaves every client enough.

    Notes
    -----
    Shares are drawn again until every client has at least a fifth of an even share, so that it has
    something to train on; the published code of such splits has a fixed number there.

    References
    ----------
    .. [1] Yurochkin et al. (2019), "Bayesian Nonparametric Federated Learning of Neural Networks",
       ICML, section 4.
    """
    n_least = max(1, int(LEAST_SHARE * len(rows) / n_clients))
    piles = [rng.permutation(rows[labels[rows] == label]) for label in np.unique(labels[rows])]
    for _ in range(MAX_DRAWS):
        shares = rng.dirichlet(np.full(n_clients, alpha), size=len(piles))
        edges = [
            np.rint(np.cumsum(own)[:-1] * len(pile)).astype(int)
            for own, pile in zip(shares, piles, strict=True)
        ]
        parts = [np.split(pile, places) for pile, places in zip(piles, edges, strict=True)]
        dealt = [np.concatenate(of_client) for of_client in zip(*parts, strict=True)]
        if min(len(own) for own in dealt) >= n_least:
            return tuple(np.sort(own) for own in dealt)
    raise InvalidConfigError(
        f"{len(rows)} examples of {len(piles)} classes: no draw with alpha {alpha} "
        f"leaves each of {n_clients} clients {n_least}"
    )


def class_sets(
    n_classes: int, rng: np.random.Generator, *, shared: Sequence[int] = ()
) -> tuple[tuple[int, ...], ...]:
    """Draw the classes that each of three groups knows.

    Parameters
    ----------
    n_classes : int, >= 3 beyond the shared ones
    rng : numpy.random.Generator
        Draws which classes go together, so that no grouping is special.
    shared : sequence of int
        Classes that all groups know, as plants know normal running.

    Returns
    -------
    tuple of tuple of int
        Each sorted. They are disjoint but for the shared classes where every group gets two; of
        fewer classes each group misses a third: of three classes it knows two.

    Raises
    ------
    InvalidConfigError
        If there are too few classes.
    """
    own = [c for c in range(n_classes) if c not in shared]
    if len(own) < N_CLASS_GROUPS:
        raise InvalidConfigError(
            f"{len(own)} classes to part, wanted at least {N_CLASS_GROUPS} for as many groups"
        )
    parts = np.array_split(rng.permutation(own), N_CLASS_GROUPS)
    if min(len(part) for part in parts) + len(shared) < MIN_CLASSES:
        parts = [np.setdiff1d(own, part) for part in parts]
    return tuple(tuple(sorted([*shared, *part.tolist()])) for part in parts)


def deal_known(
    labels: NDArray[np.int64],
    rows: Rows,
    known: Sequence[Sequence[int]],
    rng: np.random.Generator,
) -> tuple[Rows, ...]:
    """Deal each class evenly to the clients that know it.

    Parameters
    ----------
    labels : ndarray of shape (n,)
    rows : ndarray of row numbers
        Those of a class that nobody knows are left out.
    known : sequence of sequences of int
        The classes of each client.
    rng : numpy.random.Generator

    Returns
    -------
    tuple of ndarray
        One a client, sorted; shares of a class differ by one.

    Raises
    ------
    InvalidConfigError
        If there are fewer rows of a class than clients that know it.
    """
    dealt: list[list[int]] = [[] for _ in known]
    for label in sorted({c for own in known for c in own}):
        knowing = [client for client, own in enumerate(known) if label in own]
        pile = rng.permutation(rows[labels[rows] == label])
        if len(pile) < len(knowing):
            raise InvalidConfigError(
                f"class {label} has {len(pile)} examples, wanted one for each of "
                f"{len(knowing)} clients"
            )
        for turn, client in enumerate(rng.permutation(knowing).tolist()):
            dealt[client] += pile[turn :: len(knowing)].tolist()
    return tuple(np.sort(np.array(own, dtype=np.int64)) for own in dealt)


def draw_like(
    labels: NDArray[np.int64], shard: Rows, held_out: Rows, rng: np.random.Generator
) -> Rows:
    """Choose held-out rows with the class shares of a shard, as many as there are.

    Parameters
    ----------
    labels : ndarray of shape (n,)
    shard, held_out : ndarray of row numbers
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of row numbers
        Sorted. Numbers of a class are rounded: one that the shard hardly has may be missing.

    Raises
    ------
    InvalidConfigError
        If nothing is held out of a class that the shard has.
    """
    n_classes = int(labels[np.concatenate([shard, held_out])].max()) + 1
    trained = np.bincount(labels[shard], minlength=n_classes)
    there = np.bincount(labels[held_out], minlength=n_classes)
    scale = np.min(there[trained > 0] / trained[trained > 0])
    if scale == 0.0:
        missing = np.flatnonzero((trained > 0) & (there == 0)).tolist()
        raise InvalidConfigError(f"nothing is held out of classes {missing}, a client has some")
    wanted = np.rint(scale * trained).astype(int)
    chosen = [
        rng.permutation(held_out[labels[held_out] == label])[:n] for label, n in enumerate(wanted)
    ]
    return np.sort(np.concatenate(chosen))
