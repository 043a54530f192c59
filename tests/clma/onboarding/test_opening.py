"""Who comes later is placed when a round opens, by whoever is there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from clma.ledger.audit import audit
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.night import close_round
from clma.onboarding.opening import moves_from_store
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ClientStatus
from tests.clma.ledger.fleet import DUE, drop, model
from tests.clma.onboarding.fleet import (
    cohorts_of,
    drop_signature,
    found,
    onboard,
    send,
    send_all,
    signature,
)


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    made = found(tmp_path / "store", tmp_path)
    send_all(made)
    onboard(made)
    return made


def pass_night(fleet: Federation, *more: str) -> None:
    for client_id in ("p0", "p1", "p4", *more):
        drop(fleet, client_id, model(0.5))
    close_round(fleet, now=DUE, force=True)


def evidence(fleet: Federation) -> dict[str, object]:
    entry = fleet.journal.find(EntryKind.ROUND_OPENED, fleet.state().round_num)
    assert entry is not None
    found_there: dict[str, object] = entry.payload.get("onboarding", {})
    return found_there


def test_newcomer_goes_to_its_like(fleet: Federation) -> None:
    fleet.register_client("late")
    send(fleet, "late", signature("south", 77))

    pass_night(fleet)

    assert cohorts_of(fleet)["late"] == "c1"
    assert set(evidence(fleet)["distances"]) == {"late"}  # type: ignore[call-overload]
    assert audit(fleet).problems == ()


def test_newcomer_waits_in_the_root_until_its_signature_comes(fleet: Federation) -> None:
    fleet.register_client("late")
    pass_night(fleet)
    assert cohorts_of(fleet)["late"] == "c0"
    send(fleet, "late", signature("south", 77))

    pass_night(fleet, "late")

    assert cohorts_of(fleet)["late"] == "c1"


def test_third_newcomer_is_measured_by_the_second(fleet: Federation) -> None:
    for number, client_id in enumerate(("late", "later")):
        fleet.register_client(client_id)
        send(fleet, client_id, signature("south", 70 + number))
        pass_night(fleet)

    assert cohorts_of(fleet)["later"] == "c1"
    assert fleet.state().clients["later"].signature_round == 3


def test_newcomer_with_another_encoder_is_refused_by_name_and_the_night_goes_on(
    fleet: Federation,
) -> None:
    fleet.register_client("late")
    send(fleet, "late", signature("south", 77, encoder="e2" * 32))

    pass_night(fleet)

    assert cohorts_of(fleet)["late"] == "c0"
    assert "encoder 'e2e2e2e2e...'" in str(evidence(fleet)["refused"])
    assert fleet.state().round_num == 2


def test_garbage_in_a_newcomers_folder_costs_no_night(fleet: Federation) -> None:
    fleet.register_client("late")
    drop_signature(fleet, "late", serialize_tensors(model()))

    pass_night(fleet)

    assert "client 'late': tensors" in str(evidence(fleet)["refused"])


def test_placed_clients_are_not_asked_again(fleet: Federation) -> None:
    """Their data drift, and that is what the flag is for."""
    send(fleet, "p0", signature("south", 50))

    pass_night(fleet)

    assert cohorts_of(fleet)["p0"] == "c0"
    assert evidence(fleet) == {}


def test_who_left_the_root_by_drift_is_no_newcomer(fleet: Federation) -> None:
    for client_id in ("late", "later"):
        fleet.register_client(client_id)
    pass_night(fleet, "late", "later")
    for client_id in ("late", "later"):
        drop(fleet, client_id, model(9.0), drift_flag=True)
    pass_night(fleet)
    left = cohorts_of(fleet)["late"]
    send(fleet, "late", signature("south", 77))

    pass_night(fleet)

    assert left not in {"c0", "c1"}
    assert cohorts_of(fleet)["late"] == left


def test_who_is_in_quarantine_is_not_placed(fleet: Federation) -> None:
    fleet.register_client("late")
    send(fleet, "late", signature("south", 77))
    state = fleet.state()
    held = dataclasses.replace(state.clients["late"], status=ClientStatus.QUARANTINED)

    moved, _ = moves_from_store(
        fleet,
        dataclasses.replace(state, clients={**state.clients, "late": held}),
        fleet.config,
    )

    assert moved.clients["late"] == held


def test_fleet_whose_cohorts_all_drifted_away_places_in_the_root(tmp_path: Path) -> None:
    fleet = found(tmp_path / "store", tmp_path, 1)
    send(fleet, "p0", signature("north"))
    onboard(fleet)
    fleet.register_client("late")
    send(fleet, "late", signature("south"))
    drop(fleet, "p0", model(0.5))

    close_round(fleet, now=DUE, force=True)

    assert cohorts_of(fleet) == {"p0": "c0", "late": "c0"}
