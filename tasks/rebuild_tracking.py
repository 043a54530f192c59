"""Publish all committed rounds anew."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import get_run_logger, task

from clma.ledger.federation import Federation
from tasks import tracking
from tasks.night import IO_RETRIES
from tasks.publish_round import tracking_place

__all__ = ["Rebuilt", "rebuild_tracking"]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was missing in MLflow and is there now."""

    n_rounds: int
    runs_created: int
    versions_created: int


@task(**IO_RETRIES, task_run_name="rebuild {federation} in MLflow")
def rebuild_tracking(store: str, federation: str, tracking_uri: str | None = None) -> Rebuilt:
    """Publish what the ledger holds and MLflow does not."""
    report = tracking.rebuild(Federation.open(store, federation), tracking_place(tracking_uri))
    get_run_logger().info(
        "%d rounds: %d runs and %d versions created, %d and %d were there",
        len(report.rounds),
        report.runs_created,
        report.versions_created,
        report.runs_reused,
        report.versions_reused,
    )
    return Rebuilt(len(report.rounds), report.runs_created, report.versions_created)
