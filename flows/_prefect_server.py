"""A Prefect server of our own for commands that run without one.

Prefect's built-in temporary server is stopped before it has written the task runs down, so a
command that finds no ``PREFECT_API_URL`` starts a real server on a free loopback port, with all its
state in a folder of the project, and stops it when the run's history is on disk.

Nothing here imports prefect: its settings are read when it is imported, and have to stand by then.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from clma.errors import ClmaError

__all__ = ["PrefectServerError", "prefect_server"]

START_TIMEOUT_S = 300.0
"""A busy two-core machine needs more than a minute to create a new database."""

SETTLE_TIMEOUT_S = 30.0
HAND_IN_TIMEOUT_S = 10.0


class PrefectServerError(ClmaError):
    """The Prefect server did not start."""


@contextlib.contextmanager
def prefect_server(home: Path, *, port: int = 0) -> Iterator[str]:
    """Provide a Prefect API: the user's own, or a server that lives as long as the context.

    Parameters
    ----------
    home : Path
        Folder for all of Prefect's state; where the user has a server, for task results only.
    port : int
        The one to take if it is free, so that links stay good when the server is started again
        there; otherwise, and for 0, any free one.

    Yields
    ------
    str
        The API's URL; also set as ``PREFECT_API_URL``.

    Raises
    ------
    PrefectServerError
        If the server does not answer within five minutes; names its log.
    """
    known = os.environ.get("PREFECT_API_URL")
    if known:
        # The user's own Prefect home holds the way in; what the runs leave behind stays with us.
        os.environ.setdefault("PREFECT_RESULTS_LOCAL_STORAGE_PATH", str(home.resolve() / "storage"))
        yield known
        return
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    port = port if _is_free(port) else _free_port()
    url = f"http://127.0.0.1:{port}/api"
    quiet = {
        "PREFECT_HOME": str(home.resolve()),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    os.environ.update(quiet)
    with log.open("ab") as output:
        server = subprocess.Popen(
            [
                sys.executable,
                *["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port"],
                str(port),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            # An interrupt is for the command; it stops the server itself, after the run is written.
            start_new_session=True,
        )
    try:
        _wait_until_up(server, url, log)
        os.environ["PREFECT_API_URL"] = url
        yield url
        _settle(url)
    finally:
        _hand_in()
        os.environ.pop("PREFECT_API_URL", None)
        _stop(server)


def _is_free(port: int) -> bool:
    if port == 0:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_up(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if server.poll() is not None:
            raise PrefectServerError(
                f"the Prefect server ended with {server.returncode}: see {log}"
            )
        if _answers(url):
            return
        time.sleep(0.2)
    raise PrefectServerError(
        f"the Prefect server did not answer in {START_TIMEOUT_S:.0f} s: see {log}"
    )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2):  # noqa: S310 - loopback
            return True
    except OSError:
        return False


def _hand_in() -> None:
    """Let Prefect send what it still holds while there is somebody to take it.

    Otherwise it tries for a minute at the interpreter's end, after an interrupt for instance.
    """
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=HAND_IN_TIMEOUT_S)


def _settle(url: str) -> None:
    """Wait until the rows of task runs, which lag behind the flow's, change no more.

    Not until none is unfinished: those of a killed run stay so for good.
    """
    end = time.monotonic() + SETTLE_TIMEOUT_S
    unfinished = {"task_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}}
    seen, same_looks = -1, 0
    while time.monotonic() < end and same_looks < 5:
        with contextlib.suppress(OSError):
            count = _count(url, unfinished)
            same_looks = same_looks + 1 if count == seen else 0
            seen = count
        if seen == 0 and same_looks >= 2:
            return
        time.sleep(0.3)


def _count(url: str, query: Mapping[str, object]) -> int:
    request = urllib.request.Request(  # noqa: S310 - loopback
        f"{url}/task_runs/count",
        data=json.dumps(query).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
        return int(answer.read())


def _stop(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is not None:
        return
    server.send_signal(signal.SIGINT)
    try:
        server.wait(timeout=15)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
