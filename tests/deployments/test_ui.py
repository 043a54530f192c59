from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from deployments._servers import ServerError, free_port
from deployments.ui import find_pages

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """Return a folder as a demo leaves it; an empty file is an empty SQLite database."""
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "mlflow.db").touch()
    return tmp_path


def test_without_a_demo_the_message_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="run `make demo` first"):
        find_pages(tmp_path, 4200, 5000)


def test_both_servers_keep_their_state_below_the_folder(demo: Path) -> None:
    prefect, mlflow = find_pages(demo, 4200, 5000).servers

    assert prefect.environment["PREFECT_HOME"] == str(demo / ".prefect")
    assert f"sqlite:///{demo}/mlruns/mlflow.db" in mlflow.command


def test_a_taken_port_is_said_in_words(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ui.free_port", lambda port: port + 1)

    pages = find_pages(demo, 4200, 5000)

    assert pages.prefect == "http://127.0.0.1:4201"
    assert "port 4200 is taken, using 4201" in pages.remarks[0]


def test_servers_that_the_user_has_are_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example/")

    pages = find_pages(tmp_path, 4200, 5000)

    assert (pages.prefect, pages.mlflow) == (
        "http://prefect.example:4200",
        "https://mlflow.example",
    )
    assert pages.servers == ()


def test_a_database_that_the_user_has_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://db/mlflow")

    _, mlflow = find_pages(tmp_path, 4200, 5000).servers

    assert "postgresql://db/mlflow" in mlflow.command


@pytest.mark.slow
def test_both_pages_answer_until_the_command_is_stopped_and_no_process_is_left(demo: Path) -> None:
    ports = ("--prefect-port", str(free_port(14200)), "--mlflow-port", str(free_port(15000)))
    with subprocess.Popen(
        [sys.executable, "-m", "deployments.ui", "--out", str(demo), *ports],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        pages = [command.stdout.readline().split()[-1].partition("/#")[0] for _ in range(2)]
        shown = [shows(page) for page in pages]
        family = descendants(command.pid)
        command.send_signal(signal.SIGTERM)

    assert command.returncode == 0
    assert shown == [True, True]
    assert len(family) >= 3
    assert not family & set(parents())


def shows(page: str) -> bool:
    """Tell whether a browser would be shown a page; Prefect gives its pages to nobody else."""
    request = urllib.request.Request(page, headers={"Accept": "text/html"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return b"<html" in answer.read().lower()


def parents() -> dict[int, int]:
    """Return the parent of every process."""
    command = ["ps", "-eo", "pid=,ppid="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {int(pid): int(ppid) for pid, ppid in map(str.split, listed.splitlines())}


def descendants(pid: int) -> set[int]:
    known, found = parents(), {pid}
    while more := {p for p, parent in known.items() if parent in found} - found:
        found |= more
    return found - {pid, os.getpid()}
