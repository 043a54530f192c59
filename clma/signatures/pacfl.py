"""PACFL's signature: the main directions of a client's samples, class by class.

References
----------
.. [1] Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah and Lin (2023), "Efficient Distribution
   Similarity Identification in Clustered Federated Learning via Principal Angles Between Client
   Data Subspaces", AAAI (arXiv 2209.10526), section 3 and algorithm 1.
.. [2] Bjorck and Golub (1973), "Numerical Methods for Computing Angles Between Linear Subspaces",
   Mathematics of Computation 27(123), theorem 1.
.. [3] Ye and Lim (2016), "Schubert Varieties and Distances Between Subspaces of Different
   Dimensions", SIAM J. Matrix Anal. Appl. 37(3), section 5.

Notes
-----
The directions of several classes are not orthogonal to each other, so bases are made orthonormal
before angles are taken, through an SVD: it spans what a QR decomposition spans and leaves out
directions that only repeat others. What the reference code does instead is the mode ``reference``:
the smallest arc cosine over all pairs of directions as they come, an entry of the matrix and not a
principal angle, and 0 as soon as two clients share one direction. The sign of a direction means
nothing, so each is turned until its largest entry is positive; only ``reference`` sees the
difference.

Examples
--------
>>> a = np.eye(3)[:, :2]
>>> b = np.array([[1, 0], [0, np.cos(np.pi / 6)], [0, np.sin(np.pi / 6)]])
>>> principal_angles(a, b).round(6).tolist()
[0.0, 30.0]
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clma.errors import ShapeMismatchError
from clma.signatures.signature import Signature

__all__ = [
    "KIND",
    "Proximity",
    "class_directions",
    "orthonormal_basis",
    "principal_angles",
    "proximity",
    "sign_by_directions",
]

KIND = "pacfl"
N_DIRECTIONS = 3
"""Per class: p of the reference code."""
RIGHT_ANGLE = 90.0
NEGLIGIBLE = 1e-9
"""Singular values below this share of the largest are rounding, and so are their directions."""
PARALLEL = 1 - 1e-12
"""An arc cosine cannot tell a cosine above this from 1."""

Proximity = Literal["sum", "smallest", "reference"]


def sign_by_directions(
    samples: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    n_directions: int = N_DIRECTIONS,
    encoder: str = "",
) -> Signature:
    """Describe a client's data by the main directions of every class.

    Parameters
    ----------
    samples : ndarray of shape (n, ...)
        Flattened per sample. Not modified.
    labels : ndarray of shape (n,)
        Class indices.
    n_directions : int >= 1
        Per class, at most.
    encoder : str

    Raises
    ------
    ShapeMismatchError
        If there is no sample, or not one label a sample.
    """
    directions = class_directions(samples, labels, n_directions=n_directions)
    return Signature(KIND, {"directions": directions}, encoder)


def class_directions(
    samples: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    n_directions: int = N_DIRECTIONS,
) -> NDArray[np.float64]:
    """Return the first left singular vectors of every class's samples, side by side.

    Parameters
    ----------
    samples : ndarray of shape (n, ...)
        Columns of the decomposed matrices, flattened; not centred.
    labels : ndarray of shape (n,)
    n_directions : int >= 1

    Returns
    -------
    ndarray of shape (n_features, n_columns)
        Columns of unit length, classes by rising index. A class has as many as its samples span, if
        those are fewer; samples that are all zero have none.

    Raises
    ------
    ShapeMismatchError
        If there is no sample, or not one label a sample.
    """
    if len(samples) != len(labels) or len(labels) == 0:
        raise ShapeMismatchError(
            f"{len(samples)} samples, {len(labels)} labels; wanted as many, not 0"
        )
    columns = np.reshape(samples, (len(samples), -1)).astype(np.float64).T
    parts = [
        _main_directions(columns[:, labels == label], n_directions) for label in np.unique(labels)
    ]
    return np.concatenate(parts, axis=1)


def orthonormal_basis(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return orthonormal columns that span the same space, fewer where some repeat others."""
    return _main_directions(directions, directions.shape[1])


def principal_angles(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the principal angles between two spaces.

    Parameters
    ----------
    u, v : ndarray of shape (n_features, n_columns)
        Orthonormal columns, as many or not.

    Returns
    -------
    ndarray of shape (min(n_columns of both),)
        Degrees in [0, 90], rising.
    """
    if 0 in (u.shape[1], v.shape[1]):
        return np.zeros(0)
    cosines = np.linalg.svd(u.T @ v, compute_uv=False)
    return np.degrees(np.arccos(np.where(cosines > PARALLEL, 1.0, cosines)))


def proximity(
    u: NDArray[np.float64],
    v: NDArray[np.float64],
    mode: Proximity = "sum",
    *,
    n_angles: int = N_DIRECTIONS,
) -> float:
    """Say how far two clients' spaces are apart.

    Parameters
    ----------
    u, v : ndarray of shape (n_features, n_columns)
        Orthonormal bases; for ``reference`` the directions as the clients sent them.
    mode : {"sum", "smallest", "reference"}
        Sum of the `n_angles` smallest principal angles; the smallest of them; or the reference
        code's shortcut.
    n_angles : int >= 1

    Returns
    -------
    float
        Degrees, >= 0; symmetric.

    Notes
    -----
    The sum has p terms, as in the paper, although the space of several classes has more dimensions:
    in a space of many features most angles are near 90 degrees between any two clients, and adding
    them buries the few that tell clients apart. Spaces of different dimensions have only as many
    principal angles as the smaller one has dimensions; each one that the smaller space lacks counts
    as a right angle [3]_.
    """
    n_dims: list[int] = sorted((u.shape[1], v.shape[1]))
    if n_dims[0] == 0:  # only zeros were seen
        n_lacking = min(n_dims[1], n_angles if mode == "sum" else 1)
        return RIGHT_ANGLE * n_lacking
    if mode == "reference":
        return float(np.degrees(np.arccos(np.clip(u.T @ v, -1.0, 1.0).max())))
    angles = principal_angles(u, v)[:n_angles]
    if mode == "smallest":
        return float(angles[0])
    return float(angles.sum()) + RIGHT_ANGLE * (min(n_dims[1], n_angles) - len(angles))


def _main_directions(columns: NDArray[np.float64], n_directions: int) -> NDArray[np.float64]:
    vectors, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    n_kept = int((sizes > NEGLIGIBLE * sizes.max(initial=0.0)).sum())
    kept = vectors[:, : min(n_directions, n_kept)]
    largest = np.abs(kept).argmax(axis=0, keepdims=True) if kept.size else np.zeros((1, 0), int)
    return np.asarray(kept * np.sign(np.take_along_axis(kept, largest, axis=0)))
