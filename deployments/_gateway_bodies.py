"""Take bodies in: never more than was said, never slower than is bearable, never half."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from clma.ledger.refusals import our_refusals_named
from deployments._gateway_errors import NotTakenError, TooManyRequestsError
from deployments._gateway_guard import GatewayLimits

__all__ = ["UploadPlaces", "declared_size", "read_body", "spool_body"]

_PIECE = 1 << 20
_GRACE_S = 60.0
_BUSY_S = 10.0


class UploadPlaces:
    """Places for uploads: so many at once, and one for each plant. For one event loop.

    Parameters
    ----------
    n_places : int
    """

    def __init__(self, n_places: int) -> None:
        self._n_places = n_places
        self._taken: set[str] = set()

    @contextlib.contextmanager
    def taken(self, client_id: str) -> Iterator[None]:
        """Hold a place; TooManyRequestsError if there is none."""
        if client_id in self._taken:
            raise TooManyRequestsError(f"client '{client_id}' is uploading already", _BUSY_S)
        if len(self._taken) >= self._n_places:
            raise TooManyRequestsError(
                f"{self._n_places} uploads are under way", _BUSY_S, status=503
            )
        self._taken.add(client_id)
        try:
            yield
        finally:
            self._taken.discard(client_id)


def declared_size(request: Request, most: int) -> int:
    """Return the size that a request says its body has, before any of it is read.

    Raises
    ------
    NotTakenError
        With 411 if it says none, with 413 if that is more than `most`.
    """
    text = request.headers.get("content-length", "")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise NotTakenError("the request has no Content-Length, wanted the body's size", 411)
    if (size := int(text)) > most:
        raise NotTakenError(f"the body has {size} bytes, at most {most} are read", 413)
    return size


async def read_body(request: Request, sha256: str, most: int, limits: GatewayLimits) -> bytes:
    """Return a small body that has the signed digest; NotTakenError if it has not."""
    size = declared_size(request, most)
    data = b"".join([piece async for piece in _pieces(request, size, limits)])
    _check_digest(hashlib.sha256(data).hexdigest(), sha256)
    return data


@contextlib.asynccontextmanager
async def spool_body(
    request: Request, sha256: str, most: int, limits: GatewayLimits
) -> AsyncIterator[Path]:
    """Write a large body to a file of our own, which is gone afterwards.

    Raises
    ------
    NotTakenError
        If it is too large, ends early, comes too slowly, or has another digest than was signed.
    """
    size = declared_size(request, most)
    digest = hashlib.sha256()
    place = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="clma-gateway-") as folder:
        path = Path(folder) / "body"
        with our_refusals_named("written", "an upload", place, size), path.open("xb") as handle:

            def keep(piece: bytes) -> None:
                digest.update(piece)
                handle.write(piece)

            buffer = bytearray()
            async for piece in _pieces(request, size, limits):
                buffer += piece
                if len(buffer) >= _PIECE:
                    await run_in_threadpool(keep, bytes(buffer))
                    buffer.clear()
            await run_in_threadpool(keep, bytes(buffer))
        _check_digest(digest.hexdigest(), sha256)
        yield path


async def _pieces(request: Request, size: int, limits: GatewayLimits) -> AsyncIterator[bytes]:
    left = size
    due_s = time.monotonic() + _GRACE_S + size / limits.bytes_per_s
    while True:
        wait_s = min(limits.silence_s, due_s - time.monotonic())
        try:
            with anyio.fail_after(max(0.0, wait_s)):
                event = await request.receive()
        except TimeoutError:
            raise NotTakenError(
                f"the body comes too slowly, {left} bytes are missing", 408
            ) from None
        if event["type"] != "http.request":
            raise NotTakenError(f"the body ended early, {left} bytes are missing", 400)
        piece = event.get("body", b"")
        left -= len(piece)
        if left < 0:
            raise NotTakenError(f"the body has more than the {size} bytes it said", 400)
        yield piece
        if not event.get("more_body", False):
            break
    if left:
        raise NotTakenError(f"the body ended early, {left} bytes are missing", 400)


def _check_digest(found: str, signed: str) -> None:
    if found != signed:
        raise NotTakenError(
            f"the body has SHA-256 {found[:12]}..., signed is {signed[:12]}...", 400
        )
