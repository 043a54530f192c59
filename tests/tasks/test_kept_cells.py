from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from clma.simulation.cells import Cell, CellResult, CellRow, RoundRow
from tasks.kept_cells import KeptCells

CELL = Cell("pronto/mixed", "clma", 0, 5)
ROW = CellRow(*("pronto/mixed", "clma", 0), *(0.5,) * 5, 3, *(None,) * 4, 1.0)
RESULT = CellResult(CELL, ROW, (RoundRow(1, "p1", True, 0.5, "c0", False),))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "data" / "pronto").mkdir(parents=True)
    (tmp_path / "data" / "pronto" / "table.parquet").write_bytes(b"recorded")
    return tmp_path / "data"


@pytest.fixture
def kept(tmp_path: Path, data_dir: Path) -> KeptCells:
    kept = KeptCells(tmp_path / "cells", data_dir)
    kept.save(RESULT)
    return kept


def test_a_kept_cell_is_found_again(kept: KeptCells, data_dir: Path) -> None:
    assert KeptCells(kept.folder, data_dir).load(CELL) == RESULT


@pytest.mark.parametrize("change", [{"seed": 1}, {"n_rounds": 6}, {"settings": ("drift.gamma=1",)}])
def test_a_cell_of_other_inputs_is_not_there(kept: KeptCells, change: dict[str, object]) -> None:
    assert kept.load(dataclasses.replace(CELL, **change)) is None


def test_with_other_data_the_cell_is_not_there(kept: KeptCells, data_dir: Path) -> None:
    (data_dir / "pronto" / "table.parquet").write_bytes(b"recorded anew")
    assert KeptCells(kept.folder, data_dir).load(CELL) is None


@pytest.mark.parametrize("keep", [0, 10, -10])
def test_a_damaged_file_is_not_taken_for_a_cell(kept: KeptCells, keep: int) -> None:
    path = kept.path(CELL)
    path.write_bytes(path.read_bytes()[:keep])
    assert kept.load(CELL) is None


def test_a_file_under_the_name_of_another_cell_is_not_believed(kept: KeptCells) -> None:
    other = dataclasses.replace(CELL, seed=1)
    kept.path(CELL).rename(kept.path(other))
    assert kept.load(other) is None


def test_a_file_that_claims_to_be_another_cell_is_not_believed(kept: KeptCells) -> None:
    values = json.loads(kept.path(CELL).read_text())
    values["result"]["cell"]["seed"] = 1
    kept.path(CELL).write_text(json.dumps(values))
    assert kept.load(CELL) is None


def test_names_of_scenarios_never_leave_the_folder(tmp_path: Path) -> None:
    kept = KeptCells(tmp_path / "cells", None)
    for scenario in ("../../etc", "/a/b", "plant/stagger"):
        path = kept.path(Cell(scenario, "clma", 0))
        assert path.resolve().parent == (tmp_path / "cells").resolve()
