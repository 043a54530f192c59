"""Measure a recorded round again, and keep what it came to."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from clma.calibration.measure import sweep_night
from clma.cohorting.contract import CohortingUnit
from clma.config import FederationConfig
from clma.ledger.federation import Federation
from tasks.kept_nights import KeptNights
from tasks.night import IO_RETRIES

__all__ = ["measure_night"]


# Measured nights are files of the calibration and not results of Prefect's: they outlive its
# database, and whoever deletes one has it measured again.
@task(cache_policy=NO_CACHE, **IO_RETRIES, task_run_name="measure round {round_num}")
def measure_night(
    round_num: int,  # noqa: ARG001 - names the run
    federation: Federation,
    units: tuple[CohortingUnit, ...],
    config: FederationConfig,
    kept: KeptNights,
) -> None:
    """Read the weights of a round; nothing is written but the file of `kept`."""
    kept.save(units, config, sweep_night(federation, units, config))
