"""Run cells so many at a time, each as a task, and hand them over as they end.

No more are submitted than there are workers: a comparison that is stopped has nothing to call off
but what is running.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence

from prefect.futures import PrefectFuture

from clma.simulation.cell_workers import CellWorkers
from clma.simulation.cells import Cell, CellResult
from tasks.kept_cells import KeptCells
from tasks.run_cell import run_cell

__all__ = ["cells_in_turn"]

_LOOK_S = 0.5


def cells_in_turn(
    cells: Sequence[Cell],
    workers: CellWorkers,
    kept: KeptCells,
    is_stopped: Callable[[], bool],
) -> Iterator[tuple[Cell, CellResult | Exception]]:
    """Run cells and yield each with what it came to, a result or the error, as it ends.

    Raises
    ------
    KeyboardInterrupt
        As soon as `is_stopped` says so.
    """
    waiting = iter(cells)
    ended: queue.SimpleQueue[PrefectFuture[CellResult]] = queue.SimpleQueue()
    running: dict[PrefectFuture[CellResult], Cell] = {}

    def submit_next() -> None:
        cell = next(waiting, None)
        if cell is not None:
            future = run_cell.submit(cell, workers, kept)
            running[future] = cell
            future.add_done_callback(ended.put)

    for _ in range(workers.n_workers):
        submit_next()
    while running:
        future = _next_of(ended, is_stopped)
        cell = running.pop(future)
        submit_next()
        outcome = future.result(raise_on_failure=False)
        yield cell, outcome


def _next_of(
    ended: queue.SimpleQueue[PrefectFuture[CellResult]], is_stopped: Callable[[], bool]
) -> PrefectFuture[CellResult]:
    while True:
        if is_stopped():
            raise KeyboardInterrupt
        try:
            return ended.get(timeout=_LOOK_S)
        except queue.Empty:
            continue
