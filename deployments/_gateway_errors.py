"""What the gateway refuses, as one line of JSON and a status."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from clma.errors import (
    ClmaError,
    ConflictError,
    DamagedStoreError,
    InvalidUpdateError,
    PolicyError,
    RoundStateError,
    StorageError,
    UnauthorizedError,
    UnknownFederationError,
)
from clma.ledger.keys import printable
from clma.updates.reasons import Reason
from clma.updates.request_signing import SCHEME

__all__ = [
    "REFUSALS",
    "ClockError",
    "NotTakenError",
    "Refusal",
    "TooManyRequestsError",
    "refuse_in_one_line",
]

_LOG = logging.getLogger("clma.gateway")

_RETRY_S = 10
_OUT_OF_TIME = frozenset(
    {
        Reason.STALE_ROUND,
        Reason.FUTURE_ROUND,
        Reason.STALE_BASE,
        Reason.MISSED_DEADLINE,
        Reason.CONFLICTING_UPDATE,
    }
)

_STATUS: Mapping[type[ClmaError], int] = {
    UnauthorizedError: 401,
    UnknownFederationError: 404,
    RoundStateError: 409,
    PolicyError: 409,
    ConflictError: 409,
    StorageError: 503,
    DamagedStoreError: 503,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The body of every answer but the good ones.

    Parameters
    ----------
    error : str
        One line: what, got, wanted, whose.
    kind : str
        Name of the error in `clma.errors`, or of one of the gateway's own.
    reason : str or None
        Reason code, where one applies.
    server_time_s : float or None
        The gateway's clock in seconds since 1970, where the request's was the matter.
    """

    error: str
    kind: str
    reason: str | None = None
    server_time_s: float | None = None


class NotTakenError(ClmaError):
    """A request is refused for its form or size.

    Parameters
    ----------
    message : str
        One line.
    status : int
        Of HTTP.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ClockError(UnauthorizedError):
    """A request is from another time than ours."""

    def __init__(self, client_id: str, ahead_s: float, window_s: float, now_s: float) -> None:
        super().__init__(
            f"client '{client_id}': the request's time is {ahead_s:+.0f} s off the gateway's, "
            f"wanted at most {window_s:.0f} s; set the plant's clock"
        )
        self.now_s = now_s


class TooManyRequestsError(ClmaError):
    """Somebody asks more than he may.

    Parameters
    ----------
    message : str
    wait_s : float
        When to try again.
    status : int
        429 where the client is the reason, 503 where it is the gateway.
    """

    def __init__(self, message: str, wait_s: float, status: int = 429) -> None:
        super().__init__(f"{message}; try again in {math.ceil(wait_s)} s")
        self.wait_s = wait_s
        self.status = status


REFUSALS: dict[int | str, dict[str, object]] = {
    status: {"model": Refusal, "description": text}
    for status, text in {
        400: "The request is not what it has to be.",
        401: "Not signed by a valid key of the client.",
        404: "No such federation, model or page.",
        409: "It does not fit the round.",
        422: "A part of the address or the update is not what it has to be.",
        429: "Too many requests of this client.",
        503: "Not now.",
    }.items()
}
"""For the description of every page."""


def refuse_in_one_line(app: FastAPI) -> None:
    """Turn expected errors into refusals, and a bug too, which leaves its traceback in the log."""
    app.add_exception_handler(ClmaError, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _no_page)
    app.add_exception_handler(Exception, _broken)


def _refused(request: Request, error: Exception) -> JSONResponse:
    line = " ".join(str(error).split())
    headers: dict[str, str] = {}
    status = _status(error)
    kind = next(c.__name__ for c in type(error).__mro__ if c.__module__ == ClmaError.__module__)
    if isinstance(error, StorageError | DamagedStoreError):
        # Where the store is and what it lacks is for the operator alone.
        _LOG.error("%s", line)
        line = "the gateway cannot use its store now; try it again, or ask the operator"
        headers["Retry-After"] = str(_RETRY_S)
    if isinstance(error, TooManyRequestsError):
        headers["Retry-After"] = str(math.ceil(error.wait_s))
    if status == 401:
        headers["WWW-Authenticate"] = SCHEME
    if request.method != "GET":
        # The rest of a body that is not wanted is not read either.
        headers["Connection"] = "close"
    reason = error.reason if isinstance(error, InvalidUpdateError) else None
    now_s = error.now_s if isinstance(error, ClockError) else None
    return _answer(status, Refusal(line, kind, reason, now_s), headers)


def _status(error: Exception) -> int:
    if isinstance(error, NotTakenError | TooManyRequestsError):
        return error.status
    if isinstance(error, InvalidUpdateError):
        return 409 if error.reason in _OUT_OF_TIME else 422
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)


def _not_valid(_request: Request, error: Exception) -> JSONResponse:
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    place = ".".join(str(part) for part in first.get("loc", ()))
    got = printable(str(first.get("input")))
    line = f"{place}: {first.get('msg', 'not valid')}, got '{got}'"
    return _answer(422, Refusal(line, "ClmaError"), {})


def _no_page(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 404
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    line = f"{request.method} {printable(request.url.path)}: no such page, see /openapi.json"
    return _answer(status, Refusal(line, "ClmaError"), headers)


def _broken(_request: Request, error: Exception) -> JSONResponse:
    _LOG.error("bug", exc_info=error)
    line = "the gateway failed; its log says more"
    return _answer(500, Refusal(line, "StorageError"), {"Connection": "close"})


def _answer(status: int, refusal: Refusal, headers: Mapping[str, str]) -> JSONResponse:
    body = {
        "error": refusal.error,
        "kind": refusal.kind,
        "reason": refusal.reason,
        "server_time_s": refusal.server_time_s,
    }
    return JSONResponse(body, status, headers=dict(headers))
