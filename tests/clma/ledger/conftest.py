"""Every test of a store runs on a local disk and in memory."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from clma.ledger.store import Store


@pytest.fixture(params=["disk", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "disk" else f"memory://{uuid.uuid4()}"


@pytest.fixture
def store(url: str) -> Store:
    return Store.open(url)
