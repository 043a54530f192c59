"""What one pass over a round's files is to come to.

Every accepted update is read once: a voter for its cohort's columns and its own norm, a quarantined
client for the inner products of its unit (rules that compare voters read them again). The few that
are neither are only measured. What a quarantined group comes to is known after the pass, so a new
cohort's model is made from its members' files afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clma.cohorting.contract import CohortingUnit
from clma.cohorting.placement import AggregationJob, voting_jobs
from clma.config import AggregationConfig, FederationConfig
from clma.drift.quarantine import Triage
from clma.records import SealedUpdate
from clma.rows import SealedRound
from clma.sweep.columns import Columns

__all__ = ["CONSENSUS", "Shard", "SweepPlan", "number_of_shards", "plan_sweep", "rule_of", "shards"]

SHARD_BYTES = 512 * 10**6
"""Read in less than a second: with less, a task would take longer to start than to run."""

CONSENSUS = "consensus"
"""Job of the average over everybody, where the configuration compares with it."""


def rule_of(job: AggregationJob, config: FederationConfig) -> AggregationConfig:
    """Say how a job's model is made: the average over everybody, which no client gets, by no rule.

    Everybody includes those who drifted, and a robust rule would take them for liars.
    """
    if job.cohort_id != CONSENSUS:
        return config.aggregation
    plain = {"method": "weighted_mean", "server_optimizer": "none"}
    return config.aggregation.model_copy(update=plain)


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` equal parts of the work, counted from 0."""

    index: int
    count: int


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The work of a pass.

    Parameters
    ----------
    jobs : tuple of AggregationJob
        Means of known cohorts.
    measured : tuple of SealedUpdate
        Neither voters nor, measured from the model they were sent, members of a unit.
    units : tuple of CohortingUnit
    """

    jobs: tuple[AggregationJob, ...]
    measured: tuple[SealedUpdate, ...]
    units: tuple[CohortingUnit, ...]


def plan_sweep(
    sealed: SealedRound,
    triage: Triage,
    units: Sequence[CohortingUnit],
    config: FederationConfig,
) -> SweepPlan:
    """Say what is to be computed from which file.

    Parameters
    ----------
    sealed : SealedRound
    triage : Triage
    units : sequence of CohortingUnit
    config : FederationConfig
    """
    updates = {u.client_id: u for u in sealed.updates}
    jobs, _ = voting_jobs(triage, updates, config)
    known = {u.client_id for job in jobs for u in job.voters}
    known |= {
        m.client_id
        for unit in units
        for m in unit.members
        if _from_base(unit, updates, m.client_id)
    }
    if config.cohorting.reference == "consensus":
        jobs = (*jobs, AggregationJob(CONSENSUS, tuple(sorted(sealed.updates, key=_by_id))))
    rest = tuple(updates[client_id] for client_id in sorted(updates.keys() - known))
    return SweepPlan(tuple(jobs), rest, tuple(units))


def number_of_shards(plan: SweepPlan, columns: Columns) -> int:
    """Return into how many shards the work is worth dividing: one for every 512 MB to read."""
    n_files = sum(len(job.voters) for job in plan.jobs) + len(plan.measured)
    n_files += sum(
        len(unit.members) + len(unit.candidates) + 2 * len(unit.witnesses) for unit in plan.units
    )
    stripes = columns.stripes()
    n_bytes = n_files * sum(columns.n_bytes(stripe) for stripe in stripes)
    return max(1, min(n_bytes // SHARD_BYTES, len(stripes)))


def shards(count: int) -> tuple[Shard, ...]:
    """Divide the work."""
    return tuple(Shard(index, count) for index in range(count))


def _from_base(unit: CohortingUnit, updates: Mapping[str, SealedUpdate], client_id: str) -> bool:
    return updates[client_id].base_digest == unit.reference.sha256


def _by_id(update: SealedUpdate) -> str:
    return update.client_id
