from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clma.errors import InvalidConfigError
from clma.simulation.table import TableColumns, cut_blocks, read_table

COLUMNS = TableColumns("t", "fault", "point", ("u", "v"), recording=("day",), client="owner")


def _frame(n_rows: int = 12) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "t": np.arange(n_rows),
            "day": 1,
            "fault": "ok",
            "point": "low",
            "owner": "a",
            "u": np.arange(n_rows, dtype=float),
            "v": 1.0,
        }
    )


def _spans(frame: pd.DataFrame, block_rows: int = 4) -> list[tuple[int, int]]:
    table = read_table(frame, COLUMNS, ("ok", "bad"), ignored_labels=("?",))
    return [(b.start, b.stop) for b in cut_blocks(table, block_rows)[0]]


def test_remainder_is_left_out() -> None:
    assert _spans(_frame(11)) == [(0, 4), (4, 8)]


@pytest.mark.parametrize(
    ("column", "value"), [("fault", "bad"), ("point", "high"), ("day", 2), ("owner", "b")]
)
def test_block_ends_where_a_key_changes(column: str, value: object) -> None:
    frame = _frame()
    frame.loc[6:, column] = value

    assert _spans(frame) == [(0, 4), (6, 10)]


def test_block_ends_at_a_gap_in_time() -> None:
    frame = _frame()
    frame.loc[6:, "t"] += 1

    assert _spans(frame) == [(0, 4), (6, 10)]


def test_ignored_labels_are_in_no_block() -> None:
    frame = _frame()
    frame.loc[:5, "fault"] = "?"

    assert _spans(frame) == [(6, 10)]


def test_order_of_the_rows_does_not_matter() -> None:
    assert _spans(_frame().iloc[::-1]) == _spans(_frame())


def test_frame_is_not_modified() -> None:
    frame = _frame()

    _spans(frame)

    pd.testing.assert_frame_equal(frame, _frame())


def test_parquet_is_read_as_the_frame(tmp_path: Path) -> None:
    _frame().to_parquet(tmp_path / "t.parquet")

    table = read_table(tmp_path / "t.parquet", COLUMNS, ("ok",))

    np.testing.assert_array_equal(table.values[:, 0], np.arange(12))


def test_missing_columns_are_named() -> None:
    with pytest.raises(InvalidConfigError, match=r"lacks columns \['fault', 'v'\]"):
        read_table(_frame().drop(columns=["fault", "v"]), COLUMNS, ("ok",))


def test_unknown_labels_are_named() -> None:
    with pytest.raises(InvalidConfigError, match=r"labels \['ok'\], wanted \['good'\]"):
        read_table(_frame(), COLUMNS, ("good",))


def test_values_that_are_not_finite_are_refused_by_column() -> None:
    frame = _frame()
    frame.loc[3, "v"] = np.nan

    with pytest.raises(InvalidConfigError, match=r"columns \['v'\] have values"):
        read_table(frame, COLUMNS, ("ok",))


@pytest.mark.parametrize("column", ["t", "u"])
def test_text_where_a_number_belongs_is_refused(column: str) -> None:
    with pytest.raises(InvalidConfigError, match="must be numbers"):
        read_table(_frame().assign(**{column: "x"}), COLUMNS, ("ok",))


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_text("t,u\n")

    with pytest.raises(InvalidConfigError, match="is not a Parquet table"):
        read_table(tmp_path / "t.parquet", COLUMNS, ("ok",))
