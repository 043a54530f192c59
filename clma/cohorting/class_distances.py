"""How far clients are apart by the means and shares of their classes (FMCL).

References
----------
.. [1] FMCL, "one-shot, class-aware client clustering with foundation models", the distance.

Notes
-----
With m the smaller of two clients' shares of a class, d one minus the cosine of their means of it,
sums over the classes that both have, and the overlap as the sum of m, the four readings are

* ``none``: sum(m d) / overlap, the mean over shared classes;
* ``sum``: sum(m d);
* ``penalize``: sum(m d) / overlap^2, the mean divided by the overlap once more;
* ``additive``: the mean plus `penalty` (1 - overlap).

The published description does not settle between the first and the third; only where little overlap
makes a distance larger do clients with different labels stand apart at all. ``penalize`` cannot do
that where means agree to the digit, and grows without bound as overlap goes to zero; ``additive``
is bounded by 2 + `penalty`. Two clients without a shared class have no mean: a high percentile of
the others' distances stands for it, in ``additive`` for the mean alone, since the rest is known.
(With the percentile for the whole distance, groups with labels of their own would be no farther
apart than their members are, for only distances within groups are observed.)

Embeddings of one encoder have much in common, whatever is on the picture. ``global`` takes the mean
of all class means away before angles are measured, ``zscore`` also divides every feature by its
spread, for features of different units. Both make a distance relative to who takes part, so
whoever comes later is measured from the centre that was there (`centre_on`). With fewer than three
clients there is nothing to be relative to, and nothing is taken away.

Examples
--------
>>> def signed(*values):
...     names = ("classes", "means", "shares")
...     return Signature("fmcl", dict(zip(names, map(np.array, values), strict=True)))
>>> a = signed([0, 1], [[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
>>> b = signed([0, 1], [[0.6, 0.8], [0.0, 1.0]], [0.2, 0.8])
>>> found = class_distances({"a": a, "b": b}, overlap="penalize", center="none")
>>> float(found.distances[0, 1].round(6)), float(found.overlaps[0, 1].round(6))
(0.163265, 0.7)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clma.blas import one_blas_thread
from clma.errors import InvalidUpdateError, ShapeMismatchError
from clma.signatures.fmcl import KIND, ClassMeans, class_means
from clma.signatures.signature import Signature, check_comparable

__all__ = ["Center", "ClassDistances", "Overlap", "class_distances"]

Overlap = Literal["none", "sum", "penalize", "additive"]
Center = Literal["none", "global", "zscore"]

SMALLEST_OVERLAP = 1e-3
"""Divisor of ``penalize``: two clients that share next to nothing are not infinitely far apart."""
ROUNDING = 1e-12
FEWEST_CENTRED = 3


@dataclass(frozen=True, slots=True)
class ClassDistances:
    """What is known of every two clients; rows in the order of the signatures.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        At least 0, symmetric, zero diagonal.
    overlaps : ndarray of shape (n, n)
        Share of two clients' data in classes that both have, in [0, 1]; 1 on the diagonal.
    substitute : float or None
        What stands for the distance, or mean, of clients without a shared class; None where all
        pairs have one.
    """

    distances: NDArray[np.float64]
    overlaps: NDArray[np.float64]
    substitute: float | None

    @property
    def has_signal(self) -> bool:
        """Some two clients share a class."""
        n = len(self.overlaps)
        return n < 2 or bool((self.overlaps[np.triu_indices(n, 1)] > 0).any())


def class_distances(
    signatures: Mapping[str, Signature],
    *,
    overlap: Overlap = "additive",
    center: Center = "zscore",
    penalty: float = 1.0,
    percentile: float = 95.0,
    centre_on: Collection[str] | None = None,
) -> ClassDistances:
    """Return the distances of all pairs.

    Parameters
    ----------
    signatures : mapping of client id to Signature
        Of one kind, encoder and number of features. Not modified.
    overlap : {"none", "sum", "penalize", "additive"}
    center : {"none", "global", "zscore"}
    penalty : float >= 0
        ``additive``: how far apart clients are that agree in all that they share and share nothing.
    percentile : float in [0, 100]
        Of the distances of pairs with a shared class, for those without.
    centre_on : collection of client id, optional
        Whose class means the centre is of; default: everybody's.

    Returns
    -------
    ClassDistances
        Of equal distances where no two clients share a class.

    Raises
    ------
    InvalidUpdateError, ShapeMismatchError
        If signatures do not compare or are damaged; names the client.

    Notes
    -----
    Class by class, so beside the signatures themselves there are three matrices of n x n and one
    class's means at a time. Equal for equal input on any number of threads.
    """
    means = _read(signatures)
    fixed = list(signatures) if centre_on is None else [c for c in signatures if c in centre_on]
    origin, spread = _centre([means[c] for c in fixed], center)
    products, overlaps = _weighted_sums(list(means.values()), origin, spread)
    distances, substitute = _substituted(
        _READINGS[overlap](products, overlaps), overlaps, percentile
    )
    if overlap == "additive":
        distances = distances + penalty * (1 - overlaps)
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0.0)
    np.fill_diagonal(overlaps, 1.0)
    return ClassDistances(distances, overlaps, substitute)


def _read(signatures: Mapping[str, Signature]) -> dict[str, ClassMeans]:
    check_comparable(signatures.items(), KIND)
    means: dict[str, ClassMeans] = {}
    n_features: int | None = None
    for client_id, signature in signatures.items():
        try:
            means[client_id] = class_means(signature)
        except InvalidUpdateError as error:
            raise InvalidUpdateError(f"client {client_id!r}: {error}") from None
        got = means[client_id].means.shape[1]
        n_features = got if n_features is None else n_features
        if got != n_features:
            raise ShapeMismatchError(
                f"client {client_id!r}: signature has {got} features, others {n_features}"
            )
    return means


def _centre(
    clients: Sequence[ClassMeans], center: Center
) -> tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]:
    if center == "none" or len(clients) < FEWEST_CENTRED:
        return 0.0, 1.0
    n_means = sum(len(c.means) for c in clients)
    origin = sum(c.means.sum(axis=0, dtype=np.float64) for c in clients) / n_means
    if center == "global":
        return np.asarray(origin), 1.0
    squares = sum(((c.means - origin) ** 2).sum(axis=0) for c in clients) / n_means
    spread = np.sqrt(np.asarray(squares))
    return np.asarray(origin), np.where(spread > 0, spread, 1.0)


def _weighted_sums(
    clients: Sequence[ClassMeans],
    origin: NDArray[np.float64] | float,
    spread: NDArray[np.float64] | float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sum(m d) and sum(m) of every pair."""
    n = len(clients)
    products, overlaps = np.zeros((n, n)), np.zeros((n, n))
    with one_blas_thread():
        for label in np.unique(np.concatenate([c.classes for c in clients]) if clients else []):
            have = [i for i, c in enumerate(clients) if label in c.classes]
            rows = [int(np.searchsorted(clients[i].classes, label)) for i in have]
            vectors = np.stack([clients[i].means[r] for i, r in zip(have, rows, strict=True)])
            shares = np.array([clients[i].shares[r] for i, r in zip(have, rows, strict=True)])
            smaller = np.minimum.outer(shares, shares)
            products[np.ix_(have, have)] += smaller * _cosine_distances(vectors, origin, spread)
            overlaps[np.ix_(have, have)] += smaller
    # Of shares that add up to 1 but for rounding, the sum of the smaller ones is at most 1.
    return products, np.minimum(overlaps, 1.0)


def _cosine_distances(
    vectors: NDArray[np.floating],
    origin: NDArray[np.float64] | float,
    spread: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    centred = (vectors.astype(np.float64) - origin) / spread
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    # What lies in the centre points nowhere: it is at distance 1 from everything.
    unit = centred / np.where(lengths > 0, lengths, 1.0)
    distances = np.clip(1 - unit @ unit.T, 0.0, 2.0)
    distances[distances < ROUNDING] = 0.0
    np.fill_diagonal(distances, 0.0)
    return np.asarray(distances)


def _mean(products: NDArray[np.float64], overlaps: NDArray[np.float64]) -> NDArray[np.float64]:
    return products / np.where(overlaps > 0, overlaps, 1.0)


def _sum(products: NDArray[np.float64], _overlaps: NDArray[np.float64]) -> NDArray[np.float64]:
    return products


def _penalized(products: NDArray[np.float64], overlaps: NDArray[np.float64]) -> NDArray[np.float64]:
    return _mean(products, overlaps) / np.maximum(overlaps, SMALLEST_OVERLAP)


# What `additive` adds is known of every pair, so it comes after the substitutes.
_READINGS = {"none": _mean, "sum": _sum, "penalize": _penalized, "additive": _mean}


def _substituted(
    distances: NDArray[np.float64], overlaps: NDArray[np.float64], percentile: float
) -> tuple[NDArray[np.float64], float | None]:
    apart = overlaps <= 0
    if not apart.any():
        return distances, None
    pairs = np.triu_indices(len(distances), 1)
    observed = distances[pairs][~apart[pairs]]
    substitute = float(np.percentile(observed, percentile)) if observed.size else 1.0
    return np.where(apart, substitute, distances), substitute
