"""Put a recorded plan in force: open round 1 with it, or note it down for the next round."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from collections.abc import Mapping
from typing import Any

from clma.cohorting.given import move_clients
from clma.cohorting.signature_groups import settle
from clma.errors import ConflictError, RoundStateError
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.ledger.journal import Payload
from clma.ledger.keys import onboarding_key
from clma.ledger.state import changes
from clma.onboarding.plan import NEW, CohortPlan
from clma.onboarding.record import CohortRecord, parse_record, record_bytes, record_of
from clma.records import ArtifactRef, ClientStatus, FederationState, Phase, cohort_number

__all__ = ["note_down", "open_first_round", "planned_moves", "write_plan"]


def write_plan(federation: Federation, plan: CohortPlan) -> ArtifactRef:
    """Record a plan that was made with ``keep=True``; nothing is in force by that."""
    data = record_bytes(record_of(plan))
    key = onboarding_key(plan.round_num, hashlib.sha256(data).hexdigest())
    return federation.store.put_once(key, data)


def open_first_round(
    federation: Federation, ref: ArtifactRef, *, now: dt.datetime
) -> FederationState:
    """Open round 1 with the cohorts of a plan; doing it again changes nothing.

    Parameters
    ----------
    federation : Federation
    ref : ArtifactRef
        From `write_plan`.
    now : datetime
        With a zone.

    Raises
    ------
    ConflictError
        If round 1 was opened before, with other cohorts.
    """
    record = parse_record(federation.read_recorded(ref))
    state = federation.state()
    if state.phase is Phase.CREATED:
        moves = _moved(state, record, 1)
        federation.open_round(now=now, moves=moves, onboarding=_evidence(record, ref))
    entry = federation.journal.find(EntryKind.ROUND_OPENED, 1)
    named = None if entry is None else entry.payload.get("onboarding", {}).get("record")
    if named != _json(ref):
        raise ConflictError(
            f"round 1 of federation {federation.name!r} was opened before, with other cohorts: "
            "they can only be formed anew (--again)"
        )
    return federation.state()


def note_down(federation: Federation, ref: ArtifactRef, *, now: dt.datetime) -> FederationState:
    """Plan cohorts for the next round; an earlier plan that was not carried out is replaced.

    Parameters
    ----------
    federation : Federation
    ref : ArtifactRef
        From `write_plan`.
    now : datetime
        With a zone; only written down.

    Raises
    ------
    RoundStateError
        If no round was opened yet, or a newer one than the plan was made for.
    """
    record = parse_record(federation.read_recorded(ref))

    def build(state: FederationState) -> Payload | None:
        if state.phase is Phase.CREATED or state.round_num + 1 != record.round_num:
            raise RoundStateError(
                f"the plan is for round {record.round_num}, the next one is "
                f"{state.round_num + 1}: form the cohorts again"
            )
        if state.planned_cohorts == ref:
            return None
        return changes(state, dataclasses.replace(state, planned_cohorts=ref))

    return federation.journal.step(EntryKind.COHORTS_PLANNED, build, now)


def planned_moves(
    federation: Federation, state: FederationState, round_num: int
) -> tuple[FederationState, Payload | None]:
    """Return the state with the planned moves made, and the evidence for them; None: no plan.

    Clients that moved or went into quarantine since the plan was made stay where they are: what
    they were placed by is no longer their data.
    """
    ref = state.planned_cohorts
    if ref is None:
        return state, None
    record = parse_record(federation.read_recorded(ref))
    return _moved(state, record, round_num), _evidence(record, ref)


def _moved(state: FederationState, record: CohortRecord, round_num: int) -> FederationState:
    planned = {
        client_id: placed.cohort_id
        for client_id, placed in record.clients.items()
        if (client := state.clients.get(client_id)) is not None
        and client.status is not ClientStatus.QUARANTINED
        and client.cohort_id == placed.before
    }
    names = _new_names(state, planned)
    moved = state
    for new, name in names.items():
        joining = {c: name for c, cohort in planned.items() if cohort == new}
        moved = move_clients(moved, joining, round_num, start_from=record.parents[new])
    targets = {c: names.get(cohort, cohort) for c, cohort in planned.items()}
    return settle(moved, targets, round_num)


def _new_names(state: FederationState, planned: Mapping[str, str]) -> dict[str, str]:
    n_known = 1 + max(cohort_number(c) for c in state.cohorts)
    new = {cohort for cohort in planned.values() if cohort.startswith(NEW)}
    in_order = sorted(new, key=lambda name: int(name.removeprefix(NEW)))
    return {name: f"c{n_known + k}" for k, name in enumerate(in_order)}


def _evidence(record: CohortRecord, ref: ArtifactRef) -> dict[str, Any]:
    signatures = {c: _json(placed.signature) for c, placed in record.clients.items()}
    return {"encoder": record.encoder, "record": _json(ref), "signatures": signatures}


def _json(ref: ArtifactRef) -> dict[str, str]:
    return {"path": ref.path, "sha256": ref.sha256}
