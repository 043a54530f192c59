"""Run one cell of a comparison and keep what it came to."""

from __future__ import annotations

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from clma.errors import CellFailedError
from clma.simulation.cell_workers import CellWorkers
from clma.simulation.cells import Cell, CellResult
from tasks.kept_cells import KeptCells

__all__ = ["run_cell"]


# Finished cells are files of the comparison and not results of Prefect's: they outlive its
# database, and whoever deletes one has it run again.
@task(cache_policy=NO_CACHE, task_run_name="{cell.shown}")
def run_cell(cell: Cell, workers: CellWorkers, kept: KeptCells) -> CellResult:
    """Have a worker run a cell, and keep the result before anybody is told of it.

    Raises
    ------
    CellFailedError
        If it fails; a traceback is in the log of the task's run.
    """
    try:
        result = workers.run(cell)
    except CellFailedError as error:
        for note in getattr(error, "__notes__", ()):
            get_run_logger().error(note)
        raise
    kept.save(result)
    return result
