"""A recorded table in memory, and the blocks of consecutive rows that it consists of.

Examples
--------
>>> zeros = np.zeros(150, np.int64)
>>> table = RecordedTable(np.ones((150, 1)), zeros, np.full(150, "a"), np.arange(150), zeros)
>>> [(block.start, block.stop) for block in cut_blocks(table, 60)[0]]
[(0, 60), (60, 120)]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Block", "RecordedTable", "TableColumns", "cut_blocks", "read_table"]


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Which columns of a table mean what.

    Parameters
    ----------
    time : str
        Row number in time, whole; a step of more than 1 begins a new block.
    label : str
        Class name.
    condition : str
        Operating condition.
    variables : tuple of str
        Process variables, in the order of the model's inputs.
    recording : tuple of str
        Columns that tell recordings apart.
    client : str or None
        Owner of a row; None: blocks are dealt to the clients.
    """

    time: str
    label: str
    condition: str
    variables: tuple[str, ...]
    recording: tuple[str, ...] = ()
    client: str | None = None

    def names(self) -> tuple[str, ...]:
        """Return all columns that are read."""
        owner = () if self.client is None else (self.client,)
        return (self.time, self.label, self.condition, *self.recording, *owner, *self.variables)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTable:
    """A table in memory; one row per time step.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_variables)
        Finite, in the recording's units.
    labels : ndarray of shape (n_rows,)
        Class indices; -1 is never used for anything.
    conditions : ndarray of shape (n_rows,)
        Strings.
    times : ndarray of shape (n_rows,)
        Whole numbers.
    recordings : ndarray of shape (n_rows,)
        Equal numbers are one recording.
    clients : ndarray of shape (n_rows,), or None
        Strings.
    """

    values: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]
    conditions: NDArray[Any]
    times: NDArray[np.int64]
    recordings: NDArray[np.int64]
    clients: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Rows ``[start, stop)`` of a table: consecutive, of one condition, label and owner."""

    start: int
    stop: int
    condition: str
    label: int
    client: str | None = None


def read_table(
    table: pd.DataFrame | Path,
    columns: TableColumns,
    classes: Sequence[str],
    *,
    ignored_labels: Sequence[str] = (),
) -> RecordedTable:
    """Read a frame or a Parquet file.

    Parameters
    ----------
    table : pandas.DataFrame or Path
        Not modified.
    columns : TableColumns
    classes : sequence of str
        Class names in the order of their indices.
    ignored_labels : sequence of str
        Labels whose rows are left out.

    Raises
    ------
    InvalidConfigError
        If the file or a column is missing, a label is unknown or a value is not a finite number.
    """
    frame = _frame(table, columns)
    names = frame[columns.label].astype(str)
    unknown = sorted(set(names) - set(classes) - set(ignored_labels))
    if unknown:
        raise InvalidConfigError(
            f"column {columns.label!r} has labels {unknown}, wanted {sorted(classes)}"
        )
    try:
        values = frame[list(columns.variables)].to_numpy(dtype=np.float64)
        times = frame[columns.time].to_numpy(dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise InvalidConfigError(f"time and variables must be numbers: {error}") from error
    if not np.isfinite(values).all():
        bad = np.asarray(columns.variables)[~np.isfinite(values).all(axis=0)].tolist()
        raise InvalidConfigError(f"columns {bad} have values that are not finite")
    index = {name: number for number, name in enumerate(classes)}
    recordings: NDArray[np.int64] = np.zeros(len(frame), np.int64)
    if columns.recording:
        groups = frame.groupby(list(columns.recording), observed=True, sort=True).ngroup()
        recordings = np.asarray(groups, dtype=np.int64)
    return RecordedTable(
        values,
        np.array([index.get(name, -1) for name in names], dtype=np.int64),
        frame[columns.condition].astype(str).to_numpy(dtype=object),
        times,
        recordings,
        None
        if columns.client is None
        else frame[columns.client].astype(str).to_numpy(dtype=object),
    )


def _frame(table: pd.DataFrame | Path, columns: TableColumns) -> pd.DataFrame:
    if isinstance(table, Path):
        import pandas as pd

        if not table.is_file():
            raise InvalidConfigError(f"no file {table}, wanted a Parquet table")
        try:
            table = pd.read_parquet(table)
        except (ValueError, OSError) as error:
            raise InvalidConfigError(f"{table} is not a Parquet table: {error}") from error
    missing = [name for name in columns.names() if name not in table.columns]
    if missing:
        raise InvalidConfigError(f"table lacks columns {missing}, it has {list(table.columns)}")
    return table


def cut_blocks(
    table: RecordedTable, block_rows: int
) -> tuple[tuple[Block, ...], NDArray[np.int64]]:
    """Cut a table into full blocks; remainders are left out.

    Returns
    -------
    blocks : tuple of Block
        Their rows count in the order of the second result.
    order : ndarray of shape (n_rows,)
        Row numbers of the table by recording and time.
    """
    order = np.lexsort((table.times, table.recordings))
    keys = [table.recordings[order], table.conditions[order], table.labels[order]]
    if table.clients is not None:
        keys.append(table.clients[order])
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = np.diff(table.times[order]) != 1
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    edges = [*np.flatnonzero(begins).tolist(), len(order)]
    blocks = []
    for first, last in itertools.pairwise(edges):
        row = order[first]
        if table.labels[row] < 0:
            continue
        owner = None if table.clients is None else str(table.clients[row])
        blocks += [
            Block(
                start, start + block_rows, str(table.conditions[row]), int(table.labels[row]), owner
            )
            for start in range(first, last - block_rows + 1, block_rows)
        ]
    return tuple(blocks), order
