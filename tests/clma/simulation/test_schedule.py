from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clma.errors import InvalidConfigError, UnknownClientError
from clma.simulation.schedule import (
    BASE,
    EVENT_ROUNDS,
    SHAPES,
    Concept,
    build_schedule,
    client_names,
)

FAMILIES = [[Concept("b"), Concept("c")], [Concept("x"), Concept("y")]]
TEN = client_names(10)


def test_client_names_sort_as_numbers() -> None:
    assert client_names(120)[99] == "plant-100"
    assert list(client_names(120)) == sorted(client_names(120))


def test_stationary_fleet_stays_at_the_base() -> None:
    schedule = build_schedule("stationary", TEN, FAMILIES)

    assert {schedule.concept(c, r) for c in TEN for r in range(1, 11)} == {BASE}


def test_stagger_moves_one_client_per_family_at_each_event() -> None:
    schedule = build_schedule("stagger", TEN, FAMILIES)

    for round_num in EVENT_ROUNDS:
        moved = [e.concept.name for e in schedule.events if e.round_num == round_num]
        assert moved == ["b", "x"]
    assert not schedule.events_of("plant-01") + schedule.events_of("plant-02")


def test_repeat_moves_all_drifting_clients_at_each_event_along_their_path() -> None:
    schedule = build_schedule("repeat", TEN, FAMILIES)

    assert [schedule.concept("plant-03", r).name for r in (2, 3, 5, 7, 9)] == [
        "base", "b", "c", "b", "c",
    ]  # fmt: skip
    assert all(sum(e.round_num == r for e in schedule.events) == 8 for r in EVENT_ROUNDS)


def test_recurring_goes_there_and_back_and_there_again() -> None:
    schedule = build_schedule("recurring", TEN, FAMILIES)

    assert [schedule.concept("plant-04", r).name for r in (2, 3, 5, 7, 10)] == [
        "base", "x", "base", "x", "x",
    ]  # fmt: skip


def test_same_moves_the_whole_fleet_to_one_concept_at_round_five() -> None:
    schedule = build_schedule("same", TEN, FAMILIES)

    assert [{schedule.concept(c, r).name for c in TEN} for r in (4, 5, 10)] == [
        {"base"}, {"b"}, {"b"},
    ]  # fmt: skip


def test_gradual_share_rises_to_one() -> None:
    schedule = build_schedule("gradual", TEN, FAMILIES)

    shares = [schedule.mixture("plant-03", r).get(Concept("b"), 0.0) for r in (2, 3, 4, 5, 6)]

    np.testing.assert_allclose(shares, [0, 1 / 3, 2 / 3, 1, 1])


@given(st.sampled_from(SHAPES), st.integers(1, 40), st.integers(1, 12))
def test_shares_add_up_to_one(shape: str, n_clients: int, round_num: int) -> None:
    schedule = build_schedule(shape, client_names(n_clients), FAMILIES)

    for client_id in schedule.client_ids:
        assert sum(schedule.mixture(client_id, round_num).values()) == pytest.approx(1.0)


def test_relabelling_returns_a_copy() -> None:
    labels = np.array([0, 1, 2])

    assert Concept("s", relabelling=(1, 0, 2)).relabel(labels).tolist() == [1, 0, 2]
    assert BASE.relabel(labels) is not labels


def test_unknown_shape_names_the_known_ones() -> None:
    with pytest.raises(InvalidConfigError, match="'sudden' is unknown, wanted one of stationary"):
        build_schedule("sudden", TEN, FAMILIES)


@pytest.mark.parametrize("families", [[], [[]]])
def test_drift_without_a_concept_to_go_to_is_refused(families: list[list[Concept]]) -> None:
    with pytest.raises(InvalidConfigError, match="needs families"):
        build_schedule("stagger", TEN, families)


def test_unknown_client_is_named() -> None:
    with pytest.raises(UnknownClientError, match="'plant-99' is not in the fleet"):
        build_schedule("stagger", TEN, FAMILIES).concept("plant-99", 1)
