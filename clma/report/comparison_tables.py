"""A comparison's results as Parquet, with explicit schemas.

Examples
--------
>>> RESULTS.names[:3]
['scenario', 'method', 'seed']
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from clma.simulation.cells import CellResult, CellRow

__all__ = ["RESULTS", "ROUNDS", "results_bytes", "rounds_bytes"]

_CELL = {"scenario": pa.string(), "method": pa.string(), "seed": pa.int64()}

RESULTS: pa.Schema = pa.schema(
    {
        **_CELL,
        "stationary_f1": pa.float64(),
        "drifted_f1": pa.float64(),
        "final_stationary_f1": pa.float64(),
        "final_drifted_f1": pa.float64(),
        "ari": pa.float64(),
        "n_cohorts": pa.int64(),
        "detector_recall": pa.float64(),
        "false_alarm_rate": pa.float64(),
        "bytes_up": pa.int64(),
        "bytes_down": pa.int64(),
        "seconds": pa.float64(),
        "final_accuracy": pa.float64(),
        "final_auc_roc": pa.float64(),
    }
)
"""One row a cell."""

ROUNDS: pa.Schema = pa.schema(
    {
        **_CELL,
        "round": pa.int64(),
        "client_id": pa.string(),
        "f1": pa.float64(),
        "cohort": pa.string(),
        "flagged": pa.bool_(),
        "accuracy": pa.float64(),
        "auc_roc": pa.float64(),
    }
)
"""One row a cell, round and client."""


def results_bytes(rows: Iterable[CellRow]) -> bytes:
    """Write rows as Parquet (zstd) in their order."""
    return _parquet([asdict(row) for row in rows], RESULTS)


def rounds_bytes(results: Iterable[CellResult]) -> bytes:
    """Write what every client was served in every round as Parquet (zstd)."""
    rows = [
        {
            "scenario": result.row.scenario,
            "method": result.row.method,
            "seed": result.row.seed,
            "round": row.round_num,
            "client_id": row.client_id,
            "f1": row.f1,
            "cohort": row.cohort,
            "flagged": row.flagged,
            "accuracy": row.accuracy,
            "auc_roc": row.auc_roc,
        }
        for result in results
        for row in result.rounds
    ]
    return _parquet(rows, ROUNDS)


def _parquet(rows: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    columns = {name: [row[name] for row in rows] for name in schema.names}
    out = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), out, compression="zstd", version="2.6")
    return out.getvalue()
