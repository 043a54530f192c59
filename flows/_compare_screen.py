"""What a person sees of a comparison while it runs: a line a cell on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from clma.simulation.cells import Cell, CellResult

__all__ = ["CompareScreen"]


class CompareScreen:
    """Counts cells and says how long the rest will take.

    Parameters
    ----------
    n_cells, n_kept : int
        All of them, and those that an earlier run of the command finished.
    clock : callable
        Seconds that pass.
    """

    def __init__(
        self, n_cells: int, n_kept: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._clock = clock
        self._since = clock()
        self._n_cells, self._n_kept, self._n_done = n_cells, n_kept, n_kept

    def start(self, n_workers: int) -> None:
        """Say what is about to happen."""
        kept = f", {self._n_kept} of them finished before" if self._n_kept else ""
        at_once = f"; {n_workers} at a time" if self._n_kept < self._n_cells else ""
        self.say(f"{self._n_cells} cells{kept}{at_once}")

    def show(self, cell: Cell, outcome: CellResult | Exception) -> None:
        """Show a cell that has just ended."""
        self._n_done += 1
        self.say(f"{self._n_done}/{self._n_cells}  {cell.shown}: {_told(outcome)}{self._rest()}")

    def say(self, text: str) -> None:
        """Show a line."""
        self._console.print(text, soft_wrap=True, markup=False)

    def _rest(self) -> str:
        n_left, n_run = self._n_cells - self._n_done, self._n_done - self._n_kept
        if not n_left:
            return ""
        seconds = (self._clock() - self._since) / n_run * n_left
        return f"; {n_left} left, about {_duration(seconds)}"


def _told(outcome: CellResult | Exception) -> str:
    if isinstance(outcome, Exception):
        return f"failed, {' '.join(str(outcome).split()) or type(outcome).__name__}"
    row = outcome.row
    f1 = ", ".join(
        f"{name} {value:.3f}"
        for name, value in (("drifted", row.drifted_f1), ("stationary", row.stationary_f1))
        if value is not None
    )
    cohorts = f"{row.n_cohorts} cohort{'s' * (row.n_cohorts != 1)}"
    return f"F1 {f1 or 'not counted'}, {cohorts} ({row.seconds:.1f} s)"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
