"""What each process of a crowd does; little is imported, since every process imports it anew."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from clma.client import submit
from clma.errors import ClmaError, ConflictError, InvalidUpdateError
from clma.ledger.federation import Federation
from clma.ledger.store import Store
from clma.parameters.tensor_file import serialize_tensors

NAME = "fleet"
N_PROCESSES = 16
N_UPDATES = 50
N_RACERS = 200
N_RACING_PROCESSES = 4
N_OBJECTS = 1500


def client_of(process: int, number: int) -> str:
    """Return the plant that a process sends for."""
    return f"plant-{process:02d}-{number:02d}"


def model(value: float) -> dict[str, np.ndarray]:
    """Return a model of eight numbers."""
    return {"w": np.full(8, value, np.float32)}


def send(store: Federation, path: Path, client_id: str, value: float) -> str:
    """Submit one update; return what the plant is told of it."""
    path.write_bytes(serialize_tensors(model(value)))
    try:
        receipt = submit(store, NAME, client_id, tensors=path, n_examples=10, drift_flag=False)
    except InvalidUpdateError as error:
        return str(error.reason)
    except ClmaError as error:
        return f"{type(error).__name__}: {error}"
    return "duplicate" if receipt.duplicate else "accepted"


def send_many(store: Path, folder: Path, process: int) -> Counter[str]:
    """Send a process's own updates, each followed by the same of its neighbour's."""
    opened = Federation.open(store)
    path = folder / f"{process}.safetensors"
    neighbour = (process + 1) % N_PROCESSES
    return Counter(
        send(opened, path, client_of(sender, number), number)
        for number in range(N_UPDATES)
        for sender in (process, neighbour)
    )


def race(store: Path, folder: Path, process: int) -> Counter[str]:
    """Send many different updates of one plant at the same instant."""
    n_threads = N_RACERS // N_RACING_PROCESSES
    barrier = threading.Barrier(n_threads)

    def run(number: int) -> str:
        opened = Federation.open(store)
        barrier.wait()
        value = process * n_threads + number
        return send(opened, folder / f"{value}.safetensors", client_of(0, 0), value)

    with ThreadPoolExecutor(n_threads) as pool:
        return Counter(pool.map(run, range(n_threads)))


def create_all(folder: Path, process: int, at: float) -> list[str]:
    """Create many objects, as other processes do at the same time; return those that were won."""
    store = Store.open(folder)
    won = []
    while time.time() < at:
        pass
    for key in (f"object-{number:04d}" for number in range(N_OBJECTS)):
        with contextlib.suppress(ConflictError):
            store.put_if_absent(key, str(process).encode())
            won.append(key)
    return won


def close(store: Path, now: dt.datetime, at: float) -> str:
    """Close the round that is due, at a moment of `time.time`; return what came of it."""
    from clma.night import close_round

    federation = Federation.open(store)
    while time.time() < at:
        pass
    try:
        close_round(federation, now=now)
    except ClmaError as error:
        return type(error).__name__
    return "closed"
