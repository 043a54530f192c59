from __future__ import annotations

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


def test_the_time_left_goes_by_the_cells_that_were_run_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = iter([0.0, 30.0])
    screen = CompareScreen(10, 7, clock=lambda: next(clock))

    screen.show(CELL, CellResult(CELL, row("fedavg", 0.5), ()))

    line = capsys.readouterr().err
    assert line.startswith("8/10  plant/stagger fedavg seed 1: F1 drifted 0.500, stationary 0.900")
    assert line.endswith("2 left, about 60 s\n")


def test_the_last_cell_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    CompareScreen(1, 0).show(CELL, CellResult(CELL, row("fedavg", None), ()))
    assert "left" not in capsys.readouterr().err


def test_a_failed_cell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    CompareScreen(2, 0).show(CELL, CellFailedError("no\n[data]"))
    assert "1/2  plant/stagger fedavg seed 1: failed, no [data];" in capsys.readouterr().err


def test_the_verdict_has_the_figures_of_every_method() -> None:
    rows = (row("fedavg", 0.5), row("clma", 0.75), row("local", None))
    compared = Compared(rows, 4, 2, {"a": "b"}, "compare-out", 3)

    assert verdict(compared, Path("out")) == (
        "compare: 4 cells, 2 of them run now, 1 failed; drifted F1 clma 0.750, fedavg 0.500; "
        "3 not in MLflow; out/summary.html"
    )
