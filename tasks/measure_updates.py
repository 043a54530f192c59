"""Measure how far the clients of a shard moved."""

from __future__ import annotations

from prefect import task

import clma.round as steps
from clma.decision import Measurement
from tasks.night import (
    CACHED,
    IO_RETRIES,
    Night,
    Shard,
    config_of_night,
    open_federation,
    sealed_inputs,
)

__all__ = ["measure_updates"]


@task(**CACHED, **IO_RETRIES, task_run_name="measure clients {shard.start} to {shard.stop}")
def measure_updates(shard: Shard, night: Night) -> tuple[Measurement, ...]:
    """Return one measurement a client of the shard."""
    federation = open_federation(night)
    _, sealed = sealed_inputs(federation, night)
    updates = sealed.updates[shard.start : shard.stop]
    return steps.measure_updates(
        updates, federation.open_tensors, config_of_night(federation, night)
    )
