"""Cells in processes: whatever happens to one of them, the others go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clma.errors import CellFailedError
from clma.simulation.cell_workers import CellWorkers
from clma.simulation.cells import Cell
from clma.simulation.run_cell import run_cell

pytestmark = pytest.mark.slow

OWN = "tests.clma.simulation.small_scenario"


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CellWorkers]:
    monkeypatch.setenv("CLMA_TEST_DESK", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Python looks once and remembers.
    monkeypatch.setattr("tempfile.tempdir", None)
    with CellWorkers(1, tmp_path / "workers.log") as made:
        yield made


def small(seed: int) -> Cell:
    return Cell(f"{OWN}:three_plants", "fedavg", seed, n_rounds=1)


def test_a_worker_outlives_every_way_to_fail_and_says_which(
    workers: CellWorkers, tmp_path: Path
) -> None:
    for seed, fault in enumerate(("broken", "bug", "dies")):
        (tmp_path / f"{fault}-{seed}").touch()

    with pytest.raises(CellFailedError, match="recording 0 is unreadable"):
        workers.run(small(0))
    with pytest.raises(CellFailedError, match="IndexError: list index out of range") as bug:
        workers.run(small(1))
    with pytest.raises(CellFailedError, match="its process ended with status 3"):
        workers.run(small(2))
    assert workers.run(small(3)).row.seed == 3
    assert "small_scenario.py" in bug.value.__notes__[0]
    assert "a line that is no reply" in (tmp_path / "workers.log").read_text()


def test_a_worker_finds_what_this_process_would(workers: CellWorkers) -> None:
    there, here = workers.run(small(5)), run_cell(small(5))

    assert there.rounds == here.rounds
    assert there.row.final_stationary_f1 == here.row.final_stationary_f1


def test_stopping_ends_the_cell_that_runs_and_removes_its_folder(
    workers: CellWorkers, tmp_path: Path
) -> None:
    (tmp_path / "hangs-0").touch()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(workers.run, small(0))
        while not (tmp_path / "executed").exists():
            assert not running.done()
            time.sleep(0.05)
        workers.stop()
        with pytest.raises(CellFailedError, match="stopped while it ran"):
            running.result()

    with pytest.raises(CellFailedError, match="stopped before it was run"):
        workers.run(small(1))
    assert not list(tmp_path.glob("clma-*"))


def test_the_mathematics_of_a_worker_has_one_thread(workers: CellWorkers) -> None:
    with pytest.raises(CellFailedError, match="threads: 1"):
        workers.run(Cell(f"{OWN}:tell_threads", "fedavg", 0))


def test_federations_live_in_memory_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("clma.simulation.cell_workers.MEMORY_DISK", tmp_path)
    for room, is_used in ((0, True), (1 << 60, False)):
        monkeypatch.setattr("clma.simulation.cell_workers._ROOM_BYTES", room)
        with CellWorkers(1, tmp_path / "workers.log"):
            assert bool(list(tmp_path.glob("clma-compare-*"))) is is_used
    assert not list(tmp_path.glob("clma-compare-*"))


def test_a_temporary_folder_that_the_user_names_is_used(
    workers: CellWorkers, tmp_path: Path
) -> None:
    assert list(tmp_path.glob("clma-compare-*"))
    with pytest.raises(CellFailedError, match=f"temporary: {tmp_path}/clma-compare-"):
        workers.run(Cell(f"{OWN}:tell_temporary", "fedavg", 0))
