"""Ask a store again that did not answer, a few times, with growing pauses."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from typing import TypeVar

from clma.errors import StorageError

__all__ = ["patiently"]

Result = TypeVar("Result")

PAUSE_S = 1.0
"""Before the second attempt; doubled before each further one."""

_PASSING = {
    None,  # an object store's, which has no numbers
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.EIO,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
"""What a network folder says while its server is away. A full disk is full a second later, too."""


def patiently(
    attempt: Callable[[], Result],
    *,
    attempts: int,
    pause_s: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Call until it succeeds, fails for another reason than a passing refusal, or often enough.

    Parameters
    ----------
    attempt : callable
        May be called again after it failed.
    attempts : int, >= 1
    pause_s : float, >= 0, optional
        Seconds before the second call, give or take a half; doubled each time. Default: `PAUSE_S`.
    sleep : callable

    Raises
    ------
    StorageError
        The last one.
    """
    pause_s = PAUSE_S if pause_s is None else pause_s
    for number in range(1, attempts):
        try:
            return attempt()
        except StorageError as error:
            if error.errno not in _PASSING:
                raise
        # A whole fleet that lost its store must not come back in one instant.
        sleep(pause_s * 2 ** (number - 1) * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
    return attempt()
