from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clma.errors import InvalidUpdateError
from clma.records import UpdateMessage
from clma.updates.message import message_bytes, parse_message, same_update

GOOD = UpdateMessage(
    "f", "plant-a", 7, "ab" * 32, 100, False, "cd" * 32, "2026-01-05T20:00:00+01:00"
)


def values(**changed: Any) -> dict[str, Any]:
    return {**json.loads(message_bytes(GOOD)), **changed}


@given(
    st.integers(0, 10**12),
    st.booleans(),
    st.none() | st.booleans(),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_what_is_written_is_read(
    n_examples: int, flag: bool, confirm: bool | None, loss: float | None
) -> None:
    losses = {} if loss is None else {"ef" * 32: loss}
    message = dataclasses.replace(
        GOOD, n_examples=n_examples, drift_flag=flag, confirm=confirm, loss=loss, losses=losses
    )

    assert parse_message(message_bytes(message)) == message


def test_fields_that_are_not_given_are_left_out() -> None:
    assert not {"loss", "confirm", "signature"} & set(values())


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("BAD_METADATA", {"schema": 2}),
        ("BAD_METADATA", {"schema": True}),
        ("BAD_METADATA", {"extra": 1}),
        ("BAD_METADATA", {"round": True}),
        ("BAD_METADATA", {"round": 1.0}),
        ("BAD_METADATA", {"round": -1}),
        ("BAD_METADATA", {"drift_flag": 1}),
        ("BAD_METADATA", {"drift_flag": "false"}),
        ("BAD_METADATA", {"confirm": None}),
        ("BAD_METADATA", {"loss": True}),
        ("BAD_METADATA", {"loss": "0.5"}),
        ("BAD_METADATA", {"loss": 10**400}),
        ("BAD_METADATA", {"losses": [0.5]}),
        ("BAD_METADATA", {"losses": {"ab" * 32: "0.5"}}),
        ("BAD_METADATA", {"losses": {"ab" * 32: None}}),
        ("BAD_METADATA", {"losses": {"ab" * 32: 10**400}}),
        ("BAD_METADATA", {"losses": {"../x": 0.5}}),
        ("BAD_METADATA", {"losses": {f"{n:064x}": 0.5 for n in range(257)}}),
        ("BAD_METADATA", {"base_digest": "AB" * 32}),
        ("BAD_METADATA", {"tensors_sha256": "../x"}),
        ("BAD_METADATA", {"created_at": "2026-01-05T20:00:00"}),
        ("BAD_METADATA", {"created_at": "yesterday"}),
        ("BAD_METADATA", {"created_at": "2026-01-05"}),
        ("BAD_METADATA", {"software": "x" * 1000}),
        ("BAD_EXAMPLES", {"n_examples": -1}),
        ("BAD_EXAMPLES", {"n_examples": 1.5}),
        ("BAD_EXAMPLES", {"n_examples": True}),
        ("BAD_EXAMPLES", {"n_examples": "100"}),
        ("BAD_EXAMPLES", {"n_examples": 10**13}),
        ("BAD_CLIENT_ID", {"client_id": "../x"}),
        ("BAD_CLIENT_ID", {"client_id": "a\nb"}),
        ("BAD_CLIENT_ID", {"client_id": "x" * 300}),
        ("BAD_CLIENT_ID", {"client_id": 7}),
    ],
)
def test_a_value_that_is_not_as_agreed_is_refused(reason: str, changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        parse_message(json.dumps(values(**changed)).encode())
    assert caught.value.reason == reason
    assert str(caught.value).isprintable()


def test_a_text_that_is_too_long_is_told_so() -> None:
    with pytest.raises(InvalidUpdateError, match="software has 1000 characters, at most 256"):
        parse_message(json.dumps(values(software="x" * 1000)).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"schema": 1}',
        json.dumps(values()).replace("100", "NaN").encode(),
        json.dumps(values(loss=0.5)).replace("0.5", "NaN").encode(),
        json.dumps(values(loss=0.5)).replace("0.5", "1e999").encode(),
        json.dumps(values()).replace("100", "1" * 5000).encode(),
        json.dumps(values()).replace('"schema": 1', '"schema": 1, "schema": 1').encode(),
        json.dumps(values(software="x" * 70_000)).encode(),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        parse_message(data)
    assert caught.value.reason == "BAD_METADATA"
    assert str(caught.value).isprintable()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidUpdateError):
        parse_message(data)


def test_the_time_of_writing_is_no_part_of_the_update() -> None:
    later = dataclasses.replace(GOOD, created_at="2027-01-01T00:00:00Z", software="x")

    assert same_update(GOOD, later)
    assert not same_update(GOOD, dataclasses.replace(GOOD, n_examples=1))
