"""What lies in a client's folder of signatures, and what is made of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clma.errors import InvalidUpdateError
from clma.ledger.federation import Federation
from clma.ledger.keys import signature_key
from clma.ledger.signatures import MAX_MESSAGES, Collected, collect_signatures
from clma.signatures.file import signature_bytes
from clma.signatures.signature import Signature
from clma.updates.signing import SigningKey
from tests.clma.onboarding.fleet import drop_signature, found, send, send_all, signature

KEY, FOREIGN = (SigningKey.from_seed(bytes([i]) * 32) for i in (1, 2))
SIGNED: dict[str, Any] = {"identity": {"updates": "signed"}}


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Federation:
    return found(url, tmp_path)


def collect(fleet: Federation, *, keep: bool = False, **more: Any) -> Collected:
    state, ids = fleet.state(), tuple(fleet.state().clients)
    return collect_signatures(fleet.store, state, fleet.config, ids, round_num=1, keep=keep, **more)


def test_who_sent_and_who_did_not(fleet: Federation) -> None:
    send_all(fleet, leave_out=("p2",))

    collected = collect(fleet)

    assert set(collected.found) == {"p0", "p1", "p3", "p4", "p5"}
    assert (collected.refused, collected.missing) == ({}, ("p2",))


def test_looking_writes_nothing(fleet: Federation) -> None:
    send_all(fleet)
    keys = fleet.store.list()

    collect(fleet)

    assert fleet.store.list() == keys


def test_copy_is_kept_out_of_the_clients_reach(fleet: Federation) -> None:
    send_all(fleet)

    kept = collect(fleet, keep=True).found["p0"]
    for key in fleet.store.list("signatures"):
        fleet.store.delete(key)

    assert fleet.store.get_verified(kept.ref)


BROKEN = signature_bytes(signature())
HOSTILE: dict[str, tuple[bytes, dict[str, Any]]] = {
    "truncated": (BROKEN[:-8], {}),
    "empty": (b"", {}),
    "other digest": (BROKEN, {"tensors_sha256": "ab" * 32}),
    "other client": (BROKEN, {"client_id": "p1"}),
    "other federation": (BROKEN, {"federation": "other"}),
    "other kind": (BROKEN, {"kind": "pacfl"}),
    "no message": (BROKEN, {"message": b"{}"}),
    "long message": (BROKEN, {"message": b" " * 100_000}),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_bad_file_costs_its_client_and_nobody_else(fleet: Federation, fault: str) -> None:
    send_all(fleet, leave_out=("p0",))
    data, said = HOSTILE[fault]
    drop_signature(fleet, "p0", data, **said)

    collected = collect(fleet, keep=True)

    assert collected.refused["p0"].startswith("client 'p0': ")
    assert "\n" not in collected.refused["p0"]
    assert set(collected.found) == {"p1", "p2", "p3", "p4", "p5"}


def test_tensors_that_went_missing_are_named(fleet: Federation) -> None:
    receipt = send(fleet, "p0", signature())
    fleet.store.delete(signature_key("p0", receipt.digest, "safetensors"))

    assert "are not there" in collect(fleet).refused["p0"]


def test_newest_counts(tmp_path: Path) -> None:
    fleet = found(tmp_path / "store", tmp_path)
    old = send(fleet, "p0", signature(seed=0))
    for key in fleet.store.list("signatures"):
        os.utime(tmp_path / "store" / key, (1, 1))
    new = send(fleet, "p0", signature(seed=1))

    assert old.digest != new.digest
    assert collect(fleet).found["p0"].ref.sha256 == new.digest


def test_only_what_the_client_signed_is_its_own(tmp_path: Path) -> None:
    """A stranger who can write to the folder comes later, and is not heard."""
    fleet = found(tmp_path / "store", tmp_path, **SIGNED)
    fleet.add_key("p0", KEY.public)
    mine = send(fleet, "p0", signature(seed=0), key=KEY)
    drop_signature(fleet, "p0", signature_bytes(signature("south")))
    (tmp_path / "store" / "signatures" / "p0" / ("ab" * 32 + ".json")).mkdir()

    assert collect(fleet).found["p0"].ref.sha256 == mine.digest


def test_stranger_alone_is_refused(tmp_path: Path) -> None:
    fleet = found(tmp_path / "store", tmp_path, **SIGNED)
    fleet.add_key("p0", KEY.public)
    drop_signature(fleet, "p0", BROKEN)

    assert "is not signed" in collect(fleet).refused["p0"]


def test_revoked_key_is_no_key(tmp_path: Path) -> None:
    fleet = found(tmp_path / "store", tmp_path, **SIGNED)
    fleet.add_key("p0", KEY.public)
    send(fleet, "p0", signature(), key=KEY)
    fleet.revoke_key("p0", KEY.public)

    assert "was revoked" in collect(fleet).refused["p0"]


def test_flood_of_messages_is_refused(fleet: Federation) -> None:
    for number in range(MAX_MESSAGES + 1):
        fleet.store.put_if_absent(signature_key("p0", f"{number:064x}", "json"), b"{}")

    assert f"at most {MAX_MESSAGES} are looked at" in collect(fleet).refused["p0"]


def test_foreign_names_in_the_folder_are_passed_over(tmp_path: Path) -> None:
    fleet = found(tmp_path / "store", tmp_path)
    send(fleet, "p0", signature())
    (tmp_path / "store" / "signatures" / "p0" / "read me.json").write_text("?")

    assert set(collect(fleet).found) == {"p0"}


def test_minority_with_another_encoder_is_refused_by_name(fleet: Federation) -> None:
    send_all(fleet, leave_out=("p0",))
    send(fleet, "p0", signature(encoder="e2" * 32))

    refused = collect(fleet, keep=True).refused

    assert list(refused) == ["p0"]
    assert "encoder 'e2e2e2e2e...' (4 features), wanted encoder 'e1e1e1e1e..." in refused["p0"]
    assert not any("/p0." in key for key in fleet.store.list("rounds"))


def test_one_encoder_has_one_number_of_features(fleet: Federation) -> None:
    send_all(fleet, leave_out=("p0",))
    send(fleet, "p0", signature(n_features=7))

    assert "(7 features), wanted" in collect(fleet).refused["p0"]


def test_tie_between_encoders_is_the_operators_to_decide(url: str, tmp_path: Path) -> None:
    fleet = found(url, tmp_path, 2)
    send(fleet, "p0", signature())
    send(fleet, "p1", signature(encoder="e2" * 32))

    with pytest.raises(InvalidUpdateError, match=r"two encoders, 1 with .* onboarding\.encoder"):
        collect(fleet)


def test_named_encoder_wins_over_a_majority(url: str, tmp_path: Path) -> None:
    fleet = found(url, tmp_path, 3)
    for client_id, encoder in zip(("p0", "p1", "p2"), ("e1", "e1", "e2"), strict=True):
        send(fleet, client_id, signature(encoder=encoder * 32))
    wanted = fleet.config.onboarding.model_copy(update={"encoder": "e2" * 32})
    fleet.configure(fleet.config.model_copy(update={"onboarding": wanted}))

    assert set(collect(fleet).found) == {"p2"}


def test_means_in_other_units_are_refused(fleet: Federation) -> None:
    """One client of means a million times as long would be the whole spread of the fleet."""
    send_all(fleet, leave_out=("p0",))
    arrays = {**signature().arrays, "means": signature().arrays["means"] * np.float32(1e6)}
    send(fleet, "p0", Signature("fmcl", arrays, signature().encoder))

    collected = collect(fleet)

    assert "are its units the fleet's?" in collected.refused["p0"]
    assert len(collected.found) == 5
