from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clma.client.sign import send_signature
from clma.errors import InvalidConfigError, InvalidUpdateError, PolicyError, UnknownClientError
from clma.ledger.federation import Federation
from clma.signatures.signature import Signature
from clma.updates.reasons import Reason
from clma.updates.signing import SigningKey
from tests.clma.onboarding.fleet import ENCODER, found, onboard, send, send_all, signature

KEY = SigningKey.from_seed(b"\1" * 32)


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return found(tmp_path / "store", tmp_path)


def test_what_leaves_the_plant_is_said(fleet: Federation) -> None:
    receipt = send(fleet, "p0", signature())

    assert (receipt.n_classes, receipt.n_features, receipt.encoder) == (2, 4, ENCODER)
    assert len(fleet.store.list("signatures/p0")) == 2


def test_the_same_again_changes_nothing(fleet: Federation) -> None:
    first = send(fleet, "p0", signature())
    keys = fleet.store.list()

    again = send(fleet, "p0", signature())

    assert (first.duplicate, again.duplicate) == (False, True)
    assert fleet.store.list() == keys


def test_what_was_sent_before_another_one_is_sent_anew(fleet: Federation) -> None:
    """A, B, A: the newest counts, so the second A has to be newer than B."""
    send(fleet, "p0", signature(seed=0))
    sent = send(fleet, "p0", signature(seed=1))
    for key in fleet.store.list("signatures/p0"):
        if key.endswith(".json") and fleet.store.folder is not None:
            os.utime(
                fleet.store.folder / key,
                (1, 1) if sent.digest.encode() not in fleet.store.get(key) else (2, 2),
            )

    assert not send(fleet, "p0", signature(seed=0)).duplicate


def test_attempt_that_died_between_the_two_files_is_repaired(fleet: Federation) -> None:
    send(fleet, "p0", signature())
    (message,) = (k for k in fleet.store.list("signatures") if k.endswith(".json"))
    fleet.store.delete(message)

    assert not send(fleet, "p0", signature()).duplicate
    assert len(fleet.store.list("signatures/p0")) == 2


@pytest.mark.parametrize(
    ("settings", "sent", "says"),
    [
        ({"onboarding": {"method": "none"}}, signature(), "does not place clients by signatures"),
        ({}, Signature("pacfl", {}, ENCODER), "kind 'fmcl', this is one of kind 'pacfl'"),
    ],
)
def test_policy_decides_what_leaves(
    tmp_path: Path, settings: dict[str, Any], sent: Signature, says: str
) -> None:
    fleet = found(tmp_path / "store", tmp_path, **settings)

    with pytest.raises(PolicyError, match=says):
        send(fleet, "p0", sent)
    assert not fleet.store.list("signatures")


def test_other_encoder_than_the_federations_is_refused_at_the_plant(tmp_path: Path) -> None:
    wanted = {"method": "fmcl", "encoder": "e2" * 32}
    fleet = found(tmp_path / "store", tmp_path, onboarding=wanted)

    with pytest.raises(InvalidUpdateError, match="wants 'e2e2e2e2e2e2'"):
        send(fleet, "p0", signature())


def test_gateway_is_no_way_for_signatures() -> None:
    with pytest.raises(InvalidConfigError, match="passes no signatures of data on"):
        send_signature("https://gate.example", "fleet", "p0", signature())


def test_stranger_is_refused(fleet: Federation) -> None:
    with pytest.raises(UnknownClientError, match="'px' is not registered"):
        send(fleet, "px", signature())


def test_broken_signature_is_refused_with_its_owner(fleet: Federation) -> None:
    arrays = {**signature().arrays, "shares": signature().arrays["shares"] * 2}

    with pytest.raises(InvalidUpdateError, match=r"client 'p0': .* add up to 2"):
        send(fleet, "p0", Signature("fmcl", arrays, ENCODER))


def test_federation_that_signs_wants_the_key(tmp_path: Path) -> None:
    fleet = found(tmp_path / "store", tmp_path, identity={"updates": "signed"})
    fleet.add_key("p0", KEY.public)

    with pytest.raises(InvalidUpdateError) as caught:
        send(fleet, "p0", signature())
    assert caught.value.reason == Reason.NOT_SIGNED
    assert not fleet.store.list("signatures")
    assert not send(fleet, "p0", signature(), key=KEY).duplicate


def test_who_is_placed_already_is_told(fleet: Federation) -> None:
    send_all(fleet)
    onboard(fleet)

    assert "placed for round 1 already" in send(fleet, "p0", signature(seed=9)).notes[0]
