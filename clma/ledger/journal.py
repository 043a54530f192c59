"""The chain with its fold: read the state, and add an entry that was made from it."""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
from collections.abc import Callable
from typing import Any

from clma.errors import ConflictError
from clma.ledger.chain import Chain, Entry, EntryKind, Head
from clma.ledger.keys import entry_key
from clma.ledger.state import fold
from clma.ledger.store import Store
from clma.records import FederationState

__all__ = ["Journal", "Payload"]

Payload = dict[str, Any]

_MAX_ATTEMPTS = 50
"""Other writers that may be first before a step gives up; entries are few a night."""


class Journal:
    """Entries and the state after them; safe to use from several threads.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chain = Chain(store)
        self._lock = threading.Lock()
        self._n_folded = 0
        self._state = FederationState("")

    def entries(self) -> tuple[Entry, ...]:
        """Return the chain, with what other writers added since the last look."""
        return self._chain.read()

    def reread(self) -> tuple[Entry, ...]:
        """Read and verify the chain from its first byte; DamagedStoreError names a bad entry."""
        return self._chain.read_all()

    def state(self) -> FederationState:
        """Return the state after the newest entry."""
        return self._newest(self.entries())

    def state_after(self, number: int) -> FederationState:
        """Return the state as it was after an entry."""
        return fold(self.entries()[: number + 1])

    def find(self, kind: EntryKind, round_num: int) -> Entry | None:
        """Return a round's newest entry of a kind, or None."""
        for entry in reversed(self.entries()):
            if entry.kind is kind and entry.payload.get("round") == round_num:
                return entry
        return None

    def digest(self, number: int) -> str:
        """Return the SHA-256 of an entry as it was written."""
        return self._chain.digest(number)

    def head(self) -> Head | None:
        """Return what ``head.json`` names as the newest entry."""
        return self._chain.head()

    def redact(self, number: int, payload: Payload) -> bytes:
        """Return an entry's bytes with another payload."""
        return self._chain.redact(number, payload)

    def replace(self, number: int, data: bytes) -> None:
        """Put redacted bytes in an entry's place."""
        self._chain.replace(number, data)

    def file_digest(self, number: int) -> str:
        """Return the SHA-256 of an entry's file as it is now."""
        return hashlib.sha256(self._store.get(entry_key(number))).hexdigest()

    def append(
        self, kind: EntryKind, payload: Payload, expected_number: int, now: dt.datetime | None
    ) -> None:
        """Add one entry made from the chain of a known length; ConflictError if it is longer."""
        self._chain.append(kind, payload, expected_number=expected_number, at=now)

    def step(
        self,
        kind: EntryKind,
        build: Callable[[FederationState], Payload | None],
        now: dt.datetime | None = None,
    ) -> FederationState:
        """Add one entry made from the newest state.

        Parameters
        ----------
        kind : EntryKind
        build : callable
            Makes the payload, or returns None where the step was taken already. Called again with
            the newer state when another writer was first, so it refuses what no longer fits.
        now : datetime, optional
            With a zone; only written down.

        Returns
        -------
        FederationState
            After the entry.

        Raises
        ------
        ConflictError
            If other writers are first again and again.
        """
        for _ in range(_MAX_ATTEMPTS):
            entries = self.entries()
            payload = build(self._newest(entries))
            if payload is None:
                if entries:
                    # Who took the step may have been stopped before its name was on the disk.
                    self._store.make_durable(entry_key(entries[-1].number))
                    self._chain.bring_head_forward()
                return self.state()
            try:
                self._chain.append(kind, payload, expected_number=len(entries), at=now)
            except ConflictError:
                continue
            return self.state()
        raise ConflictError(f"{self._store.url}: {_MAX_ATTEMPTS} other writers were first")

    def _newest(self, entries: tuple[Entry, ...]) -> FederationState:
        with self._lock:
            if len(entries) < self._n_folded:  # another thread has read on
                return fold(entries)
            self._state = fold(entries[self._n_folded :], self._state)
            self._n_folded = len(entries)
            return self._state
