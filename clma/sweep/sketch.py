"""Short random projections of movements: enough to tell directions apart, too little to tell more.

The sketch of a movement is its product with a matrix of random signs that everybody who knows the
seed can make again, so it is never stored. The cosine of two sketches of k numbers estimates that
of the movements with a standard deviation of about 1 / sqrt(k).

Achlioptas (2003), "Database-friendly random projections", Journal of Computer and System Sciences
66, theorem 1.1 with entries +1 and -1.

Examples
--------
>>> signs_of_block(seed=0, block=3, n_features=256).shape
(16384, 256)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.sweep.columns import BLOCK, Span

__all__ = ["Signs", "gram_of_sketches", "signs_of_block"]


def signs_of_block(*, seed: int, block: int, n_features: int) -> NDArray[np.uint8]:
    """Return one bit for every column of a block and every number of a sketch.

    Parameters
    ----------
    seed : int in [0, 2**64)
    block : int >= 0
        Number of the block of columns.
    n_features : int >= 1
        A multiple of 64.

    Returns
    -------
    ndarray of shape (BLOCK, n_features), of 0 and 1
    """
    words = np.random.Philox(key=[seed, block]).random_raw(BLOCK * n_features // 64)
    octets = np.ascontiguousarray(words, "<u8").view(np.uint8)
    return np.unpackbits(octets).reshape(BLOCK, n_features)


class Signs:
    """The matrix of signs, of which one block is in memory at a time.

    Parameters
    ----------
    seed : int in [0, 2**64)
    n_features : int
        A multiple of 64.
    """

    def __init__(self, seed: int, n_features: int) -> None:
        self._seed = seed
        self.n_features = n_features
        self._block = -1
        self._bits: NDArray[np.uint8] = np.empty((0, 0), np.uint8)

    def project(self, values: NDArray[np.floating], span: Span) -> NDArray[np.float64]:
        """Return the part of the sketches that some columns of one block make.

        Parameters
        ----------
        values : ndarray of shape (n, len(span))
        span : Span
            The columns, all of one block.

        Returns
        -------
        ndarray of shape (n, n_features)
        """
        block = span.start // BLOCK
        if block != self._block:
            self._block = block
            self._bits = signs_of_block(seed=self._seed, block=block, n_features=self.n_features)
        first = span.start - block * BLOCK
        signs = self._bits[first : first + len(span)].astype(values.dtype)
        signs *= 2
        signs -= 1
        part: NDArray[np.float64] = (values @ signs).astype(np.float64)
        part /= np.sqrt(self.n_features)
        return part


def gram_of_sketches(
    sketches: NDArray[np.float64], squares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Estimate the inner products of movements.

    Parameters
    ----------
    sketches : ndarray of shape (n, n_features)
    squares : ndarray of shape (n,)
        Squared norms of the movements, which are known exactly.

    Returns
    -------
    ndarray of shape (n, n)
        Cosines of the sketches times the exact norms; exact on the diagonal.
    """
    lengths = np.linalg.norm(sketches, axis=1)
    scale = np.sqrt(squares) / np.where(lengths > 0, lengths, 1.0)
    scaled = sketches * scale[:, None]
    gram = scaled @ scaled.T
    np.fill_diagonal(gram, squares)
    return gram
