"""Some columns of all rows at a time, in memory that is used again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.sweep.columns import BLOCK, Piece

__all__ = ["Tile"]

TILE_BYTES = 8 * 2**20
"""Memory for the columns of all rows that are read together."""

MAX_TILE_BYTES = 32 * 2**20
"""The same where there are so many rows that they would be cut into very short pieces."""

MIN_WIDTH = BLOCK // 2
MAX_WIDTH = 4 * BLOCK
"""Columns after which reading more at once saves nothing."""


class Tile:
    """A matrix with a row for every file.

    Parameters
    ----------
    n_rows : int
    dtype : type
        float32 or float64.
    width : int, optional
        Most columns. Default: as many as fit, at most `MAX_WIDTH`.
    """

    def __init__(self, n_rows: int, dtype: type[np.floating], *, width: int | None = None) -> None:
        self._n_rows = n_rows
        self.width = width or _width(n_rows, np.dtype(dtype).itemsize)
        self._dtype = dtype
        self._memory: NDArray[np.floating] | None = None

    def cut(self, piece: Piece) -> NDArray[np.floating]:
        """Return room for a piece, shape (n_rows, n_columns); what was there before is lost."""
        if self._memory is None:
            self._memory = np.empty(self._n_rows * self.width, self._dtype)
        n_columns = len(piece.span)
        return self._memory[: self._n_rows * n_columns].reshape(self._n_rows, n_columns)


def _width(n_rows: int, itemsize: int) -> int:
    """Return the columns of a tile; only the rows decide, for sums depend on it."""
    column_bytes = itemsize * max(n_rows, 1)
    fit = max(TILE_BYTES // column_bytes, min(MIN_WIDTH, MAX_TILE_BYTES // column_bytes), 1)
    return max(256, min(MAX_WIDTH, 1 << fit.bit_length() - 1))
