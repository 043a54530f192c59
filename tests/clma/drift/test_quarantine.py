"""First updates on probation."""

from __future__ import annotations

import dataclasses

from clma.config import preset_config
from clma.records import Cohort, FederationState
from clma.round import RoundOutcome
from tests.clma.shelf import Shelf, cohorts_of, models, one_cohort, run, update

ON, OFF = (preset_config("test", drift={"probation": p}) for p in (True, False))


def with_newcomer(shelf: Shelf, base: str) -> FederationState:
    """Return two settled clients, a new one and a known cohort at (9, 1, 1)."""
    state = one_cohort(base, ["p1", "p2", "p3"], round_num=9)
    new = dataclasses.replace(state.clients["p3"], n_updates=0)
    known = Cohort("c1", "c0", 3, shelf.put({"w": [9.0, 1.0, 1.0]}).sha256)
    return dataclasses.replace(
        state, clients={**state.clients, "p3": new}, cohorts={**state.cohorts, "c1": known}
    )


def first_night(shelf: Shelf, base: str, weights: list[float], *, on: bool = True) -> RoundOutcome:
    updates = [update(shelf, c, [1, 1, 2], base) for c in ("p1", "p2")]
    updates.append(update(shelf, "p3", weights, base))
    return run(shelf, with_newcomer(shelf, base), updates, ON if on else OFF)


def test_newcomer_joins_the_known_cohort_that_it_points_to(shelf: Shelf, base: str) -> None:
    outcome = first_night(shelf, base, [5, 1, 1])
    assert cohorts_of(outcome)["p3"] == "c1"
    assert models(shelf, outcome)["c0"] == [1, 1, 2]


def test_newcomer_that_points_nowhere_known_stays_and_has_not_voted(
    shelf: Shelf, base: str
) -> None:
    outcome = first_night(shelf, base, [1, 9, 1])

    assert cohorts_of(outcome)["p3"] == "c0"
    assert models(shelf, outcome)["c0"] == [1, 1, 2]
    assert outcome.decision.cohorting[0].decision == "kept"
    assert outcome.decision.drift[2].voted_in is None


def test_without_probation_a_newcomer_votes(shelf: Shelf, base: str) -> None:
    assert models(shelf, first_night(shelf, base, [1, 4, 1], on=False))["c0"] == [1, 2, 1.666667]


def test_probation_lasts_one_night(shelf: Shelf, base: str) -> None:
    after = dataclasses.replace(first_night(shelf, base, [1, 9, 1]).state, round_num=10)
    served = after.clients["p3"].serving_digest

    second = run(shelf, after, [update(shelf, "p3", [1, 5, 2], served)], ON)

    assert models(shelf, second)["c0"] == [1, 5, 2]


def test_nobody_is_on_probation_where_all_are_new(shelf: Shelf, base: str) -> None:
    state = one_cohort(base, ["p1", "p2"], round_num=1)
    new = {i: dataclasses.replace(c, n_updates=0) for i, c in state.clients.items()}
    state = dataclasses.replace(state, clients=new)

    outcome = run(shelf, state, [update(shelf, c, [1, 1, 2], base) for c in ("p1", "p2")], ON)

    assert models(shelf, outcome)["c0"] == [1, 1, 2]


def test_every_newcomer_is_compared_alone(shelf: Shelf, base: str) -> None:
    """Both point much the same way, and only one of them to the known cohort."""
    state = with_newcomer(shelf, base)
    p2 = dataclasses.replace(state.clients["p2"], n_updates=0)
    state = dataclasses.replace(state, clients={**state.clients, "p2": p2})
    ways = {"p1": [1, 1, 2], "p2": [4, 10.5, 1], "p3": [9, 7, 1]}

    outcome = run(shelf, state, [update(shelf, c, w, base) for c, w in ways.items()], ON)

    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c0", "p3": "c1"}


def test_newcomers_are_not_compared_with_those_who_drifted(shelf: Shelf, base: str) -> None:
    """A drifted client that goes the same way founds a cohort; the newcomer founds none."""
    updates = [
        update(shelf, "p1", [1, 1, 2], base),
        update(shelf, "p2", [1, 9, 1], base, flag=True),
        update(shelf, "p3", [1, 9, 1], base),
    ]
    outcome = run(shelf, with_newcomer(shelf, base), updates, ON)
    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c2", "p3": "c0"}
