"""A small federation and what its plants send, for tests of the ledger and the client."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.ledger.keys import update_key
from clma.parameters.tensor_file import serialize_tensors
from clma.records import UpdateMessage
from clma.rows import SealedRound, UpdateRow
from clma.updates.message import message_bytes

NOW = dt.datetime(2026, 1, 5, 20, 0, tzinfo=dt.UTC)
DUE = NOW + dt.timedelta(hours=20)


def model(shift: float = 0.0, **changed: Any) -> dict[str, NDArray[Any]]:
    """Return the tensors of a two-layer model; a tensor given as None is left out."""
    tensors: dict[str, Any] = {
        "head.bias": np.zeros(4, np.float32) + np.float32(shift),
        "head.weight": np.ones((4, 3), np.float32) + np.float32(shift),
        "bn.num_batches_tracked": np.array(7, np.int64),
    }
    named = {name.replace("__", "."): value for name, value in changed.items()}
    return {n: v for n, v in {**tensors, **named}.items() if v is not None}


def written(path: Path, tensors: Mapping[str, Any] | bytes) -> Path:
    """Write tensors, or any bytes, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tensors if isinstance(tensors, bytes) else serialize_tensors(tensors))
    return path


def make_fleet(
    url: str | Path, tmp_path: Path, n_clients: int = 3, *, opened: bool = True, **settings: Any
) -> Federation:
    """Create federation `fleet`, which takes unsigned updates, with clients p0, p1 ..., and open
    round 1."""
    base = written(tmp_path / "base.safetensors", model())
    config = preset_config("fleet", **{"identity": {"updates": "unsigned"}, **settings})
    ids = [f"p{i}" for i in range(n_clients)]
    federation = Federation.create(url, config, base, ids, now=NOW)
    if opened:
        federation.open_round(now=NOW)
    return federation


def drop(
    federation: Federation,
    client_id: str,
    tensors: Mapping[str, Any] | bytes | None = None,
    *,
    message: bytes | None = None,
    **fields: Any,
) -> None:
    """Drop an update into the inbox as a foreign program would, without any check."""
    state = federation.state()
    data = serialize_tensors(model(0.5)) if tensors is None else tensors
    data = data if isinstance(data, bytes) else serialize_tensors(data)
    values: dict[str, Any] = {
        "federation": "fleet",
        "client_id": client_id,
        "round_num": state.round_num,
        "base_digest": state.clients[client_id].serving_digest,
        "n_examples": 100,
        "drift_flag": False,
        "tensors_sha256": hashlib.sha256(data).hexdigest(),
        "created_at": "2026-01-05T21:00:00+00:00",
        **fields,
    }
    text = message_bytes(UpdateMessage(**values)) if message is None else message
    folder = state.round_num
    federation.store.put_if_absent(update_key(folder, client_id, "update.safetensors"), data)
    federation.store.put_if_absent(update_key(folder, client_id, "update.json"), text)


def row_of(sealed: SealedRound, client_id: str) -> UpdateRow:
    """Return a client's only row."""
    (row,) = [r for r in sealed.rows if r.client_id == client_id]
    return row
