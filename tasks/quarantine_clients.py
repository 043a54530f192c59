"""Take the drifted clients out of their cohorts' means."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import get_run_logger, task

from clma.cohorting.units import cohorting_units
from clma.drift.quarantine import quarantine_clients as triage_clients
from clma.records import ArtifactRef
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    config_of_night,
    open_federation,
    save_stage,
    sealed_inputs,
)

__all__ = ["Quarantine", "UnitRef", "quarantine_clients"]


@dataclass(frozen=True, slots=True)
class UnitRef:
    """A cohorting unit, by reference."""

    unit_id: str
    unit: ArtifactRef


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Who votes and who does not, and the units to cohort, by reference."""

    triage: ArtifactRef
    units: tuple[UnitRef, ...]


@task(**CACHED, **IO_RETRIES, task_run_name="quarantine clients")
def quarantine_clients(night: Night) -> Quarantine:
    """Follow the drift flags and cut the quarantine into units that can be compared."""
    federation = open_federation(night)
    state, sealed = sealed_inputs(federation, night)
    triage = triage_clients(state, sealed, config_of_night(federation, night))
    log = get_run_logger()
    log.info("quarantined: %s", ", ".join(triage.quarantined) or "nobody")
    for client_id, note in triage.notes.items():
        log.info("%s: %s", client_id, note)
    return Quarantine(
        save_stage(federation, night, "triage", triage),
        tuple(
            UnitRef(unit.unit_id, save_stage(federation, night, f"unit-{unit.unit_id}", unit))
            for unit in cohorting_units(state, sealed, triage, config_of_night(federation, night))
        ),
    )
