"""Prefect's API away in the middle of a night: the store is in order, the same command goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from clma.ledger.federation import Federation
from tests.flows.conftest import Desk
from tests.flows.test_nightly import options
from tests.flows.test_retry import assert_whole, undisturbed
from tests.flows.test_two_nights import kinds_of
from tests.tasks.proxy import Proxy, proxy_of

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.fixture
def api(desk: Desk) -> Iterator[Proxy]:
    """A relay in front of Prefect, which the night is told to use."""
    address = desk.environment["PREFECT_API_URL"].removesuffix("/api")
    desk.environment |= {"PREFECT_API_REQUEST_TIMEOUT": "5", "PREFECT_CLIENT_MAX_RETRIES": "3"}
    with proxy_of(address) as proxy:
        # Prefect's client waits for as long as it is told to, and no setting limits that.
        proxy.retry_after = None
        desk.environment["PREFECT_API_URL"] = f"{proxy.address}/api"
        yield proxy


def in_the_middle(desk: Desk) -> bool:
    return any((desk.store / "rounds/round=000002").glob("stages/*"))


@pytest.mark.parametrize("fault", ["refuse", "hang", "503"])
def test_a_night_without_its_api_ends_and_is_completed_by_the_same_command(
    desk: Desk, api: Proxy, fault: str
) -> None:
    expected = undisturbed(desk)
    night = desk.python("-m", "flows.nightly", *options(desk), "--now", wait=False)
    desk.wait(lambda: in_the_middle(desk), "the first stage")
    api.fault = fault

    code = night.wait(timeout=900)
    Federation.open(desk.store).journal.reread()
    api.fault = None

    if code:
        assert "failed: Prefect at http://127.0.0.1" in said(desk)
        finish(desk)
    assert_whole(desk, expected)
    assert kinds_of(desk, 2) == ["round-opened", "round-sealed", "round-committed"]
    assert kinds_of(desk, 3) == ["round-opened"]


def said(desk: Desk) -> str:
    return (desk.folder / "output.log").read_text()


def finish(desk: Desk) -> None:
    """Give the command that the failed one named."""
    if "python -m flows.publish" in said(desk):
        again = desk.python("-m", "flows.publish", *options(desk))
    else:
        again = desk.python("-m", "flows.nightly", *options(desk), "--now")
    assert again.returncode == 0, desk.output()


@pytest.mark.parametrize("fault", ["refuse", "503"])
def test_some_seconds_without_an_api_cost_nothing(desk: Desk, api: Proxy, fault: str) -> None:
    expected = undisturbed(desk)
    night = desk.python("-m", "flows.nightly", *options(desk), "--now", wait=False)
    desk.wait(lambda: in_the_middle(desk), "the first stage")
    api.fault = fault
    threading.Timer(3, lambda: setattr(api, "fault", None)).start()

    assert night.wait(timeout=600) == 0, desk.output()
    assert_whole(desk, expected)
