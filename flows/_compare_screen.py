"""What a person sees of a comparison while it runs: a line a cell on stderr."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from rich.console import Console

from clma.simulation.cells import Cell, CellResult

__all__ = ["CompareScreen"]


class CompareScreen:
    """Counts cells and says how long the rest will take.

    Parameters
    ----------
    missing : sequence of Cell
        Those to be run.
    kept : iterable of CellResult
        Those that an earlier run of the command finished; they tell how long a scenario takes.
    n_workers : int
        Cells at once.
    """

    def __init__(self, missing: Sequence[Cell], kept: Iterable[CellResult], n_workers: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._left = Counter(cell.scenario for cell in missing)
        self._seconds: dict[str, list[float]] = {}
        self._n_workers = n_workers
        for result in kept:
            self._learn(result)
        self._n_done = sum(map(len, self._seconds.values()))
        self._n_cells = self._n_done + len(missing)

    def start(self) -> None:
        """Say what is about to happen."""
        kept = f", {self._n_done} of them finished before" if self._n_done else ""
        at_once = f"; {self._n_workers} at a time" if self._n_done < self._n_cells else ""
        self.say(f"{self._n_cells} cells{kept}{at_once}")

    def show(self, cell: Cell, outcome: CellResult | Exception) -> None:
        """Show a cell that has just ended."""
        self._n_done += 1
        self._left[cell.scenario] -= 1
        if isinstance(outcome, CellResult):
            self._learn(outcome)
        self.say(f"{self._n_done}/{self._n_cells}  {cell.shown}: {_told(outcome)}{self._rest()}")

    def say(self, text: str) -> None:
        """Show a line."""
        self._console.print(text, soft_wrap=True, markup=False)

    def _learn(self, result: CellResult) -> None:
        self._seconds.setdefault(result.cell.scenario, []).append(result.row.seconds)

    def _rest(self) -> str:
        n_left = self._left.total()
        if not n_left:
            return ""
        if not self._seconds:
            return f"; {n_left} left"
        means = {scenario: fmean(seconds) for scenario, seconds in self._seconds.items()}
        # What has not been seen yet is taken for average.
        default = fmean(means.values())
        seconds = sum(n * means.get(scenario, default) for scenario, n in self._left.items())
        return f"; {n_left} left, about {_duration(seconds / self._n_workers)}"


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
