"""Who may speak for a client: signed updates from the plant's key to the seal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clma.client.submit import SubmitReceipt, submit
from clma.errors import ConflictError, InvalidUpdateError, UnknownClientError
from clma.ledger.federation import Federation
from clma.ledger.keys import update_key
from clma.rows import UpdateRow, Verdict
from clma.updates.signing import SigningKey, fingerprint
from tests.clma.ledger.fleet import DUE, drop, make_fleet, model, written

KEYS = {f"p{i}": SigningKey.from_seed(bytes([i + 1]) * 32) for i in range(3)}
NEW = SigningKey.from_seed(b"n" * 32)
INBOX = "inbox/round=000001"


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    """Three clients of a federation that takes signed updates; p2 has no key."""
    made = make_fleet(tmp_path / "store", tmp_path, identity={"updates": "signed"})
    for client_id in ("p0", "p1"):
        made.add_key(client_id, KEYS[client_id].public)
    return made


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return written(tmp_path / "trained.safetensors", model(0.5))


def send(
    fleet: Federation, trained: Path, client_id: str = "p0", key: SigningKey | None = None
) -> SubmitReceipt:
    key = key or KEYS[client_id]
    return submit(
        fleet, "fleet", client_id, tensors=trained, n_examples=9, drift_flag=False, key=key
    )


def judged(fleet: Federation) -> dict[str, list[UpdateRow]]:
    rows: dict[str, list[UpdateRow]] = {}
    for row in fleet.seal_round(now=DUE).rows:
        rows.setdefault(row.client_id, []).append(row)
    return rows


def test_what_a_client_signed_is_accepted(fleet: Federation, trained: Path) -> None:
    send(fleet, trained)

    (row,) = judged(fleet)["p0"]
    assert (row.verdict, row.reason) == (Verdict.ACCEPTED, None)


@pytest.mark.parametrize(
    ("client_id", "key", "reason"),
    [("p0", None, "NOT_SIGNED"), ("p0", "p1", "BAD_SIGNATURE"), ("p2", "p2", "BAD_SIGNATURE")],
)
def test_a_plant_learns_at_once_that_it_cannot_speak(
    fleet: Federation, trained: Path, client_id: str, key: str | None, reason: str
) -> None:
    values: dict[str, Any] = {"key": KEYS[key]} if key else {}

    with pytest.raises(InvalidUpdateError) as caught:
        submit(fleet, "fleet", client_id, tensors=trained, n_examples=9, drift_flag=False, **values)

    assert caught.value.reason == reason
    assert fleet.store.list("inbox") == ()


def test_an_unsigned_message_is_not_believed_at_all(fleet: Federation) -> None:
    drop(fleet, "p0", drift_flag=True)

    (row,) = judged(fleet)["p0"]
    assert (row.verdict, row.reason) == (Verdict.REJECTED, "NOT_SIGNED")
    assert (row.digest, row.n_examples, row.drift_flag) == (None, None, None)


def test_an_edited_message_is_found(fleet: Federation, trained: Path) -> None:
    send(fleet, trained)
    path = Path(fleet.store.url) / INBOX / "p0/update.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "n_examples": 10**6}))

    assert judged(fleet)["p0"][0].reason == "BAD_SIGNATURE"


def test_a_message_of_another_client_cannot_be_replayed(fleet: Federation, trained: Path) -> None:
    send(fleet, trained, "p1")
    for name in ("update.safetensors", "update.json"):
        data = fleet.store.get(update_key(1, "p1", name))
        fleet.store.put_once(update_key(1, "p0", name), data)

    assert judged(fleet)["p0"][0].reason == "BAD_CLIENT_ID"


def test_a_message_of_an_earlier_round_cannot_be_replayed(fleet: Federation, trained: Path) -> None:
    send(fleet, trained)
    fleet.seal_round(now=DUE)
    fleet.hold_round("quorum")
    fleet.open_round(now=DUE)
    message = fleet.store.get(update_key(1, "p0", "update.json"))
    fleet.store.put_once(update_key(2, "p0", "update.json"), message)

    sealed = fleet.seal_round(now=DUE, force=True)

    assert [r.reason for r in sealed.rows if r.client_id == "p0"] == ["STALE_ROUND"]
    assert sealed.updates == ()


def test_a_stranger_who_was_first_does_not_silence_the_client(
    fleet: Federation, trained: Path
) -> None:
    drop(fleet, "p0", model(9.0))

    assert not send(fleet, trained).duplicate

    accepted, refused = judged(fleet)["p0"]
    assert (accepted.verdict, accepted.n_examples) == (Verdict.ACCEPTED, 9)
    assert refused.reason == "CONFLICTING_UPDATE"
    assert refused.detail == "not the client's own; the one that it signed counts"
    assert send(fleet, trained).duplicate


def test_a_second_update_of_the_client_itself_stays_refused(
    fleet: Federation, trained: Path, tmp_path: Path
) -> None:
    send(fleet, trained)
    other = written(tmp_path / "other.safetensors", model(0.75))

    with pytest.raises(InvalidUpdateError, match="a different update of round 1 was sent before"):
        send(fleet, other)

    accepted, refused = judged(fleet)["p0"]
    assert (accepted.verdict, refused.reason) == (Verdict.ACCEPTED, "CONFLICTING_UPDATE")


def test_a_key_is_rotated_without_a_gap(fleet: Federation, trained: Path) -> None:
    fleet.add_key("p0", NEW.public)
    send(fleet, trained, key=NEW)
    fleet.revoke_key("p0", fingerprint(KEYS["p0"].public))

    assert judged(fleet)["p0"][0].verdict is Verdict.ACCEPTED


def test_a_key_that_is_revoked_before_the_seal_counts_no_more(
    fleet: Federation, trained: Path
) -> None:
    send(fleet, trained)
    fleet.revoke_key("p0", KEYS["p0"].public)

    assert judged(fleet)["p0"][0].reason == "KEY_REVOKED"
    with pytest.raises(ConflictError, match="was revoked in round 1; make a new one"):
        fleet.add_key("p0", KEYS["p0"].public)


def test_a_key_that_is_revoked_while_the_inbox_is_judged_counts_no_more(
    fleet: Federation, trained: Path
) -> None:
    """A seal that was killed after its record and before its entry is judged anew."""
    send(fleet, trained)
    shadow = Federation.open(fleet.store.url)
    shadow.journal.append = _killed  # type: ignore[method-assign,assignment]
    with pytest.raises(RuntimeError, match="killed"):
        shadow.seal_round(now=DUE)
    fleet.revoke_key("p0", KEYS["p0"].public)

    assert judged(fleet)["p0"][0].reason == "KEY_REVOKED"


def _killed(*_: object) -> None:
    raise RuntimeError("killed")


def test_one_key_is_of_one_client(fleet: Federation) -> None:
    with pytest.raises(ConflictError, match="is registered for client 'p0'"):
        fleet.add_key("p1", KEYS["p0"].public)


def test_adding_a_key_twice_is_adding_it_once(fleet: Federation) -> None:
    n_entries = len(fleet.entries())

    fleet.add_key("p0", KEYS["p0"].public)

    assert len(fleet.entries()) == n_entries


def test_keys_and_clients_that_are_not_there_are_named(fleet: Federation) -> None:
    with pytest.raises(UnknownClientError, match="client 'nobody' is not registered"):
        fleet.add_key("nobody", NEW.public)
    with pytest.raises(UnknownClientError, match="has no key 'ab', it has: "):
        fleet.revoke_key("p0", "ab")


def test_a_decision_does_not_bring_a_revoked_key_back(fleet: Federation, trained: Path) -> None:
    from tests.clma.ledger.test_federation import run

    send(fleet, trained)
    outcome = run(fleet, fleet.seal_round(now=DUE))
    fleet.revoke_key("p0", KEYS["p0"].public)

    state = fleet.commit_round(outcome.decision, outcome.state)

    assert [key.revoked_round for key in state.keys["p0"]] == [1]
