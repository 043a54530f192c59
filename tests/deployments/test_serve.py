from __future__ import annotations

from pathlib import Path

import pytest

from clma.errors import ClmaError, InvalidConfigError
from deployments.serve import ServeRequest, checked


def test_a_federation_that_is_not_there_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(ClmaError, match="holds no federation"):
        checked(ServeRequest(str(tmp_path), "plants"))


@pytest.mark.parametrize("cron", ["", "0 2 * *", "@daily", "0 0 2 * * *"])
def test_a_schedule_needs_five_fields(cron: str) -> None:
    with pytest.raises(InvalidConfigError, match="five fields"):
        checked(ServeRequest(".", "plants", cron=cron))


@pytest.mark.parametrize("timezone", ["", "Mars/Base", "../etc"])
def test_a_time_zone_has_to_exist(timezone: str) -> None:
    with pytest.raises(InvalidConfigError, match="IANA name"):
        checked(ServeRequest(".", "plants", timezone=timezone))


def test_a_run_is_told_where_and_not_to_close_early() -> None:
    assert ServeRequest("s3://b/f", "plants").parameters == {
        "store": "s3://b/f",
        "federation": "plants",
        "tracking_uri": None,
    }
