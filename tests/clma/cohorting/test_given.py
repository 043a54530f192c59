from __future__ import annotations

from typing import Any

import pytest

from clma.cohorting.given import given_moves
from clma.config import FederationConfig, preset_config
from clma.errors import InvalidConfigError
from clma.records import ClientState, ClientStatus, Cohort, CohortStatus, FederationState

STATE = FederationState(
    federation="test",
    clients={c: ClientState(c, "c0", ClientStatus.ACTIVE, "m0") for c in ("p1", "p2")},
    cohorts={"c0": Cohort("c0", None, 0, "m0")},
)


def given(*entries: tuple[int, dict[str, str]]) -> FederationConfig:
    schedule: list[dict[str, Any]] = [{"from_round": r, "labels": la} for r, la in entries]
    return preset_config("test", "oracle", cohorting={"schedule": schedule})


CONFIG = given((1, {"p1": "old", "p2": "old"}), (3, {"p1": "old", "p2": "new"}))


def test_first_label_is_the_root() -> None:
    assert given_moves(STATE, CONFIG, 2) == STATE


def test_new_label_starts_from_its_parents_model_when_the_round_opens() -> None:
    moved = given_moves(STATE, CONFIG, 3)
    assert moved.clients["p2"].cohort_id == "c1"
    assert moved.clients["p2"].serving_digest == "m0"
    assert moved.cohorts["c1"].parent == "c0"


def test_left_cohort_rests_and_wakes_with_its_label() -> None:
    config = given(
        (1, {"p1": "a", "p2": "a"}), (2, {"p1": "b", "p2": "b"}), (3, {"p1": "a", "p2": "b"})
    )
    second = given_moves(STATE, config, 2)
    third = given_moves(second, config, 3)
    assert second.cohorts["c0"].status is CohortStatus.DORMANT
    assert third.cohorts["c0"].status is CohortStatus.ACTIVE


def test_other_methods_move_nobody() -> None:
    assert given_moves(STATE, preset_config("test"), 3) is STATE


def test_client_without_a_label_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="client 'p2'"):
        given_moves(STATE, given((1, {"p1": "a"})), 1)
