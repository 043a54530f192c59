from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _servers_of_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that tests of flows brought up in this process are not those of a deployment."""
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
