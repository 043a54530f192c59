"""Rows of a comparison with the figures that a test is about, and nothing else."""

from __future__ import annotations

from clma.simulation.cells import Cell, CellResult, CellRow, RoundRow


def row(
    method: str,
    seed: int,
    drifted_f1: float | None,
    *,
    scenario: str = "plant/stagger",
    stationary_f1: float | None = None,
) -> CellRow:
    empty = (None,) * 3
    return CellRow(
        *(scenario, method, seed, stationary_f1, drifted_f1, *empty),
        *(1, None, 0.25, None, None, 2.0),
    )


def result(row: CellRow, rounds: tuple[RoundRow, ...] = ()) -> CellResult:
    return CellResult(Cell(row.scenario, row.method, row.seed), row, rounds)
