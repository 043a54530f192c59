"""Lines that lie, stall and flood; the gateway goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from clma.ledger.federation import Federation
from deployments._gateway_app import create_app
from deployments._gateway_guard import GatewayLimits
from deployments._gateway_protocol import TimedProtocol
from tests.deployments.gateway_site import (
    Site,
    head_of,
    key_of,
    message_of,
    on_loopback,
    raw,
    signed_fleet,
    trained,
)

UPDATE = "update"
TENSORS = f"rounds/1/tensors/{hashlib.sha256(b'0123456789').hexdigest()}"


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    return signed_fleet(tmp_path / "store", tmp_path)


@pytest.fixture
def url(fleet: Federation) -> Iterator[str]:
    with on_loopback(create_app(fleet, limits=GatewayLimits(silence_s=0.3))) as address:
        yield address


@pytest.mark.parametrize("page", [UPDATE, TENSORS])
def test_ten_gigabytes_are_refused_before_one_is_read(
    fleet: Federation, url: str, page: str
) -> None:
    answer = raw(url, head_of("p0", page, b"0123456789", size=10 * 2**30))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"10737418240 bytes, at most" in answer
    assert fleet.store.list("inbox") == ()


@pytest.mark.parametrize("page", [UPDATE, TENSORS])
def test_body_that_stalls_is_given_up(fleet: Federation, url: str, page: str) -> None:
    answer = raw(url, head_of("p0", page, b"0123456789", size=10) + b"01234")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"5 bytes are missing" in answer
    assert fleet.store.list("inbox") == ()


@pytest.mark.parametrize("start", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n"])
def test_head_that_does_not_end_is_cut_off(
    url: str, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimedProtocol, "head_timeout_s", 0.2)
    assert raw(url, start) == b""


def test_second_head_on_a_line_has_to_end_too(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimedProtocol, "head_timeout_s", 0.5)
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    assert raw(url, request + request[:-2]).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("page", [UPDATE, TENSORS])
def test_body_of_another_digest_is_refused(fleet: Federation, url: str, page: str) -> None:
    answer = raw(url, head_of("p0", page, b"0123456789", size=10) + b"xxxxxxxxxx")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"signed is" in answer
    assert fleet.store.list("inbox") == ()


@pytest.mark.parametrize("said", ["", "Content-Length: -1\r\n", "Content-Length: ten\r\n"])
def test_upload_that_does_not_say_its_size_is_refused(url: str, said: str) -> None:
    head = head_of("p0", TENSORS, b"0123456789", size=10).decode()
    text = head.replace("Content-Length: 10\r\n", said)
    assert raw(url, text.encode()).split()[1] in {b"400", b"411"}


def test_tensors_under_another_address_than_signed_are_refused(fleet: Federation) -> None:
    tensors = trained()
    answer = Site(fleet).ask("p0", f"rounds/1/tensors/{'0' * 64}", tensors)
    assert (answer.status_code, "wanted the same" in answer.json()["error"]) == (400, True)


def test_plant_cannot_write_for_another(fleet: Federation) -> None:
    tensors = trained()
    answers = [
        Site(fleet).ask("p0", "update", message_of(fleet, "p1", tensors)),
        Site(fleet).ask("p1", "update", message_of(fleet, "p1", tensors), key=key_of("p0")),
    ]
    assert [a.status_code for a in answers] == [422, 401]
    assert fleet.store.list("inbox") == ()


def test_gateway_goes_on_after_all_that(url: str) -> None:
    for text in (b"\x16\x03\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"PUT / HTTP/1.1\r\n\r\n" * 3):
        raw(url, text + b"\r\n\r\n")
    request = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert raw(url, request).startswith(b"HTTP/1.1 200")
