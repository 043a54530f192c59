"""A plan comes into force by one entry, whoever is killed where."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path

import numpy as np
import pytest

from clma.errors import ConflictError, RoundHeldError, RoundStateError
from clma.ledger.audit import audit
from clma.ledger.chain import EntryKind
from clma.ledger.federation import Federation
from clma.night import close_round, open_next_round
from clma.onboarding.carry_out import note_down, open_first_round, planned_moves, write_plan
from clma.onboarding.kept import kept_signatures
from clma.onboarding.plan import plan_cohorts
from clma.onboarding.record import parse_record, record_bytes, record_of
from clma.records import ArtifactRef, ClientStatus, Phase
from tests.clma.ledger.fleet import DUE, NOW, drop, model
from tests.clma.onboarding.fleet import cohorts_of, found, onboard, send, send_all, signature

SOUTH = ("p4", "p5")


@pytest.fixture(params=["disk", "memory"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Federation:
    url = tmp_path / "store" if request.param == "disk" else f"memory://{uuid.uuid4()}"
    made = found(url, tmp_path)
    send_all(made)
    return made


def plan_again(fleet: Federation) -> ArtifactRef:
    return write_plan(fleet, plan_cohorts(fleet, keep=True))


def pass_night(fleet: Federation) -> None:
    for client_id in fleet.state().clients:
        drop(fleet, client_id, model(0.5))
    close_round(fleet, now=DUE, force=True)


def test_round_one_opens_with_the_cohorts(fleet: Federation) -> None:
    onboard(fleet)

    assert fleet.state().phase is Phase.OPEN
    assert {c for c, cohort in cohorts_of(fleet).items() if cohort == "c1"} == set(SOUTH)
    assert fleet.state().clients["p4"].signature_round == 1


def test_entry_names_what_everybody_was_placed_by(fleet: Federation) -> None:
    ref = onboard(fleet)
    (entry,) = (e for e in fleet.entries() if e.kind is EntryKind.ROUND_OPENED)

    evidence = entry.payload["onboarding"]

    assert evidence["record"] == {"path": ref.path, "sha256": ref.sha256}
    assert set(evidence["signatures"]) == set(fleet.state().clients)
    assert audit(fleet).problems == ()


def test_audit_misses_a_signature_that_was_used(fleet: Federation) -> None:
    onboard(fleet)
    fleet.store.delete(next(k for k in fleet.store.list("rounds") if "/signatures/p0." in k))

    assert any("signatures/p0." in problem for problem in audit(fleet).problems)


def test_what_clients_were_placed_by_can_be_read_again(fleet: Federation) -> None:
    onboard(fleet)
    for key in fleet.store.list("signatures"):
        fleet.store.delete(key)

    (kept,) = kept_signatures(fleet, {"p5": 1}).values()

    assert np.array_equal(kept.signature.arrays["means"], signature("south", 5).arrays["means"])


def test_record_survives_the_file(fleet: Federation) -> None:
    record = record_of(plan_cohorts(fleet))

    assert parse_record(record_bytes(record)) == record


def test_carrying_out_again_changes_nothing(fleet: Federation) -> None:
    ref = onboard(fleet)
    n_entries = fleet.journal.n_entries()

    open_first_round(fleet, ref, now=NOW)

    assert fleet.journal.n_entries() == n_entries


def test_of_two_runs_the_second_is_told(fleet: Federation) -> None:
    first = write_plan(fleet, plan_cohorts(fleet, keep=True))
    send(fleet, "p3", signature("south", 33))
    second = write_plan(fleet, plan_cohorts(fleet, keep=True))
    open_first_round(fleet, first, now=NOW)

    with pytest.raises(ConflictError, match="opened before, with other cohorts"):
        open_first_round(fleet, second, now=NOW)
    assert cohorts_of(fleet)["p3"] == "c0"


def test_plan_moves_clients_when_the_next_round_opens(fleet: Federation) -> None:
    onboard(fleet)
    send(fleet, "p3", signature("south", 33))
    note_down(fleet, plan_again(fleet), now=NOW)
    assert cohorts_of(fleet)["p3"] == "c0"

    pass_night(fleet)

    assert cohorts_of(fleet)["p3"] == "c1"
    assert (fleet.state().planned_cohorts, fleet.state().round_num) == (None, 2)
    assert fleet.state().clients["p3"].serving_digest == fleet.state().cohorts["c1"].model_digest


def test_plan_outlives_a_night_that_is_held(fleet: Federation) -> None:
    onboard(fleet)
    send(fleet, "p3", signature("south", 33))
    note_down(fleet, plan_again(fleet), now=NOW)

    with pytest.raises(RoundHeldError):
        close_round(fleet, now=DUE)

    assert cohorts_of(fleet)["p3"] == "c1"


def test_new_cohort_has_the_next_free_name_and_its_parents_model(fleet: Federation) -> None:
    onboard(fleet)
    for number in (2, 3):
        send(fleet, f"p{number}", signature("east", number, n_features=4))
    for number in (4, 5):
        send(fleet, f"p{number}", signature("north", number))
    note_down(fleet, plan_again(fleet), now=NOW)

    pass_night(fleet)
    state = fleet.state()

    assert len({c.cohort_id for c in state.clients.values()}) == 2
    assert audit(fleet).problems == ()


def test_client_that_drifted_since_stays_where_it_went(fleet: Federation) -> None:
    onboard(fleet)
    pass_night(fleet)
    send(fleet, "p3", signature("south", 33))
    note_down(fleet, plan_again(fleet), now=NOW)
    for client_id in fleet.state().clients:
        drifts = client_id == "p3"
        drop(fleet, client_id, model(9.0 if drifts else 0.5), drift_flag=drifts)

    close_round(fleet, now=DUE, force=True)

    client = fleet.state().clients["p3"]
    assert (client.cohort_id, client.signature_round) == ("c2", 1)


def test_client_in_quarantine_stays_there(fleet: Federation) -> None:
    onboard(fleet)
    send(fleet, "p3", signature("south", 33))
    state = note_down(fleet, plan_again(fleet), now=NOW)
    held = dataclasses.replace(state.clients["p3"], status=ClientStatus.QUARANTINED)

    moved, _ = planned_moves(
        fleet, dataclasses.replace(state, clients={**state.clients, "p3": held}), 2
    )

    assert moved.clients["p3"] == held


def test_plan_for_a_round_that_has_passed_is_refused(fleet: Federation) -> None:
    onboard(fleet)
    ref = plan_again(fleet)
    pass_night(fleet)

    with pytest.raises(RoundStateError, match="plan is for round 2, the next one is 3"):
        note_down(fleet, ref, now=NOW)


def test_before_the_cohorts_no_round_opens(fleet: Federation) -> None:
    with pytest.raises(RoundStateError, match=r"python -m flows\.onboard --store"):
        open_next_round(fleet, now=NOW)
    assert fleet.state().phase is Phase.CREATED
