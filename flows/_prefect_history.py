"""What Prefect keeps of a federation's nights, and how it is deleted.

Logs and accounts of nights name clients, and so do the results that tasks keep for a retry. A flow
run takes its task runs with it; its artifacts and, some time later, its logs go by themselves only
if somebody sees to it.

Imports prefect: its settings have to stand before.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings

from clma.errors import ClmaError, ConflictError
from clma.ledger.federation import Federation
from flows._mentions import mention_of

__all__ = [
    "PrefectHistory",
    "delete_results",
    "delete_runs",
    "history_of",
    "refuse_runs_in_flight",
    "results_naming",
]

_PAGE = 200
_BATCH = 50
_LOGS_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class PrefectHistory:
    """The flow runs of a federation that were started.

    Parameters
    ----------
    ended, in_flight : tuple of FlowRun
        Runs that wait for their schedule are in neither.
    """

    ended: tuple[FlowRun, ...]
    in_flight: tuple[FlowRun, ...]

    def before(self, at: dt.datetime) -> PrefectHistory:
        """Return those that may have seen a client that was forgotten then."""
        return PrefectHistory(
            tuple(run for run in self.ended if run.start_time is None or run.start_time <= at),
            tuple(run for run in self.in_flight if run.start_time and run.start_time <= at),
        )


def history_of(federation: Federation) -> PrefectHistory:
    """Read which flow runs have a federation's store and name among their parameters."""
    ended, in_flight = [], []
    with get_client(sync_client=True) as client:
        for run in _runs(client):
            if not _is_of(run, federation) or run.state_type is None:
                continue
            if run.state_type in TERMINAL_STATES:
                ended.append(run)
            elif run.state_type is not StateType.SCHEDULED or run.run_count > 0:
                in_flight.append(run)
    return PrefectHistory(tuple(ended), tuple(in_flight))


def refuse_runs_in_flight(history: PrefectHistory) -> None:
    """Raise ConflictError if a run has not ended: it would write down what is to be deleted."""
    if history.in_flight:
        run = history.in_flight[0]
        state = "unknown" if run.state is None else run.state.name
        raise ConflictError(
            f"flow run {run.name!r} is {state}: wait until it has ended, then forget again (if its "
            f"process is gone: python -m deployments.mark_crashed {run.id})"
        )


def delete_runs(runs: Sequence[FlowRun]) -> None:
    """Delete flow runs with their task runs, artifacts and logs.

    Raises
    ------
    ClmaError
        If the server still has their logs after a minute.
    """
    with get_client(sync_client=True) as client:
        for start in range(0, len(runs), _BATCH):
            ids = [run.id for run in runs[start : start + _BATCH]]
            _delete_artifacts(client, ids)
            for run_id in ids:
                try:
                    client.delete_flow_run(run_id)
                except ObjectNotFound:
                    continue
            _wait_for_logs(client, ids)


def results_naming(client_id: str) -> tuple[Path, ...]:
    """Return the kept results of tasks, on this machine, that name a client."""
    folder = get_current_settings().results.local_storage_path
    mention = re.compile(mention_of(client_id).encode())
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(path for path in files if mention.search(path.read_bytes()))


def delete_results(paths: Sequence[Path]) -> None:
    """Delete kept results: a retry that would have used one executes the task again."""
    for path in paths:
        path.unlink(missing_ok=True)


def _runs(client: SyncPrefectClient) -> Iterator[FlowRun]:
    offset = 0
    while True:
        page = client.read_flow_runs(
            sort=FlowRunSort.EXPECTED_START_TIME_ASC, limit=_PAGE, offset=offset
        )
        yield from page
        offset += len(page)
        if len(page) < _PAGE:
            return


def _is_of(run: FlowRun, federation: Federation) -> bool:
    store, name = run.parameters.get("store"), run.parameters.get("federation")
    if name != federation.name or not isinstance(store, str):
        return False
    folder = federation.store.folder
    return store == federation.store.url or (
        folder is not None and Path(store).resolve() == folder.resolve()
    )


def _delete_artifacts(client: SyncPrefectClient, run_ids: list[UUID]) -> None:
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=run_ids))
    while True:
        found = client.read_artifacts(artifact_filter=wanted, limit=_PAGE)
        # Oldest first: deleting the newest puts the one before it on show.
        for artifact in sorted(found, key=lambda a: str(a.created)):
            client.delete_artifact(artifact.id)
        if len(found) < _PAGE:
            return


def _wait_for_logs(client: SyncPrefectClient, run_ids: list[UUID]) -> None:
    """Wait until the server, which deletes logs in the background, has done so."""
    wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=run_ids))
    end = time.monotonic() + _LOGS_TIMEOUT_S
    while client.read_logs(wanted, limit=1):
        if time.monotonic() > end:
            raise ClmaError(
                f"Prefect still has logs of deleted flow runs after {_LOGS_TIMEOUT_S:.0f} s: see "
                "that its server runs its background services"
            )
        time.sleep(0.3)
