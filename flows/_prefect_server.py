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
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

from clma.errors import ClmaError

__all__ = ["LAST_HAND_IN_TIMEOUT_S", "PrefectServerError", "hand_in", "prefect_server"]

START_TIMEOUT_S = 300.0
"""A busy two-core machine needs more than a minute to create a new database."""

SETTLE_TIMEOUT_S = 30.0
HAND_IN_TIMEOUT_S = 10.0
LAST_HAND_IN_TIMEOUT_S = 60.0
"""A server that is alive but busy takes the end of a night's history within this."""

N_ATTEMPTS = 3

_unsent: list[Future[bool]] = []
"""What Prefect's workers did not end in time; a second call does not name it again."""


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
        If the user's server does not answer, or our own does not within five minutes.
    """
    known = os.environ.get("PREFECT_API_URL")
    if known:
        # The user's own Prefect home holds the way in; what the runs leave behind stays with us.
        os.environ.setdefault("PREFECT_RESULTS_LOCAL_STORAGE_PATH", str(home.resolve() / "storage"))
        _check_answers(known)
        yield known
        return
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    quiet = {
        "PREFECT_HOME": str(home.resolve()),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # In memory, the place of a night would stay taken for good after its server was
        # killed with it.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
            "prefect.server.concurrency.lease_storage.filesystem"
        ),
    }
    os.environ.update(quiet)
    server, url = _start(home, port, log)
    try:
        os.environ["PREFECT_API_URL"] = url
        yield url
        _settle(url)
    finally:
        hand_in()
        os.environ.pop("PREFECT_API_URL", None)
        _stop(server)


def _start(home: Path, port: int, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server and wait until it, and not another one on its port, answers."""
    for _ in range(N_ATTEMPTS):
        port = port if _is_free(port) else _free_port()
        url = f"http://127.0.0.1:{port}/api"
        with log.open("ab") as output:
            server = subprocess.Popen(
                [
                    sys.executable,
                    *["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port"],
                    str(port),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                # An interrupt is for the command; it stops the server itself, after the run is
                # written.
                start_new_session=True,
            )
        try:
            if _is_up(server, url, home):
                return server, url
        except BaseException:
            _stop(server)
            raise
        # Between looking for a free port and taking it, somebody else took it.
        _stop(server)
        port = 0
    raise PrefectServerError(f"the Prefect server ended {N_ATTEMPTS} times: see {log}")


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


def _is_up(server: subprocess.Popen[bytes], url: str, home: Path) -> bool:
    """Wait for our own server; False if it ended or another one answers in its place."""
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        found = _home_of(url)
        if found is not None:
            return found == home.resolve()
        if server.poll() is not None:
            return False
        time.sleep(0.2)
    raise PrefectServerError(
        f"the Prefect server did not answer in {START_TIMEOUT_S:.0f} s: see {home / 'server.log'}"
    )


def _home_of(url: str) -> Path | None:
    """Return the folder of the server that answers, or None if none does."""
    try:
        with urllib.request.urlopen(f"{url}/admin/settings", timeout=2) as answer:  # noqa: S310 - http
            return Path(str(json.load(answer).get("home", ""))).resolve()
    except (OSError, ValueError):
        return None


def _check_answers(url: str) -> None:
    """Raise PrefectServerError if the user's server does not answer."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=10):  # noqa: S310 - http
            return
    except urllib.error.HTTPError:
        # It may want to know who asks; Prefect has the key.
        return
    except (OSError, ValueError) as error:
        raise PrefectServerError(
            f"PREFECT_API_URL is {url}, nothing answers there ({error}); "
            "unset it to have a server started"
        ) from None


def hand_in(timeout_s: float = HAND_IN_TIMEOUT_S) -> bool:
    """Let Prefect send what it still holds while there is somebody to take it.

    Otherwise it tries for a minute at the interpreter's end, after an interrupt for instance.

    Parameters
    ----------
    timeout_s : float
        Of its logs, and of its events.

    Returns
    -------
    bool
        False if something is left; Prefect would try to send it for hours to a server that hangs.
    """
    if "prefect" not in sys.modules:
        return True
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        ended = worker.drain_all(timeout=timeout_s)
        if isinstance(ended, tuple):
            _unsent.extend(ended[1])
    return all(future.done() for future in _unsent)


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
