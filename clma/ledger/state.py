"""State as a fold over the ledger's entries.

An entry carries what it changed: whole records of clients and cohorts, which replace those of the
same id, and the fields of the round that are other than before. Everything else in its payload is
evidence, for people and for audits.

Examples
--------
>>> before = FederationState("f")
>>> after = FederationState("f", round_num=1, phase=Phase.OPEN)
>>> changes(before, after)
{'round': 1, 'phase': 'open'}
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from clma.errors import DamagedStoreError, RoundStateError
from clma.ledger.chain import Entry
from clma.ledger.keys import entry_key
from clma.records import (
    ArtifactRef,
    ClientKey,
    ClientState,
    Cohort,
    FederationState,
    Phase,
    cohort_number,
)

__all__ = ["changes", "fold", "next_state", "without_client"]

_CLIENTS = TypeAdapter(tuple[ClientState, ...])
_COHORTS = TypeAdapter(tuple[Cohort, ...])
_DEADLINE = TypeAdapter(dt.datetime | None)
_REF = TypeAdapter(ArtifactRef | None)
_KEYS = TypeAdapter(dict[str, tuple[ClientKey, ...]])


def fold(entries: Iterable[Entry], state: FederationState | None = None) -> FederationState:
    """Return the state after all entries, first to last.

    Parameters
    ----------
    entries : iterable of Entry
    state : FederationState, optional
        Before the first of them. Default: before the creation.

    Raises
    ------
    DamagedStoreError
        If an entry's records cannot be read; names the entry.
    """
    state = state or FederationState("")
    for entry in entries:
        try:
            state = next_state(state, entry.payload)
        except (ValidationError, ValueError, TypeError) as error:
            first_line = str(error).partition("\n")[0]
            raise DamagedStoreError(f"{entry_key(entry.number)}: {first_line}") from None
    return state


def next_state(state: FederationState, payload: Mapping[str, Any]) -> FederationState:
    """Return the state after one payload; `state` is not modified."""
    if "forgotten" in payload:
        state = without_client(state, payload["forgotten"]["client_id"])
    clients, cohorts = state.clients, state.cohorts
    # Most entries change neither, and ten thousand clients take their time to sort.
    if "clients" in payload:
        changed = {c.client_id: c for c in _CLIENTS.validate_python(payload["clients"])}
        clients = dict(sorted({**clients, **changed}.items()))
    if "cohorts" in payload:
        formed = {c.cohort_id: c for c in _COHORTS.validate_python(payload["cohorts"])}
        in_order = sorted({**cohorts, **formed}.items(), key=lambda item: cohort_number(item[0]))
        cohorts = dict(in_order)
    return FederationState(
        federation=payload.get("federation", state.federation),
        round_num=int(payload.get("round", state.round_num)),
        phase=Phase(payload.get("phase", state.phase)),
        clients=clients,
        cohorts=cohorts,
        consensus_digest=payload.get("consensus_digest", state.consensus_digest),
        deadline=_read(_DEADLINE, payload, "deadline", state.deadline),
        sealed=_read(_REF, payload, "sealed", state.sealed),
        config=_read(_REF, payload, "config", state.config),
        keys={**state.keys, **_read(_KEYS, payload, "keys", {})},
        planned_cohorts=_read(_REF, payload, "planned_cohorts", state.planned_cohorts),
    )


def without_client(state: FederationState, client_id: str) -> FederationState:
    """Return the state without a client and its keys, as if it had never been registered."""
    return dataclasses.replace(
        state,
        clients={i: c for i, c in state.clients.items() if i != client_id},
        keys={i: k for i, k in state.keys.items() if i != client_id},
    )


def changes(before: FederationState, after: FederationState) -> dict[str, Any]:
    """Return the part of a payload that leads from one state to another.

    Returns
    -------
    dict of JSON values
        Empty for equal states; `next_state(before, changes(before, after)) == after`.

    Raises
    ------
    RoundStateError
        If a client or a cohort is gone: what was served once is never forgotten.
    """
    lost = [*before.clients.keys() - after.clients.keys()]
    lost += [*before.cohorts.keys() - after.cohorts.keys()]
    if lost:
        raise RoundStateError(f"{before.federation}: the next state lacks {sorted(lost)[:5]}")
    clients = [c for i, c in sorted(after.clients.items()) if before.clients.get(i) != c]
    cohorts = [
        after.cohorts[i]
        for i in sorted(after.cohorts, key=cohort_number)
        if before.cohorts.get(i) != after.cohorts[i]
    ]
    fields: dict[str, tuple[Any, Any]] = {
        "federation": (before.federation, after.federation),
        "round": (before.round_num, after.round_num),
        "phase": (before.phase.value, after.phase.value),
        "consensus_digest": (before.consensus_digest, after.consensus_digest),
        "deadline": tuple(_DEADLINE.dump_python(s.deadline, mode="json") for s in (before, after)),
        "sealed": tuple(_REF.dump_python(s.sealed, mode="json") for s in (before, after)),
        "config": tuple(_REF.dump_python(s.config, mode="json") for s in (before, after)),
        "planned_cohorts": tuple(
            _REF.dump_python(s.planned_cohorts, mode="json") for s in (before, after)
        ),
    }
    delta: dict[str, Any] = {key: new for key, (old, new) in fields.items() if old != new}
    if clients:
        delta["clients"] = _CLIENTS.dump_python(tuple(clients), mode="json")
    if cohorts:
        delta["cohorts"] = _COHORTS.dump_python(tuple(cohorts), mode="json")
    keys = {i: k for i, k in sorted(after.keys.items()) if before.keys.get(i) != k}
    if keys:
        delta["keys"] = _KEYS.dump_python(keys, mode="json")
    return delta


def _read(adapter: TypeAdapter[Any], payload: Mapping[str, Any], key: str, default: Any) -> Any:
    return adapter.validate_python(payload[key]) if key in payload else default
