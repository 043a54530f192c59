"""HTTP to a gateway with nothing but the standard library: signed, patient, never twice a byte.

Every request may be repeated, so a lost connection or a busy gateway is asked again; a model that
came in half is asked for from where it broke off. Proxies are those of the environment.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import ipaddress
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from clma import errors
from clma.errors import ClmaError, InvalidConfigError, InvalidUpdateError, StorageError
from clma.ledger.keys import printable
from clma.updates.request_signing import NO_BODY, authorize
from clma.updates.signing import SigningKey

__all__ = ["INSECURE_VARIABLE", "Line"]

INSECURE_VARIABLE = "CLMA_GATEWAY_INSECURE"
"""Set to 1: weights may go over a network without TLS."""

TIMEOUT_S = 60.0
"""Silence after which a connection is given up."""

N_ATTEMPTS = 6
MAX_WAIT_S = 60.0
MAX_REFUSAL_BYTES = 64 * 1024
_PIECE = 1 << 20
_CENTURY_S = 3.2e9

_AGAIN = frozenset({408, 425, 429, 502, 503, 504})
_KINDS: Mapping[str, type[ClmaError]] = {
    kind.__name__: kind
    for kind in (
        errors.ConflictError,
        errors.InvalidUpdateError,
        errors.PolicyError,
        errors.RoundStateError,
        errors.ShapeMismatchError,
        errors.UnauthorizedError,
        errors.UnknownClientError,
        errors.UnknownFederationError,
    )
}
_BROKEN = (
    urllib.error.URLError,
    http.client.HTTPException,
    ssl.SSLError,
    TimeoutError,
    ConnectionError,
)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What was signed for one address is not sent to another."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Line:
    """Requests of one plant to one gateway.

    Parameters
    ----------
    url : str
        Address of the gateway; a path in it is where a proxy has put the gateway.
    key : SigningKey
    sleep : callable
        Waits so many seconds.

    Raises
    ------
    InvalidConfigError
        If the address is not to be used.
    """

    def __init__(
        self, url: str, key: SigningKey, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url = _checked(url)
        self._key = key
        self._sleep = sleep
        self._ahead = dt.timedelta(0)
        self._opener = urllib.request.build_opener(_NoRedirect)

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | Path | None = None,
        *,
        sha256: str = NO_BODY,
        tag: str | None = None,
    ) -> bytes:
        """Return what the gateway answers.

        Parameters
        ----------
        method, target : str
        body : bytes or Path, optional
            A file is sent in pieces.
        sha256 : str
            Digest of the body.
        tag : str, optional
            ``ETag`` of the file that is asked for: what came of it before the line broke is not
            asked for again.

        Raises
        ------
        ClmaError
            The error that the gateway names.
        StorageError
            If it does not answer, or is busy for too long.
        """
        data = bytearray()
        attempt = 0
        while True:
            had = len(data)
            rest = {"Range": f"bytes={had}-", "If-Range": tag} if tag and had else {}
            try:
                with (
                    _opened(body) as stream,
                    self._open(method, target, stream, sha256, rest) as answer,
                ):
                    wait_s = self._look_at(answer, attempt)
                    if wait_s is None:
                        _take(answer, data)
                        return bytes(data)
            except _BROKEN as error:
                if attempt >= N_ATTEMPTS - 1 or _is_impostor(error):
                    raise self._does_not_answer(error) from None
                wait_s = min(2.0**attempt, MAX_WAIT_S)
            if tag is None:
                data.clear()
            # A line that brings something each time is slow, not dead.
            attempt = 0 if len(data) > had else attempt + 1
            self._sleep(wait_s)

    def _open(
        self,
        method: str,
        target: str,
        data: bytes | IO[bytes] | None,
        sha256: str,
        headers: Mapping[str, str],
    ) -> Any:
        """Return an answer, good or bad."""
        now = dt.datetime.now(dt.UTC) + self._ahead
        proof = authorize(self._key, method, target, now=now, sha256=sha256)
        request = urllib.request.Request(  # noqa: S310 - http or https, see _checked
            self.url + target,
            data=data,
            method=method,
            headers={"Authorization": proof, **_length(data), **headers},
        )
        try:
            return self._opener.open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as answer:
            return answer

    def _look_at(self, answer: Any, attempt: int) -> float | None:
        """Return how long to wait until the next attempt, or None for a good answer.

        Raises
        ------
        ClmaError
            If another attempt would be of no use.
        """
        if answer.status < 300:
            return None
        facts = _facts(answer)
        if answer.status == 401 and self._takes_clock(facts.get("server_time_s")):
            return 0.0
        if answer.status in _AGAIN and attempt < N_ATTEMPTS - 1:
            asked_s = answer.headers.get("Retry-After", "")
            wait_s = float(asked_s) if asked_s.isascii() and asked_s.isdigit() else 2.0**attempt
            return min(wait_s, MAX_WAIT_S)
        raise self._named(answer.status, facts)

    def _takes_clock(self, theirs: object) -> bool:
        """Go by the gateway's clock from now on, if that was not tried yet."""
        if self._ahead or not isinstance(theirs, int | float):
            return False
        # A plant's clock decides nothing, neither here.
        ahead_s = theirs - dt.datetime.now(dt.UTC).timestamp()
        if not -_CENTURY_S < ahead_s < _CENTURY_S:
            return False
        self._ahead = dt.timedelta(seconds=ahead_s)
        return True

    def _named(self, status: int, facts: Mapping[str, Any]) -> ClmaError:
        line = facts.get("error")
        if not isinstance(line, str):
            return ClmaError(f"{self.url} answers with HTTP status {status}; is it a clma gateway?")
        line = printable(line, 500)
        if facts.get("kind") == "InvalidUpdateError":
            reason = facts.get("reason")
            return InvalidUpdateError(line, reason if isinstance(reason, str) else None)
        if status in _AGAIN:
            return StorageError(f"gateway {self.url}: {line}")
        kind = _KINDS.get(str(facts.get("kind")), ClmaError)
        return kind(f"gateway {self.url}: {line}")

    def _does_not_answer(self, error: Exception) -> StorageError:
        reason = getattr(error, "reason", error)
        why = printable(" ".join(str(reason).split()) or type(error).__name__, 200)
        return StorageError(
            f"gateway {self.url} does not answer: {why}; check address and network, then try again"
        )


def _checked(url: str) -> str:
    """Return a gateway's address without a slash at the end."""
    parts = urlsplit(url)
    shown = printable(url, 200)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise InvalidConfigError(f"gateway is {shown}, wanted https://HOST/")
    if parts.query or parts.fragment:
        raise InvalidConfigError(f"gateway is {shown}, wanted an address without ? and #")
    bare = parts.scheme == "http" and not _is_loopback(parts.hostname)
    if bare and os.environ.get(INSECURE_VARIABLE) != "1":
        raise InvalidConfigError(
            f"gateway is {shown}: without TLS whoever is on the way reads and changes models; "
            f"wanted https://, or {INSECURE_VARIABLE}=1 on a network of your own"
        )
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_impostor(error: Exception) -> bool:
    """Tell whether the certificate is not the host's: asking again changes nothing."""
    return isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)


@contextlib.contextmanager
def _opened(body: bytes | Path | None) -> Iterator[bytes | IO[bytes] | None]:
    if not isinstance(body, Path):
        yield body
        return
    with body.open("rb") as handle:
        yield handle


def _length(data: bytes | IO[bytes] | None) -> dict[str, str]:
    if data is None:
        return {}
    size = len(data) if isinstance(data, bytes) else os.fstat(data.fileno()).st_size
    return {"Content-Length": str(size), "Content-Type": "application/octet-stream"}


def _take(answer: Any, data: bytearray) -> None:
    """Add an answer to what came before it; ConnectionError if it ends early."""
    if answer.status != 206:
        data.clear()
    said = answer.headers.get("Content-Length", "")
    due = len(data) + int(said) if said.isascii() and said.isdigit() else None
    while piece := answer.read(_PIECE):
        data += piece
    if due is not None and len(data) < due:
        raise ConnectionError(f"{due - len(data)} bytes are missing")


def _facts(answer: Any) -> dict[str, Any]:
    try:
        found = json.loads(answer.read(MAX_REFUSAL_BYTES))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
