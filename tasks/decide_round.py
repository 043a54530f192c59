"""Put the parts of a round together: gate, decision, next state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefect import task

from clma.cohorting.placement import Placement
from clma.decision import AggregatedModel, decide
from clma.drift.quarantine import Triage
from clma.records import ArtifactRef, FederationState
from clma.rows import RoundDecision
from clma.sweep.shard import measurements
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    config_of_night,
    load_stage,
    open_federation,
    save_stage,
    sealed_inputs,
)
from tasks.place_groups import Placed
from tasks.quarantine_clients import Quarantine
from tasks.sweep_updates import Swept, load_plan, load_sums

__all__ = ["Decided", "decide_round"]


@dataclass(frozen=True, slots=True)
class Decided:
    """A round's decision and the state it leads to, by reference."""

    decision: ArtifactRef
    after: ArtifactRef


@task(**CACHED, **IO_RETRIES, task_run_name="decide round")
def decide_round(
    night: Night,
    quarantine: Quarantine,
    swept: Sequence[Swept],
    placed: Placed,
    models: Sequence[AggregatedModel],
    consensus_digest: str | None,
) -> Decided:
    """Gate every cohort's model and write down what the round decided; nothing is true yet."""
    federation = open_federation(night)
    state, sealed = sealed_inputs(federation, night)
    after, decision = decide(
        state,
        sealed,
        config_of_night(federation, night),
        measurements(load_plan(federation, night, quarantine), load_sums(federation, swept)),
        load_stage(federation, quarantine.triage, Triage),
        load_stage(federation, placed.placement, Placement),
        {model.cohort_id: model for model in models},
        consensus_digest,
    )
    return Decided(
        save_stage(federation, night, "decision", decision),
        save_stage(federation, night, "after", after),
    )


def load_decided(night: Night, decided: Decided) -> tuple[RoundDecision, FederationState]:
    """Read both records back."""
    federation = open_federation(night)
    return (
        load_stage(federation, decided.decision, RoundDecision),
        load_stage(federation, decided.after, FederationState),
    )
