"""Say before a night whether the store will do: rights, links, syncs, room, inodes, memory, clock.

Cheap, so that every night can ask: one probe is written, linked and synced, the rest is looked up.
What an object store has no word for (room, inodes) is left out there.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clma.errors import ConflictError, MissingObjectError, StorageError
from clma.ledger.federation import Federation
from clma.ledger.refusals import readable_size
from clma.records import ROOT_COHORT, ClientStatus, CohortStatus, FederationState, model_ref

__all__ = ["Finding", "Health", "NightNeed", "check_store", "need_of_night", "refuse_impossible"]

_FLOOR_BYTES = 16 * 2**20
"""Tables, entries, stages, and what MLflow and Prefect write of a night beside them."""

_LEAST_BYTES = 64 * 2**10
"""Without this much not even the tables and the entry of a round are written."""

_ROUND_FILES = 64
"""Files of a round besides models and updates, with the folders of the next one."""

_MARGIN = 1.1

_MAX_SKEW = dt.timedelta(minutes=2)

_IN_MEMORY = {"tmpfs", "ramfs"}


class Health(StrEnum):
    """How a check came out; a night that meets `refused` cannot be written."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Parameters
    ----------
    check : str
        ``write``, ``room``, ``inodes``, ``memory`` or ``clock``.
    health : Health
    detail : str
        One line; where all is not well, with what helps.
    """

    check: str
    health: Health
    detail: str


@dataclass(frozen=True, slots=True)
class NightNeed:
    """What a night writes.

    Parameters
    ----------
    n_bytes : int
        An update of every active client, a model of every active cohort and one more, a tenth on
        top, and a floor.
    least_bytes : int
        One model: with less no round can be committed.
    n_files : int
    """

    n_bytes: int
    least_bytes: int
    n_files: int


def need_of_night(state: FederationState, model_bytes: int) -> NightNeed:
    """Return what the next night writes.

    Parameters
    ----------
    state : FederationState
    model_bytes : int
        Size of one model's file.
    """
    away = {ClientStatus.PAUSED, ClientStatus.FORGOTTEN}
    n_clients = sum(c.status not in away for c in state.clients.values())
    n_models = 1 + sum(c.status is CohortStatus.ACTIVE for c in state.cohorts.values())
    n_bytes = math.ceil((n_clients + n_models) * model_bytes * _MARGIN) + _FLOOR_BYTES
    # Each plant has a folder of its own with a message and tensors.
    n_files = 3 * n_clients + n_models + _ROUND_FILES
    return NightNeed(n_bytes, model_bytes + _LEAST_BYTES, n_files)


def check_store(federation: Federation, *, now: dt.datetime) -> tuple[Finding, ...]:
    """Check the place where a federation lies; nothing of the federation is changed.

    Parameters
    ----------
    federation : Federation
    now : datetime
        With a zone; this machine's clock.

    Returns
    -------
    tuple of Finding
        One for each check that the place has an answer to, the good ones too.
    """
    state, folder = federation.state(), federation.store.folder
    findings = list(_check_writing(federation, now))
    if folder is not None:
        digest = state.cohorts[ROOT_COHORT].model_digest
        size = federation.store.info(model_ref(digest).path).size_bytes
        findings += _check_room(folder, need_of_night(state, size))
    findings += _check_memory(federation.store.url, folder)
    return (*findings, _check_entries(federation, now))


def refuse_impossible(findings: Iterable[Finding]) -> None:
    """Refuse a night that cannot be written whatever its updates are.

    Raises
    ------
    StorageError
        With the first reason.
    """
    for finding in findings:
        if finding.health is Health.REFUSED:
            raise StorageError(f"this night cannot be written: {finding.detail}")


def _check_writing(federation: Federation, now: dt.datetime) -> Iterator[Finding]:
    try:
        written_at = federation.store.probe()
    except (StorageError, ConflictError, MissingObjectError) as error:
        yield Finding("write", Health.REFUSED, str(error))
        return
    yield Finding("write", Health.OK, "a probe was written, named once and synced")
    if (skew := abs(now - written_at)) > _MAX_SKEW:
        yield Finding(
            "clock",
            Health.WARNING,
            f"this machine and the store differ by {skew.total_seconds():.0f} s; deadlines go by "
            "this machine: set its clock (NTP)",
        )


def _check_room(folder: Path, need: NightNeed) -> Iterator[Finding]:
    n_free = shutil.disk_usage(folder).free
    detail = f"{readable_size(n_free)} are free, a night takes up to {readable_size(need.n_bytes)}"
    health = Health.OK
    if n_free < need.n_bytes:
        health = Health.REFUSED if n_free < need.least_bytes else Health.WARNING
        detail += f"; free at least {readable_size(need.n_bytes - n_free)} in {folder}"
    yield Finding("room", health, detail)
    if not hasattr(os, "statvfs"):
        return
    status = os.statvfs(folder)
    if status.f_files == 0:  # the file system makes inodes as it needs them
        return
    detail = f"{status.f_favail} inodes are free, a night takes up to {need.n_files}"
    health = Health.OK
    if status.f_favail < need.n_files:
        health = Health.WARNING if status.f_favail else Health.REFUSED
        detail += f"; delete files on the disk of {folder}"
    yield Finding("inodes", health, detail)


def _check_memory(url: str, folder: Path | None) -> Iterator[Finding]:
    if folder is None:
        if url.startswith("memory:"):
            yield Finding("memory", Health.WARNING, f"{url} is gone when this process ends")
        return
    kind = _file_system(folder)
    if kind in _IN_MEMORY:
        yield Finding(
            "memory",
            Health.WARNING,
            f"{folder} lies in memory ({kind}): nothing of it survives a restart; use a disk",
        )
    elif kind:
        yield Finding("memory", Health.OK, f"the store lies on {kind}")


def _file_system(folder: Path) -> str | None:
    """Return the type of a folder's file system, where the system (Linux) tells."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}" if hasattr(os, "major") else ""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2:3] == [wanted]:
            return right.split()[0]
    return None


def _check_entries(federation: Federation, now: dt.datetime) -> Finding:
    newest = federation.journal.newest_entry()
    if newest.at - now > _MAX_SKEW:
        return Finding(
            "clock",
            Health.WARNING,
            f"it is {now:%F %R} here, and the newest entry was written at {newest.at:%F %R} UTC: "
            "this machine's clock is behind, set it (NTP)",
        )
    return Finding("clock", Health.OK, "the clock is not behind the newest entry")
