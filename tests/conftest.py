"""Settings that must stand before Prefect or MLflow is imported: all in a temporary folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_HOME = Path(tempfile.mkdtemp(prefix="clma-tests-"))

os.environ["PREFECT_HOME"] = str(_HOME / "prefect")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["MPLCONFIGDIR"] = str(_HOME / "matplotlib")
# A user's own servers are not for tests.
os.environ.pop("PREFECT_API_URL", None)
os.environ.pop("MLFLOW_TRACKING_URI", None)


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[str]:
    """One real Prefect server on a free port for all tests of flows."""
    from flows._prefect_server import prefect_server

    with prefect_server(_HOME / "prefect") as url:
        yield url
