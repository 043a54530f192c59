"""Let one cell of a comparison live: a real federation, real rounds, in a folder that goes again.

Examples
--------
>>> from clma.simulation.cells import Cell
>>> result = run_cell(Cell("plant/stationary", "fedavg", 0, n_rounds=1))
>>> result.row.n_cohorts, len(result.rounds)
(1, 10)
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clma.simulation.cell_scenario import load_cell_fleet
from clma.simulation.cells import FIGURES, Cell, CellResult, CellRow, RoundRow
from clma.simulation.fleet import Fleet
from clma.simulation.life import RoundView, closing, found_federation, live
from clma.simulation.scores import FleetScores

__all__ = ["cell_result", "run_cell"]

_NAME = "comparison"


def run_cell(cell: Cell, data_dir: Path | None = None) -> CellResult:
    """Let a fleet live through its rounds under one method.

    Parameters
    ----------
    cell : Cell
    data_dir : Path, optional
        Folder of recorded data, for scenarios that replay some.

    Raises
    ------
    InvalidConfigError
        If scenario, method or settings are not valid.
    """
    started = time.monotonic()
    fleet = load_cell_fleet(cell.scenario, cell.seed, data_dir)
    n_rounds = cell.n_rounds or fleet.default_rounds
    views: list[RoundView] = []
    with tempfile.TemporaryDirectory(prefix="clma-cell-") as name:
        folder = Path(name)
        federation = found_federation(
            fleet,
            folder / "store",
            _NAME,
            folder,
            preset=cell.method,
            n_rounds=n_rounds,
            overrides=cell.settings,
        )
        scores = live(
            fleet,
            federation,
            folder / "plants",
            n_rounds=n_rounds,
            close=closing(fleet, federation),
            watch=views.append,
        )
    return cell_result(cell, fleet, scores, views, time.monotonic() - started)


def cell_result(
    cell: Cell, fleet: Fleet, scores: FleetScores, views: Sequence[RoundView], seconds: float
) -> CellResult:
    """Put together what a fleet's life under a method came to."""
    row = _row(cell, scores, round(seconds, 2))
    return CellResult(cell, row, tuple(r for view in views for r in _round_rows(fleet, view)))


def _row(cell: Cell, scores: FleetScores, seconds: float) -> CellRow:
    measured: dict[str, Any] = {**dataclasses.asdict(scores), "seconds": seconds}
    figures: dict[str, Any] = {name: measured.get(name) for name in FIGURES}
    return CellRow(cell.scenario, cell.method, cell.seed, **figures)


def _round_rows(fleet: Fleet, view: RoundView) -> list[RoundRow]:
    drifting = set(fleet.drifted_clients)
    return [
        RoundRow(
            round_num=view.round_num,
            client_id=score.client_id,
            drifting=score.client_id in drifting,
            f1=score.f1,
            cohort=view.cohorts.get(score.client_id),
            flagged=score.flagged,
            accuracy=score.accuracy,
            auc_roc=score.auc_roc,
        )
        for score in view.scores
    ]
