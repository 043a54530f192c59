"""Find out which quarantined clients drifted alike."""

from __future__ import annotations

from prefect import get_run_logger, task

import clma.cohorting.form as cohorting
from clma.cohorting.contract import CohortingUnit
from clma.records import ArtifactRef
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    config_of_night,
    load_stage,
    open_federation,
    save_stage,
)
from tasks.quarantine_clients import UnitRef

__all__ = ["form_groups"]


@task(**CACHED, **IO_RETRIES, task_run_name="form groups of {unit.unit_id}")
def form_groups(unit: UnitRef, night: Night) -> ArtifactRef:
    """Group the clients of one unit; return the grouping with its evidence, by reference."""
    federation = open_federation(night)
    members = load_stage(federation, unit.unit, CohortingUnit)
    grouping = cohorting.form_groups(
        members, federation.open_tensors, config_of_night(federation, night).cohorting
    )
    log = get_run_logger()
    for group in grouping.groups:
        target = group.recall_cohort or "a new cohort"
        log.info("%s: %s to %s", unit.unit_id, ", ".join(group.members), target)
    return save_stage(federation, night, f"groups-{unit.unit_id}", grouping)
