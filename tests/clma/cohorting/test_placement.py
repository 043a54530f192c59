"""How many cohorts may live, and who waits where there is no room."""

from __future__ import annotations

import dataclasses

from clma.config import FederationConfig, preset_config
from clma.records import ClientStatus, Cohort, FederationState, SealedUpdate
from clma.round import RoundOutcome
from tests.clma.shelf import Shelf, cohorts_of, one_cohort, run, update


def at_most(n: int) -> FederationConfig:
    return preset_config("test", cohorting={"max_live_cohorts": n})


def three_ways(shelf: Shelf, base: str) -> list[SealedUpdate]:
    """Return one quiet client and three that drift in three directions."""
    ways = {"p1": [1, 1, 1.5], "p2": [9, 1, 1], "p3": [-9, 1, 1], "p4": [1, 9, 1]}
    return [update(shelf, c, w, base, flag=c != "p1") for c, w in ways.items()]


def lived(shelf: Shelf, base: str, n: int) -> RoundOutcome:
    state = one_cohort(base, ["p1", "p2", "p3", "p4"])
    return run(shelf, state, three_ways(shelf, base), at_most(n))


def n_live(state: FederationState) -> int:
    return len(state.active_cohorts())


def test_never_more_cohorts_live_than_allowed(shelf: Shelf, base: str) -> None:
    assert [n_live(lived(shelf, base, n).state) for n in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 4]


def test_no_limit_is_zero(shelf: Shelf, base: str) -> None:
    assert n_live(lived(shelf, base, 0).state) == 4


def test_group_without_room_waits_on_its_last_good_model(shelf: Shelf, base: str) -> None:
    outcome = lived(shelf, base, 2)

    waiting = [outcome.state.clients[c] for c in ("p3", "p4")]
    assert {c.status for c in waiting} == {ClientStatus.QUARANTINED}
    assert {c.serving_digest for c in waiting} == {base}
    assert "cohorting.max_live_cohorts is 2" in str(outcome.decision.drift[2].detail)
    assert outcome.decision.cohorting[1].decision == "held"


def test_group_that_waited_founds_its_cohort_when_there_is_room(shelf: Shelf, base: str) -> None:
    waiting = dataclasses.replace(lived(shelf, base, 1).state, round_num=3)
    again = [update(shelf, "p2", [9, 1, 1], base)]

    assert cohorts_of(run(shelf, waiting, again, at_most(2)))["p2"] == "c1"


def test_dormant_cohort_is_not_woken_where_there_is_no_room(shelf: Shelf, base: str) -> None:
    dormant = Cohort("c1", "c0", 1, shelf.put({"w": [9.0, 1.0, 1.0]}).sha256)
    state = one_cohort(base, ["p1", "p2"])
    state = dataclasses.replace(state, cohorts={**state.cohorts, "c1": dormant}).rested()
    updates = three_ways(shelf, base)[:2]

    full, free = (run(shelf, state, updates, at_most(n)) for n in (1, 2))

    assert full.state.clients["p2"].status is ClientStatus.QUARANTINED
    assert cohorts_of(free)["p2"] == "c1"


def test_cohort_that_everybody_leaves_makes_room(shelf: Shelf, base: str) -> None:
    updates = [update(shelf, c, [9, 1, 1], base, flag=True) for c in ("p1", "p2")]
    outcome = run(shelf, one_cohort(base, ["p1", "p2"]), updates, at_most(1))
    assert cohorts_of(outcome) == {"p1": "c1", "p2": "c1"}
