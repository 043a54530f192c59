"""The five tables of a round as Parquet with explicit schemas, from records and back.

Rows *are* the decision of a round (`clma.rows`), so the schemas name every column once, with its
type; what the privacy policy does not share is null, never zero.

Examples
--------
>>> store = Store.open("memory://tables-example")
>>> row = DriftRow("plant-a", "c0", drift_flag=True)
>>> data = table_bytes("drift", "north", 1, [row])
>>> _ = store.put_once(table_key(1, "drift"), data)
>>> read_rows(store, 1, "drift") == (row,)
True
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from clma.errors import DamagedStoreError
from clma.ledger.keys import table_key
from clma.ledger.store import Store
from clma.records import ClientStatus
from clma.rows import AssignmentRow, CohortingRow, CohortRow, DriftRow, RoundDecision, UpdateRow

__all__ = [
    "TABLE_NAMES",
    "Row",
    "clients_with_events",
    "decision_tables",
    "read_rows",
    "read_table",
    "schema",
    "table_bytes",
]

Row = UpdateRow | DriftRow | CohortingRow | AssignmentRow | CohortRow

_TIME = pa.timestamp("us", tz="UTC")
_KEY = {"federation": pa.string(), "round": pa.int64()}


@dataclass(frozen=True, slots=True)
class _Table:
    row: type[Row]
    columns: Mapping[str, pa.DataType]


_TABLES: Mapping[str, _Table] = {
    "updates": _Table(
        UpdateRow,
        {
            "client_id": pa.string(),
            "received_at": _TIME,
            "digest": pa.string(),
            "verdict": pa.string(),
            "reason": pa.string(),
            "detail": pa.string(),
            "n_examples": pa.int64(),
            "loss": pa.float64(),
            "drift_flag": pa.bool_(),
            "base_digest": pa.string(),
            "bytes": pa.int64(),
        },
    ),
    "drift": _Table(
        DriftRow,
        {
            "client_id": pa.string(),
            "cohort_before": pa.string(),
            "drift_flag": pa.bool_(),
            "loss": pa.float64(),
            "loss_previous": pa.float64(),
            "threshold": pa.float64(),
            "update_norm": pa.float64(),
            "server_check": pa.string(),
            "detail": pa.string(),
            "voted_in": pa.string(),
            "scores": pa.list_(pa.struct({"cohort_id": pa.string(), "score": pa.float64()})),
        },
    ),
    "cohorting": _Table(
        CohortingRow,
        {
            "client_id": pa.string(),
            "origin_cohort": pa.string(),
            "ks_statistic": pa.float64(),
            "direction": pa.string(),
            "group": pa.int64(),
            "silhouette": pa.float64(),
            "recall_cohort": pa.string(),
            "recall_score": pa.float64(),
            "decision": pa.string(),
            "nearest": pa.list_(pa.string()),
            "top_layers": pa.list_(pa.struct({"name": pa.string(), "share": pa.float64()})),
            "recall_witness": pa.string(),
        },
    ),
    "assignments": _Table(
        AssignmentRow,
        {
            "client_id": pa.string(),
            "cohort_before": pa.string(),
            "cohort_after": pa.string(),
            "status": pa.string(),
            "serving_digest": pa.string(),
            "serving_since": pa.int64(),
        },
    ),
    "cohorts": _Table(
        CohortRow,
        {
            "cohort_id": pa.string(),
            "parent": pa.string(),
            "born_round": pa.int64(),
            "status": pa.string(),
            "n_members": pa.int64(),
            "n_updates": pa.int64(),
            "n_examples": pa.int64(),
            "model_digest": pa.string(),
            "previous_digest": pa.string(),
            "gate": pa.string(),
            "gate_detail": pa.string(),
            "metrics": pa.map_(pa.string(), pa.float64()),
        },
    ),
}

_ADDED = frozenset({"voted_in", "scores", "recall_witness"})
"""Columns that older tables lack; they are read as null."""

_PAIRS = {"top_layers": ("name", "share"), "scores": ("cohort_id", "score")}
"""Columns of pairs, and what the parts of a pair are called on disk."""

TABLE_NAMES: tuple[str, ...] = tuple(_TABLES)
"""In the order of the night."""


def schema(name: str) -> pa.Schema:
    """Return the schema of a table; KeyError if there is none of that name."""
    return pa.schema({**_KEY, **_TABLES[name].columns})


def table_bytes(name: str, federation: str, round_num: int, rows: Sequence[Row]) -> bytes:
    """Write one table as Parquet (zstd); equal rows give equal bytes.

    Parameters
    ----------
    name : str
        One of `TABLE_NAMES`.
    federation : str
    round_num : int
    rows : sequence of records
        Of that table, in the order to write.
    """
    columns = {
        "federation": [federation] * len(rows),
        "round": [round_num] * len(rows),
        **{
            column: [_cell(getattr(row, column), column) for row in rows]
            for column in _TABLES[name].columns
        },
    }
    out = io.BytesIO()
    table = pa.table(columns, schema=schema(name))
    pq.write_table(table, out, compression="zstd", version="2.6", store_schema=True)
    return out.getvalue()


def decision_tables(federation: str, decision: RoundDecision) -> dict[str, bytes]:
    """Return the bytes of all five tables of a decision by name."""
    return {
        name: table_bytes(name, federation, decision.round_num, getattr(decision, name))
        for name in TABLE_NAMES
    }


def read_table(store: Store, round_num: int, name: str) -> pa.Table:
    """Read one table of a round.

    Raises
    ------
    MissingObjectError
        If the round has none (it is not committed).
    DamagedStoreError
        If it is not Parquet, or has other columns.
    """
    key = table_key(round_num, name)
    try:
        # A newer version may have added columns, and an older one may lack those added since.
        table = pq.ParquetFile(io.BytesIO(store.get(key))).read(columns=schema(name).names)
        for column in _ADDED & set(schema(name).names) - set(table.column_names):
            table = table.append_column(
                column, pa.nulls(len(table), schema(name).field(column).type)
            )
        return table.select(schema(name).names).cast(schema(name))
    except (pa.ArrowException, KeyError) as error:
        raise DamagedStoreError(f"{key} cannot be read: {error}") from None


def read_rows(
    store: Store, round_num: int, name: str, *, client_ids: Set[str] | None = None
) -> tuple[Any, ...]:
    """Read one table of a round back to the records it was written from.

    Parameters
    ----------
    store : Store
    round_num : int
    name : str
        One of `TABLE_NAMES`.
    client_ids : set of str, optional
        Of a table of clients, the ones that are wanted. Default: all.

    Returns
    -------
    tuple of UpdateRow, DriftRow, CohortingRow, AssignmentRow or CohortRow

    Raises
    ------
    MissingObjectError, DamagedStoreError
        As `read_table`.
    """
    columns = list(_TABLES[name].columns)
    table = read_table(store, round_num, name)
    if client_ids is not None:
        table = table.filter(
            pc.is_in(table["client_id"], pa.array(sorted(client_ids), pa.string()))
        )
    values = [
        {column: _field(row[column], column) for column in columns} for row in table.to_pylist()
    ]
    adapter = _row_adapter(name)
    return tuple(adapter.validate_python(row) for row in values)


def clients_with_events(store: Store, round_num: int) -> frozenset[str]:
    """Return who flagged drift, changed cohort or was in quarantine in a round.

    Raises
    ------
    MissingObjectError, DamagedStoreError
        As `read_table`.
    """
    assignments = read_table(store, round_num, "assignments")
    moved = pc.not_equal(assignments["cohort_before"], assignments["cohort_after"])
    held = pc.equal(assignments["status"], ClientStatus.QUARANTINED.value)
    drift = read_table(store, round_num, "drift")
    found = assignments.filter(pc.or_(moved, held))["client_id"].to_pylist()
    return frozenset(found + drift.filter(drift["drift_flag"])["client_id"].to_pylist())


@cache
def _row_adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_TABLES[name].row)


def _cell(value: Any, column: str) -> Any:
    if column in _PAIRS:
        first, second = _PAIRS[column]
        return [{first: name, second: number} for name, number in value]
    if column == "metrics":
        # A map has an order on disk; a mapping in memory must not decide it.
        return sorted(value.items())
    return value


def _field(value: Any, column: str) -> Any:
    if column in _PAIRS:
        first, second = _PAIRS[column]
        return [(item[first], item[second]) for item in value or ()]
    return dict(value) if column == "metrics" else value
