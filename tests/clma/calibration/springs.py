"""Plants without a network: each pulls the model towards its own concept, as a spring would.

Four of sixteen plants drift at each of the rounds 3, 6, 9 and 12, two to each of two concepts that
have half of their way in common: enough to be alike at first sight.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from clma.calibration.measure import Measured, measured_night, night_units, sweep_night
from clma.calibration.nights import Night, read_night
from clma.client import submit
from clma.config import FederationConfig, preset_config
from clma.ledger.federation import Federation
from clma.night import close_round, open_next_round
from clma.parameters.tensor_file import TensorFile, serialize_tensors
from clma.records import model_ref

CLIENTS = tuple(f"p{n:02d}" for n in range(20))
EVENTS = {3: CLIENTS[4:8], 6: CLIENTS[8:12], 9: CLIENTS[12:16], 12: CLIENTS[16:20]}
N_ROUNDS = 15
SIZE = 60
WAYS = {"base": {}, "a": {0: 1.0, 1: 1.0}, "b": {0: 1.0, 2: 1.0}}
PLAIN = {"recall_first": False, "recall_margin": 0.0, "split_ceiling": 1.0, "merge": False}
"""Nothing but the thresholds that are to be calibrated decides."""

TOGETHER = {"pair_threshold": -1.0, "silhouette_floor": 1.0, "silhouette_floor_three": 1.0}
"""Settings under which whoever drifts in one night is one group."""


def concept(client_id: str, round_num: int) -> str:
    """Return the truth."""
    for start, drifting in EVENTS.items():
        if client_id in drifting and round_num >= start:
            return "ab"[drifting.index(client_id) % 2]
    return "base"


def live(
    folder: Path, *, n_rounds: int = N_ROUNDS, drifts: bool = True, **settings: Any
) -> Federation:
    """Let the plants live; what they send is the same whatever the settings."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / "base.safetensors"
    base.write_bytes(serialize_tensors({"w": np.zeros(SIZE, np.float32)}))
    cohorting = PLAIN | settings.pop("cohorting", {})
    config = preset_config(
        "springs", identity={"updates": "unsigned"}, cohorting=cohorting, **settings
    )
    federation = Federation.create(folder / "store", config, base, CLIENTS)
    open_next_round(federation, now=dt.datetime.now(dt.UTC))
    for round_num in range(1, n_rounds + 1):
        for number, client_id in enumerate(CLIENTS):
            _take_part(federation, folder, client_id, np.random.default_rng([round_num, number]),
                       drifts=drifts)  # fmt: skip
        close_round(federation, now=dt.datetime.now(dt.UTC), force=True)
    return federation


def read(
    federation: Federation, config: FederationConfig | None = None
) -> tuple[dict[int, Night], dict[int, Measured]]:
    """Read and measure all rounds, under the settings in force or under others."""
    config = config or federation.config
    nights = {r: read_night(federation, r) for r in federation.committed_rounds()}
    measured = {}
    for r in nights:
        before = [nights[q] for q in range(max(r - 3, 1), r)]
        watched = frozenset(row.client_id for night in before for row in night.rows)
        units = night_units(federation, r, config, watched)
        sums = sweep_night(federation, units, config)
        measured[r] = measured_night(federation, units, config, sums)
    return nights, measured


def digest_of(folder: Path) -> str:
    """Return a digest over names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_mtime_ns}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _take_part(
    federation: Federation,
    folder: Path,
    client_id: str,
    rng: np.random.Generator,
    *,
    drifts: bool,
) -> None:
    state = federation.state()
    with TensorFile(federation.store.local_path(_served(state, client_id))) as file:
        weights = np.array(file.read("w"), np.float64)
    target = np.zeros(SIZE)
    way = WAYS[concept(client_id, state.round_num)] if drifts else {}
    for axis, length in way.items():
        target[axis] = length
    weights += 0.5 * (target - weights) + 0.03 * rng.standard_normal(SIZE)
    path = folder / "update.safetensors"
    path.write_bytes(serialize_tensors({"w": weights.astype(np.float32)}))
    flag = drifts and client_id in EVENTS.get(state.round_num, ())
    loss = float(np.sum((target - weights) ** 2)) if "loss" in _shared(federation) else None
    submit(
        federation, federation.name, client_id, tensors=path, n_examples=10, drift_flag=flag,
        loss=loss,
    )  # fmt: skip


def _shared(federation: Federation) -> tuple[str, ...]:
    return federation.config.privacy.share


def _served(state: Any, client_id: str) -> str:
    return model_ref(state.clients[client_id].serving_digest).path
