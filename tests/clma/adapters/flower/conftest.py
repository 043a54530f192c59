"""Messages are made as inside a server app."""

from __future__ import annotations

import contextlib

import pytest


@pytest.fixture(autouse=True)
def inside_a_server_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower tells a process who it is when it starts an app; older versions need no telling."""
    with contextlib.suppress(ImportError):
        from flwr.supercore.task_identity import TaskIdentity

        for name in ("_task_id", "_run_id", "_node_id"):
            monkeypatch.setattr(TaskIdentity, name, 1, raising=False)
