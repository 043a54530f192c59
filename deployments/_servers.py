"""Servers on loopback that live as long as a context, with everything that they start.

Nothing here imports prefect or mlflow: a server is a command, an environment and an address.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from clma.errors import ClmaError

__all__ = [
    "HOST",
    "Server",
    "ServerError",
    "Started",
    "answers",
    "free_port",
    "mlflow_server",
    "prefect_server",
    "running",
    "signals_as_exit",
    "wait_until_up",
]

HOST = "127.0.0.1"

START_TIMEOUT_S = 300.0
"""A busy two-core machine needs more than a minute to create a new database."""

STOP_TIMEOUT_S = 15.0

_LAST_PORT = 65535


class ServerError(ClmaError):
    """A server did not start, or ended by itself."""


@dataclass(frozen=True, slots=True)
class Server:
    """What it takes to start a server.

    Parameters
    ----------
    name : str
        For people.
    command : tuple of str
        Behind ``python -m``.
    address : str
        Without a slash at the end.
    health : str
        Path below `address` that answers once the server is up.
    log : Path
        What the server prints; its folder is made.
    environment : mapping of str to str
        On top of this process's own.
    """

    name: str
    command: tuple[str, ...]
    address: str
    health: str
    log: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Started:
    """A server and its process."""

    server: Server
    process: subprocess.Popen[bytes]

    def check(self) -> None:
        """Raise ServerError if the server ended by itself."""
        code = self.process.poll()
        if code is not None:
            raise ServerError(f"{self.server.name} ended with {code}: see {self.server.log}")


def prefect_server(home: Path, port: int) -> Server:
    """Return the Prefect server whose state is in the folder `home`."""
    own = f"http://{HOST}:{port}"
    return Server(
        name="Prefect",
        command=("prefect", "server", "start", "--host", HOST, "--port", str(port)),
        address=own,
        health="/api/health",
        log=home / "server.log",
        environment={
            "PREFECT_HOME": str(home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            # By default any web page that is open in the same browser may talk to the API.
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{own},http://localhost:{port}",
            "DO_NOT_TRACK": "1",
            # In memory, the place of a night would stay taken for good after its server was
            # killed with it.
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
                "prefect.server.concurrency.lease_storage.filesystem"
            ),
        },
    )


def mlflow_server(backend: str, folder: Path, port: int) -> Server:
    """Return the MLflow server of a database.

    Parameters
    ----------
    backend : str
        URI of the database.
    folder : Path
        Of the log; artifacts of experiments that are made through the server go to ``artifacts/``
        in it.
    port : int
    """
    artifacts = folder / "artifacts"
    return Server(
        name="MLflow",
        command=(
            *("mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"),
            *("--backend-store-uri", backend, "--artifacts-destination", artifacts.as_uri()),
        ),
        address=f"http://{HOST}:{port}",
        health="/health",
        log=folder / "server.log",
        environment={
            # Its job runner is eight more processes, for evaluations that nobody here asks for.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "1",
        },
    )


def free_port(wanted: int) -> int:
    """Return `wanted`, or the next port above it that nobody listens on.

    Raises
    ------
    ServerError
        If there is none.
    """
    for port in range(wanted, _LAST_PORT + 1):
        with socket.socket() as probe:
            # Without this a port counts as taken for a minute after a server on it has stopped.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return port
    raise ServerError(f"no free port from {wanted} to {_LAST_PORT}")


@contextlib.contextmanager
def running(server: Server) -> Iterator[Started]:
    """Start a server, without waiting for it; end it and all its children at the end."""
    server.log.parent.mkdir(parents=True, exist_ok=True)
    with server.log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *server.command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **server.environment},
            # A group of its own: an interrupt is for us alone, and no grandchild is missed.
            start_new_session=True,
        )
    try:
        yield Started(server, process)
    finally:
        _stop(process)


def wait_until_up(started: Sequence[Started]) -> None:
    """Wait until all of the servers answer.

    Raises
    ------
    ServerError
        If one of them ends, or does not answer within five minutes; names its log.
    """
    end = time.monotonic() + START_TIMEOUT_S
    waiting = list(started)
    while waiting:
        for one in waiting:
            one.check()
        waiting = [s for s in waiting if not answers(s.server.address + s.server.health)]
        if waiting and time.monotonic() > end:
            late = waiting[0].server
            raise ServerError(f"{late.name} did not answer in {START_TIMEOUT_S:.0f} s: {late.log}")
        time.sleep(0.2)


def answers(url: str) -> bool:
    """Tell whether an address answers with success within two seconds."""
    try:
        with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - http by construction
            return True
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def signals_as_exit(*numbers: signal.Signals) -> Iterator[None]:
    """Let signals end the context in order, with exit status 0.

    Parameters
    ----------
    *numbers : Signals
        Default: those of Ctrl-C, of a service manager's stop and of a closed terminal.
    """
    numbers = numbers or (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def leave(_number: int, _frame: FrameType | None) -> NoReturn:
        # A second one while servers are being stopped would leave some of them behind.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)

    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process group: ask, wait, then kill."""
    for number, patience_s in ((signal.SIGINT, STOP_TIMEOUT_S), (signal.SIGKILL, STOP_TIMEOUT_S)):
        if not _signal_group(process, number):
            return
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            process.poll()
            if not _signal_group(process, 0):
                return
            time.sleep(0.05)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to a process and its children; False if none of them is left."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True
