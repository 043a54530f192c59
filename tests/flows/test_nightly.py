"""The nightly command as a schedule or an operator meets it."""

from __future__ import annotations

import pytest

from clma.ledger.federation import Federation
from clma.records import Phase
from tests.flows.conftest import Desk

pytestmark = pytest.mark.slow


def options(desk: Desk) -> list[str]:
    return [
        *("--store", str(desk.store), "--federation", desk.federation.name),
        *("--tracking-uri", desk.tracking.uri),
    ]


def test_night_that_is_not_due_does_nothing(desk: Desk) -> None:
    before = desk.results()

    night = desk.python("-m", "flows.nightly", *options(desk))

    assert night.returncode == 0
    assert "nothing is due" in desk.output()
    assert desk.results() == before
    assert Federation.open(desk.store).state().phase is Phase.OPEN


def test_night_below_quorum_is_held_and_the_next_round_is_open(desk: Desk) -> None:
    desk.set_quorum(6)
    (desk.store / "inbox/round=000002/p6/update.json").unlink()

    night = desk.python("-m", "flows.nightly", *options(desk), "--now")

    assert night.returncode == 1
    assert "held: round 2: 5 updates accepted, round.quorum is 6" in desk.output()
    state = Federation.open(desk.store).state()
    assert (state.round_num, state.phase) == (3, Phase.OPEN)
    assert [r["state"]["type"] for r in desk.runs()] == ["FAILED"]


def test_wrong_federation_is_one_line_and_code_1(desk: Desk) -> None:
    night = desk.python(
        "-m", "flows.nightly", "--store", str(desk.store), "--federation", "other", "--now"
    )
    assert night.returncode == 1
    assert f"failed: store {desk.federation.store.url} holds federation" in desk.output()


def test_absent_prefect_server_is_one_line(desk: Desk) -> None:
    desk.environment["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    night = desk.python("-m", "flows.nightly", *options(desk), "--now")
    assert night.returncode == 1
    assert "failed: PREFECT_API_URL is http://127.0.0.1:9/api, nothing answers" in desk.output()
    assert "Traceback" not in desk.output()


def test_missing_option_is_wrong_usage(desk: Desk) -> None:
    assert desk.python("-m", "flows.nightly", "--federation", "x").returncode == 2


def test_committed_round_waits_for_no_tracking_server(desk: Desk) -> None:
    """MLflow away: plants get their models, the run fails, its retry publishes."""
    fault = desk.disturb("fail-publish_cohort-c0")
    desk.night()
    (run,) = desk.runs()
    assert run["state"]["type"] == "FAILED"
    assert Federation.open(desk.store).state().round_num == 3
    desk.executed()
    fault.unlink()

    desk.retry(run["id"])

    assert desk.wait_for(run["id"], "COMPLETED")["run_count"] == 2
    assert set(desk.executed()) == {
        *(f"publish_cohort-c{i}" for i in range(3)),
        "publish_round",
    }
    assert Federation.open(desk.store).state().round_num == 3
