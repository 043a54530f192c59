from __future__ import annotations

import json
from typing import Any

import pytest

from clma.errors import InvalidUpdateError
from clma.records import ClientKey
from clma.signatures.message import (
    MAX_MESSAGE_BYTES,
    SignatureMessage,
    check_signer,
    message_bytes,
    parse_message,
    same_signature,
    signed_by,
)
from clma.updates.reasons import Reason
from clma.updates.signing import SigningKey, signature_text

KEY, FOREIGN = (SigningKey.from_seed(bytes([i]) * 32) for i in range(2))
KEYS = (ClientKey(KEY.public),)
SAID: dict[str, Any] = {
    "federation": "fleet",
    "client_id": "p0",
    "kind": "fmcl",
    "encoder": "ab" * 32,
    "tensors_sha256": "cd" * 32,
    "created_at": "2026-01-05T20:00:00+00:00",
}
MESSAGE = SignatureMessage(**SAID)


def test_signed_message_survives_the_file() -> None:
    check_signer(parse_message(message_bytes(signed_by(MESSAGE, KEY))), KEYS)


@pytest.mark.parametrize(
    "changed",
    [
        {"federation": "other"},
        {"client_id": "p1"},
        {"encoder": "ac" * 32},
        {"tensors_sha256": "ce" * 32},
        {"created_at": "2026-01-06T20:00:00+00:00"},
    ],
)
def test_nothing_can_be_changed_under_a_signature(changed: dict[str, str]) -> None:
    signed = signed_by(MESSAGE, KEY).model_copy(update=changed)

    with pytest.raises(InvalidUpdateError) as caught:
        check_signer(signed, KEYS)
    assert caught.value.reason == Reason.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (MESSAGE, Reason.NOT_SIGNED),
        (signed_by(MESSAGE, FOREIGN), Reason.BAD_SIGNATURE),
        (MESSAGE.model_copy(update={"ed25519": "?"}), Reason.BAD_SIGNATURE),
    ],
)
def test_message_that_no_key_of_the_client_signed_is_refused(
    message: SignatureMessage, reason: Reason
) -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        check_signer(message, KEYS)
    assert caught.value.reason == reason


def test_key_that_was_revoked_signs_nothing() -> None:
    with pytest.raises(InvalidUpdateError, match="revoked in round 3"):
        check_signer(signed_by(MESSAGE, KEY), (ClientKey(KEY.public, revoked_round=3),))


def test_signature_of_an_update_is_none_of_a_message() -> None:
    """Both are bytes that one key signs; only the purpose tells them apart."""
    as_update = signature_text(KEY, b"clma update 1\n" + message_bytes(MESSAGE))

    with pytest.raises(InvalidUpdateError, match="no registered key"):
        check_signer(MESSAGE.model_copy(update={"ed25519": as_update}), KEYS)


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"", "JSON"),
        (b"\xff", "JSON"),
        (b"[]", "object"),
        (b"[" * 5000, "JSON"),
        (json.dumps({**SAID, "schema": 2}).encode(), "schema"),
        (json.dumps({**SAID, "client_id": "../p0"}).encode(), "client_id"),
        (json.dumps({**SAID, "client_id": 7}).encode(), "client_id"),
        (json.dumps({**SAID, "tensors_sha256": "CD" * 32}).encode(), "tensors_sha256"),
        (json.dumps({**SAID, "tensors_sha256": "cd" * 32 + "\n"}).encode(), "tensors_sha256"),
        (json.dumps({**SAID, "created_at": "yesterday"}).encode(), "created_at"),
        (json.dumps({**SAID, "created_at": "2026-01-05T20:00:00"}).encode(), "created_at"),
        (json.dumps({**SAID, "more": 1}).encode(), "more"),
        (json.dumps({**SAID, "encoder": "e" * 300}).encode(), "encoder"),
        (b" " * (MAX_MESSAGE_BYTES + 1), "at most"),
    ],
)
def test_what_is_no_message_is_refused_in_one_line(data: bytes, names: str) -> None:
    with pytest.raises(InvalidUpdateError, match=names) as caught:
        parse_message(data)
    assert caught.value.reason == Reason.BAD_METADATA
    assert "\n" not in str(caught.value)


def test_time_and_software_make_no_other_signature() -> None:
    later = MESSAGE.model_copy(update={"created_at": "2027-01-01T00:00:00Z", "software": "x"})

    assert same_signature(MESSAGE, later)
    assert not same_signature(MESSAGE, MESSAGE.model_copy(update={"encoder": "other"}))
