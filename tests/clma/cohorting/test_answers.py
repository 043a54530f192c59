"""What comes of a client's choice: where it votes, where it goes, what is remembered."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from clma.config import FederationConfig, preset_config
from clma.records import ChoiceMemory, Cohort, CohortStatus, FederationState
from clma.round import RoundOutcome
from tests.clma.shelf import Shelf, cohorts_of, models, one_cohort, run, update

SHARE = ["weights", "flag", "examples", "choice"]


def config(preset: str = "clma-probe", **cohorting: Any) -> FederationConfig:
    return preset_config("test", preset, privacy={"share": SHARE}, cohorting=cohorting)


@pytest.fixture
def known(shelf: Shelf) -> str:
    return shelf.put({"w": [5.0, 1.0, 1.0]}).sha256


def two_cohorts(base: str, known: str, **fields: Any) -> FederationState:
    """p1 to p3 in c0; p4, of the given fields, in c1, which is younger and smaller."""
    state = one_cohort(base, ["p1", "p2", "p3", "p4"], round_num=5)
    p4 = dataclasses.replace(
        state.clients["p4"], cohort_id="c1", serving_digest=known, choices=ChoiceMemory()
    )
    cohorts = {**state.cohorts, "c1": Cohort("c1", "c0", 3, known)}
    clients = {**state.clients, "p4": dataclasses.replace(p4, **fields)}
    return dataclasses.replace(state, cohorts=cohorts, clients=clients)


def detail_of(outcome: RoundOutcome, client_id: str) -> str | None:
    return next(r.detail for r in outcome.decision.drift if r.client_id == client_id)


def test_client_votes_at_once_in_the_cohort_whose_model_it_trained(
    shelf: Shelf, base: str, known: str
) -> None:
    updates = [
        update(shelf, "p1", [7, 1, 1], known, flag=True),
        update(shelf, "p4", [5, 3, 1], known),
    ]

    outcome = run(shelf, two_cohorts(base, known), updates, config())

    assert cohorts_of(outcome)["p1"] == "c1"
    assert models(shelf, outcome)["c1"] == [6, 2, 1]
    assert detail_of(outcome, "p1") == "chose c1, not c0: clearly better"


def test_choice_is_followed_instead_of_the_flag(shelf: Shelf, base: str, known: str) -> None:
    updates = [update(shelf, "p1", [7, 1, 1], known, flag=True)]
    outcome = run(shelf, two_cohorts(base, known), updates, config())
    assert outcome.decision.cohorting == ()


def test_moved_client_is_asked_for_its_way_home_next(shelf: Shelf, base: str, known: str) -> None:
    updates = [update(shelf, "p1", [7, 1, 1], known, flag=True)]
    after = run(shelf, two_cohorts(base, known), updates, config()).state.clients["p1"]
    assert (after.way_home(), after.moved_round) == ("c0", 5)


def test_client_that_trains_its_origins_model_is_home_and_votes(
    shelf: Shelf, base: str, known: str
) -> None:
    state = two_cohorts(base, known, moved_round=4, origin_cohort="c0", unconfirmed=True)
    updates = [update(shelf, "p4", [1, 4, 1], base, confirm=False)]

    outcome = run(shelf, state, updates, config())

    assert models(shelf, outcome)["c0"] == [1, 4, 1]
    assert outcome.state.clients["p4"].way_home() is None
    assert detail_of(outcome, "p4") == "went home to c0: its model is not bad there any more"


def test_cohort_of_a_false_alarm_ends_where_its_members_came_from(
    shelf: Shelf, base: str, known: str
) -> None:
    fields = {"moved_round": 4, "origin_cohort": "c0", "unconfirmed": True}
    young = Cohort("c1", "c0", 4, known)
    state = two_cohorts(base, known, **fields)
    state = dataclasses.replace(state, cohorts={**state.cohorts, "c1": young})
    home, elsewhere = update(shelf, "p4", [1, 4, 1], base, confirm=False), [7, 1, 1]

    alone = run(shelf, state, [home], config()).state
    found = run(shelf, state, [home, update(shelf, "p1", elsewhere, known)], config()).state

    assert alone.cohorts["c1"].status is CohortStatus.MERGED
    assert found.cohorts["c1"].status is CohortStatus.ACTIVE


def test_flagged_client_that_compared_all_is_not_recalled_by_its_movement(
    shelf: Shelf, base: str, known: str
) -> None:
    """It had the model that it moves towards in its hands, and did not train it."""
    updates = [update(shelf, "p1", [2, 1, 1], base, flag=True)]
    state = two_cohorts(base, known)

    assert cohorts_of(run(shelf, state, updates, config("clma-choice")))["p1"] == "c1"
    assert cohorts_of(run(shelf, state, updates, config("clma-probe")))["p1"] == "c2"


def test_larger_cohort_that_is_not_bad_is_remembered_and_then_chosen(
    shelf: Shelf, base: str, known: str
) -> None:
    every = config("clma-choice", choice_every=1)
    first = [update(shelf, "p4", [5, 1, 2], known, confirm=False)]
    outcome = run(shelf, two_cohorts(base, known), first, every)
    state = dataclasses.replace(outcome.state, round_num=6)
    second = run(shelf, state, [update(shelf, "p4", [1, 1, 2], base, confirm=False)], every)

    assert cohorts_of(outcome)["p4"] == "c1"
    assert outcome.state.clients["p4"].choices.leaning == "c0"
    assert cohorts_of(second)["p4"] == "c0"
    assert detail_of(second, "p4") == "chose c0, not c1: not bad twice in a row, and larger"


def test_larger_cohort_that_is_bad_is_refused_for_a_while(
    shelf: Shelf, base: str, known: str
) -> None:
    state = two_cohorts(base, known, choices=ChoiceMemory(leaning="c0"))
    answer = update(shelf, "p4", [5, 1, 2], known, confirm=True)

    outcome = run(shelf, state, [answer], config())

    assert outcome.state.clients["p4"].choices == ChoiceMemory(None, (("c0", 5),))
    assert detail_of(outcome, "p4") == "kept c1: the model of c0 is bad there"


def test_answer_about_another_cohort_does_not_send_a_client_home(
    shelf: Shelf, base: str, known: str
) -> None:
    state = two_cohorts(base, known, moved_round=4, origin_cohort="c9", unconfirmed=True)
    gone = Cohort("c9", "c0", 4, known)
    state = dataclasses.replace(state, cohorts={**state.cohorts, "c9": gone})

    answer = update(shelf, "p4", [5, 1, 2], known, confirm=False)

    assert cohorts_of(run(shelf, state, [answer], config()))["p4"] == "c1"


def test_move_forgets_what_was_refused(shelf: Shelf, base: str, known: str) -> None:
    state = two_cohorts(base, known, choices=ChoiceMemory(refused=(("c0", 3),)))
    outcome = run(shelf, state, [update(shelf, "p4", [1, 4, 1], base)], config())
    assert outcome.state.clients["p4"].choices == ChoiceMemory()


@pytest.mark.parametrize("preset", ["clma-choice", "clma-probe"])
def test_order_of_arrival_changes_nothing(shelf: Shelf, base: str, known: str, preset: str) -> None:
    updates = [
        update(shelf, "p1", [7, 1, 1], known, flag=True),
        update(shelf, "p2", [2, 1, 9], base, flag=True),
        update(shelf, "p4", [5, 3, 1], known, confirm=True),
    ]
    state = two_cohorts(base, known)
    forth, back = (run(shelf, state, u, config(preset)) for u in (updates, updates[::-1]))
    assert (forth.state, forth.decision.drift) == (back.state, back.decision.drift)
