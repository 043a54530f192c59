"""Cut the quarantine into units that can be compared: one origin, one reference.

Two clients that started from different models differ by that alone; their movements are compared
only within one origin cohort (`reference = "sent"`). Algorithm 1 as listed compares everybody with
one average instead (`reference = "consensus"`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from clma.cohorting.contract import Candidate, CohortingUnit, UnitMember, Witness
from clma.config import FederationConfig
from clma.drift.quarantine import Triage
from clma.records import (
    ROOT_COHORT,
    ClientState,
    CohortStatus,
    FederationState,
    SealedUpdate,
    cohort_number,
    model_ref,
)
from clma.rows import SealedRound

__all__ = ["cohorting_units"]

_Pools = dict[tuple[int, str], list[UnitMember]]


def cohorting_units(
    state: FederationState, sealed: SealedRound, triage: Triage, config: FederationConfig
) -> tuple[CohortingUnit, ...]:
    """Return the units of a round's quarantine, by origin cohort and then by reference.

    Parameters
    ----------
    state : FederationState
        Before the round.
    sealed : SealedRound
    triage : Triage
    config : FederationConfig
    """
    updates = {u.client_id: u for u in sealed.updates}
    drifted = _pools(state, triage.quarantined, updates, config)
    first = _pools(state, triage.newcomers, updates, config)
    return (
        *_units(state, drifted, config, newcomers=False),
        *_units(state, first, config, newcomers=True),
    )


def _pools(
    state: FederationState,
    client_ids: Sequence[str],
    updates: Mapping[str, SealedUpdate],
    config: FederationConfig,
) -> _Pools:
    pools: _Pools = {}
    for client_id in client_ids:
        client, update = state.clients[client_id], updates[client_id]
        pools.setdefault(_pool(client, update, state, config), []).append(
            UnitMember(
                client_id,
                client.cohort_id,
                update.tensors,
                update.n_examples,
                _barred(client, state.round_num, config),
            )
        )
    return pools


def _units(
    state: FederationState, pools: _Pools, config: FederationConfig, *, newcomers: bool
) -> list[CohortingUnit]:
    units = []
    for (number, reference), members in sorted(pools.items()):
        origin = f"c{number}" if number >= 0 else None
        units.append(
            CohortingUnit(
                unit_id=_unit_id(origin, reference, pools) + "-newcomers" * newcomers,
                round_num=state.round_num,
                members=tuple(sorted(members, key=lambda m: m.client_id)),
                reference=model_ref(reference),
                candidates=_candidates(state, origin, config),
                seed=_seed(config, state.round_num, origin),
                largest_mean_norm=state.cohorts[origin].largest_mean_norm if origin else 0.0,
                witnesses=_witnesses(state, origin, config),
                newcomers=newcomers,
            )
        )
    return units


def _pool(
    client: ClientState, update: SealedUpdate, state: FederationState, config: FederationConfig
) -> tuple[int, str]:
    if config.cohorting.reference == "consensus":
        root = state.cohorts[ROOT_COHORT].model_digest
        return -1, state.consensus_digest or root
    if config.cohorting.method == "feddrift_eager":
        return -1, state.cohorts[ROOT_COHORT].model_digest  # all that drifted are one group
    return cohort_number(client.cohort_id), update.base_digest


def _unit_id(origin: str | None, reference: str, pools: _Pools) -> str:
    if origin is None:
        return "pool"
    # A client held in quarantine still trains on an older model than the rest of its cohort.
    alone = sum(f"c{number}" == origin for number, _ in pools) == 1
    return origin if alone else f"{origin}-{reference[:12]}"


def _barred(client: ClientState, round_num: int, config: FederationConfig) -> str | None:
    if client.moved_round is None or client.origin_cohort is None:
        return None
    recent = round_num - client.moved_round <= config.cohorting.recall_cooldown
    return client.origin_cohort if recent else None


def _candidates(
    state: FederationState, origin: str | None, config: FederationConfig
) -> tuple[Candidate, ...]:
    if not config.cohorting.recall or origin is None:
        return ()
    if config.cohorting.choice == "all":
        # They had every known model in their hands and trained none of them.
        return ()
    forgotten = _out_of_memory(state, config.cohorting.max_remembered)
    return tuple(
        Candidate(c.cohort_id, model_ref(c.model_digest))
        for c in state.cohorts.values()
        if c.cohort_id != origin
        and c.status is not CohortStatus.MERGED
        and c.cohort_id not in forgotten
    )


def _witnesses(
    state: FederationState, origin: str | None, config: FederationConfig
) -> tuple[Witness, ...]:
    """Return how the cohorts that came from `origin` were founded; older states do not tell."""
    if not config.cohorting.birth_witness:
        return ()
    known = {candidate.cohort_id for candidate in _candidates(state, origin, config)}
    return tuple(
        Witness(c.cohort_id, model_ref(c.birth_digest), model_ref(c.origin_digest))
        for c in state.cohorts.values()
        if c.cohort_id in known and c.parent == origin and c.birth_digest and c.origin_digest
    )


def _out_of_memory(state: FederationState, max_remembered: int) -> frozenset[str]:
    """Return the dormant cohorts that are not among those left last; of equals the older ones."""
    if not max_remembered:
        return frozenset()
    dormant = [c for c in state.cohorts.values() if c.status is CohortStatus.DORMANT]
    dormant.sort(key=lambda c: (c.dormant_since or 0, cohort_number(c.cohort_id)))
    return frozenset(c.cohort_id for c in dormant[:-max_remembered])


def _seed(config: FederationConfig, round_num: int, origin: str | None) -> int:
    text = f"{config.federation}/{config.seed}/{round_num}/{origin or 'pool'}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
