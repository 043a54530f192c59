from __future__ import annotations

import dataclasses
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest

from clma.errors import ConflictError, InvalidConfigError, InvalidUpdateError
from clma.records import ClientKey, UpdateMessage
from clma.updates.message import message_bytes, parse_message
from clma.updates.reasons import Reason
from clma.updates.signing import (
    SigningKey,
    check_public_key,
    check_signature,
    create_key,
    load_key,
    sign_message,
)

OLD, NEW, FOREIGN = (SigningKey.from_seed(bytes([i]) * 32) for i in range(3))
KEYS = (ClientKey(OLD.public, 0, revoked_round=4), ClientKey(NEW.public, 3))
MESSAGE = UpdateMessage(
    "fleet", "p0", 5, "ab" * 32, 100, False, "cd" * 32, "2026-01-05T20:00:00Z", software="test 1"
)


def refusal(message: UpdateMessage, keys: tuple[ClientKey, ...] = KEYS) -> str | None:
    with pytest.raises(InvalidUpdateError) as caught:
        check_signature(message, keys)
    return caught.value.reason


def test_a_valid_signature_survives_the_file() -> None:
    signed = parse_message(message_bytes(sign_message(MESSAGE, NEW)))

    check_signature(signed, KEYS)


CHANGES: dict[str, Any] = {
    "federation": "other",
    "client_id": "p1",
    "round_num": 6,
    "base_digest": "ac" * 32,
    "n_examples": 101,
    "drift_flag": True,
    "confirm": False,
    "loss": 0.5,
    "tensors_sha256": "ce" * 32,
    "created_at": "2026-01-06T20:00:00Z",
    "software": "",
    "losses": {"ab" * 32: 0.5},
}


@pytest.mark.parametrize(
    "field", [f.name for f in dataclasses.fields(UpdateMessage) if f.name != "signature"]
)
def test_every_field_is_covered(field: str) -> None:
    """A message that was recorded cannot be sent again for another round, client or model."""
    changed = dataclasses.replace(sign_message(MESSAGE, NEW), **{field: CHANGES[field]})

    assert refusal(changed) == Reason.BAD_SIGNATURE


def test_the_wrong_keys_are_told_apart() -> None:
    assert refusal(MESSAGE) == Reason.NOT_SIGNED
    assert refusal(sign_message(MESSAGE, OLD)) == Reason.KEY_REVOKED
    assert refusal(sign_message(MESSAGE, FOREIGN)) == Reason.BAD_SIGNATURE
    assert refusal(sign_message(MESSAGE, NEW), keys=()) == Reason.BAD_SIGNATURE


@pytest.mark.parametrize("text", ["", "AA==", "not base64", "A" * 88, "\u00e4" * 88])
def test_what_is_no_signature_is_refused(text: str) -> None:
    signed = dataclasses.replace(MESSAGE, signature=text)

    assert refusal(signed) == Reason.BAD_SIGNATURE


def test_a_key_file_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "plant.key"
    made = create_key(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(path).public == made.public
    with pytest.raises(ConflictError, match="never written over"):
        create_key(path)


def test_a_private_key_shows_itself_nowhere(tmp_path: Path) -> None:
    key = create_key(tmp_path / "plant.key")
    secret = load_key(tmp_path / "plant.key")._private.private_bytes_raw()

    assert secret.hex() not in f"{key!r} {key} {vars(type(key))}"
    with pytest.raises(TypeError, match="not written anywhere"):
        pickle.dumps(key)


@pytest.mark.parametrize("content", [b"", b"secret words", b"\xff" * 100])
def test_a_file_that_is_no_key_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)

    with pytest.raises(InvalidConfigError, match="no unencrypted ed25519 key") as caught:
        load_key(tmp_path / "key")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:AAAA", "rsa:AAAA", OLD.public[8:]])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="wanted ed25519: and 32 bytes"):
        check_public_key(text)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="missing: No such file"):
        load_key(tmp_path / "missing")
