"""Eight plants with a small network, and what they drop: hostile input is tried on them."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.cli import main
from clma.config import preset_config
from clma.ledger.federation import Federation
from clma.ledger.keys import update_key
from clma.ledger.tables import read_rows
from clma.night import close_round, open_next_round
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ArtifactRef, FederationState, UpdateMessage
from clma.round import RoundOutcome
from clma.rows import UpdateRow
from clma.updates.message import message_bytes

NAME = "fleet"
CLIENTS = tuple(f"plant-{letter}" for letter in "abcdefgh")
NOW = dt.datetime(2026, 1, 5, 20, tzinfo=dt.UTC)

Tensors = Mapping[str, NDArray[Any]]

_SHAPES = {
    "layer1.weight": (16, 8),
    "layer1.bias": (16,),
    "bn.running_mean": (16,),
    "bn.running_var": (16,),
    "head.weight": (4, 16),
    "head.bias": (4,),
}


def model_zero() -> dict[str, NDArray[Any]]:
    """Return the model that everybody starts from."""
    rng = np.random.default_rng(0)
    floats = {name: rng.normal(size=s).astype(np.float32) for name, s in _SHAPES.items()}
    return {**floats, "bn.num_batches_tracked": np.array(100, np.int64)}


def trained(
    client_id: str, round_num: int, start: Tensors | None = None
) -> dict[str, NDArray[Any]]:
    """Return what a plant makes of a model in a round: a little noise, other for every plant."""
    rng = np.random.default_rng(1000 * round_num + number_of(client_id))
    return {
        name: value
        if value.dtype.kind == "i"
        else (value + 0.01 * rng.normal(size=value.shape)).astype(value.dtype)
        for name, value in (start or model_zero()).items()
    }


def number_of(client_id: str) -> int:
    """Return a plant's number; the first is 0."""
    return ord(client_id[-1]) - ord("a")


def changed(tensors: Tensors, name: str, index: Any, value: float) -> dict[str, NDArray[Any]]:
    """Return tensors with some values of one of them replaced."""
    array = tensors[name].copy()
    array[index] = value
    return {**tensors, name: array}


def moved(tensors: Tensors, way: int, size: float = 1.0) -> dict[str, NDArray[Any]]:
    """Return tensors whose first layer went one of 128 ways, all at right angles."""
    index = np.unravel_index(way, _SHAPES["layer1.weight"])
    return changed(tensors, "layer1.weight", index, float(tensors["layer1.weight"][index]) + size)


def found(
    folder: Path,
    *,
    base: Tensors | bytes | None = None,
    clients: Iterable[str] = CLIENTS,
    n_rounds: int = 0,
    **settings: Any,
) -> Federation:
    """Make the federation with a round open, after `n_rounds` in which nothing happened.

    Updates are not signed, and losses may be shared, unless `settings` say otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "base.safetensors"
    data = model_zero() if base is None else base
    path.write_bytes(data if isinstance(data, bytes) else serialize_tensors(data))
    share = ["weights", "flag", "examples", "loss"]
    defaults = {"identity": {"updates": "unsigned"}, "privacy": {"share": share}}
    config = preset_config(NAME, **{**defaults, **settings})
    federation = Federation.create(folder / "store", config, path, clients, now=NOW)
    open_next_round(federation, now=NOW)
    for _ in range(n_rounds):
        send_good(federation)
        night(federation)
    return federation


def send(
    federation: Federation,
    client_id: str,
    tensors: Tensors | bytes | None = None,
    **fields: Any,
) -> None:
    """Drop an update as a foreign program would: nothing is checked, nothing is written over."""
    state = federation.state()
    data = trained(client_id, state.round_num) if tensors is None else tensors
    data = data if isinstance(data, bytes) else serialize_tensors(data)
    values = {"tensors_sha256": hashlib.sha256(data).hexdigest(), **fields}
    drop(federation, client_id, "update.safetensors", data)
    drop(federation, client_id, "update.json", message_of(state, client_id, **values))


def message_of(state: FederationState, client_id: str, **fields: Any) -> bytes:
    """Return the message of a good update, with some fields as they are given."""
    values: dict[str, Any] = {
        "federation": NAME,
        "client_id": client_id,
        "round_num": state.round_num,
        "base_digest": state.clients[client_id].serving_digest,
        "n_examples": 100 + 10 * number_of(client_id),
        "drift_flag": False,
        "loss": 0.5,
        "tensors_sha256": "00" * 32,
        "created_at": dt.datetime.now(dt.UTC).isoformat(),
    }
    return message_bytes(UpdateMessage(**{**values, **fields}))


def drop(federation: Federation, client_id: str, file_name: str, data: bytes) -> None:
    """Put one file into a plant's folder of the newest round."""
    round_num = federation.state().round_num
    federation.store.put_if_absent(update_key(round_num, client_id, file_name), data)


def send_good(federation: Federation, *, but: Iterable[str] = ()) -> None:
    """Let every plant but some send its good update."""
    for client_id in federation.state().clients:
        if client_id not in but:
            start = tensors_of(federation, federation.state().clients[client_id].serving_digest)
            send(federation, client_id, trained(client_id, federation.state().round_num, start))


def night(federation: Federation) -> RoundOutcome:
    """Close the round when it is due."""
    deadline = federation.state().deadline
    assert deadline is not None
    return close_round(federation, now=deadline)


def night_without(folder: Path, *client_ids: str, **settings: Any) -> RoundOutcome:
    """Return a first night in which some plants stayed away."""
    federation = found(folder, **settings)
    send_good(federation, but=client_ids)
    return night(federation)


def command(*arguments: str) -> int:
    """Run ``clma``; return its exit code."""
    try:
        main(arguments)
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def decided(outcome: RoundOutcome) -> dict[str, Any]:
    """Return what a night made of its input: models by digest, and where every plant stands."""
    return {**outcome.state.cohorts, **outcome.state.clients}


def row_of(outcome: RoundOutcome, client_id: str) -> UpdateRow:
    """Return a plant's only row of the updates table."""
    (row,) = [r for r in outcome.decision.updates if r.client_id == client_id]
    return row


def verdicts(outcome: RoundOutcome) -> dict[str, str | None]:
    """Return the reason of everybody who has one."""
    return {r.client_id: r.reason for r in outcome.decision.updates if r.reason is not None}


def recorded(federation: Federation, round_num: int, client_id: str) -> list[UpdateRow]:
    """Return a plant's rows of the updates table as an operator reads them from the folder."""
    rows = read_rows(federation.store, round_num, "updates")
    return [row for row in rows if row.client_id == client_id]


def tensors_of(federation: Federation, digest: str) -> dict[str, NDArray[Any]]:
    """Return a stored model."""
    ref = ArtifactRef(f"models/{digest}.safetensors", digest)
    with federation.open_tensors(ref) as file:
        return {spec.name: file.read(spec.name).copy() for spec in file.specs}


def root_model(federation: Federation) -> dict[str, NDArray[Any]]:
    """Return the newest model of the root cohort."""
    return tensors_of(federation, federation.state().cohorts["c0"].model_digest)
