"""Name the cohorts of a round and list the models to make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefect import task

import clma.cohorting.placement as placing
from clma.cohorting.contract import Grouping
from clma.drift.quarantine import Triage
from clma.records import ArtifactRef
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
from tasks.quarantine_clients import Quarantine

__all__ = ["JobRef", "Placed", "place_groups"]


@dataclass(frozen=True, slots=True)
class JobRef:
    """A model to make, by reference."""

    cohort_id: str
    job: ArtifactRef


@dataclass(frozen=True, slots=True)
class Placed:
    """Where everybody goes, and the models to make, by reference."""

    placement: ArtifactRef
    jobs: tuple[JobRef, ...]


@task(**CACHED, **IO_RETRIES, task_run_name="place groups")
def place_groups(night: Night, quarantine: Quarantine, groupings: Sequence[ArtifactRef]) -> Placed:
    """Recall, create or hold: one decision a group."""
    federation = open_federation(night)
    state, sealed = sealed_inputs(federation, night)
    placement = placing.place_groups(
        state,
        sealed,
        load_stage(federation, quarantine.triage, Triage),
        [load_stage(federation, ref, Grouping) for ref in groupings],
        config_of_night(federation, night),
    )
    return Placed(
        save_stage(federation, night, "placement", placement),
        tuple(
            JobRef(job.cohort_id, save_stage(federation, night, f"job-{job.cohort_id}", job))
            for job in placement.jobs
        ),
    )
