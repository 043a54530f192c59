"""Finished cells on disk: what lets a comparison go on where it was stopped.

A file is named after its cell's identity and names it again inside, so one that was made from
other inputs, or is damaged, is not taken for the cell; it is run again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from clma.ledger.durable_file import replace_files
from clma.simulation.cell_scenario import data_digest
from clma.simulation.cells import Cell, CellResult, identity

__all__ = ["KeptCells"]


@dataclass(frozen=True, slots=True)
class KeptCells:
    """The cells of a folder.

    Parameters
    ----------
    folder : Path
        Made with the first cell.
    data_dir : Path or None
        Folder of recorded data, which cells follow from.
    """

    folder: Path
    data_dir: Path | None
    _digests: dict[str, str] = field(default_factory=dict)

    def identity(self, cell: Cell) -> str:
        """Return what a cell is known by, with the data as they are now."""
        if cell.scenario not in self._digests:
            self._digests[cell.scenario] = data_digest(cell.scenario, self.data_dir)
        return identity(cell, self._digests[cell.scenario])

    def path(self, cell: Cell) -> Path:
        """Return where a cell is kept."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{cell.scenario}--{cell.method}--{cell.seed}")
        return self.folder / f"{name}--{self.identity(cell)[:16]}.json"

    def load(self, cell: Cell) -> CellResult | None:
        """Return a finished cell, or None if it has to be run."""
        try:
            kept = _KEPT.validate_json(self.path(cell).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        is_it = (kept.identity, kept.result.cell) == (self.identity(cell), cell)
        return kept.result if is_it else None

    def save(self, result: CellResult) -> None:
        """Keep a finished cell: whole, or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = _Kept(self.identity(result.cell), result)
        replace_files({self.path(result.cell): _KEPT.dump_json(kept)})


@dataclass(frozen=True, slots=True)
class _Kept:
    identity: str
    result: CellResult


_KEPT = TypeAdapter(_Kept)
