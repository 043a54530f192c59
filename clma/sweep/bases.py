"""The models that clients were sent, and how far their updates are from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.contract import OpenTensors
from clma.records import SealedUpdate, model_ref
from clma.sweep.columns import Columns, Piece
from clma.sweep.rows import Rows

__all__ = ["Bases", "split_square"]

MAX_BASES = 4
"""Base models kept for a piece; the clients of a cohort were sent one model, or a few."""


class Bases:
    """The models that clients were sent, piece by piece, as float64; to be closed after use.

    Parameters
    ----------
    updates : sequence of SealedUpdate
        Their order is the order of the rows.
    open_tensors : callable
    columns : Columns
    width : int
        Most columns of a piece that is read.
    """

    def __init__(
        self,
        updates: Sequence[SealedUpdate],
        open_tensors: OpenTensors,
        columns: Columns,
        *,
        width: int,
    ) -> None:
        digests = sorted({u.base_digest for u in updates})
        self._of_row = [digests.index(u.base_digest) for u in updates]
        refs = [model_ref(digest) for digest in digests]
        self._rows = Rows(refs, open_tensors, columns, width=width)
        self._piece: Piece | None = None
        self._values: dict[int, NDArray[np.float64]] = {}

    def close(self) -> None:
        """Close what is open."""
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


def split_square(
    gap: NDArray[np.float64], counted: NDArray[np.float64] | None
) -> tuple[float, float]:
    """Return the squared length over the counted columns, and over all others.

    Parameters
    ----------
    gap : ndarray of shape (n_columns,)
    counted : ndarray of shape (n_columns,) or None
        1.0 or 0.0, as `Columns.selection` returns it.
    """
    if counted is None:
        return float(gap @ gap), 0.0
    inside = gap * counted
    outside = gap - inside
    return float(inside @ inside), float(outside @ outside)
