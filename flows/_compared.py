"""What the flow `compare` hands to whoever started it."""

from __future__ import annotations

from dataclasses import dataclass

from clma.errors import CellFailedError
from clma.simulation.cells import CellRow

__all__ = ["Compared", "FailedCellsError"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison that came to its end.

    Parameters
    ----------
    rows : tuple of CellRow
        Of the cells that have a result, in the order of the request.
    n_cells, n_run : int
        All cells, and those that had to be run.
    failed : dict of str to str
        Cells without a result, and why.
    experiment : str
        In MLflow.
    n_unpublished : int
        Results that MLflow lacks.
    """

    rows: tuple[CellRow, ...]
    n_cells: int
    n_run: int
    failed: dict[str, str]
    experiment: str
    n_unpublished: int


class FailedCellsError(CellFailedError):
    """Some cells failed; what the others came to is written.

    Parameters
    ----------
    compared : Compared
    """

    def __init__(self, compared: Compared) -> None:
        first, why = next(iter(compared.failed.items()))
        super().__init__(
            f"{len(compared.failed)} of {compared.n_cells} cells failed, the first is "
            f"{first}: {why}"
        )
        self.compared = compared
