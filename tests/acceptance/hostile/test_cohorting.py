"""Who drifts, with whom, and how many: cohorting where clustering has little to go by."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

from clma.ledger.federation import Federation
from clma.records import ClientStatus, CohortStatus
from clma.round import RoundOutcome
from tests.acceptance.hostile.fleet import (
    CLIENTS,
    found,
    moved,
    night,
    root_model,
    send,
    send_good,
    tensors_of,
    trained,
)


def night_of_drift(federation: Federation, ways: Mapping[str, tuple[int, float]]) -> RoundOutcome:
    """Close a round in which some plants moved: along which coordinate, and how far."""
    state = federation.state()
    for client_id, (way, size) in ways.items():
        start = tensors_of(federation, state.clients[client_id].serving_digest)
        tensors = moved(trained(client_id, state.round_num, start), way, size)
        send(federation, client_id, tensors, drift_flag=True)
    send_good(federation, but=ways)
    return night(federation)


def together(outcome: RoundOutcome, client_ids: tuple[str, ...] = CLIENTS) -> set[frozenset[str]]:
    """Return which plants share a cohort; one in quarantine is alone."""
    clients = [outcome.state.clients[c] for c in client_ids]
    places: dict[str, set[str]] = {}
    for client in clients:
        held = client.status is ClientStatus.QUARANTINED
        key = client.client_id if held else client.cohort_id
        places.setdefault(key, set()).add(client.client_id)
    return {frozenset(place) for place in places.values()}


def assert_in_one_place(outcome: RoundOutcome) -> None:
    """Every plant is in one cohort that exists, and is served a model."""
    state = outcome.state
    assert tuple(state.clients) == CLIENTS
    for client in state.clients.values():
        cohort = state.cohorts[client.cohort_id]
        held = client.status is ClientStatus.QUARANTINED
        assert held or client.client_id in state.members(cohort.cohort_id)
        assert held or client.serving_digest == cohort.model_digest


@pytest.mark.parametrize("n_drifted", range(9))
@pytest.mark.parametrize("n_ways", [1, 2, 8])
def test_every_plant_is_in_one_place_whoever_drifts(
    tmp_path: Path, n_drifted: int, n_ways: int
) -> None:
    federation = found(tmp_path, n_rounds=1)
    ways = {c: (i % n_ways, 2.0) for i, c in enumerate(CLIENTS[:n_drifted])}

    outcome = night_of_drift(federation, ways)

    assert_in_one_place(outcome)
    assert_in_one_place(night_of_drift(federation, {}))


def test_one_drifted_plant_gets_a_cohort_of_its_own(tmp_path: Path) -> None:
    outcome = night_of_drift(found(tmp_path, n_rounds=1), {"plant-c": (0, 2.0)})

    assert outcome.state.members("c1") == ("plant-c",)
    assert outcome.state.cohorts["c1"].parent == "c0"


def test_two_that_drift_in_opposite_ways_are_not_put_together(tmp_path: Path) -> None:
    federation = found(tmp_path, n_rounds=1)

    outcome = night_of_drift(federation, {"plant-c": (0, 2.0), "plant-d": (0, -2.0)})

    assert outcome.state.members("c1") == ("plant-c",)
    assert outcome.state.members("c2") == ("plant-d",)


def test_all_that_drift_one_way_are_one_cohort_and_the_old_model_stays(tmp_path: Path) -> None:
    federation = found(tmp_path, n_rounds=1)
    before = federation.state().cohorts["c0"].model_digest

    outcome = night_of_drift(federation, dict.fromkeys(CLIENTS, (0, 2.0)))

    assert outcome.state.members("c1") == CLIENTS
    root = outcome.state.cohorts["c0"]
    assert (root.status, root.model_digest) == (CohortStatus.DORMANT, before)
    assert root_model(federation).keys() == trained("plant-a", 1).keys()


def test_all_that_drift_their_own_ways_are_not_forced_together(tmp_path: Path) -> None:
    federation = found(tmp_path, n_rounds=1)

    outcome = night_of_drift(federation, {c: (i, 2.0) for i, c in enumerate(CLIENTS)})

    assert together(outcome) == {frozenset({c}) for c in CLIENTS}


def test_who_still_drifts_his_own_way_a_night_later_gets_a_cohort(tmp_path: Path) -> None:
    """Eight ways at once are more than a finding; the night after they are taken for true."""
    federation = found(tmp_path, n_rounds=1)
    ways = {c: (i, 2.0) for i, c in enumerate(CLIENTS)}
    before = federation.state().cohorts["c0"].model_digest

    waiting = night_of_drift(federation, ways).state
    placed = night_of_drift(federation, ways).state

    assert {c.status for c in waiting.clients.values()} == {ClientStatus.QUARANTINED}
    assert {c.serving_digest for c in waiting.clients.values()} == {before}
    assert [placed.members(f"c{i + 1}") for i in range(8)] == [(c,) for c in CLIENTS]


def test_flags_of_the_first_round_are_noted_and_not_followed(tmp_path: Path) -> None:
    federation = found(tmp_path)

    outcome = night_of_drift(federation, dict.fromkeys(CLIENTS[:4], (0, 2.0)))

    assert together(outcome) == {frozenset(CLIENTS)}
    notes = {r.client_id: r.detail for r in outcome.decision.drift if r.drift_flag}
    assert set(notes) == set(CLIENTS[:4])
    assert all("no earlier loss" in str(detail) for detail in notes.values())


@pytest.mark.parametrize("preset", ["clma", "clma-literal", "clma-package"])
@pytest.mark.parametrize("n_twins", [2, 3, 8])
def test_twins_to_the_last_bit_share_a_cohort_without_a_warning(
    tmp_path: Path, preset: str, n_twins: int
) -> None:
    federation = found(tmp_path, n_rounds=1, preset=preset)
    twin = moved(root_model(federation), 0, 2.0)
    for client_id in CLIENTS[:n_twins]:
        send(federation, client_id, twin, drift_flag=True)
    send_good(federation, but=CLIENTS[:n_twins])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = night(federation)

    assert outcome.state.members("c1") == CLIENTS[:n_twins]
    assert_in_one_place(outcome)
