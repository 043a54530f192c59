from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from clma.report.comparison_tables import results_bytes, rounds_bytes
from clma.simulation.cells import RoundRow
from tests.clma.report.rows import result, row

COLUMNS = {
    "scenario": pa.string(),
    "method": pa.string(),
    "seed": pa.int64(),
    **dict.fromkeys(
        (
            *("stationary_f1", "drifted_f1", "final_stationary_f1", "final_drifted_f1", "ari"),
            *("detector_recall", "false_alarm_rate", "seconds"),
            *("final_accuracy", "final_auc_roc"),
        ),
        pa.float64(),
    ),
    **dict.fromkeys(("n_cohorts", "bytes_up", "bytes_down"), pa.int64()),
}
ORDER = (
    *("scenario", "method", "seed", "stationary_f1", "drifted_f1", "final_stationary_f1"),
    *("final_drifted_f1", "ari", "n_cohorts", "detector_recall", "false_alarm_rate"),
    *("bytes_up", "bytes_down", "seconds", "final_accuracy", "final_auc_roc"),
)


def read(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


def test_results_have_exactly_the_promised_columns() -> None:
    schema = read(results_bytes([row("clma", 0, 0.5)])).schema
    assert schema == pa.schema([(name, COLUMNS[name]) for name in ORDER])


def test_a_comparison_without_a_result_has_the_same_columns() -> None:
    assert read(results_bytes([])).schema == read(results_bytes([row("clma", 0, 0.5)])).schema


def test_what_cannot_be_counted_is_null_and_never_zero() -> None:
    (values,) = read(results_bytes([row("clma", 0, None)])).to_pylist()
    assert (values["drifted_f1"], values["bytes_up"], values["seconds"]) == (None, None, 2.0)


def test_rounds_have_a_row_for_each_client_and_round() -> None:
    rounds = (
        RoundRow(1, "p1", False, 0.5, "c0", True),
        RoundRow(2, "p1", False, None, None, None, 0.75, 0.9),
    )

    rows = read(rounds_bytes([result(row("clma", 3, 0.5), rounds)])).to_pylist()

    cell = {"scenario": "plant/stagger", "method": "clma", "seed": 3, "client_id": "p1"}
    assert rows == [
        {**cell, "round": 1, "f1": 0.5, "cohort": "c0", "flagged": True}
        | {"accuracy": None, "auc_roc": None},
        {**cell, "round": 2, "f1": None, "cohort": None, "flagged": None}
        | {"accuracy": 0.75, "auc_roc": 0.9},
    ]
