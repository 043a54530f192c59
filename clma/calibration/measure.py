"""Measure a recorded round again: the updates that were compared, and those of later nights.

Clients that were compared in one round are looked at once more in the rounds after it, when they
train one model together: whoever drifted alike pulls that model the same way, whoever did not pulls
it apart.

References
----------
Sattler et al. (2020), "Clustered Federated Learning", IEEE TNNLS, section II: clients whose data
do not fit one model are told by the angles between their updates of a model that they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from clma.calibration.nights import MAX_WATCHED
from clma.cohorting.contract import CohortingUnit, Evidence, UnitMember
from clma.cohorting.methods import triage_clients
from clma.cohorting.units import cohorting_units
from clma.config import FederationConfig
from clma.ledger.federation import Federation
from clma.records import ROOT_COHORT, model_ref
from clma.round import columns_of
from clma.sweep.columns import Columns
from clma.sweep.plan import Shard, SweepPlan
from clma.sweep.shard import ShardSums, sweep_shard, unit_evidence

__all__ = ["Likeness", "Measured", "measured_night", "night_units", "sweep_night"]

N_COMPANIONS = 8
"""Beside them so many members of their cohort that were there before."""

_WATCHED = "watched-"

Likeness = Mapping[tuple[str, str], float]
"""Of pairs of clients, the smaller id first: 1 less the distance of their updates, in [-1, 1]."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the weights of one round say.

    Parameters
    ----------
    units : tuple of CohortingUnit
        Clients that were compared in the round.
    evidence : tuple of Evidence
        One a unit.
    likeness : mapping of pair to float
        Of clients that trained one model in this round, at least one of which had been compared in
        a round shortly before.
    """

    units: tuple[CohortingUnit, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    likeness: Likeness = field(default_factory=dict)


def night_units(
    federation: Federation, round_num: int, config: FederationConfig, watched: Set[str]
) -> tuple[CohortingUnit, ...]:
    """Return who is compared with whom: as it was decided in the round, then who is watched.

    Parameters
    ----------
    federation : Federation
    round_num : int
    config : FederationConfig
        Cuts those that were set apart into units; who was is as the round's own settings had it,
        but for the confirm bit, which `config` may leave aside.
    watched : set of client id
        Who was compared shortly before.

    Raises
    ------
    RoundStateError
        If the round was never sealed.
    """
    state, sealed = federation.state_at_seal(round_num), federation.sealed_round(round_num)
    decided = federation.config_of(state)
    drift = decided.drift.model_copy(update={"confirm": config.drift.confirm})
    triage = triage_clients(state, sealed, decided.model_copy(update={"drift": drift}))
    compared = cohorting_units(state, sealed, triage, config)
    by_base: dict[str, list[UnitMember]] = {}
    for update in sorted(sealed.updates, key=lambda u: (u.client_id not in watched, u.client_id)):
        if update.client_id not in triage.quarantined:
            cohort_id = state.clients[update.client_id].cohort_id
            by_base.setdefault(update.base_digest, []).append(
                UnitMember(update.client_id, cohort_id, update.tensors, update.n_examples)
            )
    return (*compared, *_watched_units(round_num, by_base, watched))


def sweep_night(
    federation: Federation,
    units: tuple[CohortingUnit, ...],
    config: FederationConfig,
) -> ShardSums:
    """Read the weights of a round as far as they are compared.

    Parameters
    ----------
    federation : Federation
        Nothing is written to it.
    units : tuple of CohortingUnit
        As `night_units` returns them.
    config : FederationConfig
        Says how updates are measured.

    Raises
    ------
    MissingObjectError, DamagedStoreError
        If weights are missing or were changed.
    """
    columns = _columns(federation, config)
    plan, alone = SweepPlan((), (), units), Shard(0, 1)
    return sweep_shard(plan, alone, columns, federation.open_tensors, config, lambda *_: None)


def measured_night(
    federation: Federation,
    units: tuple[CohortingUnit, ...],
    config: FederationConfig,
    sums: ShardSums,
) -> Measured:
    """Put together what `sweep_night` came to for these units."""
    columns = _columns(federation, config)
    found = [
        unit_evidence(u, [s], columns, config.cohorting)
        for u, s in zip(units, sums.units, strict=True)
    ]
    likeness: dict[tuple[str, str], float] = {}
    for unit, evidence in zip(units, found, strict=True):
        if unit.unit_id.startswith(_WATCHED):
            likeness |= pair_likeness(unit, evidence)
    n = sum(not unit.unit_id.startswith(_WATCHED) for unit in units)
    return Measured(units[:n], tuple(found[:n]), likeness)


def pair_likeness(unit: CohortingUnit, evidence: Evidence) -> dict[tuple[str, str], float]:
    """Return how alike the updates of a unit's clients are, pair by pair."""
    ids = [member.client_id for member in unit.members]
    return {
        (min(ids[a], ids[b]), max(ids[a], ids[b])): float(1.0 - evidence.distances[a, b])
        for a, b in zip(*(i.tolist() for i in np.triu_indices(len(ids), 1)), strict=True)
    }


def _watched_units(
    round_num: int, by_base: Mapping[str, Iterable[UnitMember]], watched: Set[str]
) -> tuple[CohortingUnit, ...]:
    units = []
    for base, all_members in sorted(by_base.items()):
        members = list(all_members)
        n = min(sum(m.client_id in watched for m in members), MAX_WATCHED)
        chosen = tuple(members[: n + N_COMPANIONS])
        if n and len(chosen) > 1:
            unit_id = f"{_WATCHED}{base[:12]}"
            units.append(CohortingUnit(unit_id, round_num, chosen, model_ref(base), (), seed=0))
    return tuple(units)


def _columns(federation: Federation, config: FederationConfig) -> Columns:
    root = model_ref(federation.state().cohorts[ROOT_COHORT].model_digest)
    return columns_of(root, federation.open_tensors, config)
