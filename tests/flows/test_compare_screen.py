from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from clma.errors import CellFailedError
from clma.simulation.cells import Cell, CellResult, CellRow
from flows._compare_command import verdict
from flows._compare_screen import CompareScreen
from flows._compared import Compared

CELL = Cell("plant/stagger", "fedavg", 1)


def row(method: str, f1: float | None) -> CellRow:
    return CellRow("plant/stagger", method, 1, 0.9, f1, *(None,) * 3, 1, *(None,) * 4, 2.0)


def result(cell: Cell, seconds: float) -> CellResult:
    values = dataclasses.replace(row(cell.method, 0.5), seconds=seconds)
    return CellResult(cell, values, ())


def test_the_time_left_goes_by_what_each_scenario_took(capsys: pytest.CaptureFixture[str]) -> None:
    quick, slow, unknown = (Cell(name, "fedavg", 1) for name in ("a", "b", "c"))
    screen = CompareScreen([quick, quick, slow, unknown], [result(slow, 40.0)], n_workers=2)

    screen.show(quick, result(quick, 10.0))

    line = capsys.readouterr().err
    assert line.startswith("2/5  a fedavg seed 1: F1 drifted 0.500, stationary 0.900")
    # 10 s, 40 s and their mean, two at a time.
    assert line.endswith("3 left, about 38 s\n")


def test_before_anything_is_known_no_time_is_promised(capsys: pytest.CaptureFixture[str]) -> None:
    CompareScreen([CELL, CELL], [], 1).show(CELL, CellFailedError("no data"))
    assert capsys.readouterr().err.endswith("1 left\n")


def test_the_last_cell_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    CompareScreen([CELL], [], 1).show(CELL, result(CELL, 2.0))
    assert "left" not in capsys.readouterr().err


def test_a_failed_cell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    CompareScreen([CELL], [], 1).show(CELL, CellFailedError("no\n[data]"))
    assert capsys.readouterr().err == "1/1  plant/stagger fedavg seed 1: failed, no [data]\n"


def test_the_verdict_has_the_figures_of_every_method() -> None:
    rows = (row("fedavg", 0.5), row("clma", 0.75), row("local", None))
    compared = Compared(rows, 4, 2, {"a": "b"}, "compare-out", 3)

    assert verdict(compared, Path("out")) == (
        "compare: 4 cells, 2 of them run now, 1 failed; drifted F1 clma 0.750, fedavg 0.500; "
        "3 not in MLflow; out/summary.html"
    )
