"""Inner products of movements, streamed from tensor files.

A movement is `file - reference`: an update where the file is a client's, the way to another cohort
where it is that cohort's model. All that cohorting by direction needs is the matrix of their inner
products, which one pass over the files yields without ever holding clients x parameters.

Examples
--------
>>> gram = np.array([[4.0, 0.0], [0.0, 9.0]])
>>> cosine_distances(gram)
array([[0., 1.],
       [1., 0.]])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.blas import one_blas_thread
from clma.errors import InvalidUpdateError
from clma.parameters.tensor_file import TensorFile

__all__ = ["Movements", "cosine_distances", "flat_vector", "measure_movements", "signed_means"]

BLOCK_COLUMNS = 65_536
"""Columns in one block: 100 rows of float64 take 52 MB."""

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
    """

    gram: NDArray[np.float64]
    layer_squares: NDArray[np.float64]
    means: NDArray[np.float64]
    names: tuple[str, ...]

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


def measure_movements(
    files: Sequence[TensorFile], reference: TensorFile | None, names: Sequence[str]
) -> Movements:
    """Compute the inner products of all movements in one pass.

    Parameters
    ----------
    files : sequence of n TensorFile
        Their order is the order of rows; the caller sorts by client id.
    reference : TensorFile or None
        Subtracted from every file; None: the raw weights (Algorithm 3 as listed).
    names : sequence of str
        Tensors to use; their order fixes the order of summation.

    Returns
    -------
    Movements
        Equal for equal input on any number of threads: BLAS is pinned to one.

    Raises
    ------
    InvalidUpdateError
        If a product is not finite (float64 overflow of absurd weights).
    """
    n = len(files)
    gram = np.zeros((n, n))
    squares = np.zeros((len(names), n))
    sums = np.zeros(n)
    n_parameters = 0
    with one_blas_thread():
        for position, name in enumerate(names):
            rows = [file.read(name).ravel() for file in files]
            base = None if reference is None else reference.read(name).ravel()
            size = rows[0].size if rows else 0
            n_parameters += size
            for start in range(0, size, BLOCK_COLUMNS):
                block = _block(rows, base, slice(start, start + BLOCK_COLUMNS))
                part = block @ block.T
                gram += part
                squares[position] += np.diag(part)
                sums += block.sum(axis=1)
    if not np.isfinite(gram).all():
        raise InvalidUpdateError("movements overflow float64, wanted weights of sane size")
    gram = (gram + gram.T) / 2
    return Movements(gram, squares, sums / max(n_parameters, 1), tuple(names))


def _block(
    rows: Sequence[NDArray[np.floating]], base: NDArray[np.floating] | None, columns: slice
) -> NDArray[np.float64]:
    block = np.stack([row[columns] for row in rows]).astype(np.float64)
    if base is not None:
        block -= base[columns].astype(np.float64)
    return block


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


def flat_vector(file: TensorFile, names: Sequence[str]) -> NDArray[np.floating]:
    """Return the chosen tensors of one file as one vector of shape (n_parameters,)."""
    return np.concatenate([file.read(name).ravel() for name in names])


def signed_means(movements: Movements) -> tuple[str, ...]:
    """Return ``up``, ``down`` or ``none`` for every movement, from the mean of its coordinates."""
    return tuple("up" if m > 0 else "down" if m < 0 else "none" for m in movements.means)
