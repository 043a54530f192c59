"""Find out which quarantined clients drifted alike."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import get_run_logger, task

import clma.cohorting.form as cohorting
from clma.cohorting.contract import CohortingUnit
from clma.records import ArtifactRef
from clma.sweep.shard import unit_evidence
from tasks.brief_log import log_lines, named
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    config_of_night,
    load_stage,
    open_federation,
    save_stage,
)
from tasks.quarantine_clients import Quarantine, UnitRef
from tasks.sweep_updates import Swept, load_columns, load_sums

__all__ = ["form_groups"]


@task(**CACHED, **IO_RETRIES, task_run_name="form groups of {unit.unit_id}")
def form_groups(
    unit: UnitRef, night: Night, quarantine: Quarantine, swept: Sequence[Swept]
) -> ArtifactRef:
    """Group the clients of one unit; return the grouping with its evidence, by reference."""
    federation = open_federation(night)
    number = quarantine.units.index(unit)
    sums = [shard.units[number] for shard in load_sums(federation, swept)]
    members = load_stage(federation, unit.unit, CohortingUnit)
    config = config_of_night(federation, night).cohorting
    evidence = unit_evidence(members, sums, load_columns(federation, night), config)
    grouping = cohorting.form_groups(members, evidence, config)
    lines = (
        f"{unit.unit_id}: {named(group.members)} "
        + ("stay" if group.stays else f"to {group.recall_cohort or 'a new cohort'}")
        for group in grouping.groups
    )
    log_lines(get_run_logger().info, lines, "cohorting")
    return save_stage(federation, night, f"groups-{unit.unit_id}", grouping)
