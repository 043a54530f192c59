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
    """What was missing in MLflow or other than the ledger says, and is not any more."""

    n_rounds: int
    runs_created: int
    versions_created: int
    mended: int = 0
    forgotten: int = 0


@task(**IO_RETRIES, task_run_name="rebuild {federation} in MLflow")
def rebuild_tracking(
    store: str, federation: str, tracking_uri: str | None = None, repair: bool = False
) -> Rebuilt:
    """Publish what the ledger holds and MLflow does not; `repair` what is other, too."""
    log = get_run_logger()
    report = tracking.rebuild(
        Federation.open(store, federation),
        tracking_place(tracking_uri),
        repair=repair,
        on_progress=log.info,
    )
    log.info(
        "%d rounds: %d runs and %d versions created, %d and %d were there",
        len(report.rounds),
        report.runs_created,
        report.versions_created,
        report.runs_reused,
        report.versions_reused,
    )
    return Rebuilt(
        len(report.rounds),
        report.runs_created,
        report.versions_created,
        report.mended,
        report.forgotten,
    )
