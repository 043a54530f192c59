"""Nights that meet: one decision, one publication, and no round closed that nobody asked to."""

from __future__ import annotations

import datetime as dt

import pytest

from clma.ledger.federation import Federation
from clma.night import open_next_round
from clma.records import Phase
from tests.flows.conftest import Desk
from tests.flows.fleet import found
from tests.flows.test_nightly import options
from tests.flows.test_retry import WHOLE, tracked

pytestmark = pytest.mark.slow


def kinds_of(desk: Desk, round_num: int) -> list[str]:
    """Return what happened to a round, in order."""
    entries = Federation.open(desk.store).entries()
    return [e.kind.value for e in entries if e.payload.get("round") == round_num]


def test_two_nights_at_the_same_instant_are_one_night(desk: Desk) -> None:
    nights = [
        desk.python("-m", "flows.nightly", *options(desk), "--now", wait=False) for _ in range(2)
    ]

    assert [night.wait(timeout=200) for night in nights] == [0, 0], desk.output()
    assert "Traceback" not in desk.output()
    assert kinds_of(desk, 2) == ["round-opened", "round-sealed", "round-committed"]
    assert kinds_of(desk, 3) == ["round-opened"]
    assert tracked(desk) == WHOLE


def test_who_comes_late_leaves_the_next_round_open(desk: Desk) -> None:
    """A night that was asked for before another one closed the round, and starts after it."""
    desk.night()
    late = (
        "from flows.nightly import nightly; import sys; "
        "print(nightly(*sys.argv[1:3], now=True, not_after=2))"
    )

    desk.python("-c", late, str(desk.store), desk.federation.name)

    assert "None" in desk.output()
    assert kinds_of(desk, 3) == ["round-opened"]


def test_who_comes_late_to_a_held_round_is_told_why(desk: Desk) -> None:
    federation = Federation.open(desk.store)
    federation.hold_round("5 updates accepted, round.quorum is 6")
    open_next_round(federation, now=dt.datetime.now(dt.UTC))
    late = "import sys; from flows.nightly import nightly; nightly(*sys.argv[1:], not_after=2)"

    night = desk.python("-c", late, str(desk.store), desk.federation.name)

    assert night.returncode == 1
    assert "RoundHeldError: 5 updates accepted, round.quorum is 6" in desk.output()


@pytest.mark.chaos
def test_two_federations_at_once_on_one_sqlite(desk: Desk) -> None:
    other = found(desk.folder / "other", f"{desk.federation.name[:50]}-other")
    names = [(desk.store, desk.federation.name), (desk.folder / "other" / "store", other.name)]
    nights = [
        desk.python(
            *("-m", "flows.nightly", "--store", str(store), "--federation", name, "--now"),
            *("--tracking-uri", desk.tracking.uri),
            wait=False,
        )
        for store, name in names
    ]

    assert [night.wait(timeout=250) for night in nights] == [0, 0], desk.output()
    assert "database is locked" not in desk.output()
    assert "Traceback" not in desk.output()
    for store, _ in names:
        state = Federation.open(store).state()
        assert (state.round_num, state.phase) == (3, Phase.OPEN)
    assert tracked(desk) == WHOLE
