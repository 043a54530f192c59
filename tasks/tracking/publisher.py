"""One publisher of a federation at a time, over threads, processes and hosts.

MLflow keeps no two runs from having the same tag, nor two versions from holding the same model, so
whoever finds or makes one holds a lease of the federation meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from clma.errors import InvalidConfigError, LeaseError
from clma.ledger.federation import Federation
from clma.ledger.lease import WAIT_S, Lease, hold_lease

__all__ = ["WAIT_VARIABLE", "one_publisher"]

WAIT_VARIABLE = "CLMA_PUBLISH_WAIT_S"
"""Environment variable: seconds to wait for another publisher."""

_LEASE_NAME = "publish"
_DAY_S = 86400.0

_log = logging.getLogger(__name__)

_held: ContextVar[tuple[str, Lease] | None] = ContextVar("held", default=None)


@contextmanager
def one_publisher(
    federation: Federation, *, on_wait: Callable[[str], None] = _log.warning
) -> Iterator[Lease]:
    """Be the only publisher of a federation while the context lasts.

    Within another such context of the same federation nothing is taken again: a night takes the
    lease once and not for each cohort.

    Parameters
    ----------
    federation : Federation
    on_wait : callable
        Told once, in one line, who else is at it.

    Yields
    ------
    Lease
        To be checked before something is made that must not be there twice.

    Raises
    ------
    LeaseError
        If another publisher is at it for longer than the environment allows; says who.
    InvalidConfigError
        If the environment says no number of seconds.
    """
    url, outer = federation.store.url, _held.get()
    if outer is not None and outer[0] == url and outer[1].is_held:
        yield outer[1]
        return
    whose = f"publishing {federation.name!r}"
    lease = hold_lease(
        federation.store,
        _LEASE_NAME,
        wait_s=_wait_s(),
        on_wait=lambda text: on_wait(f"{whose}: {text}"),
    )
    try:
        with lease as held:
            before = _held.set((url, held))
            try:
                yield held
            finally:
                _held.reset(before)
    except LeaseError as error:
        raise LeaseError(f"{whose}: {error}") from None


def _wait_s() -> float:
    text = os.environ.get(WAIT_VARIABLE, str(WAIT_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _DAY_S:
        raise InvalidConfigError(f"{WAIT_VARIABLE} is {text!r}, wanted seconds from 0 to a day")
    return seconds
