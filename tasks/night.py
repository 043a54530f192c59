"""What the tasks of a night hand to each other, and how their results are kept.

Tasks pass references: a place in the federation folder and a digest. The results of finished tasks
are kept by Prefect under keys of our own (`CACHED`), so that a retry of the flow run does not
execute them again. A key covers the code's schema, the task, and the digests of all inputs; the
ledger entry that sealed the round stands for the state, the configuration and the updates, since
every entry holds the digest of the one before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from prefect.cache_policies import CacheKeyFnPolicy
from prefect.client.schemas.objects import State
from prefect.context import TaskRunContext
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from clma.config import FederationConfig
from clma.errors import ClmaError, DamagedStoreError, StorageError
from clma.ledger.federation import Federation
from clma.ledger.keys import stage_key, stages_prefix
from clma.records import ArtifactRef, FederationState
from clma.rows import SealedRound

__all__ = [
    "CACHED",
    "IO_RETRIES",
    "PINNED_TO_RUN",
    "Night",
    "config_of_night",
    "discard_bytes",
    "load_stage",
    "open_federation",
    "save_bytes",
    "save_stage",
    "sealed_inputs",
]

SCHEMA = 1
"""Raised when a task's result changes its meaning: old results are then not taken for new ones."""

Record = TypeVar("Record")

_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


@dataclass(frozen=True, slots=True)
class Night:
    """One sealed round, by reference.

    Parameters
    ----------
    store : str
        URL or path of the federation folder.
    federation : str
    round_num : int
    sealed_entry : str
        SHA-256 of the ledger entry that sealed the round.
    n_updates : int
        Accepted ones.
    folder : str
        Tells this folder from a copy of it that was put in its place: what tasks wrote is there
        only in the folder where they ran.
    """

    store: str
    federation: str
    round_num: int
    sealed_entry: str
    n_updates: int
    folder: str = ""


def _digest(values: Any) -> str:
    text = json.dumps(to_jsonable_python(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _key_of_inputs(context: TaskRunContext, parameters: Mapping[str, Any]) -> str:
    return _digest({"schema": SCHEMA, "task": context.task.name, "inputs": dict(parameters)})


def _key_of_run(context: TaskRunContext, parameters: Mapping[str, Any]) -> str:
    run_id = str(context.task_run.flow_run_id)
    return _digest(
        {"schema": SCHEMA, "task": context.task.name, "inputs": dict(parameters), "run": run_id}
    )


class TaskOptions(TypedDict):
    """Options of `prefect.task` that say how results are kept."""

    persist_result: bool
    result_serializer: str
    cache_policy: CacheKeyFnPolicy


class RetryOptions(TypedDict):
    """Options of `prefect.task` that say what is tried again."""

    retries: int
    retry_delay_seconds: list[float]
    retry_condition_fn: Any


CACHED: TaskOptions = {
    "persist_result": True,
    "result_serializer": "json",
    "cache_policy": CacheKeyFnPolicy(cache_key_fn=_key_of_inputs),
}
"""Equal inputs, equal result: whoever runs it, it is run once."""

PINNED_TO_RUN: TaskOptions = {
    "persist_result": True,
    "result_serializer": "json",
    "cache_policy": CacheKeyFnPolicy(cache_key_fn=_key_of_run),
}
"""Decided once in a flow run: a retry of the run sticks to it, another run decides anew."""


def _is_not_ours(task: Any, task_run: Any, state: State[Any]) -> bool:  # noqa: ARG001
    """Tell whether trying again can help: a `ClmaError` says what is wrong, and stays wrong.

    All but one: a disk may have room again, a server may answer again.
    """
    try:
        state.result()
    except StorageError:
        return True
    except ClmaError:
        return False
    except Exception:  # noqa: BLE001 - whatever else it was, the task's retries are for it
        return True
    return False


IO_RETRIES: RetryOptions = {
    "retries": 2,
    "retry_delay_seconds": [1.0, 5.0],
    "retry_condition_fn": _is_not_ours,
}


def open_federation(night: Night) -> Federation:
    """Open the federation of a night."""
    return Federation.open(night.store, night.federation)


def sealed_inputs(federation: Federation, night: Night) -> tuple[FederationState, SealedRound]:
    """Return the state before the round and its sealed updates, as of the night's ledger entry."""
    return federation.state_at_seal(night.round_num), federation.sealed_round(night.round_num)


def config_of_night(federation: Federation, night: Night) -> FederationConfig:
    """Return the settings of the night's ledger entry, whatever was changed since."""
    return federation.config_at_seal(night.round_num)


def save_stage(federation: Federation, night: Night, name: str, record: object) -> ArtifactRef:
    """Write what a step came to as canonical JSON into the round's folder, once.

    A second execution of the same step has to come to the same bytes; if it does not,
    `ConflictError` says so instead of a silent second opinion.
    """
    values = _adapter(type(record)).dump_python(record, mode="json")
    data = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return save_bytes(federation, night, f"{name}.json", data)


def save_bytes(federation: Federation, night: Night, file_name: str, data: bytes) -> ArtifactRef:
    """Write a file into the round's folder, once; ConflictError if it is there with other bytes."""
    key = stage_key(night.round_num, f"{night.sealed_entry[:12]}-{file_name}")
    return federation.store.put_once(key, data)


def discard_bytes(federation: Federation, night: Night) -> None:
    """Delete what `save_bytes` kept under the name of a ``.bin``, once nothing needs it any more.

    Only to save space: what cannot be deleted must not cost the night.
    """
    with contextlib.suppress(StorageError, DamagedStoreError):
        for key in federation.store.list(stages_prefix(night.round_num)):
            if key.endswith(".bin"):
                federation.store.delete(key)


def load_stage(federation: Federation, ref: ArtifactRef, kind: type[Record]) -> Record:
    """Read a record that `save_stage` wrote; DamagedStoreError if its bytes changed since."""
    record: Record = _adapter(kind).validate_json(federation.store.get_verified(ref))
    return record


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what reads and writes a kind of record; making it takes as long as a small one."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
