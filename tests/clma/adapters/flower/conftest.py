"""Messages are made as inside a server app."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def inside_a_server_app(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.clma.adapters.flower.crowd import act_as_server_app

    act_as_server_app(monkeypatch)
