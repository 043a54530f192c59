"""When a round opens: carry out what is planned, and place newcomers whose signature has come.

Who has sent none stays in the root cohort until it comes. A client that has moved since it joined
is no newcomer any more: what it is like, its updates have told. One in quarantine waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clma.cohorting.fmcl import Placement, place_newcomers
from clma.cohorting.signature_groups import newcomers, placed_rounds, settle
from clma.config import FederationConfig
from clma.errors import RoundStateError
from clma.ledger.federation import Federation
from clma.ledger.journal import Payload
from clma.ledger.signatures import Collected, collect_signatures
from clma.onboarding import ONBOARD
from clma.onboarding.carry_out import planned_moves
from clma.onboarding.kept import kept_signatures
from clma.onboarding.record import N_DIGITS
from clma.records import ROOT_COHORT, ClientStatus, FederationState, Phase

__all__ = ["moves_from_store"]


def moves_from_store(
    federation: Federation, state: FederationState, config: FederationConfig
) -> tuple[FederationState, Payload | None]:
    """Return the state in which the next round opens, and what its moves go back to.

    Parameters
    ----------
    federation : Federation
    state : FederationState
        After the last commit. Not modified.
    config : FederationConfig
        With ``onboarding.method = "fmcl"``.

    Raises
    ------
    RoundStateError
        If the first cohorts were not formed yet.
    """
    if state.phase is Phase.CREATED:
        raise RoundStateError(
            f"federation {state.federation!r} forms its first cohorts from signatures, which is "
            "not done yet: " + ONBOARD.format(store=federation.store.url, name=state.federation)
        )
    round_num = state.round_num + 1
    state, evidence = planned_moves(federation, state, round_num)
    waiting = [c for c in newcomers(state, round_num) if _is_new(state, c)]
    placed = placed_rounds(state)
    if not waiting or not placed:
        return state, evidence
    known = kept_signatures(federation, placed, evidence)
    space = next((kept.space for kept in known.values()), None)
    collected = collect_signatures(
        federation.store, state, config, waiting, round_num=round_num, keep=True, space=space
    )
    placements = place_newcomers(
        state,
        {c: kept.signature for c, kept in known.items()},
        collected.signatures,
        config.onboarding,
    )
    moves = settle(state, {c: p.cohort_id for c, p in placements.items()}, round_num)
    encoder = space[0] if space else config.onboarding.encoder
    return moves, _with_newcomers(evidence, encoder, collected, placements)


def _is_new(state: FederationState, client_id: str) -> bool:
    client = state.clients[client_id]
    is_root = client.cohort_id == ROOT_COHORT and client.moved_round is None
    return is_root and client.status is not ClientStatus.QUARANTINED


def _with_newcomers(
    evidence: Payload | None,
    encoder: str,
    collected: Collected,
    placements: Mapping[str, Placement],
) -> Payload | None:
    if not placements and not collected.refused:
        return evidence
    before: dict[str, Any] = dict(evidence or {"encoder": encoder})
    signatures = {
        c: {"path": kept.ref.path, "sha256": kept.ref.sha256} for c, kept in collected.found.items()
    }
    return {
        **before,
        "signatures": {**before.get("signatures", {}), **signatures},
        "distances": {
            client_id: {c: round(d, N_DIGITS) for c, d in placement.distances.items()}
            for client_id, placement in placements.items()
        },
        "refused": dict(collected.refused),
    }
