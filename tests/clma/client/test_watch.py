from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from clma.client.watch import watch
from clma.errors import StorageError
from clma.ledger.federation import Federation
from tests.clma.ledger.fleet import NOW, make_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return make_fleet(tmp_path / "store", tmp_path)


class Clock:
    """Time that passes only while somebody sleeps, and what happens meanwhile."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.now = 0.0
        self.naps: list[float] = []
        self._events = list(events)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.naps.append(seconds)
        if self._events:
            self._events.pop(0)()


def next_round(fleet: Federation) -> None:
    fleet.hold_round("test")
    fleet.open_round(now=NOW)


def test_waiting_ends_with_the_next_round(fleet: Federation) -> None:
    clock = Clock(lambda: None, lambda: next_round(fleet))

    seen = watch(fleet, "fleet", "p0", sleep=clock.sleep, clock=clock)

    assert seen is not None
    assert (seen.round_num, len(clock.naps)) == (2, 2)


def test_a_round_that_is_newer_than_what_was_seen_needs_no_waiting(fleet: Federation) -> None:
    clock = Clock()

    seen = watch(fleet, "fleet", "p0", after_round=0, sleep=clock.sleep, clock=clock)

    assert seen is not None
    assert clock.naps == []


def test_a_round_that_is_not_open_is_waited_for(fleet: Federation) -> None:
    fleet.hold_round("test")
    clock = Clock(lambda: fleet.open_round(now=NOW))

    seen = watch(fleet, "fleet", "p0", after_round=0, sleep=clock.sleep, clock=clock)

    assert seen is not None
    assert (seen.round_num, len(clock.naps)) == (2, 1)


def test_waiting_ends_with_another_model(fleet: Federation) -> None:
    def give() -> None:
        digest = fleet.add_model(b"other")
        state = fleet.hold_round("test")
        served = dataclasses.replace(state.clients["p0"], serving_digest=digest)
        moves = dataclasses.replace(state, clients={**state.clients, "p0": served})
        fleet.open_round(now=NOW, moves=moves)

    clock = Clock(give)

    seen = watch(fleet, "fleet", "p0", after_round=9, sleep=clock.sleep, clock=clock)

    assert seen is not None
    assert seen.base_digest == fleet.state().clients["p0"].serving_digest


def test_waiting_is_bounded_and_its_looks_are_spread(fleet: Federation) -> None:
    clock = Clock()

    assert watch(fleet, "fleet", "p0", timeout_s=300, sleep=clock.sleep, clock=clock) is None

    assert clock.now == 300
    assert all(15 <= nap <= 45 for nap in clock.naps[:-1])
    assert len(set(clock.naps)) == len(clock.naps)


def test_a_store_that_is_away_for_a_while_costs_only_time(
    fleet: Federation, tmp_path: Path
) -> None:
    store, elsewhere = Path(fleet.store.url), tmp_path / "elsewhere"

    def leave() -> None:
        store.rename(elsewhere)

    def come_back() -> None:
        elsewhere.rename(store)
        next_round(fleet)

    clock = Clock(leave, come_back)

    seen = watch(fleet.store.url, "fleet", "p0", sleep=clock.sleep, clock=clock)

    assert seen is not None
    assert seen.round_num == 2


def test_a_store_that_stays_away_is_named_in_the_end(
    fleet: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        monkeypatch.setattr(Federation, "state", _refused)

    clock = Clock(lost)

    with pytest.raises(StorageError, match="no network"):
        watch(fleet, "fleet", "p0", timeout_s=100, sleep=clock.sleep, clock=clock)


def _refused(_: Federation) -> None:
    raise StorageError("no network")
