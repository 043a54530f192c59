"""Short histories of a federation of four plants, made as every night makes them."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.ledger.keys import update_key
from clma.parameters.tensor_file import serialize_tensors
from clma.records import UpdateMessage
from clma.round import run_round
from clma.rows import SealedRound
from clma.simulation.cnn import initial_parameters
from clma.updates.message import message_bytes

START = dt.datetime(2026, 1, 5, 20, 0, tzinfo=dt.UTC)
NETWORK: dict[str, int] = {"n_variables": 2, "n_classes": 3, "window": 8}
CLIENTS = ("p0", "p1", "p2", "p3")

Tensors = dict[str, NDArray[Any]]


def start(folder: Path, name: str, base: Tensors | None = None, **settings: Any) -> Federation:
    """Create a federation of `CLIENTS` that publishes a small network, or what is given."""
    settings = {
        "model_factory": "clma.simulation.cnn:cnn1d",
        "model_arguments": NETWORK,
        "privacy": {"share": ["weights", "flag", "examples", "loss"]},
        "identity": {"updates": "unsigned"},
        **settings,
    }
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "base.safetensors"
    model.write_bytes(serialize_tensors(base or initial_parameters(0, **NETWORK)))
    config = preset_config(name, **settings)
    return Federation.create(folder / "store", config, model, CLIENTS, now=START)


def pass_night(
    federation: Federation,
    *,
    drifted: tuple[str, ...] = (),
    senders: tuple[str, ...] = CLIENTS,
    spread: float = 0.0,
) -> int:
    """Open, fill, seal and commit a round; returns its number.

    Plants that go the same way send the same weights, but for a `spread` of their own.
    """
    round_num = federation.state().round_num + 1
    now = START + dt.timedelta(days=round_num)
    state = federation.open_round(now=now)
    for i, client_id in enumerate(senders):
        flag = client_id in drifted
        tensors = _moved(federation, state.clients[client_id].serving_digest, away=flag)
        tensors = {n: (a + spread * i).astype(a.dtype) for n, a in tensors.items()}
        _drop(federation, client_id, tensors, drift_flag=flag, loss=0.5 + flag)
    _commit(federation, federation.seal_round(now=now, force=True), now)
    return round_num


def _drop(federation: Federation, client_id: str, tensors: Tensors, **fields: Any) -> None:
    state, data = federation.state(), serialize_tensors(tensors)
    values = {
        "n_examples": 100,
        "tensors_sha256": hashlib.sha256(data).hexdigest(),
        "base_digest": state.clients[client_id].serving_digest,
        "created_at": "2026-01-05T21:00:00+00:00",
        **fields,
    }
    message = UpdateMessage(federation.name, client_id, state.round_num, **values)
    for name, content in (("update.safetensors", data), ("update.json", message_bytes(message))):
        federation.store.put_if_absent(update_key(state.round_num, client_id, name), content)


def _moved(federation: Federation, digest: str, *, away: bool) -> Tensors:
    """Return a served model after a day of training: drifted plants go another way."""
    with federation.open_tensors(federation.model_ref(digest)) as file:
        base = {spec.name: np.array(file.read(spec.name)) for spec in file.specs}
    rng = np.random.default_rng(1 if away else 0)
    return {n: (a + 0.05 * rng.standard_normal(a.shape)).astype(a.dtype) for n, a in base.items()}


def _commit(federation: Federation, sealed: SealedRound, now: dt.datetime) -> None:
    outcome = run_round(
        federation.state(),
        sealed,
        federation.config,
        open_tensors=federation.open_tensors,
        save_model=federation.add_model,
    )
    federation.commit_round(outcome.decision, outcome.state, now=now)
