"""Processes that run cells side by side, each on one core.

A process of its own for every worker, and not a pool of Python's: one that dies (of memory, of a
fault in a library) costs the cell it was at and nothing else, and the number of threads stands in
its environment before any library is loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from clma.errors import CellFailedError, DamagedStoreError
from clma.simulation.cells import Cell, CellResult, parse_result, render_cell

__all__ = ["CellWorkers"]

_END_S = 10.0
"""For a worker to remove the folder of the cell that it was at."""

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_ROOM_BYTES = 4 << 30
"""Of one worker: ten clients, sixteen rounds and a network of half a million parameters, twice."""

_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


class CellWorkers:
    """So many processes; each starts with its first cell and ends with the context.

    Parameters
    ----------
    n_workers : int, >= 1
        Cells at once.
    data_dir : Path, optional
        Folder of recorded data.
    log : Path
        Where the processes' own output goes.

    Notes
    -----
    Federations are kept in memory where there is room, otherwise, and where ``TMPDIR`` says so, on
    a disk.
    """

    def __init__(self, n_workers: int, log: Path, data_dir: Path | None = None) -> None:
        self.n_workers = n_workers
        # Ours to remove, whatever becomes of the processes that write there.
        self._scratch = tempfile.TemporaryDirectory(
            prefix="clma-compare-", dir=_memory_disk(n_workers), ignore_cleanup_errors=True
        )
        scratch = Path(self._scratch.name)
        self._workers = [_Worker(log, data_dir, scratch) for _ in range(n_workers)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def run(self, cell: Cell) -> CellResult:
        """Run a cell on the next worker that is free; safe from any number of threads.

        Raises
        ------
        CellFailedError
            If it fails, its process dies, or the workers are stopped. Python's traceback of an
            unexpected failure is among its notes.
        """
        worker = self._idle.get()
        try:
            return worker.run(cell)
        finally:
            self._idle.put(worker)

    def stop(self) -> None:
        """End all processes, whatever they are at; no cell runs afterwards."""
        for worker in self._workers:
            worker.ask_to_end()
        for worker in self._workers:
            worker.end()
        self._scratch.cleanup()

    def __enter__(self) -> CellWorkers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Worker:
    """One process; a new one after it died."""

    def __init__(self, log: Path, data_dir: Path | None, scratch: Path) -> None:
        self._log = log
        self._data_dir = data_dir
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, cell: Cell) -> CellResult:
        with self._lock:
            if self._stopped:
                raise CellFailedError("stopped before it was run")
            if self._process is None or self._process.poll() is not None:
                self._process = self._start()
            process = self._process
        reply = self._ask(process, render_cell(cell))
        if not reply:
            raise self._ended(process.wait())
        try:
            return parse_result(reply)
        except DamagedStoreError:
            raise _failure(reply) from None

    def _ended(self, code: int) -> CellFailedError:
        return CellFailedError("stopped while it ran" if self._stopped else _death(code))

    def ask_to_end(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()

    def end(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        place = [] if self._data_dir is None else [str(self._data_dir)]
        # A new interpreter finds the user's scenarios and us where this one did.
        path = os.pathsep.join(filter(None, sys.path))
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "clma.simulation.cell_worker", *place],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    **_ONE_THREAD,
                    "PYTHONPATH": path,
                    "TMPDIR": str(self._scratch),
                },
                # An interrupt on the terminal is for the command, which stops us itself.
                start_new_session=True,
            )

    @staticmethod
    def _ask(process: subprocess.Popen[bytes], line: bytes) -> bytes:
        stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        with contextlib.suppress(BrokenPipeError):
            stdin.write(line + b"\n")
            stdin.flush()
        return stdout.readline()


def _memory_disk(n_workers: int) -> Path | None:
    """Return a disk in memory with room for the federations of all workers, None where none is.

    A federation syncs every file before it goes on, as it must; here all of them are thrown away,
    and on a disk that is three quarters of the time.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY_DISK, os.W_OK):
        return None
    has_room = shutil.disk_usage(MEMORY_DISK).free >= n_workers * _ROOM_BYTES
    return MEMORY_DISK if has_room else None


def _failure(reply: bytes) -> CellFailedError:
    values = json.loads(reply)
    error = CellFailedError(str(values["error"]))
    if values["details"]:
        error.add_note(str(values["details"]))
    return error


def _death(code: int) -> str:
    if code >= 0:
        return f"its process ended with status {code}"
    name = signal.Signals(-code).name
    memory = ", which a system out of memory sends" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{memory}"
