"""What a comparison is made of: cells, and what each of them comes to.

A cell is one method on one scenario with one seed. Its `identity` covers everything that its
figures follow from, so a result that was kept is taken for the one that was asked for only if both
have the same.

Examples
--------
>>> cell = Cell("plant/stagger", "fedavg", 7, n_rounds=5)
>>> cell == Cell("plant/stagger", "fedavg", 7, n_rounds=5)
True
>>> identity(cell, "") == identity(cell, "other data")
False
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from clma.errors import DamagedStoreError

__all__ = [
    "FIGURES",
    "Cell",
    "CellResult",
    "CellRow",
    "RoundRow",
    "identity",
    "parse_cell",
    "parse_result",
    "render_cell",
    "render_result",
]

Record = TypeVar("Record")

SCHEMA = 1
"""Raised when figures change their meaning: old results are then not taken for new ones."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One method on one scenario with one seed.

    Parameters
    ----------
    scenario : str
        Name, or ``package.module:factory`` of a scenario of the user's own.
    method : str
        A preset's name, or ``oracle``.
    seed : int, >= 0
    n_rounds : int, >= 1, or None
        None: the scenario's own.
    settings : tuple of str
        ``section.key=value`` over the preset.
    """

    scenario: str
    method: str
    seed: int
    n_rounds: int | None = None
    settings: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The cell in a few words."""
        return f"{self.scenario} {self.method} seed {self.seed}"


@dataclass(frozen=True, slots=True)
class CellRow:
    """One row of ``results.parquet``; None where there is nothing to count.

    Parameters
    ----------
    scenario, method : str
    seed : int
    stationary_f1, drifted_f1, final_stationary_f1, final_drifted_f1 : float in [0, 1], or None
        See `clma.simulation.scores.FleetScores`, as the next four.
    ari : float in [-0.5, 1], or None
    n_cohorts : int
    detector_recall, false_alarm_rate : float in [0, 1], or None
    bytes_up, bytes_down : int or None
        From and to all clients, in all rounds.
    seconds : float
        Wall time on one core.
    final_accuracy, final_auc_roc : float in [0, 1], or None
        See `clma.simulation.scores.FleetScores`.
    """

    scenario: str
    method: str
    seed: int
    stationary_f1: float | None
    drifted_f1: float | None
    final_stationary_f1: float | None
    final_drifted_f1: float | None
    ari: float | None
    n_cohorts: int
    detector_recall: float | None
    false_alarm_rate: float | None
    bytes_up: int | None
    bytes_down: int | None
    seconds: float
    final_accuracy: float | None = None
    final_auc_roc: float | None = None


FIGURES: tuple[str, ...] = tuple(f.name for f in fields(CellRow))[3:]
"""Columns of `CellRow` that are measured."""


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One client in one round of a cell, a row of ``rounds.parquet``.

    Parameters
    ----------
    round_num : int, >= 1
    client_id : str
    drifting : bool
        It drifts at some time.
    f1 : float in [0, 1], or None
        Macro-F1 of the model that it is served after the round, on its own current concept.
    cohort : str or None
        After the round.
    flagged : bool or None
        Its drift flag; None where it reported none.
    accuracy : float in [0, 1], or None
        Of the same model on the same data.
    auc_roc : float in [0, 1], or None
        The same; of the last round only.
    """

    round_num: int
    client_id: str
    drifting: bool
    f1: float | None
    cohort: str | None
    flagged: bool | None
    accuracy: float | None = None
    auc_roc: float | None = None


@dataclass(frozen=True, slots=True)
class CellResult:
    """What a cell came to.

    Parameters
    ----------
    cell : Cell
    row : CellRow
    rounds : tuple of RoundRow
        By round and client.
    """

    cell: Cell
    row: CellRow
    rounds: tuple[RoundRow, ...]


def identity(cell: Cell, data_digest: str) -> str:
    """Return a SHA-256 over everything that a cell's figures follow from but the code.

    Parameters
    ----------
    cell : Cell
    data_digest : str
        Of the recorded data that its scenario reads.
    """
    values = {"schema": SCHEMA, "cell": asdict(cell), "data": data_digest}
    return hashlib.sha256(_canonical(values)).hexdigest()


def render_cell(cell: Cell) -> bytes:
    """Write a cell as one line of JSON."""
    return _canonical(asdict(cell))


def parse_cell(data: bytes) -> Cell:
    """Read what `render_cell` wrote; DamagedStoreError if it is something else."""
    return _parse(data, Cell)


def render_result(result: CellResult) -> bytes:
    """Write a result as one line of JSON."""
    return _canonical(asdict(result))


def parse_result(data: bytes) -> CellResult:
    """Read what `render_result` wrote; DamagedStoreError if it is something else."""
    return _parse(data, CellResult)


def _canonical(values: object) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parse(data: bytes, kind: type[Record]) -> Record:
    adapter: TypeAdapter[Record] = _ADAPTERS[kind]
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise DamagedStoreError(f"not a {kind.__name__}: {place}: {first['msg']}") from None


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (Cell, CellResult)
}
