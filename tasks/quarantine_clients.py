"""Take the drifted clients out of their cohorts' means."""

from __future__ import annotations

import os
from dataclasses import dataclass

from prefect import get_run_logger, task

from clma.cohorting.methods import triage_clients
from clma.cohorting.units import cohorting_units
from clma.errors import InvalidConfigError
from clma.records import ROOT_COHORT, ArtifactRef, model_ref
from clma.round import columns_of
from clma.sweep.columns import MAX_STRIPES
from clma.sweep.plan import Shard, number_of_shards, plan_sweep, shards
from tasks.brief_log import log_lines, named
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    config_of_night,
    open_federation,
    save_stage,
    sealed_inputs,
)

__all__ = ["VARIABLE", "Quarantine", "UnitRef", "quarantine_clients"]

VARIABLE = "CLMA_SHARDS"
"""Overrides the number of shards; the bytes of a night do not depend on it."""


@dataclass(frozen=True, slots=True)
class UnitRef:
    """A cohorting unit, by reference."""

    unit_id: str
    unit: ArtifactRef


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Who votes and who does not, and the units to cohort, by reference.

    Parameters
    ----------
    triage : ArtifactRef
    units : tuple of UnitRef
    shards : tuple of Shard
        Into which the pass over the round's files is divided.
    """

    triage: ArtifactRef
    units: tuple[UnitRef, ...]
    shards: tuple[Shard, ...]


@task(**CACHED, **IO_RETRIES, task_run_name="quarantine clients")
def quarantine_clients(night: Night) -> Quarantine:
    """Follow the drift flags and cut the quarantine into units that can be compared."""
    federation = open_federation(night)
    state, sealed = sealed_inputs(federation, night)
    config = config_of_night(federation, night)
    triage = triage_clients(state, sealed, config)
    units = cohorting_units(state, sealed, triage, config)
    columns = columns_of(
        model_ref(state.cohorts[ROOT_COHORT].model_digest), federation.open_tensors, config
    )
    plan = plan_sweep(sealed, triage, units, config)
    log = get_run_logger()
    log.info("quarantined: %s", named(triage.quarantined))
    log_lines(log.info, (f"{client}: {note}" for client, note in triage.notes.items()), "drift")
    return Quarantine(
        save_stage(federation, night, "triage", triage),
        tuple(
            UnitRef(unit.unit_id, save_stage(federation, night, f"unit-{unit.unit_id}", unit))
            for unit in units
        ),
        shards(chosen_number() or number_of_shards(plan, columns)),
    )


def chosen_number() -> int | None:
    """Return the number of shards that ``CLMA_SHARDS`` asks for, None where it is not set.

    Raises
    ------
    InvalidConfigError
        If it is no number of shards.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MAX_STRIPES:
        raise InvalidConfigError(f"{VARIABLE} is {text!r}, wanted a number from 1 to {MAX_STRIPES}")
    return int(text)
