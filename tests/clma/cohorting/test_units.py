"""Which known cohorts a movement is compared with."""

from __future__ import annotations

import dataclasses

import pytest

from clma.cohorting.units import cohorting_units
from clma.config import preset_config
from clma.drift.quarantine import quarantine_clients
from clma.records import ClientState, ClientStatus, Cohort, CohortStatus, FederationState
from tests.clma.shelf import Shelf, one_cohort, sealed, update


def state_with(base: str, left: dict[str, int | None]) -> FederationState:
    """Return p1 in c0 beside cohorts that were left after a round, or are active (None)."""
    cohorts = {
        c: Cohort(
            c,
            "c0",
            1,
            base,
            status=CohortStatus.ACTIVE if since is None else CohortStatus.DORMANT,
            dormant_since=since,
        )
        for c, since in left.items()
    }
    state = one_cohort(base, ["p1"], round_num=20)
    return dataclasses.replace(state, cohorts={**state.cohorts, **cohorts})


@pytest.mark.parametrize(
    ("max_remembered", "wanted"),
    [(0, ["c1", "c2", "c3", "c4"]), (1, ["c2", "c3"]), (2, ["c2", "c3", "c4"])],
)
def test_the_dormant_cohorts_that_were_left_last_and_then_the_youngest_are_remembered(
    shelf: Shelf, base: str, max_remembered: int, wanted: list[str]
) -> None:
    state = state_with(base, {"c1": 5, "c2": 9, "c3": None, "c4": 5})
    config = preset_config("test", cohorting={"max_remembered": max_remembered})
    round_ = sealed([update(shelf, "p1", [2, 1, 1], base, flag=True)], round_num=20)

    units = cohorting_units(state, round_, quarantine_clients(state, round_, config), config)

    assert [c.cohort_id for c in units[0].candidates] == wanted


def test_dormant_cohort_keeps_the_round_in_which_it_was_left(base: str) -> None:
    state = state_with(base, {"c1": None}).rested()
    later = dataclasses.replace(state, round_num=30).rested()
    assert [s.cohorts["c1"].dormant_since for s in (state, later)] == [20, 20]


def test_cohort_that_is_joined_again_is_dormant_since_never(base: str) -> None:
    state = state_with(base, {"c1": 5})
    back = ClientState("p2", "c1", ClientStatus.ACTIVE, base)
    woken = dataclasses.replace(state, clients={**state.clients, "p2": back}).rested()
    assert woken.cohorts["c1"].dormant_since is None
