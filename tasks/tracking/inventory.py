"""What MLflow holds of a federation, read page by page and without changing anything.

Opening an experiment to publish makes what is missing and restores what was deleted; whoever only
compares must not.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Run, ViewType
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList
from sqlalchemy.exc import SQLAlchemyError

from clma.errors import InvalidConfigError
from tasks.tracking.location import Tracking
from tasks.tracking.names import TAG_FEDERATION, TAG_KEY, registered_model_name, split_model_name
from tasks.tracking.outage import TrackingAwayError, outages_in_one_line

__all__ = ["Inventory", "open_client", "take_inventory"]

_PAGE = 1000
"""Most runs, models or versions that every MLflow store returns in one call."""

_LOGGED_PAGE = 50
"""Most logged models that a tracking server returns in one call."""

_CONNECT_S = 10.0
"""For a database server: MLflow's own client tries for minutes before it says so."""

_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is there under a federation's name.

    Parameters
    ----------
    client : MlflowClient
    experiment_id : str
    artifacts : str
        Below this place MLflow keeps the files of the experiment's runs and models.
    is_deleted : bool
        The experiment was deleted in MLflow, and can be restored.
    tags : mapping of name to value
        Of the experiment.
    runs, deleted_runs : tuple of Run
        Those that have a key, with all that was logged; `deleted_runs` until MLflow collects them.
    versions : tuple of ModelVersion
        Of all cohorts' registered models.
    aliases : mapping of registered model to mapping of alias to version
    logged_models : mapping of artifact location to LoggedModel
        Without deleted ones.
    """

    client: MlflowClient
    experiment_id: str
    artifacts: str
    is_deleted: bool
    tags: Mapping[str, str]
    runs: tuple[Run, ...] = ()
    deleted_runs: tuple[Run, ...] = ()
    versions: tuple[ModelVersion, ...] = ()
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    logged_models: Mapping[str, LoggedModel] = field(default_factory=dict)


def open_client(tracking: Tracking) -> MlflowClient | None:
    """Return a client of a store that is there; None where a local one was never made.

    Raises
    ------
    TrackingAwayError
        If it does not answer.
    """
    if tracking.database is not None and not tracking.database.exists():
        return None
    _check_reachable(tracking)
    try:
        return MlflowClient(tracking_uri=tracking.uri, registry_uri=tracking.uri)
    except (SQLAlchemyError, MlflowException, ImportError) as error:
        first_line = str(error).partition("\n")[0]
        raise TrackingAwayError(
            f"MLflow's store {tracking.shown} cannot be opened: {first_line}"
        ) from error


def take_inventory(client: MlflowClient, tracking: Tracking, federation: str) -> Inventory | None:
    """Read what a store holds of a federation; None if there is no such experiment.

    Raises
    ------
    TrackingAwayError
        If the store does not answer.
    """
    try:
        with outages_in_one_line(tracking):
            return _take(client, federation)
    except SQLAlchemyError as error:
        first_line = str(error).partition("\n")[0]
        raise TrackingAwayError(
            f"MLflow's store {tracking.shown} cannot be read: {first_line}"
        ) from error


def _take(client: MlflowClient, federation: str) -> Inventory | None:
    found = client.get_experiment_by_name(federation)
    if found is None:
        return None
    experiment_id = str(found.experiment_id)
    is_deleted = found.lifecycle_stage == "deleted"
    models = {
        model.name: {alias: str(version) for alias, version in model.aliases.items()}
        for model in _pages(
            lambda token: client.search_registered_models(
                f"name LIKE '{_prefix(federation)}%'", _PAGE, page_token=token
            )
        )
        if _is_of(model.name, federation)
    }
    versions = _pages(
        lambda token: client.search_model_versions(
            f"tags.`{TAG_FEDERATION}` = '{federation}'", _PAGE, page_token=token
        )
    )
    logged = _pages(
        lambda token: client.search_logged_models(
            [experiment_id], max_results=_LOGGED_PAGE, page_token=token
        )
    )
    return Inventory(
        client,
        experiment_id,
        str(found.artifact_location),
        is_deleted,
        dict(found.tags),
        runs=_runs(client, experiment_id, ViewType.ACTIVE_ONLY),
        deleted_runs=_runs(client, experiment_id, ViewType.DELETED_ONLY),
        versions=tuple(v for v in versions if v.name in models),
        aliases=models,
        logged_models={str(model.artifact_location): model for model in logged},
    )


def _runs(client: MlflowClient, experiment_id: str, view: int) -> tuple[Run, ...]:
    runs: Iterator[Run] = _pages(
        lambda token: client.search_runs(
            [experiment_id], run_view_type=view, max_results=_PAGE, page_token=token
        )
    )
    return tuple(run for run in runs if TAG_KEY in run.data.tags)


def _pages(fetch: Callable[[str | None], PagedList[Any]]) -> Iterator[Any]:
    token: str | None = None
    while True:
        page = fetch(token)
        yield from page
        token = page.token
        if not token:
            return


def _prefix(federation: str) -> str:
    return registered_model_name(federation, "c").removesuffix("c")


def _is_of(name: str, federation: str) -> bool:
    # The pattern's wildcards may be letters of another federation's name.
    try:
        return split_model_name(name)[0] == federation
    except InvalidConfigError:
        return False


def _check_reachable(tracking: Tracking) -> None:
    """Raise TrackingAwayError if nothing listens where a database server should."""
    parts = urlsplit(tracking.uri)
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidConfigError(f"tracking URI {tracking.shown!r}: {error}") from None
    port = port or _PORTS.get(parts.scheme.partition("+")[0])
    if parts.scheme.startswith("http") or port is None or parts.hostname is None:
        return
    try:
        socket.create_connection((parts.hostname, port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise TrackingAwayError(
            f"MLflow's store {tracking.shown} does not answer at {parts.hostname}:{port} ({error})"
        ) from error
