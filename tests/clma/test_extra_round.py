"""A round before its time: who has to ask, who has to send, and what becomes of the night."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.client import InferenceDriftMonitor, pull, request_round, submit
from clma.config import preset_config
from clma.drift import LossThresholdDetector
from clma.extra_round import look_at_requests
from clma.ledger.federation import Federation
from clma.night import close_round, open_next_round
from clma.parameters.tensor_file import TensorFile, serialize_tensors

CLIENTS = ("p0", "p1", "p2", "p3")
HOME = np.zeros(4, np.float32)
MOVED = np.array([3, 0, 0, 0], np.float32)


class Fleet:
    """Four plants whose loss is the distance of one vector from their truth."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        base = folder / "base.safetensors"
        base.write_bytes(serialize_tensors({"w": HOME}))
        config = preset_config(
            "fleet",
            identity={"updates": "unsigned"},
            round={"extra_after_hours": 0, **settings},
        )
        self.federation = Federation.create(folder / "store", config, base, CLIENTS)
        self.opened = open_next_round(self.federation, now=dt.datetime.now(dt.UTC))
        for client_id in CLIENTS:
            self.send(client_id, HOME)
        close_round(self.federation, now=self.now(), force=True)

    def now(self, hours: float = 0.1) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)

    def send(self, client_id: str, weights: np.ndarray, *, flag: bool = False) -> None:
        path = self.folder / f"{client_id}.safetensors"
        path.write_bytes(serialize_tensors({"w": np.asarray(weights, np.float32)}))
        submit(self.federation, "fleet", client_id, tensors=path, n_examples=10, drift_flag=flag)

    def ask(self, *client_ids: str) -> None:
        for client_id in client_ids:
            request_round(self.federation, "fleet", client_id)

    def look(self, hours: float = 0.1) -> tuple[bool, str]:
        found = look_at_requests(self.federation, now=self.now(hours))
        return found.is_due, found.detail


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_nobody_asks_nothing_is_due(fleet: Fleet) -> None:
    fleet.send("p0", MOVED, flag=True)
    assert fleet.look() == (False, "round 2: asked for by nobody; 0 of 1 requests")


def test_one_that_asked_and_sent_is_enough(fleet: Fleet) -> None:
    fleet.send("p0", MOVED, flag=True)
    fleet.ask("p0")
    assert fleet.look() == (True, "round 2: asked for by p0; closed early")


def test_round_waits_for_those_that_ask_but_not_for_ever(fleet: Fleet) -> None:
    fleet.ask("p0", "p1")
    fleet.send("p0", MOVED, flag=True)
    assert fleet.look(0.5) == (False, "round 2: asked for by p0, p1; no update yet of p1")
    assert fleet.look(1.1)[0]


def test_round_that_nobody_sent_for_is_never_closed_early(fleet: Fleet) -> None:
    fleet.ask("p0")
    assert not fleet.look(19)[0]


def test_update_that_will_be_refused_does_not_count(fleet: Fleet) -> None:
    fleet.ask("p0")
    fleet.federation.store.put_once("inbox/round=000002/p0/update.json", b"{}")
    assert not fleet.look()[0]


def test_several_have_to_ask_where_the_settings_say_so(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, extra_requests=2)
    for client_id in ("p0", "p1"):
        fleet.send(client_id, MOVED, flag=True)
    fleet.ask("p0")
    assert fleet.look() == (False, "round 2: asked for by p0; 1 of 2 requests")
    fleet.ask("p1")
    assert fleet.look()[0]


def test_rounds_keep_their_distance(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, extra_after_hours=6)
    fleet.send("p0", MOVED, flag=True)
    fleet.ask("p0")
    assert "not closed before" in fleet.look(5.9)[1]
    assert fleet.look(6.1)[0]


def test_quorum_holds_for_it_too(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, quorum=2)
    fleet.send("p0", MOVED, flag=True)
    fleet.ask("p0")
    assert fleet.look() == (False, "round 2: asked for by p0; 1 updates, round.quorum is 2")
    fleet.send("p1", HOME)
    assert fleet.look()[0]


def test_round_that_is_due_is_the_nights(fleet: Fleet) -> None:
    fleet.send("p0", MOVED, flag=True)
    fleet.ask("p0")
    assert "due by itself" in fleet.look(21)[1]


def test_next_round_is_due_when_this_one_was(fleet: Fleet) -> None:
    due = fleet.federation.state().deadline
    fleet.send("p0", MOVED, flag=True)
    close_round(fleet.federation, now=fleet.now(3), force=True, keep_deadline=True)
    assert fleet.federation.state().deadline == due


def test_round_that_was_late_gives_the_next_one_its_full_time(fleet: Fleet) -> None:
    late = fleet.now(30)
    close_round_or_hold(fleet, late)
    assert fleet.federation.state().deadline == late + dt.timedelta(hours=20)


def close_round_or_hold(fleet: Fleet, now: dt.datetime) -> None:
    fleet.send("p0", HOME)
    close_round(fleet.federation, now=now, keep_deadline=True)


def test_plants_that_sent_nothing_keep_their_model(fleet: Fleet) -> None:
    before = fleet.federation.state().clients["p3"].serving_digest
    fleet.send("p0", MOVED, flag=True)
    close_round(fleet.federation, now=fleet.now(), force=True, keep_deadline=True)
    assert fleet.federation.state().clients["p3"].serving_digest == before


def test_monitored_stream_drifts_a_round_happens_and_the_loss_recovers(fleet: Fleet) -> None:
    """From the batch that is bad to the model that is not, without a night."""
    monitor = InferenceDriftMonitor(LossThresholdDetector(gamma=0.5), patience=2)
    truth = dict.fromkeys(CLIENTS, HOME)

    def loss(client_id: str) -> float:
        path = fleet.folder / f"deployed-{client_id}.safetensors"
        with TensorFile(pull(fleet.federation, "fleet", client_id, path).path) as file:
            return float(np.linalg.norm(file.read("w") - truth[client_id]))

    quiet = [monitor.observe(loss("p0")).round_requested for _ in range(5)]
    truth |= {"p0": MOVED, "p1": MOVED}
    bad = [monitor.observe(loss("p0")) for _ in range(3)]
    for client_id in ("p0", "p1"):
        fleet.send(client_id, MOVED, flag=True)
        fleet.ask(client_id)
    found = look_at_requests(fleet.federation, now=fleet.now())
    assert found.is_due
    close_round(fleet.federation, now=fleet.now(), force=True, keep_deadline=True)

    assert (any(quiet), [r.round_requested for r in bad].index(True)) == (False, 1)
    assert bad[0].reading.drift_detected
    state = fleet.federation.state()
    assert state.clients["p0"].cohort_id == state.clients["p1"].cohort_id != "c0"
    assert [loss(c) for c in CLIENTS] == [0, 0, 0, 0]
