"""The chain with its fold: read the state, and add an entry that was made from it."""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from clma.errors import ConflictError
from clma.ledger.chain import Chain, Entry, EntryKind, Head
from clma.ledger.checkpoint import CHECKPOINT, N_KEPT, Checkpoint, Checkpoints, checkpoint_of
from clma.ledger.keys import entry_key
from clma.ledger.store import Store
from clma.records import ArtifactRef, FederationState

__all__ = ["Journal", "Payload"]

Payload = dict[str, Any]

_MAX_ATTEMPTS = 50
"""Other writers that may be first before a step gives up; entries are few a night."""

_MAX_ENTRIES = 64
"""Entries after which one carries a checkpoint whatever it is: plants may register one by one."""

_N_KNOWN = 8
"""States that are kept in memory: a night goes back to those of its own entries."""

_WITH_CHECKPOINT = frozenset({EntryKind.ROUND_OPENED, EntryKind.CLIENT_FORGOTTEN})


class Journal:
    """Entries and the state after them; safe to use from several threads.

    The state is folded from the newest checkpoint, so neither memory nor time depend on how many
    nights there were; whoever asks for older entries has them read.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chain = Chain(store)
        self._checkpoints = Checkpoints(store)
        self._lock = threading.Lock()
        self._known: dict[int, Checkpoint] = {}

    def n_entries(self) -> int:
        """Return how many entries there are, with what other writers added since the last look."""
        return self._chain.n_entries()

    def newest_entry(self) -> Entry:
        """Return the newest entry of a chain that has one."""
        return self._chain.entry(self.n_entries() - 1)

    def entries(self) -> tuple[Entry, ...]:
        """Return the whole chain, with what other writers added since the last look."""
        return self._chain.read()

    def reread(self) -> tuple[Entry, ...]:
        """Read and verify the chain from its first byte; DamagedStoreError names a bad entry."""
        return self._chain.read_all()

    def newest(self) -> Checkpoint:
        """Return what is known after the newest entry."""
        return self._after(self.n_entries() - 1)

    def state(self) -> FederationState:
        """Return the state after the newest entry."""
        return self.newest().state

    def state_after(self, number: int) -> FederationState:
        """Return the state as it was after an entry."""
        return self._after(number).state

    def find(self, kind: EntryKind, round_num: int) -> Entry | None:
        """Return a round's newest entry of a kind, or None."""
        if round_num < 1:  # nothing happens before the first round, however long it lasts
            return None
        for entry in self._chain.newest_first():
            found = entry.payload.get("round")
            if entry.kind is kind and found == round_num:
                return entry
            if isinstance(found, int) and found < round_num:  # rounds follow each other
                return None
        return None

    def read_checkpoint(self, entry: Entry) -> Checkpoint | None:
        """Return what an entry's checkpoint says, None where it has none that can be used."""
        return self._checkpoints.read(entry, self._chain.digest(entry.number))

    def forgettings(self) -> Iterator[Entry]:
        """Yield the entries that say that a client was forgotten, in their order."""
        for number, sha256 in self.newest().forgotten.items():
            yield self._chain.pick(number, sha256)

    def digest(self, number: int) -> str:
        """Return the SHA-256 of an entry as it was written."""
        return self._chain.digest(number)

    def identity(self) -> str:
        """Return the SHA-256 of the first entry."""
        return self._chain.identity()

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
        self._append(kind, payload, self._after(expected_number - 1), now)

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
            before = self.newest()
            payload = build(before.state)
            if payload is None:
                if before.number >= 0:
                    # Who took the step may have been stopped before its name was on the disk.
                    self._store.make_durable(entry_key(before.number))
                    self._chain.bring_head_forward()
                    self._clear_checkpoints()
                return self.state()
            try:
                self._append(kind, payload, before, now)
            except ConflictError:
                continue
            return self.state()
        raise ConflictError(f"{self._store.url}: {_MAX_ATTEMPTS} other writers were first")

    def _append(
        self, kind: EntryKind, payload: Payload, before: Checkpoint, now: dt.datetime | None
    ) -> None:
        number, ref = before.number + 1, None
        if self._wants_checkpoint(kind, number):
            ref = self._checkpoints.write(before.leading_to(payload))
            payload = {**payload, CHECKPOINT: {"path": ref.path, "sha256": ref.sha256}}
        try:
            self._chain.append(kind, payload, expected_number=number, at=now)
        except ConflictError:
            if ref is not None:
                self._drop(number, ref)
            raise
        if ref is not None:
            self._clear_checkpoints()

    def _wants_checkpoint(self, kind: EntryKind, number: int) -> bool:
        if kind in _WITH_CHECKPOINT:
            return True
        if number < _MAX_ENTRIES:
            return False
        newest = (self._chain.entry(n) for n in reversed(range(number - _MAX_ENTRIES, number)))
        return all(checkpoint_of(entry) is None for entry in newest)

    def _drop(self, number: int, ref: ArtifactRef) -> None:
        """Delete a checkpoint for whose entry another writer was first.

        Unless it is the other one's as well: equal states have equal files.
        """
        if not self._is_named(number, ref.path):
            self._checkpoints.delete(ref.path)

    def _is_named(self, number: int, key: str) -> bool:
        if number >= self.n_entries():
            return False
        ref = checkpoint_of(self._chain.entry(number))
        return ref is not None and ref.path == key

    def _clear_checkpoints(self) -> None:
        """Delete all but the newest checkpoints, and those that no entry names."""
        newest = self.newest()
        # Older ones name a client that is forgotten now.
        first = max(newest.forgotten, default=0)
        n_kept = 0
        for number, key in self._checkpoints.newest_first(upto=newest.number):
            if n_kept < N_KEPT and number >= first and self._is_named(number, key):
                n_kept += 1
            else:
                self._checkpoints.delete(key)

    def _after(self, number: int) -> Checkpoint:
        with self._lock:
            known = self._nearest(number)
            for n in range(known.number + 1, number + 1):
                known = known.after(self._chain.entry(n), self._chain.digest(n))
            self._known[number] = known
            while len(self._known) > _N_KNOWN:
                del self._known[next(iter(self._known))]
            return known

    def _nearest(self, number: int) -> Checkpoint:
        """Return what is known after the newest entry up to a number from which to go on."""
        for n in range(number, -1, -1):
            known = self._known.pop(n, None)
            if known is None:
                known = self.read_checkpoint(self._chain.entry(n))
            if known is not None:
                self._known[n] = known
                return known
        return Checkpoint()
