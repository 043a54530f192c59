"""Updates that are too old, too early, too late, sent twice, or not sent at all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from clma.client import submit
from clma.errors import InvalidUpdateError, RoundHeldError
from clma.ledger.federation import Federation
from clma.ledger.keys import update_key
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ClientStatus, Phase
from clma.rows import Gate, Verdict
from tests.acceptance.hostile.fleet import (
    CLIENTS,
    NAME,
    decided,
    drop,
    found,
    message_of,
    moved,
    night,
    recorded,
    root_model,
    row_of,
    send,
    send_good,
    trained,
    verdicts,
)


def in_round_five(folder: Path) -> Federation:
    """Return a federation with round 5 open, in which all but plant-e have sent."""
    federation = found(folder, n_rounds=4)
    send_good(federation, but=["plant-e"])
    return federation


def served_in(federation: Federation, round_num: int) -> str:
    """Return the model that plant-e was sent in a round."""
    return federation.state_at_seal(round_num).clients["plant-e"].serving_digest


@pytest.fixture(scope="module")
def without_e(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return decided(night(in_round_five(tmp_path_factory.mktemp("without"))))


@pytest.mark.parametrize(
    ("reason", "round_num", "base_of"),
    [("STALE_ROUND", 4, 4), ("STALE_BASE", 5, 3), ("FUTURE_ROUND", 6, 4)],
)
def test_an_update_of_another_time_changes_nothing(
    tmp_path: Path, without_e: dict[str, Any], reason: str, round_num: int, base_of: int
) -> None:
    federation = in_round_five(tmp_path)
    base_digest = served_in(federation, base_of)
    send(federation, "plant-e", round_num=round_num, base_digest=base_digest)

    outcome = night(federation)

    assert decided(outcome) == without_e
    assert [r.reason for r in recorded(federation, 5, "plant-e")] == [reason]


@pytest.mark.parametrize("round_num", [4, 6])
def test_a_plant_learns_at_once_that_its_round_is_not_open(tmp_path: Path, round_num: int) -> None:
    federation = in_round_five(tmp_path)
    path = tmp_path / "trained.safetensors"
    path.write_bytes(serialize_tensors(trained("plant-e", 5)))

    with pytest.raises(InvalidUpdateError, match=f"update of round {round_num}, open is 5"):
        submit(
            federation,
            NAME,
            "plant-e",
            tensors=path,
            n_examples=1,
            drift_flag=False,
            round_num=round_num,
        )


def test_what_comes_after_the_seal_is_kept_listed_and_never_mixed_in(tmp_path: Path) -> None:
    federation = found(tmp_path)
    send_good(federation, but=["plant-e"])
    state = federation.state()
    night(federation)
    late = message_of(state, "plant-e")
    key = update_key(1, "plant-e", "update.json")
    federation.store.put_if_absent(key, late)
    send_good(federation, but=["plant-e"])

    outcome = night(federation)

    rows = [r for r in outcome.decision.updates if r.client_id == "plant-e"]
    assert {(r.verdict, r.reason) for r in rows} == {
        (Verdict.LATE, "STALE_ROUND"),
        (Verdict.MISSING, "MISSED_DEADLINE"),
    }
    assert outcome.state.clients["plant-e"].status is ClientStatus.MISSING
    assert federation.store.get(key) == late


def sent(federation: Federation, folder: Path, size: float) -> str:
    """Let plant-e submit an update of its own making; return what became of it."""
    path = folder / f"{threading.get_ident()}-{size}.safetensors"
    path.write_bytes(serialize_tensors(moved(trained("plant-e", 1), 0, size)))
    try:
        receipt = submit(
            federation.store.url, NAME, "plant-e", tensors=path, n_examples=10, drift_flag=False
        )
    except InvalidUpdateError as error:
        return str(error.reason)
    return "duplicate" if receipt.duplicate else "accepted"


def test_the_same_update_twice_counts_once(tmp_path: Path) -> None:
    federation = found(tmp_path)

    assert [sent(federation, tmp_path, 1.0) for _ in range(2)] == ["accepted", "duplicate"]
    assert row_of(night(federation), "plant-e").verdict is Verdict.ACCEPTED


def test_of_two_different_updates_the_first_counts_and_the_second_is_recorded(
    tmp_path: Path,
) -> None:
    federation, alone = found(tmp_path / "both"), found(tmp_path / "alone")
    sent(alone, tmp_path, 1.0)

    assert [sent(federation, tmp_path, s) for s in (1.0, 2.0)] == ["accepted", "CONFLICTING_UPDATE"]

    outcome = night(federation)
    assert outcome.state.cohorts == night(alone).state.cohorts
    rows = recorded(federation, 1, "plant-e")
    assert [(r.verdict.value, r.reason) for r in rows] == [
        ("accepted", None),
        ("rejected", "CONFLICTING_UPDATE"),
    ]


def test_who_misses_the_deadline_is_listed_and_keeps_its_place(tmp_path: Path) -> None:
    federation = found(tmp_path, round={"quorum": 5})
    away = CLIENTS[5:]
    send_good(federation, but=away)

    outcome = night(federation)

    assert verdicts(outcome) == dict.fromkeys(away, "MISSED_DEADLINE")
    assert outcome.decision.cohorts[0].n_updates == 5
    assert {outcome.state.clients[c].cohort_id for c in away} == {"c0"}


def test_a_night_below_quorum_is_held_and_the_next_one_makes_up_for_it(tmp_path: Path) -> None:
    federation = found(tmp_path, round={"quorum": 5})
    before = federation.state().clients
    send_good(federation, but=CLIENTS[4:])

    with pytest.raises(RoundHeldError, match=r"4 updates accepted, round\.quorum is 5"):
        night(federation)

    state = federation.state()
    assert (state.round_num, state.phase, state.clients) == (2, Phase.OPEN, before)
    send_good(federation)
    assert night(federation).decision.cohorts[0].gate is Gate.PROMOTED


def test_a_cohort_below_its_quorum_keeps_its_model_and_the_others_publish(tmp_path: Path) -> None:
    federation = found(tmp_path, n_rounds=1, round={"cohort_quorum": 2})
    drifted = CLIENTS[:3]
    for client_id in drifted:
        tensors = moved(root_model(federation), 0, 2.0)
        send(federation, client_id, tensors, drift_flag=True)
    send_good(federation, but=drifted)
    born = night(federation).state.cohorts["c1"]
    send_good(federation, but=drifted[:2])

    outcome = night(federation)

    rows = {row.cohort_id: row for row in outcome.decision.cohorts}
    assert rows["c1"].gate_detail == "1 updates, round.cohort_quorum is 2"
    assert (rows["c1"].model_digest, rows["c0"].gate) == (born.model_digest, Gate.PROMOTED)
    assert {outcome.state.clients[c].cohort_id for c in drifted} == {"c1"}


def test_a_plant_that_was_away_for_nights_comes_back(tmp_path: Path) -> None:
    federation = found(tmp_path)
    for _ in range(3):
        send_good(federation, but=["plant-h"])
        night(federation)
    drop(federation, "plant-h", "update.safetensors", b"half")
    send_good(federation, but=["plant-h"])
    assert row_of(night(federation), "plant-h").reason == "INCOMPLETE"
    send_good(federation)

    outcome = night(federation)

    assert outcome.state.clients["plant-h"].status is ClientStatus.ACTIVE
