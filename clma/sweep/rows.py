"""Read the same columns of many files, one row after another, without holding any of them.

The files are not mapped: pages that were read would count as this process's memory, and a mapped
file that is cut short ends the process. Reading into a buffer that is used again is as fast.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.contract import OpenTensors
from clma.ledger.refusals import refusals_named
from clma.parameters.tensor_file import TensorFileError
from clma.parameters.tensor_header import NUMPY_DTYPES
from clma.records import ArtifactRef
from clma.sweep.columns import BLOCK, Columns, Piece

__all__ = ["Rows"]

MAX_OPEN = 128
"""Files that stay open for the time of a pass; with more, each is opened for every piece of it."""

MAX_RUNS = 4096
"""Pieces of which it is remembered where they lie in a file."""


class Rows:
    """Tensor files of one model as rows of columns; to be used by one thread, and closed.

    Parameters
    ----------
    refs : sequence of n ArtifactRef
        Their order is the order of the rows.
    open_tensors : callable
        Opens, and checks, a stored file; each is opened once here to learn where its tensors lie.
    columns : Columns
    width : int
        Most columns of a piece that is read.
    """

    def __init__(
        self,
        refs: Sequence[ArtifactRef],
        open_tensors: OpenTensors,
        columns: Columns,
        *,
        width: int = BLOCK,
    ) -> None:
        self._columns = columns
        self._width = width
        self._paths: list[Path] = []
        self._layouts: list[tuple[int, ...]] = []
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        for ref in refs:
            with open_tensors(ref) as file:
                layout = tuple(file.position(name) for name in columns.names)
                self._paths.append(file.path)
                self._layouts.append(known.setdefault(layout, layout))
        self._places = [(path.name, str(path.parent)) for path in self._paths]
        self._buffer = np.empty(0, np.uint8)
        self._open: dict[int, io.FileIO] = {}
        self._runs: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}

    def close(self) -> None:
        """Close what is open; the rows can still be read."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, row: int, piece: Piece) -> NDArray[Any]:
        """Return the columns of a piece of one row, shape (len(piece.span),).

        The array is valid until the next call; bfloat16 comes as float32, which is exact.

        Raises
        ------
        StorageError
            If the disk refuses.
        TensorFileError
            If the file has become shorter since it was opened.
        """
        dtype = NUMPY_DTYPES[piece.dtype]
        n_bytes = len(piece.span) * dtype.itemsize
        if n_bytes > self._buffer.size:
            self._buffer = np.empty(n_bytes, np.uint8)
        raw = self._buffer[:n_bytes]
        self._fill(row, piece, raw)
        values = raw.view(dtype)
        if piece.dtype == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values

    def read_into(self, row: int, piece: Piece, target: NDArray[Any]) -> None:
        """Write the columns of a piece of one row to an array of the same shape, as `read` does."""
        same = piece.dtype != "BF16" and target.dtype == NUMPY_DTYPES[piece.dtype]
        if same and target.flags.c_contiguous:
            self._fill(row, piece, target.view(np.uint8))
        else:
            np.copyto(target, self.read(row, piece))

    def _fill(self, row: int, piece: Piece, raw: NDArray[np.uint8]) -> None:
        with refusals_named("read", *self._places[row]):
            file = self._file(row)
            try:
                itemsize = NUMPY_DTYPES[piece.dtype].itemsize
                for position, first, stop in self._runs_of(row, piece, itemsize):
                    _fill(file, raw[first:stop], position)
            finally:
                if row not in self._open:
                    file.close()

    def vector(self, row: int) -> NDArray[np.floating]:
        """Return all that cohorting looks at of one row, shape (n_selected,), float32 or wider."""
        pieces = self._selected_pieces
        wide = any(piece.dtype == "F64" for piece in pieces)
        size = sum(len(piece.span) for piece in pieces)
        vector: NDArray[np.floating] = np.empty(size, np.float64 if wide else np.float32)
        filled = 0
        for piece in pieces:
            stop = filled + len(piece.span)
            self.read_into(row, piece, vector[filled:stop])
            filled = stop
        return vector

    @cached_property
    def _selected_pieces(self) -> list[Piece]:
        return [
            piece
            for span in self._columns.selected_spans()
            for piece in self._columns.pieces(span, width=self._width)
        ]

    def _file(self, row: int) -> io.FileIO:
        if row in self._open:
            return self._open[row]
        file = io.FileIO(self._paths[row], "rb")
        if len(self._paths) <= MAX_OPEN:
            self._open[row] = file
        return file

    def _runs_of(self, row: int, piece: Piece, itemsize: int) -> list[tuple[int, int, int]]:
        """Return (position in the file, first and last byte of the piece) of what lies together."""
        layout = self._layouts[row]
        key = (id(layout), piece.span.start, piece.span.stop)
        if key not in self._runs:
            # Of one file after another, or of one piece after another: few are needed again.
            if len(self._runs) > MAX_RUNS:
                self._runs.clear()
            self._runs[key] = _runs(layout, self._columns.borders, piece, itemsize)
        return self._runs[key]


def _runs(
    layout: Sequence[int], borders: Sequence[int], piece: Piece, itemsize: int
) -> list[tuple[int, int, int]]:
    runs: list[tuple[int, int, int]] = []
    for part in piece.parts:
        position = layout[part.tensor] + (part.start - borders[part.tensor]) * itemsize
        first = (part.start - piece.span.start) * itemsize
        stop = (part.stop - piece.span.start) * itemsize
        if runs and runs[-1][0] + runs[-1][2] - runs[-1][1] == position:
            runs[-1] = (runs[-1][0], runs[-1][1], stop)
        else:
            runs.append((position, first, stop))
    return runs


def _fill(file: io.FileIO, target: NDArray[np.uint8], position: int) -> None:
    file.seek(position)
    done = 0
    while done < target.size:
        n_read = file.readinto(target[done:].data)
        if not n_read:
            raise TensorFileError(f"file ends at byte {position + done}, it was longer when opened")
        done += n_read
