from __future__ import annotations

import dataclasses

import pytest

from clma.errors import DamagedStoreError
from clma.simulation.cells import (
    Cell,
    CellResult,
    CellRow,
    RoundRow,
    identity,
    parse_cell,
    parse_result,
    render_cell,
    render_result,
)

CELL = Cell("plant/stagger", "clma", 7, 5, ("drift.gamma=0.2",))
ROW = CellRow(
    *("plant/stagger", "clma", 7, 0.9, None, 0.9, None, 1.0, 3),
    *(None, 0.1, 1000, None, 2.5),
)
ROUNDS = (
    RoundRow(1, "p1", False, 0.1 + 0.2, "c0", True),
    RoundRow(1, "p2", True, None, None, None),
)


def test_what_is_written_reads_back_equal() -> None:
    result = CellResult(CELL, ROW, ROUNDS)

    assert parse_cell(render_cell(CELL)) == CELL
    assert parse_result(render_result(result)) == result


def test_a_message_is_one_line() -> None:
    cell = dataclasses.replace(CELL, settings=("a=1\nb=2",))
    assert b"\n" not in render_cell(cell)


@pytest.mark.parametrize(
    "change",
    [
        {"scenario": "plant/gradual"},
        {"method": "fedavg"},
        {"seed": 8},
        {"n_rounds": None},
        {"settings": ()},
    ],
)
def test_whatever_is_other_makes_another_cell(change: dict[str, object]) -> None:
    assert identity(dataclasses.replace(CELL, **change), "") != identity(CELL, "")


def test_other_data_make_another_cell() -> None:
    assert identity(CELL, "a") != identity(CELL, "b")
    assert identity(CELL, "a") == identity(dataclasses.replace(CELL), "a")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"scenario": 1}', b"\xff"])
def test_what_is_no_cell_is_one_line(data: bytes) -> None:
    with pytest.raises(DamagedStoreError, match="not a Cell"):
        parse_cell(data)
