"""Every method side by side: methods x scenarios x seeds, each cell a simulated federation.

    python -m flows.compare --scenarios plant/stagger --methods clma,fedavg --seeds 0:2 --out DIR

Finished cells are kept in ``DIR/cells``; a comparison that was stopped goes on from there.
"""

from __future__ import annotations

if (
    __name__ == "__main__"
):  # Prefect reads its settings when it is imported: the command goes first.
    from flows._compare_command import run_compare_command

    run_compare_command()

import datetime as dt
import os
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from clma import __version__
from clma.config import requirements
from clma.ledger.lease import hold_lease
from clma.ledger.store import Store
from clma.report.comparison_page import Comparison
from clma.simulation.cell_workers import CellWorkers
from clma.simulation.cells import Cell, CellResult
from clma.simulation.prepare_images import prepare_images
from flows._cell_publisher import CellPublisher
from flows._cells_in_turn import cells_in_turn
from flows._commands import noticed_interrupts
from flows._compare_screen import CompareScreen
from flows._compared import Compared, FailedCellsError
from tasks.comparison_request import ComparisonRequest
from tasks.kept_cells import KeptCells
from tasks.write_comparison import write_comparison

__all__ = ["compare"]

OTHER_WAIT_S = 5.0


# Threads, since they only wait for the workers' processes.
_WAITING: TaskRunner[Any] = ThreadPoolTaskRunner()


@flow(name="compare", task_runner=_WAITING)
def compare(
    request: ComparisonRequest, n_workers: int | None = None, tracking_uri: str | None = None
) -> Compared:
    """Run the cells that are not finished, publish them, and write tables and summary.

    Parameters
    ----------
    request : ComparisonRequest
    n_workers : int, >= 1, optional
        Cells at once, each on one core; default: the number of cores.
    tracking_uri : str, optional
        MLflow store to publish to; default: ``MLFLOW_TRACKING_URI``, or the project's own.

    Raises
    ------
    InvalidConfigError
        If anything that is asked for is unknown; nothing is run then.
    FailedCellsError
        If cells failed; the others are finished, published and written all the same.
    CellFailedError
        If the images of a scenario cannot be embedded; nothing is run then.
    LeaseError
        If another comparison is at work in the same folder.
    """
    request.check()
    out = Path(request.out)
    n_workers = n_workers or os.cpu_count() or 1
    with (
        hold_lease(Store.open(out), "compare", wait_s=OTHER_WAIT_S),
        noticed_interrupts() as noticed,
    ):
        kept = KeptCells(
            out / "cells", None if request.data_dir is None else Path(request.data_dir)
        )
        results = {cell: result for cell in request.cells if (result := kept.load(cell))}
        missing = [cell for cell in request.cells if cell not in results]
        screen = CompareScreen(missing, results.values(), n_workers)
        screen.start()
        publisher = CellPublisher(request.experiment, kept, tracking_uri, screen.say)
        publisher.publish_missing(list(results.values()))
        prepare_images((cell.scenario for cell in missing), kept.data_dir)
        failed: dict[Cell, str] = {}
        with CellWorkers(n_workers, out / "workers.log", kept.data_dir) as workers:
            for cell, outcome in cells_in_turn(missing, workers, kept, noticed.is_set):
                screen.show(cell, outcome)
                if isinstance(outcome, CellResult):
                    results[cell] = outcome
                    publisher.publish(outcome)
                else:
                    failed[cell] = " ".join(str(outcome).split()) or type(outcome).__name__
        ordered = tuple(results[cell] for cell in request.cells if cell in results)
        made_at = f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC"
        requires = {method: requirements(method) for method in request.methods}
        comparison = Comparison(ordered, failed, request.command, __version__, made_at, requires)
        write_comparison(comparison, out)
    compared = Compared(
        comparison.rows,
        len(request.cells),
        len(missing),
        {cell.shown: why for cell, why in failed.items()},
        request.experiment,
        publisher.n_missed,
    )
    if failed:
        raise FailedCellsError(compared)
    return compared
