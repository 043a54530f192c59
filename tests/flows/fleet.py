"""A tiny federation with one round closed and a second one ready: three cohorts will come of it."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from clma.client import submit
from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.night import close_round, open_next_round
from clma.parameters.tensor_file import serialize_tensors

CLIENTS = ("p1", "p2", "p3", "p4", "p5", "p6")
WAYS = {"p3": (0, 3.0), "p4": (0, 2.5), "p5": (1, 3.0), "p6": (1, 2.5)}
"""Clients that drift in round 2: the coordinate they move along, and how far."""


def found(folder: Path, name: str, **settings: Any) -> Federation:
    """Make the federation; round 2 is open, every update is in, four clients flag."""
    folder.mkdir(parents=True)
    base = folder / "base.safetensors"
    base.write_bytes(serialize_tensors({"w": np.zeros(4, np.float32)}))
    federation = Federation.create(folder / "store", preset_config(name, **settings), base, CLIENTS)
    open_next_round(federation, now=dt.datetime.now(dt.UTC))
    for client_id in CLIENTS:
        send(federation, folder, client_id, np.zeros(4), flag=False)
    close_round(federation, now=dt.datetime.now(dt.UTC), force=True)
    for client_id in CLIENTS:
        axis, size = WAYS.get(client_id, (3, 0.1))
        send(federation, folder, client_id, size * np.eye(4)[axis], flag=client_id in WAYS)
    return federation


def send(
    federation: Federation, folder: Path, client_id: str, weights: np.ndarray, *, flag: bool
) -> None:
    """Submit one update."""
    path = folder / f"{client_id}.safetensors"
    path.write_bytes(serialize_tensors({"w": weights.astype(np.float32)}))
    submit(federation, federation.name, client_id, tensors=path, n_examples=10, drift_flag=flag)


def results_of(store: Path) -> dict[str, str]:
    """Return the digest of everything that a night decides: models, tables, sealed inputs."""
    wanted = [*store.glob("models/*"), *store.glob("rounds/*/*.parquet")]
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(wanted)
    }
