"""Write again or remove what MLflow shows and the ledger does not say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion

from tasks.tracking.artifact_folder import ArtifactFolder
from tasks.tracking.compare import findings
from tasks.tracking.findings import Look, Trouble
from tasks.tracking.inventory import take_inventory
from tasks.tracking.models import disown_version, remove_version
from tasks.tracking.names import TAG_PUBLISHED
from tasks.tracking.publish import Night

__all__ = ["begin_repair", "look_at", "remove_versions", "write_again"]

_REMOVED = frozenset({Trouble.RUN_TWICE, Trouble.RUN_UNKNOWN})
_REPLACED = frozenset({Trouble.WEIGHTS_CHANGED, Trouble.MODEL_DELETED})


def look_at(night: Night) -> Look:
    """Read what is there now."""
    inventory = take_inventory(night.experiment.client, night.tracking, night.federation.name)
    assert inventory is not None  # noqa: S101 - the night has just opened it
    return Look(night.federation, night.history, inventory, night.tracking)


def begin_repair(
    night: Night, on_progress: Callable[[str], None]
) -> tuple[int, tuple[ModelVersion, ...]]:
    """Prepare that a publication mends what is other than the ledger says.

    Returns
    -------
    int, tuple of ModelVersion
        How many things those are, and the versions to remove after the publication: readers of an
        alias find a version all the time.
    """
    on_progress("looking for what is other than the ledger says")
    found = [f for f in findings(look_at(night)) if f.trouble.needs_repair]
    for finding in found:
        night.lease.check()
        for run in finding.runs:
            if finding.trouble in _REMOVED:
                night.experiment.client.delete_run(run.info.run_id)
            else:
                write_again(night, run)
        if finding.trouble in _REPLACED:
            for version in finding.versions:
                disown_version(night.experiment, version)
    return len(found), tuple(version for f in found for version in f.versions)


def write_again(night: Night, run: Run) -> None:
    """Make a run one that was not published to its end."""
    if TAG_PUBLISHED in run.data.tags:
        night.experiment.client.delete_tag(run.info.run_id, TAG_PUBLISHED)


def remove_versions(night: Night, versions: Iterable[ModelVersion]) -> None:
    """Delete versions, and the files that no other version is made of."""
    unwanted = {(v.name, str(v.version)): v for v in versions}
    if not unwanted:
        return
    inventory = look_at(night).inventory
    kept = {str(v.source) for v in inventory.versions if (v.name, str(v.version)) not in unwanted}
    # Anybody can register a version that is made of any folder.
    ours = re.compile(re.escape(inventory.artifacts.rstrip("/")) + r"/models/m-\w+/artifacts")
    for version in unwanted.values():
        night.lease.check()
        folder = ArtifactFolder(str(version.source), night.tracking)
        with_files = folder.uri not in kept and ours.fullmatch(folder.uri) is not None
        remove_version(night.experiment, version, folder, with_files=with_files)
