"""Processes that cost nothing to start: forks of one that has imported everything.

Whoever forks here must never have had a second thread or a connection: then a child is as good as a
process that was started anew, and a night costs what it does, not what its imports take.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["answer_of", "import_all", "killed", "start"]


def start(work: Callable[[], object], folder: Path) -> int:
    """Do some work in a child; returns its process id.

    Parameters
    ----------
    work : callable
    folder : Path
        Gets the child's output and its temporary files.
    """
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(folder / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        tempfile.tempdir = str(folder / "tmp")
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - a child must never return to its parent's stack
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def killed(pid: int, after_s: float | None = None) -> int:
    """Wait for a child, kill it after a while; returns its exit code, or minus the signal."""
    end = None if after_s is None else time.monotonic() + after_s
    while True:
        found, status = os.waitpid(pid, 0 if end is None else os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() >= end:
            os.kill(pid, signal.SIGKILL)
            end = None
        time.sleep(0.002)


def import_all(names: Iterable[str]) -> None:
    """Import what a child imported on its way, so that the next one need not."""
    for name in sorted(set(names) - sys.modules.keys()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if threading.active_count() > 1:
        raise RuntimeError(f"{threading.enumerate()}, wanted one: what is forked now may be stuck")


def answer_of(work: Callable[[], Any], folder: Path) -> Any:
    """Return what some work in a child comes to, as JSON values."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    code = killed(start(lambda: answer.write_text(json.dumps(work())), folder))
    if code:
        raise RuntimeError(f"exit code {code}: {(folder / 'output.log').read_text()[-4000:]}")
    return json.loads(answer.read_text())
