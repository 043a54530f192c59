"""What inner products of movements tell.

A movement is `file - reference`: an update where the file is a client's, the way to another cohort
where it is that cohort's model. All that cohorting by direction needs is the matrix of their inner
products, which one pass over the files yields (`clma.sweep`).

Examples
--------
>>> gram = np.array([[4.0, 0.0], [0.0, 9.0]])
>>> cosine_distances(gram)
array([[0., 1.],
       [1., 0.]])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EVIDENCE_DIGITS",
    "STILL",
    "Movements",
    "blended_distances",
    "cosine_distances",
    "mean_norm",
    "signed_means",
]

EVIDENCE_DIGITS = 9
"""Decimals of recorded evidence: what lies beyond depends on the machine's BLAS."""

STILL = 1e-12
"""Norm below which a client did not move."""


@dataclass(frozen=True, slots=True)
class Movements:
    """Inner products of n movements.

    Parameters
    ----------
    gram : ndarray of shape (n, n), float64
        Symmetric; in squared units of the parameters.
    layer_squares : ndarray of shape (n_tensors, n), float64
        Squared norm of every movement by tensor; columns sum to the diagonal of `gram`.
    means : ndarray of shape (n,), float64
        Mean over all coordinates: its sign says whether weights went up or down.
    names : tuple of str
        The tensors, in the order of `layer_squares`.
    output_gram : ndarray of shape (n, n) or None
        Inner products over the output layer alone, where they were asked for.
    """

    gram: NDArray[np.float64]
    layer_squares: NDArray[np.float64]
    means: NDArray[np.float64]
    names: tuple[str, ...]
    output_gram: NDArray[np.float64] | None = None

    @property
    def norms(self) -> NDArray[np.float64]:
        """Euclidean norms of the movements, shape (n,)."""
        return np.sqrt(np.maximum(np.diag(self.gram), 0.0))

    def top_layers(self, index: int, *, n_layers: int = 3) -> tuple[tuple[str, float], ...]:
        """Return the tensors with most of one squared movement, and their shares in [0, 1]."""
        squares = self.layer_squares[:, index]
        total = float(squares.sum())
        if total <= 0:
            return ()
        order = sorted(range(len(self.names)), key=lambda t: (-squares[t], self.names[t]))
        return tuple((self.names[t], float(squares[t] / total)) for t in order[:n_layers])


def cosine_distances(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 - cosine for every pair of movements.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products. Not modified.

    Returns
    -------
    ndarray of shape (n, n), in [0, 2]
        Zero diagonal; a movement shorter than 1e-12 has no direction and distance 1 to all others.
    """
    norms = np.sqrt(np.maximum(np.diag(gram), 0.0))
    still = norms < STILL
    scale = np.where(still, 1.0, norms)
    distances = 1.0 - gram / np.outer(scale, scale)
    distances[still, :] = 1.0
    distances[:, still] = 1.0
    np.clip(distances, 0.0, 2.0, out=distances)
    np.fill_diagonal(distances, 0.0)
    return np.asarray((distances + distances.T) / 2)


def blended_distances(movements: Movements, n: int, *, output_weight: float) -> NDArray[np.float64]:
    """Return the distances of the first movements, with a share for the output layer.

    Parameters
    ----------
    movements : Movements
    n : int
        How many of them.
    output_weight : float in [0, 1]
        w; without products of the output layer it counts as 0.

    Returns
    -------
    ndarray of shape (n, n), in [0, 2]
        (1 - w) times the cosine distances of the whole movements plus w times those of their output
        layers; one that did not move there has no direction in it, which is distance 1.
    """
    whole = cosine_distances(movements.gram[:n, :n])
    if movements.output_gram is None:
        return whole
    part = cosine_distances(movements.output_gram[:n, :n])
    return np.asarray((1 - output_weight) * whole + output_weight * part)


def signed_means(movements: Movements) -> tuple[str, ...]:
    """Return ``up``, ``down`` or ``none`` for every movement, from the mean of its coordinates."""
    return tuple("up" if m > 0 else "down" if m < 0 else "none" for m in movements.means)


def mean_norm(gram: NDArray[np.float64], weights: list[int]) -> float:
    """Return the length of the weighted mean of movements.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products of the movements.
    weights : list of int
        Examples of each client; all zero counts everybody once.
    """
    w = np.asarray(weights, dtype=np.float64)
    w = w / w.sum() if w.any() else np.full(w.size, 1 / w.size)
    return float(np.sqrt(max(w @ gram @ w, 0.0)))
