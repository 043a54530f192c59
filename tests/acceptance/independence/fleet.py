"""A fleet of which two families drift, and its night played in any order; run as a program, too.

    python -m tests.acceptance.independence.fleet FOLDER FIRST_SEED N_ORDERS

plays the night once for each seed, which gives the order of arrival, and prints a digest each.
All times are given, so that two nights share every byte that they write.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import locale
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from clma.ledger.federation import Federation
from clma.night import close_round
from tests.acceptance.hostile.fleet import CLIENTS, NOW, found, night, root_model, send

N_PARAMETERS = 50_000
"""So many that BLAS would share the products out among its threads."""
FAMILIES = {"plant-a": 1, "plant-c": 1, "plant-f": 1, "plant-b": 2, "plant-g": 2}
"""Who drifts in round 2, and to which family."""
WHEN = NOW + dt.timedelta(days=2)
"""When everything of the second night came, and when it is closed."""
INBOX = "inbox/round=000002"


def prepare(folder: Path) -> None:
    """Make ``store``, with round 2 open and everything sent, and ``dropped``, what was sent."""
    rng = np.random.default_rng(1)
    base = {
        "bn.num_batches_tracked": np.array(1, np.int64),
        "w": rng.normal(size=N_PARAMETERS).astype(np.float32),
    }
    federation = found(folder, base=base)
    _send_all(federation, dict.fromkeys(CLIENTS, 0))
    night(federation)
    _send_all(federation, FAMILIES)
    shutil.copytree(folder / "store" / INBOX, folder / "dropped")


def _send_all(federation: Federation, families: dict[str, int]) -> None:
    start = root_model(federation)
    for number, client_id in enumerate(CLIENTS):
        family = families.get(client_id, 0)
        shift = 0.1 * np.random.default_rng([7, family]).normal(size=N_PARAMETERS) * (family > 0)
        noise = 0.02 * np.random.default_rng([8, number]).normal(size=N_PARAMETERS)
        tensors: dict[str, Any] = {**start, "w": (start["w"] + shift + noise).astype(np.float32)}
        send(federation, client_id, tensors, drift_flag=family > 0, created_at=WHEN.isoformat())
    _set_times(Path(federation.store.url))


def _set_times(store: Path) -> None:
    # When an update came is the clock's word, and the only one that is not given.
    for message in store.glob("inbox/*/*/update.json"):
        os.utime(message, (WHEN.timestamp(), WHEN.timestamp()))


def play(folder: Path, scratch: Path, seed: int) -> str:
    """Play the night with updates that come in the order of a seed; return its digest."""
    store = scratch / f"store-{seed}"
    shutil.copytree(folder / "store", store, ignore=shutil.ignore_patterns("round=000002"))
    for number in np.random.default_rng(seed).permutation(len(CLIENTS)):
        name = CLIENTS[number]
        shutil.copytree(folder / "dropped" / name, store / INBOX / name)
    close_round(Federation.open(store), now=WHEN)
    digest = digest_of(store)
    shutil.rmtree(store)
    return digest


def digest_of(store: Path) -> str:
    """Return one SHA-256 over every file of a store, by name and content."""
    total = hashlib.sha256()
    for path in sorted(p for p in store.rglob("*") if p.is_file()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(store)} {digest}\n".encode())
    return total.hexdigest()


if __name__ == "__main__":
    # Not every machine has every language; the variables themselves are there in any case.
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    scratch = Path(sys.argv[1]) / f"scratch-{sys.argv[2]}"
    for seed in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):
        sys.stdout.write(play(Path(sys.argv[1]), scratch, seed) + "\n")
