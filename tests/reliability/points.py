"""Where a night can die: every durable step of it has a name, and one of them can be chosen.

A name is ``<task>: <step>``, with `` #n`` for the n-th time. The steps are found by standing around
what is written, not by a list: every file of the federation folder (half staged, staged, named,
synced), every result that Prefect keeps, every call that changes MLflow and every commit of its
database within that call, and the body of every task.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from mlflow import MlflowClient
from prefect.results import ResultStore
from sqlalchemy import event
from sqlalchemy.engine import Engine

from clma.ledger import durable_file, local_disk
from tests.flows.witness import TASKS, witness

__all__ = ["KillPoints", "reach", "stand_around_everything"]

_CHANGES_MLFLOW = re.compile("(create|delete|finalize|log|rename|restore|set|transition|update)_")
_DIGEST = re.compile("[0-9a-f]{64}")
_SEALED_ENTRY = re.compile("^[0-9a-f]{12}-")
_DRAFT = re.compile(r"^\.(?P<name>.+?)(\.[0-9a-f]+-[0-9]+-[0-9a-f]+|\.[0-9a-f]+)(\.named)?\.tmp$")


class KillPoints:
    """The points that were reached in this process, and the one to die at.

    Parameters
    ----------
    chosen : str or None
        Name of a point; None: survive.
    record : Path or None
        File that gets the name of every point.
    """

    def __init__(self, chosen: str | None = None, record: Path | None = None) -> None:
        self._chosen = chosen
        self._record = record
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        # Each thread executes one task at a time, body and keeping of the result.
        self.here = threading.local()

    def reach(self, step: str, damage: Callable[[], object] | None = None) -> None:
        """Die here if this is the chosen point, with the damage done first."""
        with self._lock:
            name = f"{getattr(self.here, 'task', 'flow')}: {step}"
            self._seen[name] += 1
            name += f" #{self._seen[name]}" if self._seen[name] > 1 else ""
            if self._record is not None:
                with self._record.open("a") as log:
                    log.write(name + "\n")
        if name == self._chosen:
            if damage is not None:
                damage()
            _die()


_points = KillPoints()


def arm(points: KillPoints) -> None:
    """Let this process die where it is told."""
    global _points
    _points = points


def reach(step: str, damage: Callable[[], object] | None = None) -> None:
    """Tell that the night has come to a step."""
    _points.reach(step, damage)


def stand_around_everything() -> None:
    """Make every durable step of a night a point."""
    for task in TASKS:
        witness(task, _body)
    for module in (local_disk, durable_file):
        vars(module)["os"] = _DiskCalls()
    for name in vars(MlflowClient):
        if _CHANGES_MLFLOW.match(name):
            setattr(MlflowClient, name, _mlflow_call(name, getattr(MlflowClient, name)))
    event.listen(Engine, "commit", _mlflow_commit)
    keep = ResultStore._persist_result_record
    setattr(ResultStore, keep.__name__, _keep(keep))


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives that")


@contextmanager
def _body(label: str) -> Iterator[None]:
    _points.here.task = label
    reach("begins")
    yield
    reach("ends")


class _DiskCalls:
    """`os`, with points around the calls that make a file of the federation folder durable.

    A file passes four: half staged, staged, named (its draft is still there), synced.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        key = _key_of(Path(f"/proc/self/fd/{descriptor}").readlink())
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            os.fsync(descriptor)
            reach(f"{key} synced")
            return
        reach(f"{key} half staged", lambda: os.ftruncate(descriptor, status.st_size // 2))
        os.fsync(descriptor)
        reach(f"{key} staged")

    def link(self, draft: Path, path: Path) -> None:
        os.link(draft, path)
        reach(f"{_key_of(path)} named")


def _key_of(path: Path) -> str:
    """Return a file's place in the federation folder, the same in every night."""
    draft = _DRAFT.match(path.name)
    name = _SEALED_ENTRY.sub("", draft["name"] if draft else path.name)
    _, inside, place = str(path.with_name(name)).rpartition("/fleet/store/")
    return _DIGEST.sub("DIGEST", place if inside else name)


def _mlflow_call(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def watched(client: MlflowClient, *args: Any, **kwargs: Any) -> Any:
        if getattr(_points.here, "call", None):
            return call(client, *args, **kwargs)
        _points.here.call = name
        try:
            reach(f"{name} asked")
            if name.endswith("_artifacts"):
                reach(f"{name} half copied", lambda: _copy_half(call, client, *args))
            result = call(client, *args, **kwargs)
            reach(f"{name} done")
        finally:
            _points.here.call = None
        return result

    return watched


def _copy_half(call: Callable[..., Any], client: MlflowClient, owner: str, folder: str) -> None:
    """Log every second file of a folder, and half of another one."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    for path in files[1::2]:
        path.unlink()
    os.truncate(files[0], files[0].stat().st_size // 2)
    call(client, owner, folder)
    shutil.rmtree(folder)


def _mlflow_commit(_connection: object) -> None:
    name = getattr(_points.here, "call", None)
    if name:
        reach(f"{name} commits")


def _keep(keep: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(keep)
    def watched(store: Any, result_record: Any, holder: str) -> None:
        def write_half() -> None:
            data = result_record.serialize()
            path = Path(store._resolved_key_path(result_record.metadata.storage_key))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data[: len(data) // 2])

        reach("result half kept", write_half)
        keep(store, result_record, holder)
        reach("result kept")

    return watched
