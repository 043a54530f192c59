"""The numbered claims that a lease is made of: write the next one, read the newest, tidy."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import re
from dataclasses import dataclass

from obstore.exceptions import BaseError as ObjectStoreError
from pydantic import TypeAdapter, ValidationError

from clma.errors import ClmaError, ConflictError, MissingObjectError
from clma.ledger.chain import canonical_json
from clma.ledger.keys import claim_key, lease_prefix
from clma.ledger.owner import Owner
from clma.ledger.store import Store

__all__ = ["Claim", "Claims"]

_N_KEPT = 16
"""Claims left behind the newest one: who lists while others claim must not find the folder empty,
nor take a number that was deleted meanwhile for one that is free."""

_UNREADABLE_LASTS_S = 60.0
"""A claim of a newer release, or a damaged one: its holder may live, so it is waited for."""

_NAME = re.compile(r"(\d{8})\.json")
_UNKNOWN = Owner("", "", 0, 0, "")


@dataclass(frozen=True, slots=True)
class Claim:
    """One entry of a lease.

    Parameters
    ----------
    number : int
        0: nobody ever claimed.
    owner : Owner
    since : datetime
        When the owner took the lease, in UTC; for people.
    expires_at : datetime
        By the owner's clock.
    lasts_s : float
        Seconds that it holds without a renewal; 0 for a release.
    """

    number: int
    owner: Owner
    since: dt.datetime
    expires_at: dt.datetime
    lasts_s: float

    @property
    def is_free(self) -> bool:
        """Tell whether it was released."""
        return self.lasts_s == 0

    def ran_out_s(self) -> float:
        """Return the seconds since it ran out, by the wall clock; negative before."""
        return (dt.datetime.now(dt.UTC) - self.expires_at).total_seconds()

    def followed_by(self, owner: Owner, lasts_s: float) -> Claim:
        """Return the next claim, of another owner."""
        now = dt.datetime.now(dt.UTC)
        ends = now + dt.timedelta(seconds=lasts_s)
        return Claim(self.number + 1, owner, now, ends, lasts_s)

    def renewed(self, *, lasts_s: float | None = None) -> Claim:
        """Return the owner's next claim; 0 seconds for its last."""
        following = self.followed_by(self.owner, self.lasts_s if lasts_s is None else lasts_s)
        return dataclasses.replace(following, since=self.since)


_CLAIM = TypeAdapter(Claim)


class Claims:
    """The claims of one lease in a store.

    Parameters
    ----------
    store : Store
    name : str
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self.place = f"{store.url}/{lease_prefix(name)}"
        """Where they lie, for messages."""

    def newest(self) -> Claim:
        """Return the newest claim, or a free one if there is none."""
        while True:
            number = max(self._numbers(), default=0)
            if number == 0:
                return Claim(0, _UNKNOWN, dt.datetime.now(dt.UTC), dt.datetime.now(dt.UTC), 0.0)
            try:
                return self._read(number)
            except MissingObjectError:
                continue  # newer ones were written since, and this one deleted

    def write(self, claim: Claim) -> bool:
        """Write a claim; False if another owner was first with its number."""
        values = _CLAIM.dump_python(claim, mode="json")
        try:
            self._store.put_if_absent(claim_key(self._name, claim.number), canonical_json(values))
        except ConflictError:
            # A client that repeats a request after a lost answer meets its own claim.
            try:
                return self._read(claim.number) == claim
            except MissingObjectError:
                return False
        return True

    def tidy(self, number: int) -> None:
        """Delete what lies far behind a claim; what cannot be deleted harms nobody."""
        with contextlib.suppress(ClmaError, OSError, ObjectStoreError):
            for old in self._numbers():
                if old <= number - _N_KEPT:
                    self._store.delete(claim_key(self._name, old))

    def _numbers(self) -> list[int]:
        keys = self._store.list(lease_prefix(self._name))
        names = (_NAME.fullmatch(key.rpartition("/")[2]) for key in keys)
        return [int(name[1]) for name in names if name]

    def _read(self, number: int) -> Claim:
        try:
            return _CLAIM.validate_json(self._store.get(claim_key(self._name, number)))
        except ValidationError:
            now = dt.datetime.now(dt.UTC)
            return Claim(number, _UNKNOWN, now, now, _UNREADABLE_LASTS_S)
