"""HTTP for people in no hurry, but with an end: the head of a request has to come in time.

uvicorn waits without an end for the first byte and for the rest of a request's head; whoever opens
connections and says nothing would keep all of them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["TimedProtocol", "server_of"]

HEAD_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 15
MAX_CONNECTIONS = 256
STOP_S = 30


class TimedProtocol(H11Protocol):
    """Closes a connection on which no whole head of a request came within `HEAD_TIMEOUT_S`."""

    _head_timer: asyncio.TimerHandle | None = None
    head_timeout_s = HEAD_TIMEOUT_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection and wait for a head."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the clock stops once they make a head."""
        if self._head_timer is None and not self._has_head():
            self._wait_for_head()
        super().data_received(data)
        if self._has_head():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _has_head(self) -> bool:
        """Tell whether a request is being read or answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.abort()


def server_of(
    app: FastAPI, *, certificate: Path | None = None, key: Path | None = None
) -> uvicorn.Server:
    """Return the server of a gateway, which listens where it is told with ``run(sockets=...)``.

    Raises
    ------
    OSError
        If the TLS files cannot be used.
    """
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    config.load()
    return uvicorn.Server(config)
