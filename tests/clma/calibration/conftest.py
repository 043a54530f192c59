from __future__ import annotations

import pytest

from clma.ledger.federation import Federation
from tests.clma.calibration.springs import TOGETHER, live


@pytest.fixture(scope="session")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A federation that put everybody together who drifted in one night."""
    return live(tmp_path_factory.mktemp("averaged"), cohorting={**TOGETHER, "recall": False})


@pytest.fixture(scope="session")
def sensible(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A federation that knew its concepts apart."""
    return live(tmp_path_factory.mktemp("sensible"), cohorting={"pair_threshold": 0.7})
