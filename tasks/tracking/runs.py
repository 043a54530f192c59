"""Runs that can be written twice: found by tag, continued where an earlier attempt stopped.

A run's key is a tag, and MLflow has no unique tag: one federation has one publisher at a time
(`tasks.tracking.publisher`), and the threads of that publisher are kept apart here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NOTE
from sqlalchemy.exc import SQLAlchemyError

from clma.errors import ConflictError
from clma.ledger.lease import hold_lease
from clma.ledger.store import Store
from tasks.mlflow_pages import ROUNDS_VIEW, rounds_view
from tasks.tracking.history import Times
from tasks.tracking.location import Tracking
from tasks.tracking.names import (
    TAG_FEDERATION,
    TAG_IDENTITY,
    TAG_KEY,
    TAG_NOT_FINITE,
    TAG_PUBLISHED,
)
from tasks.tracking.outage import is_outage
from tasks.tracking.summary import split_finite

__all__ = [
    "Experiment",
    "OpenRun",
    "RunSpec",
    "by_age",
    "claim_experiment",
    "ensure_run",
    "open_experiment",
    "open_run",
    "published_keys",
]

_LOCK = threading.Lock()
_WITH_TABLES: set[str] = set()
"""Databases that this process has used already."""
_BATCH = 100
"""Most params, metrics or tags that every MLflow store takes in one call."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One federation's experiment."""

    client: MlflowClient
    experiment_id: str
    federation: str


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run is found or made by.

    Parameters
    ----------
    key : str
        See `tasks.tracking.names.round_key`.
    name : str
        For people.
    times : Times
        Start and end that the run shows: those of the round, not of its publication.
    parent_run_id : str or None
        Run that this one is shown below.
    """

    key: str
    name: str
    times: Times
    parent_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that is being written.

    Parameters
    ----------
    experiment : Experiment
    run : Run
        As it was found, or new and empty.
    created : bool
        It is new.
    """

    experiment: Experiment
    run: Run
    created: bool

    @property
    def run_id(self) -> str:
        """MLflow's id."""
        return str(self.run.info.run_id)

    @property
    def complete(self) -> bool:
        """Tell whether an earlier attempt wrote everything."""
        return TAG_PUBLISHED in self.run.data.tags

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set the tags that are missing or other than before."""
        have = self.run.data.tags
        new = [RunTag(key, value) for key, value in tags.items() if have.get(key) != value]
        for start in range(0, len(new), _BATCH):
            self._client.log_batch(self.run_id, tags=new[start : start + _BATCH])

    def set_note(self, text: str) -> None:
        """Set the description that MLflow shows above a run, as Markdown."""
        self.set_tags({MLFLOW_RUN_NOTE: text})

    def log_params(self, params: Mapping[str, str]) -> None:
        """Log the params that the run lacks; MLflow lets none be changed."""
        have = self.run.data.params
        new = [Param(key, value) for key, value in params.items() if key not in have]
        for start in range(0, len(new), _BATCH):
            self._client.log_batch(self.run_id, params=new[start : start + _BATCH])

    def log_metrics(self, metrics: Mapping[str, float], *, step: int, at: int) -> None:
        """Log finite metrics once; the others go to a tag, so that no search finds them.

        Parameters
        ----------
        metrics : mapping of name to value
        step : int
            The round.
        at : int
            Milliseconds since 1970.
        """
        finite, not_finite = split_finite(metrics)
        have = self.run.data.metrics
        new = [Metric(k, v, at, step) for k, v in finite.items() if have.get(k) != v]
        for start in range(0, len(new), _BATCH):
            self._client.log_batch(self.run_id, metrics=new[start : start + _BATCH])
        if not_finite:
            listed = ", ".join(not_finite)
            self.set_tags({TAG_NOT_FINITE: f"{len(not_finite)}: {listed}"[:1000]})

    @property
    def _client(self) -> MlflowClient:
        return self.experiment.client


def open_experiment(tracking: Tracking, federation: str, *, view: str | None = None) -> Experiment:
    """Find or make a federation's experiment.

    Parameters
    ----------
    tracking : Tracking
    federation : str
        Its name is the experiment's.
    view : str, optional
        Which columns of its runs MLflow shows; default: those of rounds.
    """
    view = view or rounds_view()
    with _LOCK:
        with _one_who_makes_tables(tracking):
            client = MlflowClient(tracking_uri=tracking.uri, registry_uri=tracking.uri)
            found = client.get_experiment_by_name(federation)
        if found is None:
            made = _create_experiment(client, tracking, federation, view)
            return Experiment(client, made, federation)
        if found.lifecycle_stage == "deleted":
            # Its name stays taken, so a night could never be published again.
            client.restore_experiment(found.experiment_id)
        if ROUNDS_VIEW not in found.tags:
            client.set_experiment_tag(found.experiment_id, ROUNDS_VIEW, view)
        return Experiment(client, str(found.experiment_id), federation)


@contextmanager
def _one_who_makes_tables(tracking: Tracking) -> Iterator[None]:
    """Keep processes apart whose first client of a new database makes its tables."""
    folder = tracking.folder
    try:
        if folder is None or tracking.uri in _WITH_TABLES:
            yield
        else:
            with hold_lease(Store.open(folder), "mlflow-tables"):
                yield
    except SQLAlchemyError as error:
        first_line = str(error).partition("\n")[0]
        raise MlflowException(
            f"{tracking.uri} cannot be opened: {first_line}", TEMPORARILY_UNAVAILABLE
        ) from error
    _WITH_TABLES.add(tracking.uri)


def claim_experiment(experiment: Experiment, identity: str) -> None:
    """Make sure that an experiment holds the runs of one federation only.

    Parameters
    ----------
    experiment : Experiment
    identity : str
        Of the federation, see `FederationHistory.identity`.

    Raises
    ------
    ConflictError
        If it holds those of another federation of the same name, for instance of one that was
        removed and made anew.
    """
    client, known = experiment.client, experiment.client.get_experiment(experiment.experiment_id)
    owner = known.tags.get(TAG_IDENTITY)
    if owner is None:
        client.set_experiment_tag(experiment.experiment_id, TAG_IDENTITY, identity)
    elif owner != identity:
        raise ConflictError(
            f"MLflow experiment {experiment.federation!r} holds another federation of that name "
            f"({owner[:12]}, this one is {identity[:12]}): rename the experiment in MLflow, "
            "or publish to another --tracking-uri"
        )


def _create_experiment(client: MlflowClient, tracking: Tracking, federation: str, view: str) -> str:
    place = None if tracking.artifacts is None else f"{tracking.artifacts}/{federation}"
    tags = {TAG_FEDERATION: federation, ROUNDS_VIEW: view}
    try:
        return str(client.create_experiment(federation, place, tags))
    except MlflowException as error:
        found = client.get_experiment_by_name(federation)
        # Another process may have been first.
        if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
            raise
        return str(found.experiment_id)


@contextmanager
def open_run(experiment: Experiment, spec: RunSpec, tags: Mapping[str, str]) -> Iterator[OpenRun]:
    """Continue a run, or start it; it ends as finished, or as failed after an error."""
    opened = ensure_run(experiment, spec)
    client = experiment.client
    try:
        # The run it was shown below may have been deleted and made anew.
        above = {MLFLOW_PARENT_RUN_ID: spec.parent_run_id} if spec.parent_run_id else {}
        opened.set_tags({**tags, **above})
        yield opened
    except BaseException as error:
        # Who does not answer would have to be waited for once more.
        if not is_outage(error):
            client.set_terminated(opened.run_id, "FAILED")
        raise
    opened.set_tags({TAG_PUBLISHED: "true"})
    if opened.run.info.status != "FINISHED":
        client.set_terminated(opened.run_id, "FINISHED", end_time=spec.times.committed)


def published_keys(experiment: Experiment) -> frozenset[str]:
    """Return the keys of the runs that are complete."""
    keys: set[str] = set()
    token: str | None = None
    while True:
        page = experiment.client.search_runs(
            [experiment.experiment_id],
            f"tags.`{TAG_PUBLISHED}` = 'true'",
            max_results=1000,
            page_token=token,
        )
        keys |= {run.data.tags[TAG_KEY] for run in page if TAG_KEY in run.data.tags}
        token = page.token
        if not token:
            return frozenset(keys)


def by_age(run: Run) -> tuple[int, str]:
    """Return what decides which of several runs of one key a publisher goes on with."""
    return run.info.start_time, run.info.run_id


def ensure_run(experiment: Experiment, spec: RunSpec) -> OpenRun:
    """Find a run or make it; it stays as it is until it is opened."""
    with _LOCK:
        client = experiment.client
        found = client.search_runs([experiment.experiment_id], f"tags.`{TAG_KEY}` = '{spec.key}'")
        if found:
            return OpenRun(experiment, min(found, key=by_age), created=False)
        tags = {TAG_KEY: spec.key, TAG_FEDERATION: experiment.federation}
        if spec.parent_run_id is not None:
            tags[MLFLOW_PARENT_RUN_ID] = spec.parent_run_id
        run = client.create_run(experiment.experiment_id, spec.times.sealed, tags, spec.name)
        return OpenRun(experiment, run, created=True)
