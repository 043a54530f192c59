from __future__ import annotations

from pathlib import Path

import pytest

from tasks.tracking import Tracking, resolve_tracking


@pytest.fixture(scope="session")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    """One database for all tests: making its tables takes seconds. Tests use names of their own."""
    root: Path = tmp_path_factory.mktemp("tracking")
    return resolve_tracking(root)
