"""Whom a client is asked about, at each level of information."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from clma.cohorting.offers import offered_models
from clma.cohorting.questions import Question, question_for
from clma.config import FederationConfig, preset_config
from clma.records import (
    ChoiceMemory,
    ClientState,
    ClientStatus,
    Cohort,
    CohortStatus,
    FederationState,
)

SHARE = ["weights", "flag", "examples", "choice"]


def config(choice: str, **cohorting: Any) -> FederationConfig:
    settings = {"choice": choice, "choice_every": 0, **cohorting}
    return preset_config("test", privacy={"share": SHARE}, cohorting=settings)


def client(number: int, cohort_id: str, **fields: Any) -> ClientState:
    return ClientState(f"p{number}", cohort_id, ClientStatus.ACTIVE, f"m-{cohort_id}", **fields)


MOVED: dict[str, Any] = {"moved_round": 8, "origin_cohort": "c0"}
COHORTS = (
    Cohort("c0", None, 0, "m-c0"),
    Cohort("c1", "c0", 3, "m-c1"),
    Cohort("c2", "c0", 4, "m-c2", status=CohortStatus.DORMANT),
    Cohort("c3", "c0", 5, "m-c3", status=CohortStatus.MERGED),
    Cohort("c4", "c0", 8, "m-c4"),
)


def state_with(asked: ClientState, round_num: int = 9) -> FederationState:
    """Three clients in c0, two in c1, and the one that is asked, in c4."""
    others = [client(n, "c0") for n in (1, 2, 3)] + [client(n, "c1") for n in (4, 5)]
    clients = {c.client_id: c for c in [*others, asked]}
    cohorts = {c.cohort_id: c for c in COHORTS}
    return FederationState("test", round_num, clients=clients, cohorts=cohorts)


def asked_of(asked: ClientState, choice: str, round_num: int = 9, **cohorting: Any) -> Any:
    return question_for(state_with(asked, round_num), asked, config(choice, **cohorting))


def offered_to(asked: ClientState, choice: str, *, drifted: bool = False) -> list[str]:
    offers = offered_models(state_with(asked), asked, config(choice), drifted=drifted)
    return [offer.cohort_id for offer in offers]


@pytest.mark.parametrize("choice", ["none", "one", "all"])
def test_moved_client_is_asked_for_its_way_home_at_every_level(choice: str) -> None:
    question = asked_of(client(9, "c4", **MOVED, unconfirmed=True), choice)
    assert question == Question("c0", takes=choice != "none")


def test_settled_client_is_asked_nothing() -> None:
    assert asked_of(client(9, "c4"), "one") is None
    assert offered_to(client(9, "c4"), "all") == []


def test_nights_after_a_move_are_for_what_was_not_compared_yet_the_largest_first() -> None:
    moved = client(9, "c4", **MOVED)
    refused = dataclasses.replace(moved, choices=ChoiceMemory(refused=(("c0", 8),)))

    assert asked_of(moved, "one") == Question("c0")
    assert asked_of(refused, "one") == Question("c1")


def test_cohort_at_rest_is_compared_too() -> None:
    refused = (("c0", 8), ("c1", 9))
    moved = client(9, "c4", **MOVED, choices=ChoiceMemory(refused=refused))
    assert asked_of(moved, "one", round_num=10) == Question("c2")


def test_move_is_old_after_the_configured_nights() -> None:
    assert asked_of(client(9, "c4", **MOVED), "one", round_num=12, choice_rounds=3) is None


def test_at_most_one_other_model_a_night_is_offered_at_the_level_of_one() -> None:
    moved = client(9, "c4", **MOVED, unconfirmed=True)
    assert offered_to(moved, "one") == ["c4", "c0"]
    assert offered_to(moved, "one", drifted=True) == ["c4", "c0"]


def test_drifting_client_compares_all_that_live_or_rest_the_largest_first() -> None:
    assert offered_to(client(9, "c4"), "all", drifted=True) == ["c4", "c0", "c1", "c2"]


def test_drifting_client_does_not_compare_a_cohort_of_last_night() -> None:
    """It may be a false alarm's, whose members are asked for their way home tonight."""
    assert "c4" not in offered_to(client(9, "c0"), "all", drifted=True)


def test_moved_client_compares_only_larger_cohorts() -> None:
    """A small one that it was a member of knows its data by heart."""
    assert offered_to(client(9, "c4", **MOVED), "all") == ["c4", "c0", "c1"]


def test_quarantined_client_compares_all() -> None:
    held = dataclasses.replace(client(9, "c0"), status=ClientStatus.QUARANTINED)
    assert offered_to(held, "all") == ["c0", "c1", "c2"]


def test_answer_that_leans_to_a_cohort_is_asked_once_more() -> None:
    leaning = client(9, "c4", choices=ChoiceMemory(leaning="c1"))
    assert asked_of(leaning, "one") == Question("c1", takes=True)


def test_every_member_of_a_small_cohort_has_its_turn_within_the_configured_nights() -> None:
    settled = client(9, "c4")
    turns = [asked_of(settled, "one", r, choice_every=4) for r in range(20, 28)]
    assert sum(turn == Question("c0") for turn in turns) == 2


def test_largest_cohort_has_no_turn() -> None:
    settled = client(9, "c0")
    assert not any(asked_of(settled, "all", r, choice_every=2) for r in range(20, 24))


def test_refused_model_rests_before_it_is_compared_again() -> None:
    settled = client(9, "c4", choices=ChoiceMemory(refused=(("c0", 20), ("c1", 20))))
    asked = {r for r in range(21, 40) if asked_of(settled, "one", r, choice_every=1)}
    assert min(asked) == 22


def test_model_that_equals_the_own_one_is_not_offered() -> None:
    same = dataclasses.replace(client(9, "c4", **MOVED), serving_digest="m-c0")
    assert offered_to(same, "all") == ["c4", "c1"]
