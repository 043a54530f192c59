"""Project a committed round to MLflow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run

from clma.ledger.federation import Federation
from tasks import tracking
from tasks.mlflow_pages import run_page
from tasks.night import IO_RETRIES, PINNED_TO_RUN

__all__ = ["publish_cohort", "publish_round", "publishing", "tracking_place"]

MLFLOW_UI = "http://127.0.0.1:5000"
"""Where `make ui` shows a local database; a tracking server is shown at its own address."""


def tracking_place(uri: str | None) -> tracking.Tracking:
    """Return where to track: as told, else as ``MLFLOW_TRACKING_URI`` says, else in the project."""
    return tracking.resolve_tracking(tracking.ROOT, tracking.wanted_tracking(uri).uri)


def _this_run() -> tracking.PrefectRun:
    return tracking.PrefectRun(flow_run.get_id() or "", flow_run.get_flow_run_ui_url())


def _artifact_key(federation: str) -> str:
    """Return what all accounts of a federation are found by; Prefect allows few characters."""
    return re.sub("[^a-z0-9]+", "-", f"{federation}-rounds".lower()).strip("-")


@contextmanager
def publishing(store: str, federation: str) -> Iterator[None]:
    """Be the federation's only publisher while the context lasts; wait for another one.

    Raises
    ------
    LeaseError
        If it takes the other one too long; says who it is.
    """
    opened = Federation.open(store, federation)
    with tracking.one_publisher(opened, on_wait=get_run_logger().warning):
        yield


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="publish {cohort_id} of round {round_num}")
def publish_cohort(
    store: str, federation: str, round_num: int, cohort_id: str, tracking_uri: str | None = None
) -> None:
    """Publish a cohort's run and, where its model is new, a version with the alias champion."""
    tracking.publish_cohort(
        Federation.open(store, federation),
        round_num,
        cohort_id,
        tracking_place(tracking_uri),
        prefect=_this_run(),
    )


@task(**PINNED_TO_RUN, **IO_RETRIES, task_run_name="publish round {round_num}")
def publish_round(
    store: str, federation: str, round_num: int, tracking_uri: str | None = None
) -> None:
    """Publish the round's own run: settings, metrics, tables, figures, links both ways.

    The account of the night is shown in Prefect too: the operator on call looks there first.
    """
    place = tracking_place(tracking_uri)
    published = tracking.publish_round(
        Federation.open(store, federation), round_num, place, prefect=_this_run()
    )
    ui = place.uri.rstrip("/") if place.uri.startswith("http") else MLFLOW_UI
    link = run_page(ui, published.experiment_id, published.run_id)
    create_markdown_artifact(
        f"{published.note}\n\n[Round {round_num} in MLflow]({link})",
        key=_artifact_key(federation),
        description=f"{federation} round {round_num:03d}",
    )
    get_run_logger().info("published round %d as MLflow run %s", round_num, published.run_id)
