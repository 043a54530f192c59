"""Inner products of the movements of one unit, in one pass over its files.

A movement is `row - reference`, or from a start of the row's own. It is subtracted first, block by
block: taken from the products afterwards, what all rows have in common would cost the digits that
tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.blas import one_blas_thread
from clma.records import ArtifactRef
from clma.sweep.columns import Columns, Piece, Span
from clma.sweep.means import Sweep
from clma.sweep.rows import Rows
from clma.sweep.sketch import Signs
from clma.sweep.tiles import Tile

__all__ = ["MAX_WIDE_ROWS", "InnerProducts", "Way", "inner_products"]

MAX_WIDE_ROWS = 32
"""Up to so many rows, products are computed in float64. Beyond, where they take most of the time of
a round, in float32 with float64 sums over blocks: half the time, errors of some 1e-7."""

MAX_NARROW = 1e15
"""Largest movement whose products are taken in float32: the squares of all columns of a tile can
still be added. One client with absurd weights must not cost the others theirs."""


@dataclass(frozen=True, slots=True)
class Way:
    """From one model to another."""

    start: ArtifactRef
    end: ArtifactRef


@dataclass(frozen=True, slots=True)
class InnerProducts:
    """Sums over columns, of n movements.

    Parameters
    ----------
    gram : ndarray of shape (n, n), float64
        Inner products, in squared units of the parameters; of shape (0, 0) where sketches stand for
        them.
    layer_squares : ndarray of shape (n_tensors, n), float64
        Squared norms by tensor, in the order of `Columns.specs`.
    sums : ndarray of shape (n,), float64
        Sums of the coordinates.
    sketches : ndarray of shape (n, n_features), float64
        Without a feature where they were not asked for.
    output_gram : ndarray of shape (n, n), float64
        As `gram`, over the columns of the output layer; of shape (0, 0) where it does not count.
    output_sketches : ndarray of shape (n, n_features), float64
        The same of `sketches`.
    """

    gram: NDArray[np.float64]
    layer_squares: NDArray[np.float64]
    sums: NDArray[np.float64]
    sketches: NDArray[np.float64]
    output_gram: NDArray[np.float64]
    output_sketches: NDArray[np.float64]

    def __add__(self, other: InnerProducts) -> InnerProducts:
        return InnerProducts(
            self.gram + other.gram,
            self.layer_squares + other.layer_squares,
            self.sums + other.sums,
            self.sketches + other.sketches,
            self.output_gram + other.output_gram,
            self.output_sketches + other.output_sketches,
        )

    @classmethod
    def zeros(
        cls, n_rows: int, n_tensors: int, n_features: int = 0, *, output: bool = False
    ) -> InnerProducts:
        """Return the sums over no column."""
        n_products = 0 if n_features else n_rows
        n_output = n_products if output else 0
        return cls(
            np.zeros((n_products, n_products)),
            np.zeros((n_tensors, n_rows)),
            np.zeros(n_rows),
            np.zeros((n_rows, n_features)),
            np.zeros((n_output, n_output)),
            np.zeros((n_rows, n_features if output else 0)),
        )


def inner_products(
    sweep: Sweep,
    refs: Sequence[ArtifactRef],
    reference: ArtifactRef | None,
    *,
    max_wide_rows: float = MAX_WIDE_ROWS,
    signs: Signs | None = None,
    ways: Sequence[Way] = (),
) -> Iterator[InnerProducts]:
    """Sum up inner products, as far as cohorting looks at the tensors.

    Parameters
    ----------
    sweep : Sweep
    refs : sequence of n ArtifactRef
        In the order of the rows.
    reference : ArtifactRef or None
        Subtracted from every row; None: the raw weights (Algorithm 3 as listed).
    max_wide_rows : float
        Up to so many rows, products are computed in float64.
    signs : Signs, optional
        Sum up sketches instead of inner products.
    ways : sequence of Way
        More rows after the others, each measured from a start of its own.

    Yields
    ------
    InnerProducts
        Of one stripe after the other. Equal for equal input, whatever the number of threads: BLAS
        is kept to one.
    """
    columns, n = sweep.columns, len(refs) + len(ways)
    starts = [reference] * len(refs) + [way.start for way in ways]
    # Raw weights have most of their digits in common.
    wide = reference is None or n <= max_wide_rows or any(s.dtype == "F64" for s in columns.specs)
    tile = Tile(n, np.float64 if wide else np.float32)
    spare = Tile(0 if wide else n, np.float64, width=tile.width)
    ends = [*refs, *(way.end for way in ways)]
    with (
        closing(Rows(ends, sweep.open_tensors, columns, width=tile.width)) as rows,
        closing(_Starts(starts, sweep, width=tile.width)) as bases,
        one_blas_thread(),
    ):
        for stripe in sweep.stripes:
            n_features = 0 if signs is None else signs.n_features
            n_tensors, output = len(columns.specs), bool(columns.output)
            result = InnerProducts.zeros(n, n_tensors, n_features, output=output)
            for piece in columns.pieces(stripe, width=tile.width):
                if columns.selects_any(piece):
                    values = tile.cut(piece)
                    _load(values, rows, bases, piece)
                    if not wide and not np.abs(values).max() <= MAX_NARROW:
                        values = spare.cut(piece)
                        _load(values, rows, bases, piece)
                    _add_products(result, values, columns, piece, signs)
                    if columns.output:
                        _add_output_products(result, values, columns, piece, signs)
            yield result


class _Starts:
    """The model that every row is measured from, one of which is in memory at a time."""

    def __init__(self, refs: Sequence[ArtifactRef | None], sweep: Sweep, *, width: int) -> None:
        distinct = list(dict.fromkeys(ref for ref in refs if ref is not None))
        self._of_row = [None if ref is None else distinct.index(ref) for ref in refs]
        self._rows = Rows(distinct, sweep.open_tensors, sweep.columns, width=width)

    def close(self) -> None:
        """Close what is open."""
        self._rows.close()

    def subtract(self, values: NDArray[np.floating], piece: Piece) -> None:
        """Subtract every row's start, in place; neighbours with one start read it once."""
        held, start = None, None
        for row, number in enumerate(self._of_row):
            if number is None:
                continue
            if start is None or number != held:
                held, start = number, self._rows.read(number, piece).astype(values.dtype)
            values[row] -= start


def _load(values: NDArray[np.floating], rows: Rows, bases: _Starts, piece: Piece) -> None:
    """Read the columns and subtract what each row is measured from."""
    for row in range(len(rows)):
        rows.read_into(row, piece, values[row])
    bases.subtract(values, piece)


def _add_products(
    result: InnerProducts,
    values: NDArray[np.floating],
    columns: Columns,
    piece: Piece,
    signs: Signs | None,
) -> None:
    """Add what these columns make to `result`, in place; `values` are used up."""
    counted = columns.selection(piece)
    if counted is not None:
        values *= counted.astype(values.dtype)
    for block in piece.span.blocks():
        inside = values[:, block]
        result.sums[...] += inside @ np.ones(inside.shape[1], values.dtype)
        if signs is None:
            gram = inside @ inside.T
            result.gram[...] += gram
            if len(piece.parts) == 1:
                result.layer_squares[piece.parts[0].tensor] += np.diag(gram)
        else:
            start = piece.span.start
            columns_of_block = Span(start + block.start, start + block.stop)
            result.sketches[...] += signs.project(inside, columns_of_block)
    if signs is None and len(piece.parts) == 1:
        return
    for part in piece.parts:
        inside = values[:, part.start - piece.span.start : part.stop - piece.span.start]
        squares = np.einsum("ij,ij->i", inside, inside, dtype=np.float64)
        result.layer_squares[part.tensor] += squares


def _add_output_products(
    result: InnerProducts,
    values: NDArray[np.floating],
    columns: Columns,
    piece: Piece,
    signs: Signs | None,
) -> None:
    """Add what the output layer's columns among these make to `result`, in place."""
    for part in piece.parts:
        if not columns.output[part.tensor]:
            continue
        first = part.start - piece.span.start
        for block in Span(part.start, part.stop).blocks():
            inside = values[:, first + block.start : first + block.stop]
            if signs is None:
                result.output_gram[...] += inside @ inside.T
            else:
                of_block = Span(part.start + block.start, part.start + block.stop)
                result.output_sketches[...] += signs.project(inside, of_block)
