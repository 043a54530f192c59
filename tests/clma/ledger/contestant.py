"""Processes that want the lease "n" of a folder: ``herd FOLDER`` or ``race FOLDER THREADS N``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clma.ledger.lease import hold_lease
from clma.ledger.store import Store


def hold(folder: Path) -> None:
    """Take the lease, write that down, and keep it until killed."""
    with hold_lease(Store.open(folder), "n", lasts_s=600, wait_s=60):
        with (folder / "holders").open("a") as log:
            log.write(f"{os.getpid()}\n")
        threading.Event().wait()


def herd(folder: Path) -> None:
    """Start another holder for every line that is read."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        if os.fork() == 0:
            hold(folder)


def enter(folder: Path) -> None:
    """Be alone, or fail."""
    with hold_lease(Store.open(folder), "n", wait_s=100):
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
        (folder / "inside").unlink()


def race(folder: Path, n_threads: int, n_times: int) -> int:
    """Enter from several threads; return how often it went well."""
    with ThreadPoolExecutor(n_threads) as pool:
        return sum(1 for _ in pool.map(enter, [folder] * (n_threads * n_times)))


if __name__ == "__main__":
    if sys.argv[1] == "herd":
        herd(Path(sys.argv[2]))
    else:
        print(race(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))  # noqa: T201
