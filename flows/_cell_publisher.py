"""Publish cells while a comparison runs; MLflow away does not stop it."""

from __future__ import annotations

from collections.abc import Callable

from clma.errors import ClmaError
from clma.simulation.cells import CellResult
from tasks.kept_cells import KeptCells
from tasks.publish_cell import find_published, publish_cell
from tasks.tracking import TrackingError

__all__ = ["CellPublisher"]


class CellPublisher:
    """Publishes each cell once; after a first failure it waits for the next comparison.

    Parameters
    ----------
    experiment : str
        Name in MLflow.
    kept : KeptCells
    tracking_uri : str or None
    say : callable
        Told in one line if MLflow fails.
    """

    def __init__(
        self,
        experiment: str,
        kept: KeptCells,
        tracking_uri: str | None,
        say: Callable[[str], None],
    ) -> None:
        self._experiment = experiment
        self._kept = kept
        self._uri = tracking_uri
        self._say = say
        self._is_away = False
        self.n_missed = 0

    def publish(self, result: CellResult) -> None:
        """Publish a cell that has just been run."""
        if self._is_away:
            self.n_missed += 1
            return
        try:
            publish_cell(self._experiment, self._kept.identity(result.cell), result, self._uri)
        except (ClmaError, TrackingError, OSError) as error:
            self._give_up(error)
            self.n_missed += 1

    def publish_missing(self, results: list[CellResult]) -> None:
        """Publish cells of an earlier run of the command that MLflow lacks."""
        try:
            published = find_published(self._experiment, self._uri)
        except (ClmaError, TrackingError, OSError) as error:
            self._give_up(error)
            published = frozenset()
        for result in results:
            if self._kept.identity(result.cell) not in published:
                self.publish(result)

    def _give_up(self, error: Exception) -> None:
        self._is_away = True
        text = " ".join(str(error).split())
        self._say(f"the comparison goes on without MLflow: {text}")
