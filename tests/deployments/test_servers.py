from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deployments import _servers
from deployments._servers import (
    HOST,
    Server,
    ServerError,
    answers,
    free_port,
    prefect_server,
    running,
    signals_as_exit,
    wait_until_up,
)


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def file_server(folder: Path, port: int) -> Server:
    command = ("http.server", str(port), "--bind", HOST)
    return Server("files", command, f"http://{HOST}:{port}", "/", folder / "log", {})


def test_a_free_port_is_taken_as_wanted() -> None:
    with taken_port() as port:
        pass

    assert free_port(port) == port


def test_a_taken_port_gives_a_later_one() -> None:
    with taken_port() as port:
        assert free_port(port) > port


def test_a_server_answers_within_the_context_and_is_gone_after_it(tmp_path: Path) -> None:
    server = file_server(tmp_path, free_port(8300))

    with running(server) as started:
        wait_until_up([started])

    assert not answers(server.address)
    assert started.process.returncode is not None


def test_a_server_that_does_not_listen_to_reason_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_servers, "STOP_TIMEOUT_S", 1.0)
    script = "import signal, time; signal.signal(2, signal.SIG_IGN); print(1, flush=True)"
    (tmp_path / "stubborn.py").write_text(f"{script}; time.sleep(60)", encoding="utf-8")
    server = Server("s", ("stubborn",), "", "", tmp_path / "log", {"PYTHONPATH": str(tmp_path)})

    with running(server) as started:
        while not server.log.read_bytes():
            started.check()

    assert started.process.returncode == -signal.SIGKILL


def test_a_server_that_does_not_start_is_named_with_its_log(tmp_path: Path) -> None:
    server = Server("files", ("no_such_module",), f"http://{HOST}:1", "/", tmp_path / "log", {})

    with pytest.raises(ServerError, match=r"files ended with 1: see .*log"), running(server) as one:
        wait_until_up([one])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_context_in_order(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    with pytest.raises(SystemExit) as end, signals_as_exit():
        os.kill(os.getpid(), number)

    assert end.value.code == 0
    assert signal.getsignal(number) is before


def test_only_pages_of_the_server_itself_may_talk_to_prefect(tmp_path: Path) -> None:
    environment = prefect_server(tmp_path, 4200).environment

    assert "*" not in environment["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]
