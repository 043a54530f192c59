"""The command that a timer calls: nothing without a request, a round with one."""

from __future__ import annotations

import datetime as dt

import pytest

from clma.client import request_round
from clma.ledger.federation import Federation
from tests.flows.conftest import Desk

pytestmark = pytest.mark.slow


def extra_round(desk: Desk) -> int:
    place = ("--store", str(desk.store), "--federation", desk.federation.name)
    return desk.python(
        "-m", "flows.extra_round", *place, "--tracking-uri", desk.tracking.uri
    ).returncode


def ask(desk: Desk) -> dt.datetime | None:
    """Let p3 ask, who has sent; return when the round is due."""
    desk.federation.configure(
        desk.federation.config.model_copy(
            update={
                "round": desk.federation.config.round.model_copy(update={"extra_after_hours": 0.0})
            }
        )
    )
    request_round(desk.federation, desk.federation.name, "p3")
    return desk.federation.state().deadline


def test_nobody_asks_and_prefect_is_not_even_started(desk: Desk) -> None:
    desk.environment["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    assert extra_round(desk) == 0
    assert "asked for by nobody" in desk.output()


def test_round_that_is_asked_for_is_closed_and_the_next_is_due_at_night(desk: Desk) -> None:
    due = ask(desk)

    assert extra_round(desk) == 0

    state = Federation.open(desk.store).state()
    assert (state.round_num, state.deadline) == (3, due)
    assert "round 2 committed" in desk.output()
    assert [run["state"]["type"] for run in desk.runs()] == ["COMPLETED"]


@pytest.mark.chaos  # half a minute, and the ledger's part of it has tests of its own
def test_asked_for_once_it_is_closed_once(desk: Desk) -> None:
    ask(desk)
    extra_round(desk)
    assert extra_round(desk) == 0
    assert Federation.open(desk.store).state().round_num == 3
