"""Every column of the voters' weights in rising order, for rules that look at columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from clma.blas import one_blas_thread
from clma.records import SealedUpdate
from clma.sweep.bases import Bases, split_square
from clma.sweep.means import Slice, Sweep
from clma.sweep.rows import Rows
from clma.sweep.tiles import Tile

__all__ = ["reduce_columns"]

SORTED_VALUES = 65_536
"""Values sorted at a time: they stay in a core's own cache."""


def reduce_columns(
    sweep: Sweep,
    updates: Sequence[SealedUpdate],
    votes: Sequence[bool],
    rule: Callable[[NDArray[np.floating]], NDArray[np.float64]],
    norm_squares: NDArray[np.float64],
) -> NDArray[np.uint8]:
    """Apply a rule to every column of the voters' weights.

    Parameters
    ----------
    sweep : Sweep
    updates : sequence of n SealedUpdate
    votes : sequence of n bool
        Whose values count, at least one; all are measured.
    rule : callable
        Takes columns of shape (n_columns, n_voters), each row rising, float32 or wider.
    norm_squares : ndarray of shape (2, n_stripes, n)
        As in `mean_of_rows`.

    Returns
    -------
    ndarray of bytes
        As `mean_of_rows` returns them.

    Notes
    -----
    Memory is bounded by a tile of the voters' columns. A full sort of so short rows is faster than
    NumPy's partition, and the order of equal values is all that it leaves open.
    """
    columns, opened = sweep.columns, sweep.open_tensors
    wide = any(spec.dtype == "F64" for spec in columns.specs)
    tile = Tile(sum(votes), np.float64 if wide else np.float32)
    slots = np.cumsum(votes) - 1
    result = Slice(sweep)
    with (
        closing(Rows([u.tensors for u in updates], opened, columns, width=tile.width)) as rows,
        closing(Bases(updates, opened, columns, width=tile.width)) as bases,
        one_blas_thread(),
    ):
        for number, stripe in enumerate(sweep.stripes):
            for piece in columns.pieces(stripe, width=tile.width):
                values = tile.cut(piece)
                counted = columns.selection(piece)
                for row, has_vote in enumerate(votes):
                    read = rows.read(row, piece)
                    gap = read - bases.read(row, piece)
                    norm_squares[:, number, row] += split_square(gap, counted)
                    if has_vote:
                        values[slots[row]] = read
                result.append(_reduced(values, rule), piece)
    return result.raw


def _reduced(
    values: NDArray[np.floating], rule: Callable[[NDArray[np.floating]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    n_voters, n_columns = values.shape
    step = max(1, SORTED_VALUES // n_voters)
    result = np.empty(n_columns)
    for low in range(0, n_columns, step):
        inside = slice(low, low + step)
        rows = np.ascontiguousarray(values[:, inside].T)
        rows.sort(axis=1)
        result[inside] = rule(rows)
    # Of 0.0 and -0.0, which are equal, either may come first.
    result += 0.0
    return result
