from __future__ import annotations

import dataclasses
import json

import pytest

from clma.errors import InvalidUpdateError
from clma.records import ClientKey
from clma.updates.round_request import (
    RoundRequest,
    check_request_signature,
    parse_request,
    request_bytes,
    sign_request,
)
from clma.updates.signing import SigningKey

KEY = SigningKey.from_seed(bytes(32))
ASKED = sign_request(
    RoundRequest("f", "p0", 7, "ab" * 32, "loss", "2026-01-01T10:00:00+00:00"), KEY
)


def test_what_is_written_is_read() -> None:
    assert parse_request(request_bytes(ASKED)) == ASKED


@pytest.mark.parametrize(
    "change",
    [
        {"round": 0},
        {"round": True},
        {"round": "7"},
        {"client_id": "../p0"},
        {"base_digest": "AB" * 32},
        {"measure": "loss\n"},
        {"created_at": "2026-01-01"},
        {"schema": 2},
        {"value": 0.5},
        {"signature": None},
        {"signature": "x" * 200},
    ],
)
def test_other_fields_are_refused_in_one_line(change: dict[str, object]) -> None:
    data = json.dumps({**json.loads(request_bytes(ASKED)), **change}).encode()
    with pytest.raises(InvalidUpdateError, match="request") as caught:
        parse_request(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b" " * 5000, request_bytes(ASKED) + b" "]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidUpdateError):
        parse_request(data)


def test_signature_covers_every_field() -> None:
    keys = (ClientKey(KEY.public),)
    check_request_signature(ASKED, keys)
    for change in ({"round_num": 8}, {"client_id": "p1"}, {"measure": "x"}, {"federation": "g"}):
        with pytest.raises(InvalidUpdateError, match="no registered key"):
            check_request_signature(dataclasses.replace(ASKED, **change), keys)
