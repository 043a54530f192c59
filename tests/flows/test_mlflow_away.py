"""MLflow away during a night: the round is committed, and a later night publishes it by itself."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from clma.ledger.federation import Federation
from clma.records import Phase
from tasks.tracking import published_rounds
from tests.flows.conftest import Desk
from tests.flows.fleet import CLIENTS, send
from tests.flows.test_nightly import options
from tests.flows.test_retry import WHOLE, tracked
from tests.tasks.proxy import Proxy, proxy_of

pytestmark = pytest.mark.slow


@pytest.fixture
def gone(desk: Desk) -> Iterator[Proxy]:
    """A tracking server that never answers."""
    desk.environment |= {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "2",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    }
    with proxy_of("http://127.0.0.1:9") as proxy:
        yield proxy


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["hang", "503", "refuse"])
def test_a_round_is_committed_without_mlflow_and_published_by_the_next_night(
    desk: Desk, gone: Proxy, fault: str
) -> None:
    gone.fault = fault
    away = [*options(desk)[:-1], gone.address]

    night = desk.python("-m", "flows.nightly", *away, "--now")

    assert night.returncode == 1
    assert "failed: MLflow at http://127.0.0.1" in desk.output()
    assert "python -m flows.publish publishes it" in desk.output()
    federation = Federation.open(desk.store)
    assert (federation.state().round_num, federation.state().phase) == (3, Phase.OPEN)
    for client_id in CLIENTS:
        send(federation, desk.folder, client_id, np.zeros(4), flag=False)

    assert desk.python("-m", "flows.nightly", *options(desk), "--now").returncode == 0

    assert published_rounds(Federation.open(desk.store), desk.tracking) == (1, 2, 3)
    assert tracked(desk)["round"] == WHOLE["round"]


@pytest.mark.chaos
def test_an_outage_is_not_sat_out_twice(desk: Desk, gone: Proxy) -> None:
    """MLflow's client has tried again already; the task that waited for it does not."""
    gone.fault = "hang"

    desk.python("-m", "flows.nightly", *options(desk)[:-1], gone.address, "--now")

    first_try_and_its_repetition = 2
    assert gone.n_connections == first_try_and_its_repetition


@pytest.mark.chaos
def test_a_database_that_is_locked_for_some_seconds_costs_nothing(desk: Desk) -> None:
    path = desk.tracking.uri.removeprefix("sqlite:///")
    holder = sqlite3.connect(path, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    threading.Timer(15, holder.rollback).start()

    night = desk.python("-m", "flows.nightly", *options(desk), "--now")

    assert night.returncode == 0, desk.output()
    assert tracked(desk) == WHOLE
