"""Read every update: votes of cohorts, norms, inner products of the quarantined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from prefect import task

from clma.cohorting.contract import CohortingUnit
from clma.cohorting.placement import AggregationJob
from clma.drift.quarantine import Triage
from clma.ledger.federation import Federation
from clma.records import ROOT_COHORT, ArtifactRef, model_ref
from clma.round import columns_of
from clma.sweep.columns import Columns
from clma.sweep.plan import Shard, SweepPlan, plan_sweep
from clma.sweep.shard import ShardSums, sweep_shard
from clma.sweep.shard_file import read_sums, read_votes, write_sums, write_votes
from clma.sweep.votes import Votes
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    config_of_night,
    load_stage,
    open_federation,
    save_bytes,
    sealed_inputs,
)
from tasks.quarantine_clients import Quarantine

__all__ = ["Swept", "load_columns", "load_plan", "load_sums", "load_votes", "sweep_updates"]


@dataclass(frozen=True, slots=True)
class Swept:
    """What a shard came to, by reference.

    Parameters
    ----------
    sums : ArtifactRef
    means : dict of cohort id to ArtifactRef
        Bytes of the shard's columns of each cohort's model, as far as a rule has any.
    spreads : dict of cohort id to ArtifactRef
        Norms and inner products of the voters.
    """

    sums: ArtifactRef
    means: dict[str, ArtifactRef]
    spreads: dict[str, ArtifactRef] = field(default_factory=dict)


@task(**CACHED, **IO_RETRIES, task_run_name="sweep updates, shard {shard.index} of {shard.count}")
def sweep_updates(shard: Shard, night: Night, quarantine: Quarantine) -> Swept:
    """Do one shard of the pass over the round's files."""
    federation = open_federation(night)
    means: dict[str, ArtifactRef] = {}
    spreads: dict[str, ArtifactRef] = {}

    def save_votes(job: AggregationJob, votes: Votes) -> None:
        name = f"{job.cohort_id}-{shard.index}-of-{shard.count}"
        mean, spread = votes.columns.tobytes(), write_votes(votes)
        means[job.cohort_id] = save_bytes(federation, night, f"mean-{name}.bin", mean)
        spreads[job.cohort_id] = save_bytes(federation, night, f"spread-{name}.safetensors", spread)

    sums = sweep_shard(
        load_plan(federation, night, quarantine),
        shard,
        load_columns(federation, night),
        partial(federation.open_tensors_of_share, index=shard.index, count=shard.count),
        config_of_night(federation, night),
        save_votes,
    )
    name = f"sums-{shard.index}-of-{shard.count}.safetensors"
    return Swept(save_bytes(federation, night, name, write_sums(sums)), means, spreads)


def load_plan(federation: Federation, night: Night, quarantine: Quarantine) -> SweepPlan:
    """Return what the pass is to come to; it follows from the quarantine."""
    _, sealed = sealed_inputs(federation, night)
    triage = load_stage(federation, quarantine.triage, Triage)
    units = [load_stage(federation, ref.unit, CohortingUnit) for ref in quarantine.units]
    return plan_sweep(sealed, triage, units, config_of_night(federation, night))


def load_columns(federation: Federation, night: Night) -> Columns:
    """Number the columns of the federation's model."""
    state, _ = sealed_inputs(federation, night)
    root = model_ref(state.cohorts[ROOT_COHORT].model_digest)
    return columns_of(root, federation.open_tensors, config_of_night(federation, night))


def load_sums(federation: Federation, swept: Sequence[Swept]) -> list[ShardSums]:
    """Read the sums of all shards, in their order."""
    return [read_sums(federation.store.verified_path(shard.sums)) for shard in swept]


def load_votes(federation: Federation, swept: Sequence[Swept], cohort_id: str) -> list[Votes]:
    """Read a cohort's votes, in the order of the shards; nothing if the pass did not take them."""
    store = federation.store
    return [
        read_votes(
            store.verified_path(shard.spreads[cohort_id]),
            np.frombuffer(store.get_verified(shard.means[cohort_id]), np.uint8),
        )
        for shard in swept
        if cohort_id in shard.spreads
    ]
