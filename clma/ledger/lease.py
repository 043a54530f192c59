"""One holder at a time, over threads, processes and hosts, on any store.

A lease is a row of numbered claims, ``leases/<name>/00000007.json``, each created only if it is
absent; the newest one tells who holds it. Taking, renewing and releasing all write the next number,
so of a holder that renews and another that takes over exactly one succeeds.

A claim may be followed when it was released, when its process is known to have ended, or when it
has not been renewed for as long as it lasts. That time is measured by whoever waits, on a clock of
its own: two hosts whose clocks differ do not take the lease from each other.

Examples
--------
>>> from clma.ledger.store import Store
>>> with hold_lease(Store.open("memory://lease-example"), "publish") as lease:
...     lease.is_held
True
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator

from obstore.exceptions import BaseError as ObjectStoreError

from clma.errors import ClmaError, LeaseError
from clma.ledger.claims import Claim, Claims
from clma.ledger.owner import is_gone, this_process
from clma.ledger.store import Store

__all__ = ["LASTS_S", "WAIT_S", "Lease", "hold_lease"]

LASTS_S = 60.0
"""A holder on another host that says nothing for this long is taken for gone."""

WAIT_S = 300.0
"""Longer than a night publishes, and than a dead holder's claim lasts."""

_SKEW_S = 600.0
"""A claim that ran out this long ago by the wall clock is not waited for: no clocks differ more."""

_LOOK_S = (0.05, 1.0)
"""Between two looks of a waiting process: at first, and at most."""


class Lease:
    """A lease that is held; made by `hold_lease`.

    Parameters
    ----------
    claims : Claims
    claim : Claim
        The own one, just written.
    since : float
        `time.monotonic` from before it was written.
    """

    def __init__(self, claims: Claims, claim: Claim, since: float) -> None:
        self._claims = claims
        self._claim = claim
        self._ends = since + claim.lasts_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    @property
    def is_held(self) -> bool:
        """Tell whether nobody else can hold the lease right now."""
        return not self._stop.is_set() and time.monotonic() < self._ends

    def check(self) -> None:
        """Raise LeaseError if the lease was lost: this process was stopped, or the store away."""
        if not self.is_held:
            raise LeaseError(
                f"{self._claims.place} was not renewed for {self._claim.lasts_s:.0f} s and is "
                "lost: another process may hold it by now"
            )

    def release(self) -> None:
        """Let others have it."""
        lost = not self.is_held
        self._stop.set()
        self._thread.join()
        if not lost:
            # If it cannot be said, it will be seen: the process ends, or the claim runs out.
            with contextlib.suppress(ClmaError, OSError, ObjectStoreError):
                self._claims.write(self._claim.renewed(lasts_s=0.0))

    def _renew(self) -> None:
        pause_s = self._claim.lasts_s / 3
        while not self._stop.wait(pause_s):
            since = time.monotonic()
            if since >= self._ends:
                return
            try:
                following = self._claim.renewed()
                if not self._claims.write(following):
                    self._ends = since
                    return
            except (ClmaError, OSError, ObjectStoreError):
                pause_s = min(1.0, pause_s)  # the store may be back in time
                continue
            self._claim, self._ends = following, since + following.lasts_s
            pause_s = following.lasts_s / 3


@contextlib.contextmanager
def hold_lease(
    store: Store,
    name: str,
    *,
    wait_s: float = WAIT_S,
    lasts_s: float = LASTS_S,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[Lease]:
    """Hold a lease while the context lasts; it is renewed in the background.

    Parameters
    ----------
    store : Store
    name : str
        One part of a key.
    wait_s : float
        Seconds to wait for another holder.
    lasts_s : float
        Seconds that a claim lasts without a renewal.
    on_wait : callable, optional
        Told once, in one line, who holds it and since when.

    Yields
    ------
    Lease

    Raises
    ------
    LeaseError
        If another holder keeps it for longer than `wait_s`; says who.
    """
    lease = _take(Claims(store, name), wait_s, lasts_s, on_wait or (lambda _: None))
    try:
        yield lease
    finally:
        lease.release()


def _take(claims: Claims, wait_s: float, lasts_s: float, on_wait: Callable[[str], None]) -> Lease:
    owner, begun, pause_s = this_process(), time.monotonic(), _LOOK_S[0]
    watched, watched_since, told = 0, begun, False
    while True:
        now = time.monotonic()
        newest = claims.newest()
        if newest.number != watched:
            watched, watched_since = newest.number, now
        if _is_over(newest, now - watched_since):
            claim = newest.followed_by(owner, lasts_s)
            if claims.write(claim) and claims.newest().number == claim.number:
                claims.tidy(claim.number)
                return Lease(claims, claim, now)
            continue
        if now - begun >= wait_s:
            raise LeaseError(f"{_holder(claims, newest)}; waited {wait_s:.0f} s")
        if not told:
            on_wait(f"{_holder(claims, newest)}; waiting up to {wait_s:.0f} s")
            told = True
        time.sleep(min(pause_s, wait_s) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        pause_s = min(2 * pause_s, _LOOK_S[1])


def _is_over(claim: Claim, unchanged_s: float) -> bool:
    return (
        claim.is_free
        or is_gone(claim.owner)
        or unchanged_s > claim.lasts_s
        or claim.ran_out_s() > _SKEW_S
    )


def _holder(claims: Claims, claim: Claim) -> str:
    return f"{claims.place} is held by {claim.owner} since {claim.since:%Y-%m-%d %H:%M:%S} UTC"
