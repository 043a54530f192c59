"""Where voters' updates point, from a few columns that are spread over the model.

A cosine is known well enough from some thousand columns, and a night has to be told who votes
before it reads everybody's weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from clma.aggregation.median import middle_values
from clma.blas import one_blas_thread
from clma.cohorting.contract import OpenTensors
from clma.parameters.moves import EVIDENCE_DIGITS, STILL
from clma.records import SealedUpdate
from clma.sweep.bases import Bases
from clma.sweep.columns import Columns, Piece, Span
from clma.sweep.rows import Rows

__all__ = ["MAX_COLUMNS", "cosines_to_middle", "spread_columns"]

MAX_COLUMNS = 16_384
"""Looked at of a model: a cosine of so many is off by less than 0.01."""

MIN_COLUMNS = 2_048
"""The same where there are very many voters: off by 0.02."""

MAX_VALUES = 4 * 2**20
"""Of all voters together, down to `MIN_COLUMNS`: finding medians is what takes the time."""

N_RUNS = 16
"""Neighbouring columns are read at once: so many places are looked at."""

TILE_VALUES = 2**21
"""Held in memory at a time, twice."""


def spread_columns(columns: Columns, n_columns: int, *, seed: int) -> list[Span]:
    """Choose columns of the tensors that cohorting looks at, evenly spread over them.

    Parameters
    ----------
    columns : Columns
    n_columns : int >= N_RUNS
        Most to choose; a model that has no more is looked at in full.
    seed : int
        Which column of each of `N_RUNS` equal stretches the run begins at. With another one every
        round, a client cannot know which of its weights will be looked at.
    """
    spans = columns.selected_spans()
    borders = np.cumsum([0, *(len(span) for span in spans)])
    total, length = int(borders[-1]), n_columns // N_RUNS
    if total <= n_columns:
        return spans
    rng = np.random.default_rng(seed)
    cuts = [k * total // N_RUNS for k in range(N_RUNS + 1)]
    chosen: list[Span] = []
    for low, high in itertools.pairwise(cuts):
        start = int(rng.integers(low, high - length, endpoint=True))
        for span, first in zip(spans, borders.tolist(), strict=False):
            inside = max(start, first), min(start + length, first + len(span))
            if inside[0] < inside[1]:
                shift = span.start - first
                chosen.append(Span(inside[0] + shift, inside[1] + shift))
    return chosen


def cosines_to_middle(
    updates: Sequence[SealedUpdate], columns: Columns, open_tensors: OpenTensors, *, seed: int
) -> NDArray[np.float64]:
    """Return the cosine of every update to the coordinate median of all.

    Parameters
    ----------
    updates : sequence of n SealedUpdate
        Their order does not matter.
    columns : Columns
    open_tensors : callable
    seed : int
        As for `spread_columns`.

    Returns
    -------
    ndarray of shape (n,), in [-1, 1]
        0 for an update that did not move, and for all where their median did not.

    Notes
    -----
    Over the tensors that cohorting looks at: statistics of normalisation layers are longer than
    what was learned, and point where the data lie. Updates are subtracted and multiplied in
    float64, in which no weight that is let in has an infinite square.
    """
    n = len(updates)
    n_columns = max(MIN_COLUMNS, min(MAX_COLUMNS, MAX_VALUES // max(n, 1)))
    width = max(64, TILE_VALUES // max(n, 1))
    products, squares, middle_square = np.zeros(n), np.zeros(n), 0.0
    with (
        closing(Rows([u.tensors for u in updates], open_tensors, columns, width=width)) as rows,
        closing(Bases(updates, open_tensors, columns, width=width)) as bases,
        one_blas_thread(),
    ):
        for span in spread_columns(columns, n_columns, seed=seed):
            for piece in columns.pieces(span, width=width):
                moved = _moved(n, piece, rows, bases)
                middle = _medians(moved)
                products += moved @ middle
                squares += np.einsum("ij,ij->i", moved, moved)
                middle_square += float(middle @ middle)
    lengths = np.sqrt(squares)
    scale = lengths * np.sqrt(middle_square)
    still = (lengths < STILL) | (middle_square < STILL**2)
    cosines = np.divide(products, scale, out=np.zeros(n), where=~still)
    return np.asarray(np.round(np.clip(cosines, -1.0, 1.0), EVIDENCE_DIGITS))


def _moved(n: int, piece: Piece, rows: Rows, bases: Bases) -> NDArray[np.float64]:
    moved = np.empty((n, len(piece.span)))
    for row in range(n):
        np.subtract(rows.read(row, piece), bases.read(row, piece), out=moved[row])
    return moved


def _medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # A full sort of so short rows is faster than NumPy's median.
    rows = np.array(values.T, order="C")
    rows.sort(axis=1)
    return middle_values(rows)
