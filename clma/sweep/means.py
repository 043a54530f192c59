"""Weighted means and norms of voters, in one pass over their files.

McMahan et al. (2017), "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS, Algorithm 1, for files that together are larger than the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.blas import one_blas_thread
from clma.cohorting.contract import OpenTensors
from clma.parameters.tensor_file import encode_values
from clma.records import SealedUpdate, model_ref
from clma.sweep.columns import BLOCK, Columns, Piece, Span
from clma.sweep.rows import Rows

__all__ = ["Sweep", "mean_of_rows"]

WIDTH = 4 * BLOCK
"""Columns that are read at once: with less, opening files takes longer than reading them."""

MAX_BASES = 4
"""Base models kept for a piece; the clients of a cohort were sent one model, or a few."""


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
    norm_squares : ndarray of shape (n_stripes, n), optional
        To it are added the squared distances of the updates from the models that the clients were
        sent, over the tensors that cohorting looks at.

    Returns
    -------
    ndarray of bytes
        The columns of all stripes as they lie in a file.

    Notes
    -----
    Every column is summed in float64 in the order of the rows and rounded once: no division of the
    work can change a bit.
    """
    columns = sweep.columns
    mean = np.empty(sum(columns.n_bytes(stripe) for stripe in sweep.stripes), np.uint8)
    filled = 0
    refs = [u.tensors for u in updates]
    with (
        Rows(refs, sweep.open_tensors, columns, width=WIDTH) as rows,
        _Bases(sweep, [] if norm_squares is None else updates) as bases,
        one_blas_thread(),
    ):
        for number, stripe in enumerate(sweep.stripes):
            for piece in columns.pieces(stripe, width=WIDTH):
                total = _Total(columns, piece)
                for row, share in enumerate(shares):
                    if norm_squares is not None:
                        base = bases.read(row, piece)
                        square = total.add(rows.read(row, piece), share, base)
                        norm_squares[number, row] += square
                    elif share:
                        total.add(rows.read(row, piece), share, None)
                raw = encode_values(total.values, piece.dtype)
                mean[filled : filled + raw.size] = raw
                filled += raw.size
    return mean


class _Total:
    """The running sum of one piece."""

    def __init__(self, columns: Columns, piece: Piece) -> None:
        self.values = np.zeros(len(piece.span))
        self._blocks = list(piece.span.blocks())
        self._counted = columns.selection(piece)
        self._scratch = np.empty((2, BLOCK))

    def add(self, values: NDArray[Any], share: float, base: NDArray[np.float64] | None) -> float:
        """Add a row times its share; return its squared distance from its base."""
        square = 0.0
        for block in self._blocks:
            n = block.stop - block.start
            wide, gap = self._scratch[0, :n], self._scratch[1, :n]
            np.copyto(wide, values[block])
            if base is not None:
                np.subtract(wide, base[block], out=gap)
                if self._counted is not None:
                    gap *= self._counted[block]
                square += float(gap @ gap)
            if share:
                wide *= share
                self.values[block] += wide
        return square


class _Bases:
    """The models that clients were sent, piece by piece, as float64."""

    def __init__(self, sweep: Sweep, updates: Sequence[SealedUpdate]) -> None:
        digests = sorted({u.base_digest for u in updates})
        self._of_row = [digests.index(u.base_digest) for u in updates]
        refs = [model_ref(digest) for digest in digests]
        self._rows = Rows(refs, sweep.open_tensors, sweep.columns, width=WIDTH)
        self._piece: Piece | None = None
        self._values: dict[int, NDArray[np.float64]] = {}

    def __enter__(self) -> _Bases:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.close()

    def read(self, row: int, piece: Piece) -> NDArray[np.float64]:
        """Return the columns of the model that a row's client was sent."""
        base = self._of_row[row]
        if piece is not self._piece:
            self._piece, self._values = piece, {}
        if base not in self._values:
            if len(self._values) == MAX_BASES:
                self._values.pop(next(iter(self._values)))
            self._values[base] = self._rows.read(base, piece).astype(np.float64)
        return self._values[base]
