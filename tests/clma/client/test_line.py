"""The line to a gateway, with gateways that break, are busy and lie."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clma.client.line import N_ATTEMPTS, Line
from clma.client.reach import is_gateway
from clma.errors import ClmaError, InvalidConfigError, StorageError, UnauthorizedError
from clma.updates.signing import SigningKey

KEY = SigningKey.from_seed(bytes(32))
DATA = bytes(range(256)) * 40
Answer = Callable[[BaseHTTPRequestHandler, int], None]


@contextlib.contextmanager
def gateway(answer: Answer) -> Iterator[tuple[Line, list[dict[str, str]], list[float]]]:
    """Serve one answer per request; yield a line to it, what was asked, and the waits."""
    asked: list[dict[str, str]] = []
    waits: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(self.headers))
            answer(self, len(asked))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/"
            yield Line(url, KEY, sleep=waits.append), asked, waits
        finally:
            server.shutdown()
            thread.join()


def say(
    to: BaseHTTPRequestHandler, status: int, body: bytes, length: int | None = None, **more: str
) -> None:
    to.send_response(status)
    to.send_header("Content-Length", str(len(body) if length is None else length))
    for name, value in more.items():
        to.send_header(name.replace("_", "-"), value)
    to.end_headers()
    to.wfile.write(body)


def breaking(to: BaseHTTPRequestHandler, number: int) -> None:
    """Send a thousand bytes of what is asked for, and break off."""
    start = int(to.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
    say(to, 206 if start else 200, DATA[start : start + 1000], len(DATA) - start)


def test_broken_download_goes_on_where_it_broke_off() -> None:
    with gateway(breaking) as (line, asked, _):
        assert line.ask("GET", "/model", tag='"x"') == DATA
    assert [a.get("Range") for a in asked[:3]] == [None, "bytes=1000-", "bytes=2000-"]
    assert asked[1]["If-Range"] == '"x"'


def test_gateway_that_sends_the_whole_again_is_believed() -> None:
    def whole(to: BaseHTTPRequestHandler, number: int) -> None:
        say(to, 200, DATA[:1000] if number == 1 else DATA, len(DATA))

    with gateway(whole) as (line, _, _waits):
        assert line.ask("GET", "/model", tag='"x"') == DATA


def test_answer_without_a_tag_is_asked_for_anew() -> None:
    def once(to: BaseHTTPRequestHandler, number: int) -> None:
        say(to, 200, DATA[:10] if number == 1 else DATA, len(DATA))

    with gateway(once) as (line, asked, _):
        assert line.ask("GET", "/terms") == DATA
    assert [a.get("Range") for a in asked] == [None, None]


def test_line_that_brings_nothing_is_given_up() -> None:
    def nothing(to: BaseHTTPRequestHandler, number: int) -> None:
        say(to, 200, b"", 100)

    with (
        gateway(nothing) as (line, asked, waits),
        pytest.raises(StorageError, match="does not answer: 100 bytes are missing"),
    ):
        line.ask("GET", "/model", tag='"x"')
    assert (len(asked), waits) == (N_ATTEMPTS, [1, 2, 4, 8, 16])


@pytest.mark.parametrize(("said", "waited"), [("7", 7.0), ("99999", 60.0), ("soon", 1.0)])
def test_busy_gateway_is_asked_again_when_it_says(said: str, waited: float) -> None:
    def busy(to: BaseHTTPRequestHandler, number: int) -> None:
        say(to, 429, b"{}", Retry_After=said) if number == 1 else say(to, 200, b"ok")

    with gateway(busy) as (line, _, waits):
        assert line.ask("GET", "/terms") == b"ok"
    assert waits == [waited]


def test_busy_gateway_is_not_asked_for_ever() -> None:
    with (
        gateway(lambda to, _: say(to, 503, b'{"error": "not now"}')) as (line, asked, _),
        pytest.raises(StorageError, match="not now"),
    ):
        line.ask("GET", "/terms")
    assert len(asked) == N_ATTEMPTS


def test_refusal_is_asked_once_and_named() -> None:
    body = b'{"error": "who are you", "kind": "UnauthorizedError"}'
    with (
        gateway(lambda to, _: say(to, 401, body)) as (line, asked, _),
        pytest.raises(UnauthorizedError, match="who are you"),
    ):
        line.ask("GET", "/terms")
    assert len(asked) == 1


def test_clock_of_the_gateway_is_taken_once() -> None:
    body = b'{"error": "clock", "kind": "UnauthorizedError", "server_time_s": 4000000000}'
    with (
        gateway(lambda to, _: say(to, 401, body)) as (line, asked, _),
        pytest.raises(UnauthorizedError),
    ):
        line.ask("GET", "/terms")
    assert len(asked) == 2
    assert "time=40000000" in asked[1]["Authorization"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"error": 5}',
        b'{"error": "x", "server_time_s": 1e999}',
        b'{"error": "x", "server_time_s": NaN}',
        b"[" * 9999,
    ],
)
def test_other_answers_are_one_line(body: bytes) -> None:
    with (
        gateway(lambda to, _: say(to, 401, body)) as (line, _, _waits),
        pytest.raises(ClmaError) as caught,
    ):
        line.ask("GET", "/terms")
    assert "\n" not in str(caught.value)


def test_what_was_signed_for_one_address_is_not_sent_to_another() -> None:
    def elsewhere(to: BaseHTTPRequestHandler, number: int) -> None:
        say(to, 302, b"", Location="/other")

    with gateway(elsewhere) as (line, asked, _), pytest.raises(ClmaError, match="HTTP status 302"):
        line.ask("GET", "/terms")
    assert len(asked) == 1


def test_nobody_there_is_one_line() -> None:
    line = Line("http://127.0.0.1:9/", KEY, sleep=lambda _: None)
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9 does not answer"):
        line.ask("GET", "/terms")


@pytest.mark.parametrize(
    "url",
    [
        "http://gateway.example/",
        "ftp://gateway.example/",
        "https://",
        "https://me:secret@gateway.example/",
        "https://gateway.example/?a=b",
    ],
)
def test_addresses_that_weights_are_not_sent_to(url: str) -> None:
    with pytest.raises(InvalidConfigError, match="wanted"):
        Line(url, KEY)


def test_network_of_ones_own_may_be_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLMA_GATEWAY_INSECURE", "1")
    assert Line("http://gateway.example/clma/", KEY).url == "http://gateway.example/clma"


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("https://gateway.example/", True),
        ("http://127.0.0.1:8440", True),
        ("https://bucket.s3.eu-central-1.amazonaws.com/fleet", False),
        ("s3://bucket/fleet", False),
        ("memory://fleet", False),
        ("fleet", False),
    ],
)
def test_gateway_is_told_from_a_store(url: str, is_one: bool) -> None:
    assert is_gateway(url) is is_one
