"""Publish finished cells of a comparison to MLflow."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from clma.simulation.cells import CellResult
from tasks import tracking
from tasks.night import IO_RETRIES
from tasks.publish_round import tracking_place

__all__ = ["find_published", "publish_cell"]


@task(cache_policy=NO_CACHE, **IO_RETRIES, task_run_name="find what MLflow has of {experiment}")
def find_published(experiment: str, tracking_uri: str | None = None) -> frozenset[str]:
    """Return the identities of the cells that MLflow has already."""
    return tracking.published_cells(tracking_place(tracking_uri), experiment)


@task(cache_policy=NO_CACHE, **IO_RETRIES, task_run_name="publish {result.cell.shown}")
def publish_cell(
    experiment: str, identity: str, result: CellResult, tracking_uri: str | None = None
) -> str:
    """Publish one cell as a run of its own; return the run's id."""
    return tracking.publish_cell(tracking_place(tracking_uri), experiment, identity, result)
