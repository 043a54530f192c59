from __future__ import annotations

import dataclasses
import datetime as dt
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clma.errors import DamagedStoreError, MissingObjectError
from clma.ledger.keys import table_key
from clma.ledger.store import Store
from clma.ledger.tables import (
    TABLE_NAMES,
    Row,
    clients_with_events,
    read_rows,
    read_table,
    schema,
    table_bytes,
)
from clma.records import ClientStatus, CohortStatus
from clma.rows import AssignmentRow, CohortingRow, CohortRow, DriftRow, Gate, UpdateRow, Verdict

AT = dt.datetime(2026, 1, 5, 20, 0, 0, 123456, tzinfo=dt.UTC)
ROWS: dict[str, tuple[Row, ...]] = {
    "updates": (
        UpdateRow("a", Verdict.ACCEPTED, None, None, AT, "d1", 10, 0.5, True, "d0", 99),
        UpdateRow("b", Verdict.MISSING, "MISSED_DEADLINE"),
    ),
    "drift": (
        DriftRow("a", "c0", True, 0.5, 0.25, 0.375, 1.5, "outlier", "far"),
        DriftRow("b", "c0", False),
    ),
    "cohorting": (
        CohortingRow(
            "a", "c0", 0.5, "up", 1, 0.25, "c1", 0.75, "recalled", ("b", "c"), (("w", 0.5),)
        ),
        CohortingRow("b", "c0", None, "none", 0, None, None, None, "held"),
    ),
    "assignments": (AssignmentRow("a", "c0", "c1", ClientStatus.ACTIVE, "d1", 2),),
    "cohorts": (
        CohortRow("c0", None, 0, CohortStatus.DORMANT, 0, 0, 0, "d0", None, Gate.UNCHANGED),
        CohortRow(
            "c1",
            "c0",
            2,
            CohortStatus.ACTIVE,
            n_members=1,
            n_updates=1,
            n_examples=10,
            model_digest="d1",
            previous_digest="d0",
            gate=Gate.PROMOTED,
            gate_detail="x",
            metrics={"z": 1.0, "a": 2.0},
        ),
    ),
}


@pytest.mark.parametrize("name", TABLE_NAMES)
def test_rows_come_back_as_they_were(name: str) -> None:
    store = Store.open(f"memory://tables-{name}")
    for round_num, rows in enumerate((ROWS[name], ())):
        store.put_once(table_key(round_num, name), table_bytes(name, "f", round_num, rows))

        assert read_rows(store, round_num, name) == rows
        assert read_table(store, round_num, name).schema.equals(schema(name))


@pytest.mark.parametrize("name", TABLE_NAMES)
def test_equal_rows_have_equal_bytes(name: str) -> None:
    assert table_bytes(name, "f", 1, ROWS[name]) == table_bytes(name, "f", 1, ROWS[name])


def test_the_order_of_metrics_in_memory_does_not_change_the_bytes() -> None:
    row = ROWS["cohorts"][1]
    assert isinstance(row, CohortRow)
    other = dataclasses.replace(row, metrics={"a": 2.0, "z": 1.0})

    assert table_bytes("cohorts", "f", 1, [row]) == table_bytes("cohorts", "f", 1, [other])


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        (
            "updates",
            "client_id received_at digest verdict reason detail n_examples loss drift_flag "
            "base_digest bytes",
        ),
        (
            "drift",
            "client_id cohort_before drift_flag loss loss_previous threshold update_norm "
            "server_check detail voted_in scores",
        ),
        (
            "cohorting",
            "client_id origin_cohort ks_statistic direction group silhouette recall_cohort "
            "recall_score decision nearest top_layers recall_witness",
        ),
        (
            "assignments",
            "client_id cohort_before cohort_after status serving_digest serving_since",
        ),
        (
            "cohorts",
            "cohort_id parent born_round status n_members n_updates n_examples model_digest "
            "previous_digest gate gate_detail metrics",
        ),
    ],
)
def test_columns_are_those_of_the_contract(name: str, columns: str) -> None:
    assert schema(name).names == ["federation", "round", *columns.split()]


def test_times_are_microseconds_in_utc() -> None:
    assert schema("updates").field("received_at").type == pa.timestamp("us", tz="UTC")


def test_what_is_not_shared_is_null() -> None:
    table = pq.read_table(
        pa.BufferReader(table_bytes("drift", "f", 1, [DriftRow("b", "c0", False)]))
    )

    assert table.column("loss").to_pylist() == [None]


def test_a_column_that_an_older_table_lacks_is_null() -> None:
    store = Store.open("memory://old-tables")
    data = table_bytes("drift", "f", 1, [DriftRow("b", "c0", False, voted_in="c0")])
    older = pq.read_table(pa.BufferReader(data)).drop_columns(["voted_in"])
    out = io.BytesIO()
    pq.write_table(older, out)
    store.put_once(table_key(1, "drift"), out.getvalue())

    assert read_rows(store, 1, "drift") == (DriftRow("b", "c0", False),)


def test_a_round_without_tables_is_named() -> None:
    with pytest.raises(MissingObjectError, match="round=000004/drift"):
        read_table(Store.open("memory://no-tables"), 4, "drift")


def test_a_file_that_is_no_table_is_named() -> None:
    store = Store.open("memory://bad-tables")
    store.put_once(table_key(1, "drift"), b"PAR1")

    with pytest.raises(DamagedStoreError, match="drift"):
        read_table(store, 1, "drift")


def test_rows_of_some_clients_are_read_alone(store: Store) -> None:
    store.put_once(table_key(1, "drift"), table_bytes("drift", "f", 1, ROWS["drift"]))

    assert read_rows(store, 1, "drift", client_ids={"b", "z"}) == ROWS["drift"][1:]
    assert read_rows(store, 1, "drift", client_ids=set()) == ()


def test_who_flagged_moved_or_was_held_has_something_to_tell(store: Store) -> None:
    rows = {
        "assignments": [
            AssignmentRow("moved", "c0", "c1", ClientStatus.ACTIVE, "d1", 2),
            AssignmentRow("held", "c0", "c0", ClientStatus.QUARANTINED, "d0", 1),
            AssignmentRow("quiet", "c0", "c0", ClientStatus.MISSING, "d0", 1),
        ],
        "drift": [DriftRow("flagged", "c0", drift_flag=True), DriftRow("calm", "c0", False)],
    }
    for name, of_table in rows.items():
        store.put_once(table_key(1, name), table_bytes(name, "f", 1, of_table))

    assert clients_with_events(store, 1) == {"moved", "held", "flagged"}
