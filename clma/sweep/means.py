"""Weighted means and norms of voters, in one pass over their files.

McMahan et al. (2017), "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS, Algorithm 1, for files that together are larger than the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.aggregation.contract import Mix
from clma.blas import one_blas_thread
from clma.cohorting.contract import OpenTensors
from clma.parameters.tensor_file import encode_values
from clma.records import SealedUpdate
from clma.sweep.bases import Bases, split_square
from clma.sweep.columns import BLOCK, Columns, Piece, Span
from clma.sweep.rows import Rows

__all__ = ["Slice", "Sweep", "mean_of_rows", "mix_of_rows"]

WIDTH = 4 * BLOCK
"""Columns that are read at once: with less, opening files takes longer than reading them."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a pass is made over.

    Parameters
    ----------
    columns : Columns
        Of the whole model.
    stripes : tuple of Span
        Those to go over, neighbours.
    open_tensors : callable
    """

    columns: Columns
    stripes: tuple[Span, ...]
    open_tensors: OpenTensors


class Slice:
    """The columns of all stripes as they lie in a file, filled piece by piece."""

    def __init__(self, sweep: Sweep) -> None:
        size = sum(sweep.columns.n_bytes(stripe) for stripe in sweep.stripes)
        self.raw = np.empty(size, np.uint8)
        self._filled = 0

    def append(self, values: NDArray[np.float64], piece: Piece) -> None:
        """Round the next piece to its dtype."""
        raw = encode_values(values, piece.dtype)
        self.raw[self._filled : self._filled + raw.size] = raw
        self._filled += raw.size


def mean_of_rows(
    sweep: Sweep,
    updates: Sequence[SealedUpdate],
    shares: Sequence[float],
    norm_squares: NDArray[np.float64] | None = None,
) -> NDArray[np.uint8]:
    """Average the weights of updates.

    Parameters
    ----------
    sweep : Sweep
    updates : sequence of n SealedUpdate
        In the order of summation: the caller sorts by client id.
    shares : sequence of n float >= 0
        Their sum is 1.
    norm_squares : ndarray of shape (2, n_stripes, n), optional
        To it are added the squared distances of the updates from the models that the clients were
        sent: over the tensors that cohorting looks at, and over all others.

    Returns
    -------
    ndarray of bytes
        The columns of all stripes as they lie in a file.

    Notes
    -----
    Every column is summed in float64 in the order of the rows and rounded once: no division of the
    work can change a bit.
    """
    columns, opened = sweep.columns, sweep.open_tensors
    mean = Slice(sweep)
    measured = [] if norm_squares is None else updates
    with (
        closing(Rows([u.tensors for u in updates], opened, columns, width=WIDTH)) as rows,
        closing(Bases(measured, opened, columns, width=WIDTH)) as bases,
        one_blas_thread(),
    ):
        for number, stripe in enumerate(sweep.stripes):
            for piece in columns.pieces(stripe, width=WIDTH):
                total = _Total(columns, piece)
                for row, share in enumerate(shares):
                    if norm_squares is not None:
                        base = bases.read(row, piece)
                        squares = total.add(rows.read(row, piece), share, base)
                        norm_squares[:, number, row] += squares
                    elif share:
                        total.add(rows.read(row, piece), share, None)
                mean.append(total.values, piece)
    return mean.raw


def mix_of_rows(sweep: Sweep, updates: Sequence[SealedUpdate], mix: Mix) -> NDArray[np.uint8]:
    """Average shortened updates.

    Parameters
    ----------
    sweep : Sweep
    updates : sequence of n SealedUpdate
        In the order of summation.
    mix : Mix
        Of n voters.

    Returns
    -------
    ndarray of bytes
        As `mean_of_rows` returns them, and where nothing is shortened the same ones.
    """
    columns, opened = sweep.columns, sweep.open_tensors
    mixed = Slice(sweep)
    with (
        closing(Rows([u.tensors for u in updates], opened, columns, width=WIDTH)) as rows,
        closing(Bases(updates, opened, columns, width=WIDTH)) as bases,
    ):
        for stripe in sweep.stripes:
            for piece in columns.pieces(stripe, width=WIDTH):
                counted = columns.selection(piece)
                total = np.zeros(len(piece.span))
                for row in np.flatnonzero(mix.weights).tolist():
                    wide = rows.read(row, piece).astype(np.float64)
                    inside, outside = mix.kept[:, row]
                    if min(inside, outside) < 1:
                        kept = inside if counted is None else np.where(counted, inside, outside)
                        wide = kept * wide + (1 - kept) * bases.read(row, piece)
                    wide *= mix.weights[row]
                    total += wide
                mixed.append(total, piece)
    return mixed.raw


class _Total:
    """The running sum of one piece."""

    def __init__(self, columns: Columns, piece: Piece) -> None:
        self.values = np.zeros(len(piece.span))
        self._blocks = list(piece.span.blocks())
        self._counted = columns.selection(piece)
        self._scratch = np.empty((2, BLOCK))

    def add(
        self, values: NDArray[Any], share: float, base: NDArray[np.float64] | None
    ) -> tuple[float, float]:
        """Add a row times its share; return its squared distances from its base."""
        inside = outside = 0.0
        for block in self._blocks:
            n = block.stop - block.start
            wide, gap = self._scratch[0, :n], self._scratch[1, :n]
            np.copyto(wide, values[block])
            if base is not None:
                np.subtract(wide, base[block], out=gap)
                counted = None if self._counted is None else self._counted[block]
                squares = split_square(gap, counted)
                inside, outside = inside + squares[0], outside + squares[1]
            if share:
                wide *= share
                self.values[block] += wide
        return inside, outside
