"""Make MLflow what the ledger says: publish what is missing, and mend what is other."""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from clma.ledger.federation import Federation
from tasks.tracking.artifact_folder import ArtifactFolder
from tasks.tracking.compare import findings, pending_forgettings
from tasks.tracking.compare_versions import unknown_versions
from tasks.tracking.findings import Look, Trouble
from tasks.tracking.inventory import take_inventory
from tasks.tracking.location import Tracking
from tasks.tracking.models import disown_version, remove_version
from tasks.tracking.names import TAG_COHORT, TAG_FORGOTTEN, TAG_KEY, TAG_PUBLISHED
from tasks.tracking.publish import Night, open_night, publish_rounds
from tasks.tracking.reports import PublishReport

__all__ = ["rebuild"]

_log = logging.getLogger(__name__)

_VACUUM_WAIT_S = 30.0

_REMOVED = frozenset({Trouble.RUN_TWICE, Trouble.RUN_UNKNOWN})


def rebuild(
    federation: Federation,
    tracking: Tracking,
    *,
    repair: bool = False,
    on_progress: Callable[[str], None] = _log.info,
) -> PublishReport:
    """Publish every committed round from the ledger; what is there is left as it is.

    What named a client that was forgotten since is written anew first, and models that were made
    again without it take the place of the old ones.

    Parameters
    ----------
    federation : Federation
    tracking : Tracking
    repair : bool
        Look at what is there, too: write again or remove what is other than the ledger says.
    on_progress : callable
        Told in one line what comes next.
    """
    with open_night(federation, tracking) as night:
        n_forgotten = _forget_clients(night, on_progress)
        mended, unwanted = _begin_repair(night, on_progress) if repair else (0, ())
        on_progress(f"publishing {len(night.history.rounds)} rounds")
        report = publish_rounds(night, night.history.rounds)
        _remove_versions(night, unwanted)
    return dataclasses.replace(report, mended=mended, forgotten=n_forgotten)


def _look(night: Night) -> Look:
    inventory = take_inventory(night.experiment.client, night.tracking, night.federation.name)
    assert inventory is not None  # noqa: S101 - the night has just opened it
    return Look(night.federation, night.history, inventory, night.tracking)


def _begin_repair(
    night: Night, on_progress: Callable[[str], None]
) -> tuple[int, tuple[ModelVersion, ...]]:
    """Prepare that a publication mends; return what is mended and the versions to remove after."""
    on_progress("looking for what is other than the ledger says")
    found = [f for f in findings(_look(night)) if f.trouble.needs_repair]
    for finding in found:
        night.lease.check()
        for run in finding.runs:
            if finding.trouble in _REMOVED:
                night.experiment.client.delete_run(run.info.run_id)
            else:
                _write_again(night, run)
        if finding.trouble in {Trouble.WEIGHTS_CHANGED, Trouble.MODEL_DELETED}:
            # Removed when its successor has the alias: readers find a version all the time.
            for version in finding.versions:
                disown_version(night.experiment, version)
    return len(found), tuple(version for f in found for version in f.versions)


def _forget_clients(night: Night, on_progress: Callable[[str], None]) -> int:
    """Carry over what forgetting clients changed; return how many clients that were.

    The experiment's tag is set when all is done, so that it is done again after a kill.
    """
    client, experiment_id = night.experiment.client, night.experiment.experiment_id
    pending = pending_forgettings(night.history, client.get_experiment(experiment_id).tags)
    if not pending:
        return 0
    rounds = sorted({r for f in night.history.forgettings if f.number in pending for r in f.rounds})
    on_progress(f"writing {len(rounds)} rounds again without {len(pending)} forgotten clients")
    look = _look(night)
    for run in _of_rounds(night, look.inventory.runs, rounds):
        _write_again(night, run)
        _delete_files(night, run)
    for run in _of_rounds(night, look.inventory.deleted_runs, rounds):
        _clean_deleted(night, run)
    publish_rounds(night, rounds)
    _remove_versions(night, unknown_versions(_look(night)))
    _drop_freed_pages(night.tracking)
    client.set_experiment_tag(experiment_id, TAG_FORGOTTEN, str(max(pending)))
    return len(pending)


def _of_rounds(night: Night, runs: Iterable[Run], rounds: Iterable[int]) -> list[Run]:
    wanted = {str(r) for r in rounds}
    prefix = f"{night.federation.name}/"
    return [
        r for r in runs if r.data.tags[TAG_KEY].removeprefix(prefix).partition("/")[0] in wanted
    ]


def _write_again(night: Night, run: Run) -> None:
    """Make a run one that was not published to its end."""
    if TAG_PUBLISHED in run.data.tags:
        night.experiment.client.delete_tag(run.info.run_id, TAG_PUBLISHED)


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


def _remove_versions(night: Night, versions: Iterable[ModelVersion]) -> None:
    unwanted = {(v.name, str(v.version)): v for v in versions}
    if not unwanted:
        return
    kept = {
        str(v.source)
        for v in _look(night).inventory.versions
        if (v.name, str(v.version)) not in unwanted
    }
    for version in unwanted.values():
        night.lease.check()
        folder = ArtifactFolder(str(version.source), night.tracking)
        remove_version(night.experiment, version, folder, with_files=folder.uri not in kept)


def _drop_freed_pages(tracking: Tracking) -> None:
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
