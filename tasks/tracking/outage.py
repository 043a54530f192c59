"""MLflow away: every wait ends, and one line says what to do.

MLflow's own patience is seven tries of two minutes for each request, and as long as the server asks
for. A night makes some thirty requests, and plants must get their models meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.exceptions import MlflowException
from requests.exceptions import RequestException

from clma.errors import ClmaError
from tasks.tracking.location import Tracking

__all__ = ["TrackingAwayError", "is_outage", "outages_in_one_line", "shorten_waits"]

_OUTAGES = frozenset({"INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"})
_MAX_LENGTH = 300
"""Of what MLflow says: it quotes whole pages and statements."""

_LATER = "what is committed is safe, the next night or python -m flows.publish publishes it"

_WAITS = {
    # Of one answer, or one piece of an upload. With two more tries a server that hangs costs a
    # night a minute and a half.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    # A proxy in maintenance may ask for an hour.
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
}


class TrackingAwayError(ClmaError):
    """A tracking server does not answer; it was asked more than once, and will be the next time."""


def shorten_waits() -> None:
    """Set MLflow's patience, where the user's environment does not."""
    for name, value in _WAITS.items():
        os.environ.setdefault(name, value)


def is_outage(error: BaseException) -> bool:
    """Tell whether MLflow could not answer, rather than did not want to."""
    if isinstance(error, MlflowException):
        return error.error_code in _OUTAGES
    return isinstance(error, RequestException)


@contextmanager
def outages_in_one_line(tracking: Tracking, what_now: str = _LATER) -> Iterator[None]:
    """Turn the silence of a tracking server into one line.

    Parameters
    ----------
    tracking : Tracking
    what_now : str
        What is safe, and what publishes it later.

    Raises
    ------
    TrackingAwayError
        If the server does not answer. A database's trouble is left as it is: it may be gone after
        a second, and nobody has tried again yet.
    """
    try:
        yield
    except (MlflowException, RequestException) as error:
        if not tracking.uri.startswith("http") or not is_outage(error):
            raise
        text = " ".join(str(error).split())
        text = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]} ..."
        raise TrackingAwayError(
            f"MLflow at {tracking.uri} does not answer; {what_now} ({text})"
        ) from error
