"""A fleet that is judged on several threads at once: the same rows as one after the other."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from clma.errors import StorageError
from clma.ledger import side_by_side
from clma.ledger.federation import Federation
from clma.ledger.store import Store
from tests.clma.ledger.fleet import DUE, drop, make_fleet, model
from tests.clma.ledger.test_inbox import TENSORS

N_CLIENTS = 3 * side_by_side.FEW


def send_all(federation: Federation) -> Federation:
    """Send good and bad updates in turns; every seventh client is silent."""
    for number, client_id in enumerate(federation.state().clients):
        if number % 7:
            bad = TENSORS[number % len(TENSORS)][1]
            drop(federation, client_id, bad if number % 3 == 0 else model(number))
    return federation


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Federation:
    return send_all(make_fleet(url, tmp_path, N_CLIENTS))


def test_threads_do_not_show_in_the_sealed_round(
    fleet: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = fleet.seal_round(now=DUE)

    monkeypatch.setattr(side_by_side, "FEW", N_CLIENTS)
    other = send_all(make_fleet("memory://" + tmp_path.name, tmp_path, N_CLIENTS))
    in_turn = other.seal_round(now=DUE)

    assert [r.client_id for r in at_once.rows] == sorted(r.client_id for r in at_once.rows)
    assert at_once.updates == in_turn.updates
    assert {r.reason for r in at_once.rows} >= {"CLOCK_SKEW", "MISSED_DEADLINE", "NON_FINITE"}
    assert [(r.client_id, r.verdict, r.reason, r.detail) for r in at_once.rows] == [
        (r.client_id, r.verdict, r.reason, r.detail) for r in in_turn.rows
    ]


def test_a_disk_that_fails_for_one_client_fails_the_seal(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Store.look

    def broken(store: Store, key: str, *, max_bytes: int) -> Any:
        if "/p80/" in key:
            raise StorageError("the disk reports an error", errno.EIO)
        return look(store, key, max_bytes=max_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "look", broken)
        with pytest.raises(StorageError, match="the disk reports an error"):
            fleet.seal_round(now=DUE)
    assert fleet.state().phase.value == "open"
    assert len(fleet.seal_round(now=DUE).updates) > N_CLIENTS / 3


def test_originals_of_a_large_fleet_go_when_the_next_round_opens(fleet: Federation) -> None:
    sealed = fleet.seal_round(now=DUE)
    fleet.hold_round("test")
    accepted = {u.client_id for u in sealed.updates}

    fleet.open_round(now=DUE)

    left = [k.split("/")[2] for k in fleet.store.list("inbox") if k.endswith(".safetensors")]
    assert not accepted & set(left)
    assert all(fleet.open_tensors(u.tensors).specs for u in sealed.updates)
