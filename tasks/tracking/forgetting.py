"""Carry over to MLflow what forgetting a client changed in the ledger."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing

from mlflow.entities import Run
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from tasks.tracking.artifact_folder import ArtifactFolder
from tasks.tracking.compare import pending_forgettings
from tasks.tracking.compare_versions import unknown_versions
from tasks.tracking.location import Tracking
from tasks.tracking.mending import look_at, remove_versions, write_again
from tasks.tracking.names import TAG_COHORT, TAG_FORGOTTEN, TAG_KEY
from tasks.tracking.publish import Night, publish_rounds

__all__ = ["drop_freed_text", "forget_clients"]

_log = logging.getLogger(__name__)

_VACUUM_WAIT_S = 30.0


def forget_clients(night: Night, on_progress: Callable[[str], None]) -> int:
    """Carry over what forgetting clients changed; return how many clients that were.

    The experiment's tag is set when all is done, so that it is done again after a kill.
    """
    client, experiment_id = night.experiment.client, night.experiment.experiment_id
    pending = pending_forgettings(night.history, client.get_experiment(experiment_id).tags)
    if not pending:
        return 0
    rounds = sorted({r for f in night.history.forgettings if f.number in pending for r in f.rounds})
    on_progress(f"{len(pending)} forgotten: writing {len(rounds)} rounds again without")
    look = look_at(night)
    for run in _of_rounds(night, look.inventory.runs, rounds):
        write_again(night, run)
        _delete_files(night, run)
    for run in _of_rounds(night, look.inventory.deleted_runs, rounds):
        _clean_deleted(night, run)
    publish_rounds(night, rounds)
    remove_versions(night, unknown_versions(look_at(night)))
    drop_freed_text(night.tracking)
    client.set_experiment_tag(experiment_id, TAG_FORGOTTEN, str(max(pending)))
    return len(pending)


def _of_rounds(night: Night, runs: Iterable[Run], rounds: Iterable[int]) -> list[Run]:
    wanted = {str(r) for r in rounds}
    prefix = f"{night.federation.name}/"
    return [
        r for r in runs if r.data.tags[TAG_KEY].removeprefix(prefix).partition("/")[0] in wanted
    ]


def _delete_files(night: Night, run: Run) -> None:
    # A cohort's run has no files of its own.
    if TAG_COHORT not in run.data.tags:
        night.lease.check()
        ArtifactFolder(str(run.info.artifact_uri), night.tracking).delete()


def _clean_deleted(night: Night, run: Run) -> None:
    """Take out of a deleted run, which MLflow keeps until mlflow gc, what may name a client."""
    client = night.experiment.client
    client.restore_run(run.info.run_id)
    client.set_tag(run.info.run_id, MLFLOW_RUN_NOTE, "")
    _delete_files(night, run)
    client.delete_run(run.info.run_id)


def drop_freed_text(tracking: Tracking) -> None:
    """Make a local database forget the text that was written over."""
    if tracking.database is None:
        return
    try:
        with closing(sqlite3.connect(tracking.database, timeout=_VACUUM_WAIT_S)) as database:
            database.execute("VACUUM")
    except sqlite3.Error as error:
        _log.warning(
            "%s keeps text that was written over (%s): run VACUUM on it", tracking.uri, error
        )
